// Conversion and the functions of one tensor.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "core/gradient.h"
#include "core/graph.h"
#include "core/ops_elementwise.h"
#include "core/ops_movement.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

Tensor unary_node(Op op, const Tensor& x) {
  return Tensor(elementwise(op, sources(x.node())));
}

// A function with fractional results: integers become f32.
Tensor float_unary(Op op, const Tensor& x) {
  return unary_node(op, to_float(x));
}

// A function that leaves integers as they are.
Tensor rounding(Op op, const Tensor& x) {
  return is_float(x.dtype()) ? unary_node(op, x) : Tensor(x.node());
}

// Giles' polynomials in w = -log(1 - x^2), for the centre and the tails.
Tensor polynomial(const Tensor& w, std::span<const double> coefficients) {
  Tensor p(constant(coefficients[0], w.dtype(), w.shape()));
  for (double c : coefficients.subspan(1)) p = p * w + c;
  return p;
}

Tensor erfinv_f32(const Tensor& x) {
  constexpr std::array<double, 9> kCentre{2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                          -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                          -0.00417768164,  0.246640727,    1.50140941};
  constexpr std::array<double, 9> kTail{-0.000200214257, 0.000100950558, 0.00134934322,
                                        -0.00367342844,  0.00573950773,  -0.0076224613,
                                        0.00943887047,   1.00167406,     2.83297682};
  const Tensor w = -log1p(-x * x);
  const Tensor p = where(w < 5, polynomial(w - 2.5, kCentre), polynomial(sqrt(w) - 3, kTail));
  const double inf = std::numeric_limits<double>::infinity();
  return where(abs(x) == 1, x * inf, p * x);
}

}  // namespace

// ---- conversion

Tensor cast(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : Tensor(cast(x.node(), dtype));
}
Tensor to(const Tensor& x, DType dtype) {
  return cast(x, dtype);
}

Tensor half(const Tensor& x) {
  return cast(x, DType::F16);
}
Tensor bfloat16(const Tensor& x) {
  return cast(x, DType::BF16);
}

Tensor detach(const Tensor& x) {
  return Tensor(detach(x.node()));
}
Tensor contiguous(const Tensor& x) {
  return Tensor(contiguous(x.node()));
}
Tensor contiguous_backward(const Tensor& x) {
  return custom_vjp(
      x, {x}, [](const Tensor& cotangent) { return std::vector<Tensor>{contiguous(cotangent)}; });
}
Tensor clone(const Tensor& x) {
  return Tensor(fresh(x.node()));
}

Tensor bitcast(const Tensor& x, DType dtype) {
  const int from = size_of(x.dtype()), to = size_of(dtype);
  if (from == to) return Tensor(bitcast(x.node(), dtype));
  if (x.dim() == 0) {
    user_error(
        "bitcast: a scalar of {} cannot be read as {}: {} and {} bytes; give it an axis first",
        name(x.dtype()), name(dtype), from, to);
  }
  if (x.dtype() == DType::Bool || dtype == DType::Bool) {
    user_error("bitcast: from {} to {}: a bool is not part of a number; use to({})",
               name(x.dtype()), name(dtype), name(dtype));
  }
  // Through unsigned integers of both sizes: a wide one is the sum of its shifted parts, lowest
  // first.
  const auto unsigned_of = [](int size) {
    return size == 1 ? DType::U8 : size == 2 ? DType::U16 : size == 4 ? DType::U32 : DType::U64;
  };
  const DType narrow = unsigned_of(std::min(from, to)), wide = unsigned_of(std::max(from, to));
  const int64_t ratio = std::max(from, to) / std::min(from, to), bits = 8 * std::min(from, to);
  Shape shape = x.shape();
  const Tensor raw(bitcast(x.node(), unsigned_of(from)));
  const Tensor shift = cast(Tensor(iota(ratio)) * bits, wide);
  if (from > to) {
    shape.back() *= ratio;
    const Tensor parts = cast(bitwise_right_shift(unsqueeze(raw, -1), shift), narrow);
    return Tensor(bitcast(reshape(parts.node(), shape), dtype));
  }
  if (shape.back() % ratio != 0) {
    user_error("bitcast: from {} to {}: the last axis of {} must be a multiple of {}",
               name(x.dtype()), name(dtype), to_string(shape), ratio);
  }
  shape.back() /= ratio;
  Shape split = shape;
  split.push_back(ratio);
  const Tensor parts = bitwise_left_shift(cast(Tensor(reshape(raw.node(), split)), wide), shift);
  return Tensor(bitcast(reduce(Op::ReduceAdd, parts.node(), Ints{x.dim()}), dtype));
}

