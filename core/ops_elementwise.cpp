// Functions of two and three tensors.
#include "core/ops_elementwise.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "core/graph.h"
#include "core/ops_movement.h"
#include "core/ops_reduce.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

struct ConvertedPair {
  Tensor a, b;
};

// Both operands as tensors of one dtype and one shape.
ConvertedPair converted(std::string_view op, const TensorOrScalar& a, const TensorOrScalar& b,
                        DType dtype) {
  const Shape shape = broadcast_shapes(op, a, b);
  return {Tensor(operand(a, dtype, shape)), Tensor(operand(b, dtype, shape))};
}

// Both as floats, at least f32 wide: `body` rounds to the result's dtype at the end.
template <typename Body>
Tensor float_binary(std::string_view op, const TensorOrScalar& a, const TensorOrScalar& b,
                    Body body) {
  const DType out = float_result_type(a, b);
  const ConvertedPair p = converted(op, a, b, accumulator(out));
  return cast(body(p.a, p.b), out);
}

DType arithmetic_type(std::string_view op, const TensorOrScalar& a, const TensorOrScalar& b) {
  const DType t = result_type(a, b);
  if (t == DType::Bool) {
    user_error("{}: bools have no {}; convert one operand to a number first, as in x.to(i32)", op,
               op);
  }
  return t;
}

DType bits_type(std::string_view op, const TensorOrScalar& a, const TensorOrScalar& b) {
  const DType t = result_type(a, b);
  if (!is_integral(t)) {
    user_error(
        "{}: the operands are {}, not integers or bools; convert them first, as in x.to(i32){}", op,
        name(t), op == "bitwise_xor" ? "; a power is pow(x, y)" : "");
  }
  return t;
}

Tensor bit_shifted(std::string_view op, Op node, const TensorOrScalar& a, const TensorOrScalar& b) {
  const DType t = bits_type(op, a, b);
  if (t == DType::Bool) {
    user_error("{}: bools cannot be shifted; convert them first, as in x.to(i32)", op);
  }
  return binary(op, node, a, b, t);
}

Tensor times_alpha(const TensorOrScalar& b, const Scalar& alpha) {
  return mul(b, alpha);
}

bool is_one(const Scalar& s) {
  return s.as_double() == 1.0;
}

// alpha must not make floats of integers.
void check_alpha(std::string_view op, DType dtype, const Scalar& alpha) {
  require(is_float(dtype) || !alpha.is_float(),
          "{}: alpha is the float {}, but the operands are integers; convert one to float first",
          op, alpha.as_double());
}

// Whether the remainder r of a division by b must move to the other side of zero.
Tensor wrong_side(const Tensor& r, const Tensor& b) {
  return (r != 0) & ((r < 0) != (b < 0));
}

Tensor floor_divide_node(const Tensor& a, const Tensor& b) {
  const DType t = a.dtype();
  if (is_integral(t)) {
    const Tensor q(elementwise(Op::IDiv, {a.node(), b.node()}));
    if (!is_signed(t)) return q;
    const Tensor r(elementwise(Op::Rem, {a.node(), b.node()}));
    return where(wrong_side(r, b), q - 1, q);
  }
  // As Python divides: the quotient of the exact multiple, which a plain floor(a / b) would miss by
  // one at times.
  const Tensor r(elementwise(Op::Rem, {a.node(), b.node()}));
  const Tensor multiple = (a - r) / b;
  const Tensor q = where(wrong_side(r, b), multiple - 1, multiple);
  const Tensor down = floor(q);
  const Tensor nearest = where(q - down > 0.5, down + 1, down);
  const Tensor signed_zero = copysign(Tensor(constant(0, t, a.shape())), a / b);
  return where(b == 0, a / b, where(q != 0, nearest, signed_zero));
}

// x to a non-negative whole power, by repeated squaring.
Tensor whole_power(const Tensor& x, uint64_t n) {
  Tensor power = x, result = x;
  bool any = false;
  for (; n != 0; n >>= 1) {
    if (n & 1) result = any ? result * power : power;
    any |= (n & 1) != 0;
    if (n > 1) power = power * power;
  }
  return result;
}

// Integers to the power of integers, wrapping. A negative exponent gives what truncating 1 / a^-b
// would: 1, ±1 or 0.
Tensor integer_pow(const Tensor& a, const Tensor& b) {
  const DType t = a.dtype();
  Tensor power = a, n = b, result(constant(1, t, a.shape()));
  for (int bit = 0; bit < 8 * size_of(t); bit++) {
    result = where((n & 1) != 0, result * power, result);
    power = power * power;
    n = n >> 1;
  }
  if (!is_signed(t)) return result;
  const Tensor alternating = where((b & 1) != 0, -1, 1);
  const Tensor inverse = where(
      a == 1, 1, where(a == -1, cast(alternating, t), cast(Tensor(constant(0, t, a.shape())), t)));
  return where(b < 0, inverse, result);
}

