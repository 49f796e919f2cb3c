// What the mathematics of a kernel takes, whatever its schedule.
#pragma once

#include "ir/kernel.h"

namespace lazuli {

/// Arithmetic operations of one run, a multiply-add as two and a function as one. What an
/// expression does not change along an axis is computed once for it; what lies behind a mask that
/// ends loops (ir/limits.h) is not counted, nor are addresses.
double count_flops(const Kernel& kernel);

/// The fewest bytes: every argument once.
double count_bytes(const Kernel& kernel);

}  // namespace lazuli
