// Operations that make tensors from nothing. Each result is an array with an identity of its own:
// two calls with equal arguments give two gradient targets.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "core/arguments.h"
#include "core/function.h"
#include "core/tensor.h"

namespace lazuli {

/// `value` everywhere; the dtype of the number unless one is given (bool, i64 or f32).
Tensor full(const Shape& shape, const Scalar& value, std::optional<DType> dtype = {});
/// 0 everywhere.
Tensor zeros(const Shape& shape, DType dtype = DType::F32);
/// 1 everywhere.
Tensor ones(const Shape& shape, DType dtype = DType::F32);
/// PyTorch leaves the values open; here they are zeros.
Tensor empty(const Shape& shape, DType dtype = DType::F32);
/// The caller's memory as an array, row-major, not a copy; it is never written to. What is computed
/// from it reads it then, and values that are computed stay as they are. `deleter`, which must not
/// throw, is called with it, on any thread, when the last tensor or captured function that reads it
/// has let go. UserError, and no call of the deleter, for no memory where `shape` has elements, and
/// for elements that are not aligned to their size.
Tensor from_blob(void* data, const Shape& shape, DType dtype = DType::F32,
                 Function<void(void*)> deleter = {});
/// A rank-0 tensor that holds the number; bool, i64 or f32 unless a dtype is given.
Tensor scalar_tensor(const Scalar& value, std::optional<DType> dtype = {});

namespace detail {
/// The numbers of nested braces in order, and the length of the lists of each depth.
struct Literal {
  Shape shape;
  std::vector<Scalar> values;
};
/// UserError unless all lists of a depth have one length.
void enter_list(Literal& literal, size_t depth, size_t count);
inline void append(Literal& literal, size_t, const Scalar& value) {
  literal.values.push_back(value);
}
template <typename V>
void append(Literal& literal, size_t depth, const std::initializer_list<V>& list) {
  enter_list(literal, depth, list.size());
  for (const V& item : list) append(literal, depth + 1, item);
}
Tensor literal_tensor(const Literal& literal, std::optional<DType> dtype);
template <typename V>
Tensor list_tensor(const std::initializer_list<V>& list, std::optional<DType> dtype) {
  Literal literal;
  append(literal, 0, list);
  return literal_tensor(literal, dtype);
}
}  // namespace detail

/// The numbers in braces, as torch.tensor: tensor({1, 2}), tensor({{1, 2}, {3, 4}}). Of bool, i64
/// or f32 unless a dtype is given. UserError for rows of different lengths.
template <typename V>
Tensor tensor(std::initializer_list<V> values, std::optional<DType> dtype = {}) {
  return detail::list_tensor(values, dtype);
}
/// The same of numbers of several kinds: tensor({1, 0.5}).
inline Tensor tensor(std::initializer_list<Scalar> values, std::optional<DType> dtype = {}) {
  return detail::list_tensor(values, dtype);
}
/// The same of lists in a list.
template <typename V>
Tensor tensor(std::initializer_list<std::initializer_list<V>> values,
              std::optional<DType> dtype = {}) {
  return detail::list_tensor(values, dtype);
}
/// The same, three deep.
template <typename V>
Tensor tensor(std::initializer_list<std::initializer_list<std::initializer_list<V>>> values,
              std::optional<DType> dtype = {}) {
  return detail::list_tensor(values, dtype);
}
/// The same of one number: a tensor of rank 0.
inline Tensor tensor(const Scalar& value, std::optional<DType> dtype = {}) {
  return scalar_tensor(value, dtype);
}

/// Shape of `x`, and its dtype unless one is given.
Tensor full_like(const Tensor& x, const Scalar& value, std::optional<DType> dtype = {});
/// Zeros in the shape of `x`, and its dtype unless one is given.
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype = {});
/// Ones in the shape of `x`, and its dtype unless one is given.
Tensor ones_like(const Tensor& x, std::optional<DType> dtype = {});
/// Zeros, as of empty, in the shape of `x`, and its dtype unless one is given.
Tensor empty_like(const Tensor& x, std::optional<DType> dtype = {});
/// `value` in the shape and dtype of `x`: a constant of expressions, not an array of its own.
Tensor const_like(const Tensor& x, const Scalar& value);

/// start, start + step, ... before end: ceil((end - start) / step) values; i64 if all three are
/// integers, else f32.
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step = 1,
              std::optional<DType> dtype = {});
/// 0, 1, ... before end; i64 if end is an integer, else f32.
Tensor arange(const Scalar& end, std::optional<DType> dtype = {});
/// `steps` values from start to end, both included, symmetric about the middle as PyTorch computes
/// them.
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, DType dtype = DType::F32);
/// (n, m) with ones on the diagonal; m is n unless given.
Tensor eye(int64_t n, std::optional<int64_t> m = {}, DType dtype = DType::F32);

/// Coordinate grids of rank-0 or rank-1 tensors; `indexing` is "ij" or "xy" (first two axes
/// exchanged).
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, std::string_view indexing = "ij");
/// (2, k): row and column of each element on or below (above) diagonal `offset` of a (row, col)
/// matrix, row by row.
Tensor tril_indices(int64_t row, int64_t col, int64_t offset = 0, DType dtype = DType::I64);
/// The same of the elements on and above diagonal `offset`.
Tensor triu_indices(int64_t row, int64_t col, int64_t offset = 0, DType dtype = DType::I64);

namespace detail {
/// The index along `axis` at every place of `shape`, I64: a constant of expressions, not an array
/// of its own.
NodeRef coordinate(const Shape& shape, int64_t axis);
}  // namespace detail

}  // namespace lazuli
