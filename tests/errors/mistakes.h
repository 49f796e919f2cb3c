// What the tests of mistakes share: tensors to make them with, and the check of their exact text.
#pragma once

#include <doctest/doctest.h>

#include <string_view>
#include <vector>

#include "nn/lazuli.h"

namespace lazuli {

inline Tensor f32(const Shape& shape) { return zeros(shape); }
inline Tensor i64(const Shape& shape) { return zeros(shape, DType::I64); }
inline Tensor i8(const Shape& shape) { return zeros(shape, DType::I8); }
inline Tensor boolean(const Shape& shape) { return zeros(shape, DType::Bool); }

struct Mistake {
  void (*make)();
  std::string_view text;
};

inline void check(const std::vector<Mistake>& mistakes) {
  for (const Mistake& m : mistakes) CHECK_THROWS_WITH_AS(m.make(), m.text.data(), UserError);
}

}  // namespace lazuli
