// What the mathematics of a kernel takes, whatever its schedule, and what a plan reads.
#pragma once

#include <vector>

#include "ir/kernel.h"
#include "ir/plan.h"

namespace lazuli {

/// Operations of one run, a multiply-add as two; functions, comparisons, choices and conversions as
/// one each, addresses not at all. A part of an expression that does not depend on an axis is
/// counted once for it. Where masks end loops (limit_at_masks, ir/limits.h), what lies behind them
/// is not counted; where conditions choose between parts, all parts are.
double count_flops(const Kernel& kernel);

/// The same of loops as they are: of a kernel that has not been limited, no mask ends them.
double count_flops_behind_masks_too(const Kernel& kernel);

/// Elements of each argument that the kernel reads: all, but of those that are only looked up by
/// indices that are data, no more than it looks up.
std::vector<double> elements_read(const Kernel& kernel);

/// The fewest bytes: every argument once, of inputs what is read.
double count_bytes(const Kernel& kernel);

/// Bytes of a plan's input that its steps read, counted once.
double bytes_read(const Plan& plan, int slot);

}  // namespace lazuli
