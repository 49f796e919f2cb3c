// Operations that read or write at indices: NumPy's indexing, gathers, masks. An index in data that
// is out of range reads 0 and writes nothing; a constant one is an error where it is written.
#pragma once

#include <concepts>
#include <optional>
#include <vector>

#include "core/arguments.h"
#include "core/tensor.h"

namespace lazuli {

/// One item of an index `x[a, b, ...]`: a number, a slice, None, `...`, or a tensor (or list) of
/// integers or bools.
class Index {
 public:
  struct Value;  // a variant behind a pointer: users' programs compile the sooner
  template <std::integral T>
  Index(T i) : Index(Number{static_cast<int64_t>(i)}) {}
  Index(Slice slice);
  Index(NewAxis axis);
  Index(Ellipsis rest);
  Index(const Tensor& t);
  Index(const std::vector<int64_t>& list);

  const Value& value() const;

 private:
  struct Number {
    int64_t value;
  };
  explicit Index(Number number);

  Ref<const Value> value_;
};
using Indices = std::vector<Index>;

/// x[index] with NumPy's meaning: basic items first; integer tensors broadcast together and stand
/// where the first of them stood if they are neighbours, else in front (a number beside tensors
/// counts as one of them); a bool tensor of rank r is the coordinates of its true elements, along r
/// axes, and is realised. Negative integers count from the end.
Tensor getitem(const Tensor& x, const Indices& index);
/// x with `value`, broadcast and converted, at x[index]; of several writes to one element the last
/// wins.
Tensor setitem(const Tensor& x, const Indices& index, const TensorOrScalar& value);

/// out[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on: index has x's rank, and no axis but
/// `dim` is longer.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// As gather, but the index broadcasts against x outside `dim` and may count from the end; without
/// dim, x is flattened.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim = {});
/// The slices of axis `dim` that a vector of indices names.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// Elements of the flat tensor; negative indices count from the end.
Tensor take(const Tensor& x, const Tensor& index);

/// The elements where the mask holds, flat; x and mask broadcast. Realises the mask.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// `value` where the mask holds, x elsewhere, in x's dtype.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const TensorOrScalar& value);
/// (count, rank): coordinates of the elements that are not 0, in row-major order; I64. Realises x.
Tensor nonzero(const Tensor& x);
/// The same, one vector for each axis.
std::vector<Tensor> nonzero_as_tuple(const Tensor& x);
/// Another name of nonzero_as_tuple.
std::vector<Tensor> where(const Tensor& condition);

/// I64, x.shape + (num_classes,): 1 at each element's index. Without num_classes, the largest index
/// + 1 (realises). An index that is out of range gives zeros.
Tensor one_hot(const Tensor& x, int64_t num_classes = -1);

}  // namespace lazuli
