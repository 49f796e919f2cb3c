// Orders: sorting and what follows from it. Sorting is stable and NaN is larger than everything; a
// dimension of 0 elements or a scalar is sorted as it is. Values are gathered, so gradients go
// where they come from.
#pragma once

#include <optional>
#include <string_view>

#include "core/ops_reduce.h"
#include "core/tensor.h"

namespace lazuli {

/// The elements along `dim` in ascending (descending) order and where they come from.
ValuesIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false);
/// The indices of sort alone.
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false);
/// Sorted along the first axis.
Tensor msort(const Tensor& x);
/// The k largest (smallest) elements, in order.
ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true,
                   bool sorted = true);
/// The k-th smallest, counted from 1.
ValuesIndices kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false);
/// The middle element, the lower of two; NaN if there is one. Of the whole tensor, equals share the
/// gradient.
Tensor median(const Tensor& x);
/// Along one axis, with its place.
ValuesIndices median(const Tensor& x, int64_t dim, bool keepdim = false);
/// The most frequent element, the smallest of equally frequent ones, and its last place.
ValuesIndices mode(const Tensor& x, int64_t dim = -1, bool keepdim = false);

/// Where in the last axis of `sorted_sequence` each value would stand so that the order holds:
/// before its equals, or behind them if `right` (side "right"). The sequence is a vector, or its
/// other axes are those of `values`; with `sorter`, which sorts it, it need not be in order. Binary
/// search: a gather for each doubling of the length.
Tensor searchsorted(const Tensor& sorted_sequence, const TensorOrScalar& values,
                    bool out_int32 = false, bool right = false,
                    std::optional<std::string_view> side = {},
                    const std::optional<Tensor>& sorter = {});
/// The same with the arguments exchanged, for a vector of boundaries.
Tensor bucketize(const TensorOrScalar& x, const Tensor& boundaries, bool out_int32 = false,
                 bool right = false);

/// The distinct elements (or slices of `dim`) in ascending order, the place of each element among
/// them, and how often each occurs. NaNs are distinct. Realises x.
struct Unique {
  Tensor values, inverse, counts;
};
/// Of all elements, or with `dim` of its slices.
Unique unique(const Tensor& x, std::optional<int64_t> dim = {});

}  // namespace lazuli
