// A softmax without a division an element: the reciprocal of a row's sum in two parts.
#pragma once

#include "ir/kernel.h"

namespace lazuli {

/// Where exponentials of differences to the greatest of a row are divided by the row's own sum of
/// them, which some dozens share: the quotients become two operations each, x * low + x * high, of
/// which high + low = 1 / sum; loops within which the sum stays as it is need its parts once. In
/// f32 they are the nearest numbers, as quotients are, but for about one in 2^23, and those below
/// 2^-100 (in f64 2^-968), which may be the next. A division of a vector takes as long as 8 to 20
/// products.
/// From N. Brisebarre, J.-M. Muller, S. K. Raina, "Accelerating correctly rounded floating-point
/// division when the divisor is known in advance", IEEE Transactions on Computers 53 (2004). What
/// would break it in general cannot happen there: a sum that is not NaN lies between 1 and its
/// number of terms, and no term exceeds 1. The target must have FMAs.
void divide_by_sums(Kernel& kernel);

}  // namespace lazuli