// A float tensor to a constant power: the cases that have an exact or cheaper form.
std::optional<Tensor> special_pow(const Tensor& x, double n) {
  if (n == 0.0) return Tensor(constant(1, x.dtype(), x.shape()));
  if (n == 0.5) return sqrt(x);
  if (n == -0.5) return rsqrt(x);
  if (n == 1.0) return Tensor(x.node());
  if (n == 2.0) return x * x;
  if (n == 3.0) return in_wide(x, [](const Tensor& v) { return v * v * v; });
  if (n == -1.0) return reciprocal(x);
  if (n == -2.0) return in_wide(x, [](const Tensor& v) { return reciprocal(v * v); });
  return std::nullopt;
}

Tensor pow_by_number(const Tensor& x, const Scalar& n, DType t) {
  const Tensor base = cast(x, t);
  if (is_float(t)) {
    if (const std::optional<Tensor> special = special_pow(base, n.as_double())) return *special;
    return binary("pow", Op::Pow, base, n, t);
  }
  if (n.as_int() < 0) {
    user_error("pow: integers to the negative power {}; convert the base to a float first",
               n.as_int());
  }
  if (n.as_int() == 0) return Tensor(constant(1, t, x.shape()));
  return whole_power(base, static_cast<uint64_t>(n.as_int()));
}

// A bound of clamp. PyTorch sends the gradient at a tie to the bound if that is a number, and to
// both halves if a tensor.
Tensor bounded(const Tensor& x, const TensorOrScalar& bound, bool low) {
  if (bound.is_tensor()) return low ? maximum(x, bound) : minimum(x, bound);
  if (std::isnan(bound.scalar().as_double()))
    return Tensor(constant(bound.scalar(), x.dtype(), x.shape()));
  return where(low ? le(x, bound) : ge(x, bound), bound, x);
}

}  // namespace

// ---- binary arithmetic

Tensor add(TensorOrScalar a, TensorOrScalar b, const Scalar& alpha) {
  const DType t = result_type(a, b);
  if (!is_one(alpha)) {
    check_alpha("add", t, alpha);
    return add(std::move(a), times_alpha(b, alpha));
  }
  return binary("add", t == DType::Bool ? Op::Or : Op::Add, std::move(a), std::move(b), t);
}

Tensor sub(TensorOrScalar a, TensorOrScalar b, const Scalar& alpha) {
  const DType t = result_type(a, b);
  if (t == DType::Bool) {
    user_error("sub: bools cannot be subtracted; use logical_xor or ^ for where they differ");
  }
  if (!is_one(alpha)) {
    check_alpha("sub", t, alpha);
    return sub(std::move(a), times_alpha(b, alpha));
  }
  return binary("sub", Op::Sub, std::move(a), std::move(b), t);
}

Tensor mul(TensorOrScalar a, TensorOrScalar b) {
  const DType t = result_type(a, b);
  return binary("mul", t == DType::Bool ? Op::And : Op::Mul, std::move(a), std::move(b), t);
}

Tensor div(TensorOrScalar a, TensorOrScalar b, std::string_view rounding_mode) {
  if (rounding_mode.empty()) {
    const DType t = float_result_type(a, b);
    return binary("div", Op::Div, std::move(a), std::move(b), t);
  }
  if (rounding_mode == "floor") return floor_divide(a, b);
  require(rounding_mode == "trunc", "div: rounding_mode is \"{}\"; it must be trunc or floor",
          rounding_mode);
  const DType t = arithmetic_type("div", a, b);
  if (is_integral(t)) return binary("div", Op::IDiv, a, b, t);
  return trunc(binary("div", Op::Div, a, b, t));
}
Tensor true_divide(const TensorOrScalar& a, const TensorOrScalar& b) {
  return div(a, b);
}

Tensor floor_divide(const TensorOrScalar& a, const TensorOrScalar& b) {
  const DType t = arithmetic_type("floor_divide", a, b);
  const ConvertedPair p = converted("floor_divide", a, b, accumulator(t));
  return cast(floor_divide_node(detach(p.a), detach(p.b)), t);
}

