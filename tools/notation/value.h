// The values that expressions of the notation have.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace lazuli::notation {

struct Value;

/// A bare word that is no input, or a quoted string: an enumerator, a dtype, an equation.
struct Word {
  std::string text;
};

/// A list or a tuple.
struct Sequence {
  bool is_tuple = false;
  std::vector<Value> items;
};

/// What an argument or a result is; monostate is `None`. `place` is where it stands in the text.
struct Value {
  std::variant<std::monostate, bool, int64_t, double, Word, Tensor, Sequence> data;
  size_t place = 0;

  template <typename T>
  const T* get() const {
    return std::get_if<T>(&data);
  }
  bool is_none() const { return get<std::monostate>() != nullptr; }
  bool is_number() const { return get<bool>() || get<int64_t>() || get<double>(); }
};

/// The number as a weak scalar; `value.is_number()` must hold.
Scalar to_scalar(const Value& value);

/// The value as a tensor: numbers become rank 0 (bool, i64, f32). Null for words, sequences and
/// None.
std::optional<Tensor> to_tensor(const Value& value);

/// What an error calls the value: `a list`, `the word 'mean'`, `a f32 tensor of shape (2, 3)`.
std::string describe(const Value& value);

}  // namespace lazuli::notation
