// Elements of several vectors, a power of two, in another order by zips alone.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ir/program.h"

namespace lazuli {

/// With the elements of all vectors numbered in one row, a round zips each vector with the one half
/// of all behind it, and so moves the highest bit of every number to the lowest place. There are as
/// many rounds as `count`, a power of two, has bits behind its first: with the number of vectors
/// their lanes alternate, with the number of lanes that is undone.
///
/// `zip(a, b, high, result)` makes one vector, the low or high half of a zip: in the last round
/// number `result` of those returned, which is -1 before.
template <typename Zip>
std::vector<Operand> zip_rounds(std::vector<Operand> vectors, int64_t count, Zip zip) {
  const size_t half = vectors.size() / 2;
  for (int64_t bit = 1; bit < count; bit *= 2) {
    std::vector<Operand> next;
    for (size_t k = 0; k < half; k++) {
      for (const bool high : {false, true}) {
        const int result = 2 * bit == count ? static_cast<int>(next.size()) : -1;
        next.push_back(zip(vectors[k], vectors[k + half], high, result));
      }
    }
    vectors = std::move(next);
  }
  return vectors;
}

}  // namespace lazuli
