// Data that comes after a long loop, asked for before it.
#pragma once

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// An epilogue loads a few elements from each row of its arrays, too few for the processor to see
/// where it goes. Where a block loads elements of arguments larger than a cache of the first level
/// behind a loop of many iterations, at addresses known before it, their cache lines are asked for
/// before the loop, which hides the wait. Stores are left alone, since nothing waits for them, and
/// what the loop reads itself.
void prefetch_epilogues(Program& program, const Target& target);

/// Rows that are found by an index, in an argument larger than the last cache: while one is read,
/// the lines of the next iteration's are asked for.
void prefetch_rows(Program& program, const Target& target);

}  // namespace lazuli
