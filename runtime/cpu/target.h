// What kernels for this machine are made for.
#pragma once

#include "ir/target.h"
#include "runtime/kernel_cache.h"

namespace lazuli {

/// The CPU's name and features are LLVM's; where the LLVM module is missing (then nothing compiles either), the name is
/// that of the machine's x86-64 level. With a cache, what LLVM says is kept there, and LLVM is not opened to be asked
/// again.
Target host_target(KernelCache* cache = nullptr);

}  // namespace lazuli
