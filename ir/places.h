// Where the extreme of each row is, found while it is sought.
#pragma once

#include "ir/kernel.h"

namespace lazuli {

/// The least index at which a value is equal to the extreme of its row, as argmax takes it, is a
/// second walk over the row: a value of another stage, which reads the result of the first. Such
/// values move beside the extreme (Value::place_of), and the rows are walked once. Kept apart are
/// rows of several axes, comparisons that would not find a NaN, searches with a smaller number than
/// an index for what is not found, and rows whose length is known when the kernel runs.
void find_places(Kernel& kernel);

}  // namespace lazuli
