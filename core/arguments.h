// Small argument types of the operations: what PyTorch spells with Python's flexible values.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

#include "core/shape.h"

namespace lazuli {

/// One dimension or a list of them; the empty list stands for all, as PyTorch's `dim=None`.
class Dims {
 public:
  Dims() = default;
  template <std::integral T>
  Dims(T dim) : dims_{static_cast<int64_t>(dim)} {}
  Dims(std::initializer_list<int64_t> dims) : dims_(dims) {}
  Dims(Ints dims) : dims_(std::move(dims)) {}

  const Ints& list() const { return dims_; }
  bool empty() const { return dims_.empty(); }
  operator std::span<const int64_t>() const { return {dims_.data(), dims_.size()}; }

 private:
  Ints dims_;
};

/// One number for every spatial axis, or one for each, as Conv2d's stride; the empty list where
/// PyTorch takes None.
using Sizes = Dims;

/// `begin:end:step` of an index, with Python's meaning: missing ends, negative counts from the end,
/// clipping.
struct Slice {
  std::optional<int64_t> begin = {}, end = {};
  int64_t step = 1;
};

/// `None` of an index: a new axis of size 1.
struct NewAxis {};
inline constexpr NewAxis kNewAxis;

/// `...` of an index: as many whole axes as are left.
struct Ellipsis {};
inline constexpr Ellipsis kEllipsis;

}  // namespace lazuli
