// Long sums, a block of terms at a time.
#pragma once

#include "ir/program.h"

namespace lazuli {

/// Where a loop adds very many terms to an accumulator, one after the other, the terms of a block
/// are added first, then what blocks give, and so on. With blocks of b terms the error of n is
/// bounded by about b log(n) / log(b) roundings where it was by n: blocked summation, as in Higham,
/// Accuracy and Stability of Numerical Algorithms, section 4.2. The blocks follow from the shape,
/// so the sum does not depend on the threads; how often a loop goes round must be known, so those of
/// symbolic sizes stay as they are. `products`: sums of products as well. Those of tiles are not,
/// since schedules that are tried for them (ir/same_order.h) cut their loops in other places and keep
/// the bits.
void block_sums(Program& program, bool products);

}  // namespace lazuli
