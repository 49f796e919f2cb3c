// Extremes whose NaN shows elsewhere: in a softmax the sum of a row's exponentials is NaN if one of
// its elements is, so that all that is stored of the row is, whatever its maximum then was.
#pragma once

#include <set>

#include "ir/kernel.h"

namespace lazuli {

/// Ids of the largest and smallest elements among a kernel's values that need not be NaN where one
/// of their terms is: what the kernel stores is the same, but for the bits of a NaN. Such an
/// extreme takes one instruction a term, not three.
std::set<int> nan_elsewhere(const Kernel& kernel);

}  // namespace lazuli