// ---- unary

Tensor neg(const Tensor& x) {
  if (x.dtype() == DType::Bool) {
    user_error("neg: bools have no negative; use logical_not or ~ to invert them");
  }
  return unary_node(Op::Neg, x);
}
Tensor abs(const Tensor& x) {
  return is_signed(x.dtype()) ? unary_node(Op::Abs, x) : Tensor(x.node());
}
Tensor sign(const Tensor& x) {
  if (x.dtype() == DType::Bool) return Tensor(x.node());
  return is_float(x.dtype()) ? where(isnan(x), 0.0, unary_node(Op::Sign, x))
                             : unary_node(Op::Sign, x);
}
Tensor square(const Tensor& x) {
  return x.dtype() == DType::Bool ? square(cast(x, DType::I64)) : x * x;
}
// clang-format off
Tensor sqrt(const Tensor& x) { return float_unary(Op::Sqrt, x); }
Tensor rsqrt(const Tensor& x) { return float_unary(Op::Rsqrt, x); }
Tensor reciprocal(const Tensor& x) { return float_unary(Op::Recip, x); }
Tensor exp(const Tensor& x) { return float_unary(Op::Exp, x); }
Tensor exp2(const Tensor& x) { return float_unary(Op::Exp2, x); }
Tensor expm1(const Tensor& x) { return float_unary(Op::Expm1, x); }
Tensor log(const Tensor& x) { return float_unary(Op::Log, x); }
Tensor log2(const Tensor& x) { return float_unary(Op::Log2, x); }
Tensor log10(const Tensor& x) { return float_unary(Op::Log10, x); }
Tensor log1p(const Tensor& x) { return float_unary(Op::Log1p, x); }
Tensor sin(const Tensor& x) { return float_unary(Op::Sin, x); }
Tensor cos(const Tensor& x) { return float_unary(Op::Cos, x); }
Tensor tan(const Tensor& x) { return float_unary(Op::Tan, x); }
Tensor asin(const Tensor& x) { return float_unary(Op::Asin, x); }
Tensor acos(const Tensor& x) { return float_unary(Op::Acos, x); }
Tensor atan(const Tensor& x) { return float_unary(Op::Atan, x); }
Tensor sinh(const Tensor& x) { return float_unary(Op::Sinh, x); }
Tensor cosh(const Tensor& x) { return float_unary(Op::Cosh, x); }
Tensor tanh(const Tensor& x) { return float_unary(Op::Tanh, x); }
Tensor asinh(const Tensor& x) { return float_unary(Op::Asinh, x); }
Tensor acosh(const Tensor& x) { return float_unary(Op::Acosh, x); }
Tensor atanh(const Tensor& x) { return float_unary(Op::Atanh, x); }
Tensor erf(const Tensor& x) { return float_unary(Op::Erf, x); }
Tensor erfc(const Tensor& x) { return float_unary(Op::Erfc, x); }
Tensor lgamma(const Tensor& x) { return float_unary(Op::Lgamma, x); }
Tensor digamma(const Tensor& x) { return float_unary(Op::Digamma, x); }
Tensor trunc(const Tensor& x) { return rounding(Op::Trunc, x); }
Tensor floor(const Tensor& x) { return rounding(Op::Floor, x); }
Tensor ceil(const Tensor& x) { return rounding(Op::Ceil, x); }
// clang-format on

Tensor round(const Tensor& x, int64_t decimals) {
  if (decimals == 0 || !is_float(x.dtype())) return rounding(Op::Round, x);
  return in_wide(x, [&](const Tensor& v) {
    const double ten = std::pow(10.0, static_cast<double>(std::abs(decimals)));
    return decimals > 0 ? round(v * ten) / ten : round(v / ten) * ten;
  });
}

Tensor frac(const Tensor& x) {
  require_float("frac", x);
  return x - trunc(x);
}

namespace detail {

Tensor erfinv_value(const Tensor& x) {
  return in_wide(to_float(x), [](const Tensor& v) {
    if (v.dtype() == DType::F32) return erfinv_f32(v);
    Tensor y = erfinv_f32(v);
    const double slope = 2 / std::sqrt(std::numbers::pi);
    for (int step = 0; step < 2; step++) {
      // Far out the small distance from ±1 is compared, not the rounded value itself.
      const Tensor far = where(v > 0, (1 - v) - erfc(y), erfc(-y) - (1 + v));
      const Tensor error = where(abs(y) > 1, far, erf(y) - v);
      y = y - where(abs(v) < 1, error / (slope * exp(-y * y)), 0.0);
    }
    return y;
  });
}

}  // namespace detail

