// A compiled kernel as bytes, for the cache on disk.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/cpu/kernel_store.h"

namespace lazuli {

std::string store_kernel(const CompiledKernel& kernel);

/// The kernel that store_kernel() made these bytes of, its code loaded; null if they are of no
/// kernel, or of one that calls what this program does not provide.
std::shared_ptr<CompiledKernel> load_kernel(std::string_view bytes);

}  // namespace lazuli
