#include "core/ops_softmax.h"

#include "core/gradient.h"
#include "core/ops_elementwise.h"
#include "core/ops_movement.h"
#include "core/ops_reduce.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

Tensor prepared(std::string_view op, const Tensor& x, std::optional<DType> dtype) {
  const Tensor y = dtype ? to(x, *dtype) : x;
  require(is_float(y.dtype()), "{}: only floating point tensors have one, not {}; convert with .to() or give dtype", op,
          name(y.dtype()));
  return y;
}

// The gradient through the maximum is exactly zero.
Tensor shifted(const Tensor& x, int64_t dim) { return sub(x, detach(amax(x, dim, true))); }

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Tensor y = prepared("softmax", x, dtype);
  const int64_t axis = check_axis("softmax", dim, y.dim());
  if (y.numel() == 0 || y.dim() == 0) return y.dim() == 0 ? exp(sub(y, y)) : y;
  const Tensor e = exp(shifted(y, axis));
  return div(e, sum(e, axis, true));
}

Tensor softmin(const Tensor& x, int64_t dim, std::optional<DType> dtype) { return softmax(neg(x), dim, dtype); }

Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Tensor y = prepared("log_softmax", x, dtype);
  const int64_t axis = check_axis("log_softmax", dim, y.dim());
  if (y.numel() == 0 || y.dim() == 0) return y.dim() == 0 ? sub(y, y) : y;
  const Tensor s = shifted(y, axis);
  return sub(s, log(sum(exp(s), axis, true)));
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  const Tensor y = to_float(x);
  const Ints axes = check_axes("logsumexp", dims, y.dim());
  if (y.numel() == 0) return log(sum(exp(y), dims, keepdim));
  const Tensor top = detach(amax(y, axes, true));
  const Tensor finite = where(isfinite(top), top, Scalar(0.0));
  const Tensor kept = log(sum(exp(sub(y, finite)), axes, true));
  const Tensor r = add(kept, finite);
  return keepdim ? r : reshape(r, sum(y, axes).shape());
}

}  // namespace lazuli
