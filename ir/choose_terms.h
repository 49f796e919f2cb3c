// Contractions that take some of their terms at a time.
#pragma once

#include <string>
#include <vector>

#include "ir/choose_tiles.h"

namespace lazuli {

/// K in blocks, where not even two panels fit the last cache: partial sums in the output, row
/// blocks keep A in the last cache.
void schedule_deep(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile,
                   const TileLoops& t);

/// Where panels of b are too long for the last cache, and b is the same for several indices around
/// the tile: only the innermost sums that leave a panel in L2 are in the tile, the others around
/// all that the panel is read for, with partial sums in the output.
bool schedule_long_panels(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile);

/// Few sums of many terms: a and b are too long for the cache that they are read from again and
/// again. Some terms at a time of both stay there, and so do the sums.
bool schedule_long_sums(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile,
                        const std::string& batch, Packer& packer, bool packs_a, bool packs_b);

/// How many of these steps, that are there `times` times, a thread takes at a time, so that none
/// has a quarter more to do than its share. If there is no such number, all of them where they are
/// there often enough, else 0.
int64_t shared_steps(const Target& target, int64_t steps, int64_t times);

/// Few sums of very many terms, as a weight's gradient. Where the rows of both factors lie along
/// the sums, a tile would read a part of each row, and the other tiles the rest after it has left
/// the cache; where they lie along the terms, in several stretches, as those of images do, a panel
/// is too long for any cache. Some terms of both stay in L1 while they are multiplied, or in L2,
/// and the sums in L2, in the output or, if more follows from them, in scratch. Threads share the
/// longer of the sums' axes. A panel of b is packed since parts of rows at some distance fall into
/// few sets of L1.
bool schedule_tall(ScheduleWriter& w, Stage* s, Stage* root, const Contraction& c, const Tile& tile,
                   const std::string& batch, Packer& packer);

/// 9 to 64 rows times a large matrix whose rows lie along the columns: it is read once and in
/// order, some terms of the sums a visit, by a tile with few rows. The sums stay in L2 in the order
/// of the tiles; `root`, the sum itself or what follows from all of them, takes them from there.
bool schedule_visits(ScheduleWriter& w, std::vector<Stage*> sums, Stage* root);

}  // namespace lazuli
