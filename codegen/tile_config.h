// How the tile registers of AMX are shared out for a TileDot (ir/program.h).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace lazuli {

/// What LDTILECFG reads: a palette, bytes of a row and numbers of rows of each register.
using TileConfig = std::array<uint8_t, 64>;

/// Registers 0 to 3 hold the sums, by rows and then columns; 4 and 5 words of rows, 6 and 7 of
/// columns.
TileConfig tile_config(const TileShape& t);

/// The largest tile of a function; null if it has none.
const TileShape* largest_tile(const std::vector<Instruction>& body);

}  // namespace lazuli
