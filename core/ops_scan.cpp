#include "core/ops_scan.h"

#include <limits>

#include "core/error.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

Tensor accumulated(std::string_view name, ScanOp op, const Tensor& x, int64_t dim,
                   std::optional<DType> dtype) {
  const int64_t axis = check_axis(name, dim, x.dim());
  const DType t = dtype.value_or(is_integral(x.dtype()) ? DType::I64 : x.dtype());
  const Tensor y = cast(x, t);
  if (y.dim() == 0) return y;
  return in_wide(y, [&](const Tensor& v) { return Tensor(scan(v.node(), op, axis)); });
}

ValuesIndices running_extreme(std::string_view name, ScanOp op, const Tensor& x, int64_t dim) {
  const int64_t axis = check_axis(name, dim, x.dim());
  if (x.dim() == 0) return {Tensor(x.node()), Tensor(constant(0, DType::I64))};
  const Tensor best(scan(x.node(), op, axis));
  return {best, Tensor(detail::places_of_best(best.node()))};
}

}  // namespace

NodeRef detail::places_of_best(const NodeRef& best) {
  const int64_t axis = best->ints()[1], size = best->shape[static_cast<size_t>(axis)];
  ensure(best->ints()[2] == 0, "scan: the best from the end on");
  const Tensor x(best->src[0]), b(best);
  // Where an element is the best so far, it is the last of its equals so far.
  const Tensor taken = is_float(x.dtype()) ? (x == b) | isnan(x) : x == b;
  const DType t = size <= std::numeric_limits<int32_t>::max() ? DType::I32 : DType::I64;
  const Tensor place = where(taken, cast(Tensor(coordinate(x.shape(), axis)), t), 0);
  return cast(Tensor(scan(place.node(), ScanOp::Max, axis)), DType::I64).node();
}

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  return accumulated("cumsum", ScanOp::Add, x, dim, dtype);
}

Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  return accumulated("cumprod", ScanOp::Mul, x, dim, dtype);
}

ValuesIndices cummax(const Tensor& x, int64_t dim) {
  return running_extreme("cummax", ScanOp::Max, x, dim);
}
ValuesIndices cummin(const Tensor& x, int64_t dim) {
  return running_extreme("cummin", ScanOp::Min, x, dim);
}

}  // namespace lazuli
