// Vectors of elements that lie apart, from whole vectors.
#pragma once

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// A vector of elements an odd distance apart is put together from single elements. Where several
/// such vectors of an argument lie between each other, as the rows of a 3x3 kernel do when the
/// lanes run along channels, or the channels of an image that has them last, the elements between
/// the first and the last are loaded as whole vectors, and each lane of these chooses among them:
/// with n vectors of 2^m lanes in m rounds of up to n blends, and a permutation of each result. All n
/// vectors of elements n apart, a power of two, are n whole vectors and m rounds of n zips.
void join_strided_loads(Program& program, const Target& target);

}  // namespace lazuli