Tensor remainder(const TensorOrScalar& a, const TensorOrScalar& b) {
  const DType t = arithmetic_type("remainder", a, b);
  const ConvertedPair p = converted("remainder", a, b, accumulator(t));
  const Tensor r(elementwise(Op::Rem, {p.a.node(), p.b.node()}));
  if (!is_signed(t)) return r;
  return cast(where(wrong_side(r, p.b), r + p.b, r), t);
}
Tensor mod(const TensorOrScalar& a, const TensorOrScalar& b) {
  return remainder(a, b);
}

Tensor fmod(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("fmod", Op::Rem, a, b, arithmetic_type("fmod", a, b));
}

Tensor pow(const TensorOrScalar& a, const TensorOrScalar& b) {
  const DType t = arithmetic_type("pow", a, b);
  if (a.is_tensor() && !b.is_tensor()) return pow_by_number(a.tensor(), b.scalar(), t);
  if (is_float(t)) return binary("pow", Op::Pow, a, b, t);
  const ConvertedPair p = converted("pow", a, b, t);
  return integer_pow(p.a, p.b);
}

Tensor maximum(const TensorOrScalar& a, const TensorOrScalar& b) {
  const DType t = result_type(a, b);
  return binary("maximum", t == DType::Bool ? Op::Or : Op::Max, a, b, t);
}
Tensor minimum(const TensorOrScalar& a, const TensorOrScalar& b) {
  const DType t = result_type(a, b);
  return binary("minimum", t == DType::Bool ? Op::And : Op::Min, a, b, t);
}

Tensor fmax(const TensorOrScalar& a, const TensorOrScalar& b) {
  const ConvertedPair p = converted("fmax", a, b, result_type(a, b));
  return where(isnan(p.a), p.b, where(isnan(p.b), p.a, maximum(p.a, p.b)));
}
Tensor fmin(const TensorOrScalar& a, const TensorOrScalar& b) {
  const ConvertedPair p = converted("fmin", a, b, result_type(a, b));
  return where(isnan(p.a), p.b, where(isnan(p.b), p.a, minimum(p.a, p.b)));
}

Tensor atan2(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("atan2", Op::Atan2, a, b, float_result_type(a, b));
}

Tensor hypot(const TensorOrScalar& a, const TensorOrScalar& b) {
  return float_binary("hypot", a, b, [](const Tensor& x, const Tensor& y) {
    const Tensor ax = abs(x), ay = abs(y), large = maximum(ax, ay), small = minimum(ax, ay);
    const Tensor ratio = small / large;
    const Tensor length = where(large == 0, 0.0, large * sqrt(1 + ratio * ratio));
    return where(isinf(x) | isinf(y), std::numeric_limits<double>::infinity(), length);
  });
}

Tensor copysign(const TensorOrScalar& a, const TensorOrScalar& b) {
  return float_binary("copysign", a, b, [](const Tensor& x, const Tensor& y) {
    const Tensor size = abs(x);
    return where(signbit(y), -size, size);
  });
}

Tensor logaddexp(const TensorOrScalar& a, const TensorOrScalar& b) {
  return float_binary("logaddexp", a, b, [](const Tensor& x, const Tensor& y) {
    // Equal infinities have no difference.
    const Tensor difference = where(x == y, 0.0, x - y);
    return maximum(x, y) + log1p(exp(-abs(difference)));
  });
}

Tensor logaddexp2(const TensorOrScalar& a, const TensorOrScalar& b) {
  return float_binary("logaddexp2", a, b, [](const Tensor& x, const Tensor& y) {
    const Tensor difference = where(x == y, 0.0, x - y);
    return maximum(x, y) + log1p(exp2(-abs(difference))) * std::numbers::log2e;
  });
}

Tensor xlogy(const TensorOrScalar& a, const TensorOrScalar& b) {
  return float_binary("xlogy", a, b, [](const Tensor& x, const Tensor& y) {
    // Where y > 0 is finite the product is 0 by itself and keeps its gradient in x, which is
    // log(y).
    const Tensor zero = (x == 0) & ((y <= 0) | (y == std::numeric_limits<double>::infinity()));
    return where(zero, 0.0, where(zero, 0.0, x) * log(y));
  });
}

// ---- bits

Tensor bitwise_and(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("bitwise_and", Op::And, a, b, bits_type("bitwise_and", a, b));
}
Tensor bitwise_or(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("bitwise_or", Op::Or, a, b, bits_type("bitwise_or", a, b));
}
Tensor bitwise_xor(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("bitwise_xor", Op::Xor, a, b, bits_type("bitwise_xor", a, b));
}
Tensor bitwise_left_shift(const TensorOrScalar& a, const TensorOrScalar& b) {
  return bit_shifted("bitwise_left_shift", Op::Shl, a, b);
}
Tensor bitwise_right_shift(const TensorOrScalar& a, const TensorOrScalar& b) {
  return bit_shifted("bitwise_right_shift", Op::Shr, a, b);
}
Tensor lshift(const TensorOrScalar& a, const TensorOrScalar& b) {
  return bitwise_left_shift(a, b);
}
Tensor rshift(const TensorOrScalar& a, const TensorOrScalar& b) {
  return bitwise_right_shift(a, b);
}

