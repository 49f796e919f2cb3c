#include "core/ops_softmax.h"

#include <array>
#include <limits>

#include "core/error.h"
#include "core/gradient.h"
#include "core/gradient_graph.h"
#include "core/ops_elementwise.h"
#include "core/ops_movement.h"
#include "core/ops_reduce.h"
#include "core/promotion.h"
#include "core/shape.h"

namespace lazuli {
namespace {

Tensor in_softmax_type(std::string_view op, const Tensor& x, std::optional<DType> dtype) {
  const Tensor y = dtype ? to(x, *dtype) : x;
  require(is_float(y.dtype()),
          "{}: the input is {}, not a float; convert it first, as in x.to(f32), or give a dtype",
          op, name(y.dtype()));
  return y;
}

// The gradient through the maximum is exactly zero.
Tensor below_largest(const Tensor& x, int64_t dim) {
  return sub(x, detach(amax(x, dim, true)));
}

// One for each axis, so that equal softmaxes are one node.
class SoftmaxVjp : public VjpAttribute {
 public:
  explicit SoftmaxVjp(int64_t dim) : dim_(dim) {}
  std::string text() const override { return "softmax"; }
  std::vector<Tensor> cotangents(const Node& node, const Tensor& g) const override {
    const Tensor y(node.src[0]);
    return {y * (g - sum(g * y, dim_, true))};
  }

 private:
  int64_t dim_;
};

}  // namespace

Tensor detail::with_softmax_gradient(const Tensor& y, const Tensor& x, int64_t dim) {
  static const auto rules = [] {
    std::array<Ref<const Attribute>, kMaxRank> r;
    for (int axis = 0; axis < kMaxRank; axis++)
      r[static_cast<size_t>(axis)] = make_ref<SoftmaxVjp>(axis);
    return r;
  }();
  const int64_t axis = check_axis("softmax", dim, y.dim());
  const NodeRef input = x.node();
  return Tensor(with_vjp(y.node(), std::span(&input, 1), rules[static_cast<size_t>(axis)]));
}

Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Tensor y = in_softmax_type("softmax", x, dtype);
  const int64_t axis = check_axis("softmax", dim, y.dim());
  if (y.numel() == 0 || y.dim() == 0) return y.dim() == 0 ? exp(sub(y, y)) : y;
  return in_wide(y, [axis](const Tensor& v) {
    const Tensor e = exp(below_largest(v, axis));
    return detail::with_softmax_gradient(div(e, sum(e, axis, true)), v, axis);
  });
}

Tensor softmin(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  return softmax(neg(x), dim, dtype);
}

Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Tensor y = in_softmax_type("log_softmax", x, dtype);
  const int64_t axis = check_axis("log_softmax", dim, y.dim());
  if (y.numel() == 0 || y.dim() == 0) return y.dim() == 0 ? sub(y, y) : y;
  return in_wide(y, [axis](const Tensor& v) {
    const Tensor s = below_largest(v, axis);
    return sub(s, log(sum(exp(s), axis, true)));
  });
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  const Tensor y = to_float(x);
  const Ints axes = check_axes("logsumexp", dims, y.dim());
  return in_wide(y, [&](const Tensor& v) {
    if (v.numel() == 0) return log(sum(exp(v), axes, keepdim));
    const Tensor top = detach(amax(v, axes, true));
    const Tensor finite = where(isfinite(top), top, Scalar(0.0));
    const Tensor r = add(log(sum(exp(sub(v, finite)), axes, true)), finite);
    return keepdim ? r : reshape(r, sum(v, axes).shape());
  });
}

Tensor logcumsumexp(const Tensor& x, int64_t dim) {
  const Tensor y = to_float(x);
  const int64_t axis = check_axis("logcumsumexp", dim, y.dim());
  if (y.dim() == 0 || y.numel() == 0) return y;
  return in_wide(y, [axis](const Tensor& v) {
    const int64_t n = v.size(axis);
    Tensor sums = v;  // of the last `step` elements
    for (int64_t step = 1; step < n; step *= 2) {
      const Tensor none = broadcast_to(Tensor(constant(-detail::kInf, v.dtype())),
                                       narrow(v, axis, 0, step).shape());
      const Tensor before = cat({none, narrow(sums, axis, 0, n - step)}, axis);
      const Tensor top = detach(maximum(sums, before));
      const Tensor finite = where(isfinite(top), top, 0.0);
      const Tensor sum = exp(sums - finite) + exp(before - finite);
      // Of nothing but -inf; its logarithm would have no gradient.
      const Tensor nothing = sum == 0;
      sums = contiguous(where(nothing, -detail::kInf, log(where(nothing, 1.0, sum)) + finite));
    }
    return sums;
  });
}

}  // namespace lazuli
