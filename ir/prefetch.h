// Data asked for before it is needed.
#pragma once

#include <cstddef>

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// Products of a line that is asked for ahead: with fewer, to ask costs what it saves.
inline constexpr int64_t kProductsPerLine = 16;

/// Whether the processor's own streams bring what a loop reads in order as fast as prefetches,
/// which are then in their way: where an iteration of so many instructions, which stand for its
/// time, does little more than move its cache lines. They fall behind one that has computations to
/// wait for. On Zen 3, with 64 MiB, prefetches take exp to 0.75 of the time and polynomials of
/// degree 4 to 0.8 and of degree 3 to 0.93, but of degree 2 to 1.0 and of degree 1 to 1.1.
inline bool streams_keep_up(const Target& target, size_t instructions, size_t lines) {
  constexpr size_t kInstructionsOfLine = 16;
  return !target.l2_prefetch && instructions < kInstructionsOfLine * lines;
}

/// An epilogue loads a few elements from each row of its arrays, too few for the processor to see
/// where it goes. Where a block loads elements of arguments larger than a cache of the first level
/// behind a loop of many iterations, at addresses known before it, their cache lines are asked for
/// before the loop, which hides the wait; also where the epilogue is a loop over the rows of a
/// tile, which do not lie behind each other, as one of many operations is. So are lines of results
/// larger than L2 that are stored behind a short sum of products, which would fill the queue of
/// stores; behind others nothing waits for them. What the loop reads itself is left alone.
void prefetch_epilogues(Program& program, const Target& target);

/// Rows that are found by an index, in an argument larger than the last cache: while one is read,
/// the lines of the next iteration's are asked for. They come to the second level of cache where
/// more misses are underway there, but for rows that are longer than the first level.
void prefetch_indexed_rows(Program& program, const Target& target);

/// Where a loop walks each row of a large argument more than once, the first pass would wait for
/// memory, and memory for the others: lines of the next row are asked for in the passes over this
/// one, each in that which has most time to spare, or beside stores past the caches where these
/// hold no load up. So are those of the next rows where a loop computes on several short ones at
/// once, or on parts of several where the last cache is far. They come to the second level of cache
/// where more misses are underway there, and the first does not hold them beside all that the loop
/// works on. For long rows nothing is asked for where the passes together do so little that the
/// processor's streams keep up, unless the last cache is far.
void prefetch_walked_rows(Program& program, const Target& target);

/// Where a loop packs a panel of a large argument and then walks it for many rows, memory would
/// wait for the products, and they for memory: the next panel is asked for, some rows of it with
/// each tile, spread over its products. Behind the last panel of a loop that is the first of the
/// loop around, where that lies next to it.
/// So are rows that are turned around in squares where the last cache is far, some lines of all of
/// them with each tile: 49 rows by 512 columns of 4,608 terms take 0.94 of the time.
void prefetch_next_panels(Program& program, const Target& target);

/// Where each iteration of a loop around the products reads a stretch of an argument, as a block of
/// the terms of sums, in parts of which some are read again and again: the next one's stretch comes
/// to L2 while the products of this one are made, spread over them, unless they ask for the
/// argument already. Products of 192 by 2,048 by 48 whose factors lie in memory take 0.7 of the
/// time on Zen 3. So does the next iteration's of a parallel loop, as the next head's keys and
/// values: 64 products of 64 by 64 by 64 take 0.9 of the time on Sapphire Rapids.
void prefetch_next_blocks(Program& program, const Target& target);

/// Where each iteration of a long loop, as over the terms of a sum, reads other cache lines of an
/// argument that lies in memory: those of later ones are asked for, where prefetches for the second
/// level of cache bring them sooner, and where the last cache is far: there in sums of products
/// alone, and from that cache too.
void prefetch_far_terms(Program& program, const Target& target);

/// What loops read in order from arguments larger than the last cache, or than L2 where the last
/// cache is far, and nothing above has asked for: some lines ahead, where prefetches for the second
/// level of cache bring more than the processor's own streams, which end at each page and begin
/// anew; elsewhere in loops that compute much with each line, since those streams fall behind; from
/// a far L3 in loops that compute more still, for L1. Short rows count as one walk where they
/// follow each other.
void prefetch_streams(Program& program, const Target& target);

/// Where tiles of products walk more memory than L2 holds: rows of tiles, of which single elements
/// are read. Where the last cache is far, packed ones are asked for ahead, since each panel of
/// columns that passes through pushes some of them out; short ones as they lie, of few lines each,
/// a tile ahead: those of a tile as one stretch where they follow each other.
void prefetch_next_tiles(Program& program, const Target& target);

}  // namespace lazuli
