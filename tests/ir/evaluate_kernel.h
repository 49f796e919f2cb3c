// A slow evaluation of a kernel's algorithm that ignores its schedule: what a lowered program is
// checked against.
#pragma once

#include <vector>

#include "ir/kernel.h"

namespace lazuli::test {

/// Computes every value at every index, in order, and writes the outputs. `arguments` point to
/// dense arrays, one a kernel argument. InternalError if a load lies outside its argument.
void evaluate_kernel(const Kernel& kernel, const std::vector<void*>& arguments);

}  // namespace lazuli::test
