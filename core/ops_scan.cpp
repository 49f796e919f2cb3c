#include "core/ops_scan.h"

#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
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

ValuesIndices extreme(std::string_view name, ScanOp op, const Tensor& x, int64_t dim) {
  const int64_t axis = check_axis(name, dim, x.dim());
  if (x.dim() == 0) return {Tensor(x.node()), Tensor(constant(0, DType::I64))};
  const Tensor v = detach(x), best(scan(v.node(), op, axis));
  // Where an element is the best so far, it is the last of its equals so far.
  const Tensor taken = is_float(x.dtype()) ? (v == best) | isnan(v) : v == best;
  const Tensor place = where(taken, Tensor(detail::coordinate(x.shape(), axis)), 0);
  const Tensor index(scan(place.node(), ScanOp::Max, axis));
  return {is_float(x.dtype()) ? gather(x, axis, index) : best, index};
}

}  // namespace

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  return accumulated("cumsum", ScanOp::Add, x, dim, dtype);
}

Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  return accumulated("cumprod", ScanOp::Mul, x, dim, dtype);
}

ValuesIndices cummax(const Tensor& x, int64_t dim) {
  return extreme("cummax", ScanOp::Max, x, dim);
}
ValuesIndices cummin(const Tensor& x, int64_t dim) {
  return extreme("cummin", ScanOp::Min, x, dim);
}

}  // namespace lazuli
