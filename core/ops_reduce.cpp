#include "core/ops_reduce.h"

#include <algorithm>

#include "core/error.h"
#include "core/graph.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_movement.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

Shape with_ones(const Shape& shape, const Ints& axes) {
  Shape out = shape;
  for (int64_t a : axes) out[static_cast<size_t>(a)] = 1;
  return out;
}

Tensor reduced(Op op, const Tensor& x, const Ints& axes, bool keepdim) {
  const NodeRef y = reduce(op, x.node(), axes);
  return Tensor(keepdim ? reshape(y, with_ones(x.shape(), axes)) : y);
}

int64_t count(const Tensor& x, const Ints& axes) {
  int64_t n = 1;
  for (int64_t a : axes) n *= x.size(a);
  return n;
}

// Largest and smallest of nothing do not exist.
void require_elements(std::string_view op, const Tensor& x, const Ints& axes) {
  for (int64_t a : axes) {
    require(x.size(a) != 0, "{}: dimension {} of shape {} is empty and has no such element", op, a,
            to_string(x.shape()));
  }
}

DType sum_type(const Tensor& x, std::optional<DType> dtype) {
  return dtype.value_or(is_integral(x.dtype()) ? DType::I64 : x.dtype());
}

Tensor extreme(std::string_view name, Op op, const Tensor& x, const Dims& dims, bool keepdim) {
  const Ints axes = check_axes(name, dims, x.dim());
  require_elements(name, x, axes);
  return reduced(op, x, axes, keepdim);
}

// Place of the first element of axis `axis` that is the extreme one; a NaN is.
Tensor place_of_extreme(std::string_view name, Op op, const Tensor& x, int64_t axis, bool keepdim) {
  require_elements(name, x, {axis});
  const Tensor v = detach(x), best = reduced(op, v, {axis}, true);
  const Tensor found = is_float(x.dtype()) ? (v == best) | isnan(v) : v == best;
  const Tensor place = where(found, Tensor(detail::coordinate(x.shape(), axis)), x.size(axis));
  return reduced(Op::ReduceMin, place, {axis}, keepdim);
}

ValuesIndices extreme_along(std::string_view name, Op op, const Tensor& x, int64_t dim,
                            bool keepdim) {
  const int64_t axis = check_axis(name, dim, x.dim());
  if (x.dim() == 0) return {Tensor(x.node()), Tensor(constant(0, DType::I64))};
  const Tensor index = place_of_extreme(name, op, x, axis, true);
  const Tensor value = gather(x, axis, index);
  if (keepdim) return {value, index};
  return {squeeze(value, axis), squeeze(index, axis)};
}

Tensor arg_extreme(std::string_view name, Op op, const Tensor& x, std::optional<int64_t> dim,
                   bool keepdim) {
  if (dim) {
    const int64_t axis = check_axis(name, *dim, x.dim());
    return x.dim() == 0 ? Tensor(constant(0, DType::I64))
                        : place_of_extreme(name, op, x, axis, keepdim);
  }
  require(x.numel() > 0, "{}: the input of shape {} is empty and has no such element", name,
          to_string(x.shape()));
  const Tensor place = place_of_extreme(name, op, flatten(x), 0, false);
  return keepdim ? Tensor(reshape(place.node(), Shape(x.shape().size(), 1))) : place;
}

Tensor truth(std::string_view name, Op op, const Tensor& x, const Dims& dims, bool keepdim) {
  const Ints axes = check_axes(name, dims, x.dim());
  const Tensor y = reduced(op, cast(x, DType::Bool), axes, keepdim);
  return x.dtype() == DType::U8 ? cast(y, DType::U8) : y;
}

// Variance and mean in at least f32, unrounded.
SpreadMean spread_and_mean(std::string_view name, const Tensor& x, const Dims& dims,
                           double correction, bool keepdim) {
  require_float(name, x);
  const Ints axes = check_axes(name, dims, x.dim());
  const Tensor v = cast(x, accumulator(x.dtype()));
  const auto n = static_cast<double>(count(x, axes));
  const Tensor centre = reduced(Op::ReduceAdd, v, axes, true) / n;
  const Tensor distance = v - centre;
  const Tensor spread =
      reduced(Op::ReduceAdd, distance * distance, axes, keepdim) / std::max(0.0, n - correction);
  return {spread, Tensor(reshape(centre.node(), spread.shape()))};
}

Tensor deviation(const Tensor& variance) {
  // The slope at 0 is infinite; PyTorch gives such elements no gradient.
  const Tensor zero = variance == 0;
  return where(zero, 0.0, sqrt(where(zero, 1.0, variance)));
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  const Ints axes = check_axes("sum", dims, x.dim());
  const DType t = sum_type(x, dtype);
  if (t == DType::Bool) return reduced(Op::ReduceMax, cast(x, t), axes, keepdim);
  return reduced(Op::ReduceAdd, cast(x, t), axes, keepdim);
}

Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  return sum(where(isnan(x), 0, x), dims, keepdim, dtype);
}

Tensor prod(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  const Ints axes = check_axes("prod", dims, x.dim());
  const DType t = sum_type(x, dtype);
  if (t == DType::Bool) return reduced(Op::ReduceMin, cast(x, t), axes, keepdim);
  // Products of 16-bit floats are kept in f32 on the way, as sums are.
  return cast(reduced(Op::ReduceMul, cast(x, accumulator(t)), axes, keepdim), t);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  const DType t = dtype.value_or(x.dtype());
  if (!is_float(t)) {
    user_error("mean: the mean of {} is not an integer; convert the input first, as in x.to(f32)",
               name(t));
  }
  const Ints axes = check_axes("mean", dims, x.dim());
  const auto n = static_cast<double>(count(x, axes));
  return cast(reduced(Op::ReduceAdd, cast(x, accumulator(t)), axes, keepdim) / n, t);
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme("amax", Op::ReduceMax, x, dims, keepdim);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme("amin", Op::ReduceMin, x, dims, keepdim);
}
Tensor max(const Tensor& x) {
  return extreme("max", Op::ReduceMax, x, {}, false);
}
Tensor min(const Tensor& x) {
  return extreme("min", Op::ReduceMin, x, {}, false);
}
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim) {
  return extreme_along("max", Op::ReduceMax, x, dim, keepdim);
}
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim) {
  return extreme_along("min", Op::ReduceMin, x, dim, keepdim);
}
Tensor max(const Tensor& a, const Tensor& b) {
  return maximum(a, b);
}
Tensor min(const Tensor& a, const Tensor& b) {
  return minimum(a, b);
}
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmax", Op::ReduceMax, x, dim, keepdim);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmin", Op::ReduceMin, x, dim, keepdim);
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  return truth("any", Op::ReduceMax, x, dims, keepdim);
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  return truth("all", Op::ReduceMin, x, dims, keepdim);
}
Tensor count_nonzero(const Tensor& x, const Dims& dims) {
  return sum(x != 0, dims);
}

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return cast(spread_and_mean("var", x, dims, correction, keepdim).spread, x.dtype());
}
Tensor std(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return cast(deviation(spread_and_mean("std", x, dims, correction, keepdim).spread), x.dtype());
}
SpreadMean var_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  const SpreadMean m = spread_and_mean("var_mean", x, dims, correction, keepdim);
  return {cast(m.spread, x.dtype()), cast(m.mean, x.dtype())};
}
SpreadMean std_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  const SpreadMean m = spread_and_mean("std_mean", x, dims, correction, keepdim);
  return {cast(deviation(m.spread), x.dtype()), cast(m.mean, x.dtype())};
}

}  // namespace lazuli
