// The 1,797 handwritten digits of the UCI repository: 8x8 images, shipped with lazuli
// (nn/data/README.md has source and licence).
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace lazuli::nn {

struct Digits {
  Tensor images;  // f32 (n, 64), 0 to 1
  Tensor labels;  // i64 (n,), 0 to 9
};

/// Reads the shipped file. UserError if it is not found or not the file that was shipped.
Digits load_digits();

/// Rows of a data set by number. UserError if one is none of its rows.
Digits rows(const Digits& digits, const std::vector<int64_t>& which);

/// 0, 1, ..., n-1 in an order drawn by `seed`: the same on every machine (Fisher and Yates with
/// SplitMix64).
std::vector<int64_t> shuffled(int64_t n, uint64_t seed);

}  // namespace lazuli::nn
