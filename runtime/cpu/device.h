// The CPU device: kernels through LLVM on the runtime's thread pool.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/device.h"

namespace lazuli {

std::unique_ptr<Device> make_cpu_device(Runtime& runtime, std::string_view which);

}  // namespace lazuli