// ---- comparison and logic

Tensor eq(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("eq", Op::Eq, a, b, result_type(a, b));
}
Tensor ne(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("ne", Op::Ne, a, b, result_type(a, b));
}
Tensor lt(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("lt", Op::Lt, a, b, result_type(a, b));
}
Tensor le(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("le", Op::Le, a, b, result_type(a, b));
}
Tensor gt(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("gt", Op::Lt, b, a, result_type(a, b));
}
Tensor ge(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("ge", Op::Le, b, a, result_type(a, b));
}
Tensor logical_and(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("logical_and", Op::And, a, b, DType::Bool);
}
Tensor logical_or(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("logical_or", Op::Or, a, b, DType::Bool);
}
Tensor logical_xor(const TensorOrScalar& a, const TensorOrScalar& b) {
  return binary("logical_xor", Op::Xor, a, b, DType::Bool);
}

Tensor isclose(const TensorOrScalar& a, const TensorOrScalar& b, double rtol, double atol,
               bool equal_nan) {
  require(rtol >= 0 && atol >= 0, "isclose: the tolerances {} and {} cannot be negative", rtol,
          atol);
  const DType t = result_type(a, b);
  const ConvertedPair p = converted("isclose", a, b, t);
  Tensor close = p.a == p.b;
  if (equal_nan) close = close | (isnan(p.a) & isnan(p.b));
  if (rtol == 0 && atol == 0) return close;
  const DType wide = is_float(t) ? accumulator(t) : DType::F64;
  const Tensor x = cast(p.a, wide), y = cast(p.b, wide), error = abs(x - y);
  return close | (isfinite(error) & (error <= abs(y) * rtol + atol));
}

bool allclose(const TensorOrScalar& a, const TensorOrScalar& b, double rtol, double atol,
              bool equal_nan) {
  return all(isclose(a, b, rtol, atol, equal_nan)).item<int64_t>() != 0;
}

// ---- ternary

Tensor where(const Tensor& condition, const TensorOrScalar& a, const TensorOrScalar& b) {
  if (condition.dtype() != DType::Bool) {
    user_error("where: the condition is {}, not bool; compare it first, as in x != 0",
               name(condition.dtype()));
  }
  const std::array<TensorOrScalar, 3> all{condition, a, b};
  const Shape shape = broadcast_shapes("where", all);
  const DType t = result_type(a, b);
  return Tensor(elementwise(Op::Where, {operand(condition, DType::Bool, shape),
                                        operand(a, t, shape), operand(b, t, shape)}));
}

Tensor lerp(const Tensor& start, const Tensor& end, const TensorOrScalar& weight) {
  require_float("lerp", start);
  const DType t = start.dtype(), wide = accumulator(t);
  require(end.dtype() == t, "lerp: start is {} and end is {}; convert one of them", name(t),
          name(end.dtype()));
  broadcast_shapes("lerp", std::array<TensorOrScalar, 3>{start, end, weight});
  const Tensor from = cast(start, wide), to = cast(end, wide);
  if (!weight.is_tensor()) {
    const double w = weight.scalar().as_double();
    const Tensor x = std::abs(w) < 0.5 ? from + (to - from) * w : to - (to - from) * (1 - w);
    return cast(x, t);
  }
  const Tensor w = cast(weight.tensor(), wide);
  return cast(where(abs(w) < 0.5, from + w * (to - from), to - (to - from) * (1 - w)), t);
}

Tensor clamp(const Tensor& x, const std::optional<TensorOrScalar>& low,
             const std::optional<TensorOrScalar>& high) {
  require(low || high, "clamp: neither a lower nor an upper bound is given");
  const std::array<TensorOrScalar, 3> operands{x, low ? *low : x, high ? *high : x};
  broadcast_shapes("clamp", operands);
  const DType t = result_type(operands);
  Tensor y = cast(x, t);
  if (low) y = bounded(y, *low, true);
  if (high) y = bounded(y, *high, false);
  return y;
}
Tensor clip(const Tensor& x, const std::optional<TensorOrScalar>& low,
            const std::optional<TensorOrScalar>& high) {
  return clamp(x, low, high);
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {
  return x + (is_one(value) ? a * b : value * a * b);
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {
  return x + (is_one(value) ? a / b : value * a / b);
}

}  // namespace lazuli
