// Sizes that are whole multiples of an alignment.
#pragma once

#include <cstddef>

namespace lazuli {

/// The least multiple of `multiple` that is no less than `value`.
inline size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace lazuli
