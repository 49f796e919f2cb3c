// Rows that begin at no vector's boundary, stored past the caches all the same.
#pragma once

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// Whether so many elements are a row long enough that its ends do not matter, and short enough for
/// L2.
bool can_stage_row(const Target& target, DType dtype, int64_t elements);

/// Stores past the caches take whole vectors that lie at a boundary of theirs. Rows of arguments
/// that are `streamed` and begin elsewhere are stored to scratch, as far behind a boundary as they
/// will lie, and copied from there in vectors that lie at one, past the caches; their ends, through
/// them. Only rows that are stored as a whole in one block, of known length. Not those that might
/// be written over an operand (ir/in_place.h), whose lines are in the caches already, and could not
/// any more; nor those of divisions, which take longer than memory does. Layer normalization of
/// 4000 rows of 5000 takes half the time on Xeons of the fifth generation.
void stage_rows(Program& program, const Target& target);

}  // namespace lazuli
