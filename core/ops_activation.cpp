#include "core/ops_activation.h"

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/gradient.h"
#include "core/graph.h"
#include "core/ops_elementwise.h"
#include "core/ops_movement.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

// The branch that is not taken must stay finite, or its zero gradient times infinity would be NaN:
// `x` replaced by 0 where the branch does not count.
Tensor only(const Tensor& where_used, const Tensor& x) {
  return where(where_used, x, 0.0);
}

// exp(-|x|), in (0, 1], whose derivative at 0 is that of exp(-x).
Tensor exp_minus_abs(const Tensor& x) {
  return exp(where(x < 0, x, -x));
}

Tensor sigmoid_of(const Tensor& x) {
  return Tensor(elementwise(Op::Sigmoid, {x.node()}));
}

Tensor softplus_of(const Tensor& x, double beta, double threshold) {
  const Tensor scaled = beta == 1 ? x : x * beta;
  const Tensor large = scaled > threshold;
  const Tensor soft = log1p(exp(where(large, 0.0, scaled)));
  return where(large, x, beta == 1 ? soft : soft / beta);
}

Tensor elu_of(const Tensor& x, double scale, double negative_scale, double inner_scale) {
  const Tensor positive = x > 0;
  const Tensor low = only(~positive, x);
  const Tensor curve = expm1(inner_scale == 1 ? low : low * inner_scale) * negative_scale;
  return where(positive, scale == 1 ? x : x * scale, curve);
}

}  // namespace

Tensor relu(const Tensor& x) {
  if (x.dtype() == DType::Bool)
    user_error("relu: bools have no relu; convert them first, as in x.to(i32)");
  // Not the maximum: NaN stays, and the gradient at 0 is 0.
  return where(x <= 0, 0, x);
}

Tensor relu6(const Tensor& x) {
  return where(x <= 0, 0, where(x >= 6, 6, x));
}

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  require_float("leaky_relu", x);
  return in_wide(x, [&](const Tensor& v) { return where(v > 0, v, v * negative_slope); });
}

Tensor prelu(const Tensor& x, const Tensor& weight) {
  require_float("prelu", x);
  const int64_t n = weight.numel(), channels = x.dim() >= 2 ? x.size(1) : 1;
  require(weight.dim() <= 1 && (n == 1 || n == channels),
          "prelu: the weight has shape {}, but x of shape {} has {} channels; give one or {}",
          to_string(weight.shape()), to_string(x.shape()), channels, channels);
  require(weight.dtype() == x.dtype(), "prelu: x is {} and the weight is {}; convert one of them",
          name(x.dtype()), name(weight.dtype()));
  Shape aligned(static_cast<size_t>(x.dim()), 1);
  if (x.dim() >= 2) aligned[1] = n;
  const Tensor w(reshape(weight.node(), aligned));
  return where(x > 0, x, x * w);
}

Tensor elu(const Tensor& x, double alpha) {
  require_float("elu", x);
  return in_wide(x, [&](const Tensor& v) { return elu_of(v, 1, alpha, 1); });
}

Tensor celu(const Tensor& x, double alpha) {
  require_float("celu", x);
  require(alpha != 0, "celu: alpha is 0, by which the input is divided");
  return in_wide(x, [&](const Tensor& v) { return elu_of(v, 1, alpha, 1 / alpha); });
}

Tensor selu(const Tensor& x) {
  // Klambauer et al., "Self-Normalizing Neural Networks" (2017).
  constexpr double kAlpha = 1.6732632423543772848170429916717,
                   kScale = 1.0507009873554804934193349852946;
  require_float("selu", x);
  return in_wide(x, [](const Tensor& v) { return elu_of(v, kScale, kScale * kAlpha, 1); });
}

namespace {

// x (1 + tanh(u)) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and Gimpel,
// 2016).
Tensor gelu_of(const Tensor& x) {
  const double scale = 2 * std::sqrt(2 / std::numbers::pi), cubic = 0.044715 * scale;
  // Farther below, the sigmoid is a denormal number, which takes a CPU some 90 cycles, and so does
  // all that is made of it: it is taken for zero, which changes no result by more than 2e-37
  // (1e-302).
  const double least = x.dtype() == DType::F64 ? -700 : -87.3;
  const Tensor square = x * x, t = x * (square * cubic + scale);
  const Tensor normal(sigmoid_with_normal_result(maximum(t, least).node()));
  const Tensor s = where(t >= least, normal, 0.0);
  return custom_vjp(x * s, {x}, [=](const Tensor& g) {
    const Tensor slope = square * (3 * cubic) + scale;
    return std::vector<Tensor>{g * (s + x * (s * (1 - s)) * slope)};
  });
}

}  // namespace

