// Where the extreme of each row is, found while it is sought.
#pragma once

#include "ir/kernel.h"

namespace lazuli {

/// The least index at which a value is equal to the extreme of its row, as argmax takes it, is a
/// second walk over the row: a stage of its own, which reads the result of the first. Such stages
/// become a value beside the extreme (Value::place_of), and the rows are walked once. Kept apart
/// are rows of several axes, those that end at a mask, and comparisons that would not find a NaN.
void find_places(Kernel& kernel);

}  // namespace lazuli
