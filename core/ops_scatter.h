// Writes at indices. An index in data that is out of range writes nothing. Indices are integers;
// those of scatter have the rank of x, and no axis is longer than that of the source or, outside
// `dim`, of x.
#pragma once

#include <optional>
#include <string_view>

#include "core/tensor.h"

namespace lazuli {

/// x with x[index[i][j]][j] = source[i][j] for dim 0, and so on; of several writes to one element
/// the last wins. With `reduce` add or multiply, combined with what is there.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const TensorOrScalar& source,
               std::string_view reduce = "");
/// The same with every element of `source` added to what is there.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// `reduce` is sum, prod, mean, amax or amin; without include_self, elements that are written to do
/// not count themselves.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                      std::string_view reduce, bool include_self = true);

/// x with alpha * source added to (or, copy: source put into) the slices of `dim` that a vector of
/// indices names.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                 const Scalar& alpha = 1);
/// x with `source` put into those slices.
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// The number `value` in those slices.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const TensorOrScalar& value);
/// Elements of `source`, in order, where the mask holds, x elsewhere; zeros where the source has
/// too few.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);

/// How often each number 0, 1, ... occurs, at least `minlength` of them: I64, or sums of `weights`
/// (f32 or f64). Realises x to know the largest.
Tensor bincount(const Tensor& x, const std::optional<Tensor>& weights = {}, int64_t minlength = 0);
/// Counts in `bins` equal intervals of [min, max], of the data's own range if both are 0; elements
/// outside do not count.
Tensor histc(const Tensor& x, int64_t bins = 100, double min = 0, double max = 0);

}  // namespace lazuli
