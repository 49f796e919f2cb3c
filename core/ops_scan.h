// Running sums, products, maxima and minima along one axis.
#pragma once

#include <optional>

#include "core/ops_reduce.h"
#include "core/tensor.h"

namespace lazuli {

/// Running sum; integers and bools add up in i64 unless a dtype is given, f16 and bf16 in f32
/// before they are rounded.
Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
/// Running product, in the dtypes of cumsum.
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
/// The largest (smallest) element so far and the place of the last of equals, which takes the
/// gradient; a NaN is both and stays.
ValuesIndices cummax(const Tensor& x, int64_t dim);
/// The smallest element so far, as cummax.
ValuesIndices cummin(const Tensor& x, int64_t dim);

namespace detail {
/// Where, along the axis of a scan of maxima or minima from the first element on, each of its
/// elements was taken from: I64.
NodeRef places_of_best(const NodeRef& best);
}  // namespace detail

}  // namespace lazuli
