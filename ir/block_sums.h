// Long sums, a block of terms at a time.
#pragma once

#include "ir/program.h"

namespace lazuli {

/// Where a loop adds very many terms to an accumulator, one after the other, the terms of a block
/// are added first, then what blocks give, and so on. With blocks of b terms the error of n is
/// bounded by about b log(n) / log(b) roundings where it was by n: blocked summation, as in Higham,
/// Accuracy and Stability of Numerical Algorithms, section 4.2. The blocks follow from the shape,
/// so the sum does not depend on the threads.
void block_sums(Program& program);

}  // namespace lazuli
