#include "runtime/places.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>

namespace lazuli {

std::filesystem::path program_folder() {
  std::array<char, 4096> path;
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  return std::filesystem::path(std::string(path.data(), size > 0 ? size : 0)).parent_path();
}

std::vector<std::filesystem::path> package_folders() {
  // The program, or the shared library that lazuli is linked into.
  static const char here = 0;
  Dl_info info;
  void* object = nullptr;
  Dl_serinfo head;
  if (dladdr1(&here, &info, &object, RTLD_DL_LINKMAP) == 0 ||
      dlinfo(object, RTLD_DI_SERINFOSIZE, &head) != 0)
    return {};
  std::vector<std::max_align_t> memory(head.dls_size / sizeof(std::max_align_t) + 1);
  auto* const paths = reinterpret_cast<Dl_serinfo*>(memory.data());
  if (dlinfo(object, RTLD_DI_SERINFOSIZE, paths) != 0 ||
      dlinfo(object, RTLD_DI_SERINFO, paths) != 0)
    return {};
  // The system's own folders are among them.
  const std::filesystem::path name = std::filesystem::path(LAZULI_LLVM_FROM_BIN).filename();
  std::vector<std::filesystem::path> folders;
  for (unsigned i = 0; i < paths->dls_cnt; i++) {
    const std::filesystem::path folder =
        std::filesystem::path(paths->dls_serpath[i].dls_name).lexically_normal();
    if (folder.filename() == name) folders.push_back(folder);
  }
  return folders;
}

}  // namespace lazuli