Tensor erfinv(const Tensor& x) {
  const Tensor v = to_float(x);
  // The slope of the polynomial is less exact than that of the function: exp(y^2) sqrt(pi) / 2.
  return custom_vjp(detail::erfinv_value(detach(v)), {v},
                    [v](const Tensor& cotangent) -> std::vector<Tensor> {
                      const Tensor y = erfinv(v);
                      return {cotangent * (exp(y * y) * (std::sqrt(std::numbers::pi) / 2))};
                    });
}

Tensor trigamma(const Tensor& x) {
  return in_wide(to_float(x), [](const Tensor& v) {
    // Below 1/2 by reflection: pi^2 / sin^2(pi x) - trigamma(1 - x).
    const Tensor low = v < 0.5;
    Tensor z = where(low, 1 - v, v), sum(constant(0, v.dtype(), v.shape()));
    for (int i = 0; i < 6; i++) {
      sum = sum + 1 / (z * z);
      z = z + 1;
    }
    const Tensor w = 1 / (z * z);
    const Tensor series =
        (1 + 0.5 / z + w * (1.0 / 6 - w * (1.0 / 30 - w * (1.0 / 42 - w * (1.0 / 30))))) / z;
    const Tensor result = sum + series, angle = sin(where(low, v, 0.5) * std::numbers::pi);
    return where(low, std::numbers::pi * std::numbers::pi / (angle * angle) - result, result);
  });
}

Tensor sinc(const Tensor& x) {
  return in_wide(to_float(x), [](const Tensor& v) {
    const Tensor zero = v == 0;
    const Tensor angle = where(zero, 1.0, v) * std::numbers::pi;
    return where(zero, 1.0, sin(angle) / angle);
  });
}

Tensor logit(const Tensor& x, std::optional<double> eps) {
  return in_wide(to_float(x), [&](const Tensor& v) {
    const Tensor z = eps ? clamp(v, *eps, 1 - *eps) : v;
    return log(z / (1 - z));
  });
}

Tensor nan_to_num(const Tensor& x, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  const DType t = x.dtype();
  if (!is_float(t)) return Tensor(x.node());
  const double largest = t == DType::F16    ? 65504.0
                         : t == DType::BF16 ? 0x1.fep127
                         : t == DType::F32  ? std::numeric_limits<float>::max()
                                            : std::numeric_limits<double>::max();
  const Tensor finite = where(x == detail::kInf, posinf.value_or(largest),
                              where(x == -detail::kInf, neginf.value_or(-largest), x));
  return where(isnan(x), nan.value_or(0.0), finite);
}

Tensor isnan(const Tensor& x) {
  return is_float(x.dtype()) ? x != x : Tensor(constant(false, DType::Bool, x.shape()));
}
Tensor isinf(const Tensor& x) {
  if (!is_float(x.dtype())) return Tensor(constant(false, DType::Bool, x.shape()));
  return abs(x) == std::numeric_limits<double>::infinity();
}
Tensor isposinf(const Tensor& x) {
  return x == std::numeric_limits<double>::infinity();
}
Tensor isneginf(const Tensor& x) {
  return x == -std::numeric_limits<double>::infinity();
}
Tensor isfinite(const Tensor& x) {
  if (!is_float(x.dtype())) return Tensor(constant(true, DType::Bool, x.shape()));
  return abs(x) < std::numeric_limits<double>::infinity();
}

Tensor signbit(const Tensor& x) {
  const DType t = x.dtype();
  if (!is_signed(t)) return Tensor(constant(false, DType::Bool, x.shape()));
  if (!is_float(t)) return x < 0;
  const DType bits = size_of(t) == 2 ? DType::I16 : size_of(t) == 4 ? DType::I32 : DType::I64;
  return Tensor(bitcast(detach(x.node()), bits)) < 0;
}

Tensor logical_not(const Tensor& x) {
  return unary_node(Op::Not, cast(x, DType::Bool));
}

Tensor bitwise_not(const Tensor& x) {
  if (!is_integral(x.dtype())) {
    user_error(
        "bitwise_not: the operand is {}, not an integer or bool; convert it first, as in x.to(i32)",
        name(x.dtype()));
  }
  return unary_node(Op::Not, x);
}

}  // namespace lazuli
