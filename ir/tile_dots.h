// Sums of products in tile registers.
#pragma once

#include "ir/program.h"

namespace lazuli {

/// A loop over words that does nothing but add, to each of a block of sums, the dot of its row's
/// word and its column's, and whose sums are stored behind it side by side, becomes one TileDot
/// that sums in memory. As many rows and columns as tile registers hold, and whole steps of words
/// (TileShape).
void use_tiles(Program& program);

/// Whether dots are left to vectors.
bool has_vector_dots(const Program& program);

}  // namespace lazuli
