// Packing the next panel while this one is multiplied.
#pragma once

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// Where the last cache is far, and a loop packs a panel and then walks it for several tiles of
/// rows: each tile copies some rows of the next panel, to the other of two places in scratch
/// memory, and asks for those behind them. What is asked for is needed soon, so it stays in L1 and
/// L2 even where the rows of the argument fall into few of their sets. Results keep their bits.
void pack_ahead(Program& program, const Target& target);

}  // namespace lazuli