Tensor gelu(const Tensor& x, std::string_view approximate) {
  require_float("gelu", x);
  require(approximate == "none" || approximate == "tanh",
          "gelu: approximate is \"{}\"; it must be none or tanh", approximate);
  if (approximate == "none") {
    return in_wide(
        x, [](const Tensor& v) { return v * 0.5 * (1 + erf(v * (1 / std::numbers::sqrt2))); });
  }
  return in_wide(x, gelu_of);
}

Tensor quick_gelu(const Tensor& x) {
  require_float("quick_gelu", x);
  return in_wide(x, [](const Tensor& v) { return v * sigmoid_of(v * 1.702); });
}

Tensor silu(const Tensor& x) {
  require_float("silu", x);
  return in_wide(x, [](const Tensor& v) { return v * sigmoid_of(v); });
}
Tensor swish(const Tensor& x) {
  return silu(x);
}

Tensor mish(const Tensor& x) {
  require_float("mish", x);
  return in_wide(x, [](const Tensor& v) { return v * tanh(softplus_of(v, 1, 20)); });
}

Tensor softplus(const Tensor& x, double beta, double threshold) {
  require_float("softplus", x);
  return in_wide(x, [&](const Tensor& v) { return softplus_of(v, beta, threshold); });
}

Tensor softsign(const Tensor& x) {
  return in_wide(to_float(x), [](const Tensor& v) { return v / (1 + abs(v)); });
}

Tensor softshrink(const Tensor& x, double lambd) {
  require_float("softshrink", x);
  require(lambd >= 0, "softshrink: lambd is {}; it cannot be negative", lambd);
  return in_wide(x, [&](const Tensor& v) {
    return where(v > lambd, v - lambd, where(v < -lambd, v + lambd, v * 0.0));
  });
}

Tensor hardshrink(const Tensor& x, double lambd) {
  require_float("hardshrink", x);
  return where((x >= -lambd) & (x <= lambd), 0.0, x);
}

Tensor tanhshrink(const Tensor& x) {
  return in_wide(to_float(x), [](const Tensor& v) { return v - tanh(v); });
}

Tensor threshold(const Tensor& x, double threshold, double value) {
  return where(x <= threshold, cast(Tensor(constant(value, x.dtype())), x.dtype()), x);
}

Tensor sigmoid(const Tensor& x) {
  return in_wide(to_float(x), [](const Tensor& v) { return sigmoid_of(v); });
}

Tensor logsigmoid(const Tensor& x) {
  require_float("logsigmoid", x);
  return in_wide(x, [](const Tensor& v) { return where(v < 0, v, 0.0) - log1p(exp_minus_abs(v)); });
}

Tensor hardsigmoid(const Tensor& x) {
  require_float("hardsigmoid", x);
  return in_wide(
      x, [](const Tensor& v) { return where(v <= -3, 0.0, where(v >= 3, 1.0, (v + 3) / 6)); });
}

Tensor hardswish(const Tensor& x) {
  require_float("hardswish", x);
  return in_wide(x, [](const Tensor& v) {
    return where(v >= 3, v, v * where(v <= -3, 0.0, where(v >= 3, 6.0, v + 3)) / 6);
  });
}

Tensor hardtanh(const Tensor& x, double min_val, double max_val) {
  if (x.dtype() == DType::Bool)
    user_error("hardtanh: bools have no hardtanh; convert them first, as in x.to(i32)");
  require(min_val <= max_val, "hardtanh: min_val {} exceeds max_val {}", min_val, max_val);
  const Tensor low(constant(min_val, x.dtype())), high(constant(max_val, x.dtype()));
  return where(x <= low, low, where(x >= high, high, x));
}

Tensor glu(const Tensor& x, int64_t dim) {
  require_float("glu", x);
  const int64_t axis = check_axis("glu", dim, x.dim());
  require(x.dim() > 0, "glu: the input is a scalar; it needs an axis to halve");
  const int64_t n = x.size(axis);
  require(n % 2 == 0, "glu: dimension {} of shape {} has the odd size {}; it must be even", axis,
          to_string(x.shape()), n);
  return narrow(x, axis, 0, n / 2) * sigmoid(narrow(x, axis, n / 2, n / 2));
}

}  // namespace lazuli
