// What kernels for this machine are made for.
#pragma once

#include "ir/target.h"

namespace lazuli {

/// The CPU's name and features are LLVM's; where the LLVM module is missing (then nothing compiles either), the name is
/// that of the machine's x86-64 level.
Target host_target();

}  // namespace lazuli
