// Where a program looks for the files of lazuli that it needs when it runs: the module with LLVM,
// the data.
#pragma once

#include <filesystem>
#include <vector>

namespace lazuli {

/// The folder of the running program.
std::filesystem::path program_folder();

/// The folders of modules of the installed packages that this program is linked with: where its
/// -rpath points to, which CMake's package and pkg-config's set (tools/cmake). None for a program
/// of the build tree.
std::vector<std::filesystem::path> package_folders();

}  // namespace lazuli
