// Machines that kernels can be dumped for, by LLVM's names of their CPUs.
#pragma once

#include <string>
#include <vector>

#include "ir/target.h"

namespace lazuli::cli {

/// The target of a CPU name: a microarchitecture level, or a CPU that LLVM knows, with the vectors
/// of its level. UserError with the nearest name.
Target find_target(const std::string& cpu);

/// All names that find_target knows.
std::vector<std::string> target_names();

}  // namespace lazuli::cli
