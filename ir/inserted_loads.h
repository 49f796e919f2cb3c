// Vectors of single elements, from one load.
#pragma once

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// What is left of vectors that single elements are inserted into. Where nearly all of them lie
/// within one vector's length, as along an axis that is padded, shifted or repeated, that is loaded
/// and permuted, and only the others, as the element that the first lane is clamped to, are
/// inserted. Sixteen elements a constant distance apart, or nearly as many, are a Load with that
/// step where the target has a fast gather. Elements of 32 bits and more.
void join_inserted_loads(Program& program, const Target& target);

}  // namespace lazuli
