// Packing while the first products are made.
#pragma once

#include "ir/program.h"

namespace lazuli {

/// A loop that packs a panel waits for memory and leaves the arithmetic units idle; the first tile
/// that reads the panel has time for its loads. Where a loop copies rows of an argument to scratch
/// memory and the loop behind it walks that for some tens of tiles, the first tile reads the argument
/// instead and stores what it reads. Results keep their bits.
void pack_in_first_tile(Program& program);

}  // namespace lazuli
