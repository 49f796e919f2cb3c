// Elementwise mathematics: conversion, unary, binary and ternary functions. Operands broadcast as
// in NumPy and promote as in PyTorch; functions with fractional results turn integers into f32.
// Division and remainder by an integer zero give 0.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/tensor.h"

namespace lazuli {

// ---- conversion
/// Elements converted to `dtype`: float to integer truncates and saturates (NaN gives 0), to bool
/// is `!= 0`. A tensor of that dtype is returned itself, as by PyTorch: clone() gives another.
Tensor cast(const Tensor& x, DType dtype);
/// Another name of cast.
Tensor to(const Tensor& x, DType dtype);
/// cast to f16.
Tensor half(const Tensor& x);
/// cast to bf16.
Tensor bfloat16(const Tensor& x);
/// The same bytes read as another dtype, as Tensor.view(dtype): the last axis grows or shrinks with
/// the element size.
Tensor bitcast(const Tensor& x, DType dtype);
/// The same value, through which no gradient passes.
Tensor detach(const Tensor& x);
/// The same value, stored as an array of its own.
Tensor contiguous(const Tensor& x);
/// The same value, whose gradient is stored as an array of its own.
Tensor contiguous_backward(const Tensor& x);
/// The same value with an identity of its own.
Tensor clone(const Tensor& x);

/// The dtype that the operands are converted to, as torch.result_type: tensors with dimensions
/// count first, then rank-0 tensors, then numbers; a lower class matters only if its category
/// (bool, int, float) is higher.
DType result_type(std::span<const TensorOrScalar> operands);
/// The same of two.
DType result_type(const TensorOrScalar& a, const TensorOrScalar& b);

// ---- unary
/// -x; of unsigned integers modulo their range. UserError for bools.
Tensor neg(const Tensor& x);
/// |x|; the lowest signed integer is its own.
Tensor abs(const Tensor& x);
/// -1, 0 or 1; 0 for NaN.
Tensor sign(const Tensor& x);
/// x * x.
Tensor square(const Tensor& x);
/// The square root; NaN below 0.
Tensor sqrt(const Tensor& x);
/// 1 / sqrt(x).
Tensor rsqrt(const Tensor& x);
/// 1 / x.
Tensor reciprocal(const Tensor& x);
/// e^x.
Tensor exp(const Tensor& x);
/// 2^x.
Tensor exp2(const Tensor& x);
/// exp(x) - 1, exact for small x.
Tensor expm1(const Tensor& x);
/// The natural logarithm; -inf at 0, NaN below.
Tensor log(const Tensor& x);
/// The logarithm of base 2.
Tensor log2(const Tensor& x);
/// The logarithm of base 10.
Tensor log10(const Tensor& x);
/// log(1 + x), exact for small x.
Tensor log1p(const Tensor& x);
/// The sine of x radians.
Tensor sin(const Tensor& x);
/// The cosine of x radians.
Tensor cos(const Tensor& x);
/// The tangent of x radians.
Tensor tan(const Tensor& x);
/// The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1].
Tensor asin(const Tensor& x);
/// The angle in [0, pi] whose cosine is x; NaN outside [-1, 1].
Tensor acos(const Tensor& x);
/// The angle in (-pi/2, pi/2) whose tangent is x.
Tensor atan(const Tensor& x);
/// The hyperbolic sine.
Tensor sinh(const Tensor& x);
/// The hyperbolic cosine.
Tensor cosh(const Tensor& x);
/// The hyperbolic tangent.
Tensor tanh(const Tensor& x);
/// The inverse of sinh.
Tensor asinh(const Tensor& x);
/// The inverse of cosh; NaN below 1.
Tensor acosh(const Tensor& x);
/// The inverse of tanh; infinite at -1 and 1, NaN outside.
Tensor atanh(const Tensor& x);
/// The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
Tensor erf(const Tensor& x);
/// 1 - erf(x), exact for large x.
Tensor erfc(const Tensor& x);
/// The inverse of erf: ±inf at ±1, NaN outside. M. Giles, "Approximating the erfinv function"
/// (2010) for f32, two Newton steps on it for f64.
Tensor erfinv(const Tensor& x);
/// The logarithm of |gamma(x)|.
Tensor lgamma(const Tensor& x);
/// The derivative of log(gamma(x)); -inf at +0, NaN at the negative integers.
Tensor digamma(const Tensor& x);
/// The derivative of digamma: by recurrence to arguments of 7 and more, then the asymptotic series.
Tensor trigamma(const Tensor& x);
/// To the integer next to 0; integers stay.
Tensor trunc(const Tensor& x);
/// To the largest integer not above; integers stay.
Tensor floor(const Tensor& x);
/// To the smallest integer not below; integers stay.
Tensor ceil(const Tensor& x);
/// To nearest even; with `decimals`, at that decimal place.
Tensor round(const Tensor& x, int64_t decimals = 0);
/// x - trunc(x).
Tensor frac(const Tensor& x);
/// sin(pi x) / (pi x), 1 at 0.
Tensor sinc(const Tensor& x);
/// log(x / (1 - x)); with `eps`, x is clamped to [eps, 1 - eps] first.
Tensor logit(const Tensor& x, std::optional<double> eps = {});
/// NaN and infinities replaced; infinities by the largest finite numbers unless given.
Tensor nan_to_num(const Tensor& x, std::optional<double> nan = {},
                  std::optional<double> posinf = {}, std::optional<double> neginf = {});
/// Whether NaN; bool.
Tensor isnan(const Tensor& x);
/// Whether infinite; bool.
Tensor isinf(const Tensor& x);
/// Whether +inf; bool.
Tensor isposinf(const Tensor& x);
/// Whether -inf; bool.
Tensor isneginf(const Tensor& x);
/// Whether neither infinite nor NaN; bool.
Tensor isfinite(const Tensor& x);
/// Whether the sign bit is set: true for -0.
Tensor signbit(const Tensor& x);
/// Whether 0; bool.
Tensor logical_not(const Tensor& x);
/// All bits inverted; on bools, not. UserError for floats.
Tensor bitwise_not(const Tensor& x);

// ---- binary arithmetic
/// a + alpha * b; on bools, or.
Tensor add(TensorOrScalar a, TensorOrScalar b, const Scalar& alpha = 1);
/// a - alpha * b. UserError for bools.
Tensor sub(TensorOrScalar a, TensorOrScalar b, const Scalar& alpha = 1);
/// On bools, and.
Tensor mul(TensorOrScalar a, TensorOrScalar b);
/// first + second + ..., of at least one.
template <typename... T>
Tensor usum(const Tensor& first, const T&... rest) {
  Tensor total = first;
  ((total = add(total, rest)), ...);
  return total;
}
/// first * second * ..., of at least one.
template <typename... T>
Tensor uprod(const Tensor& first, const T&... rest) {
  Tensor product = first;
  ((product = mul(product, rest)), ...);
  return product;
}
/// The quotient: a float; with rounding_mode "trunc" or "floor", rounded and of the operands'
/// dtype.
Tensor div(TensorOrScalar a, TensorOrScalar b, std::string_view rounding_mode = "");
/// Another name of div without rounding.
Tensor true_divide(const TensorOrScalar& a, const TensorOrScalar& b);
/// The quotient rounded down, in the operands' dtype.
Tensor floor_divide(const TensorOrScalar& a, const TensorOrScalar& b);
/// With the sign of the divisor, as Python's %.
Tensor remainder(const TensorOrScalar& a, const TensorOrScalar& b);
/// tinygrad's name of remainder.
Tensor mod(const TensorOrScalar& a, const TensorOrScalar& b);
/// With the sign of the dividend, as C's fmod.
Tensor fmod(const TensorOrScalar& a, const TensorOrScalar& b);
/// a to the power b. UserError for integers to a negative number as the power.
Tensor pow(const TensorOrScalar& a, const TensorOrScalar& b);
/// NaN if either is NaN.
Tensor maximum(const TensorOrScalar& a, const TensorOrScalar& b);
/// The smaller; NaN if either is NaN.
Tensor minimum(const TensorOrScalar& a, const TensorOrScalar& b);
/// The other one if one is NaN.
Tensor fmax(const TensorOrScalar& a, const TensorOrScalar& b);
/// The smaller; the other one if one is NaN.
Tensor fmin(const TensorOrScalar& a, const TensorOrScalar& b);
/// The angle of the point (b, a), in [-pi, pi].
Tensor atan2(const TensorOrScalar& a, const TensorOrScalar& b);
/// sqrt(a^2 + b^2) without overflow on the way.
Tensor hypot(const TensorOrScalar& a, const TensorOrScalar& b);
/// |a| with the sign bit of b.
Tensor copysign(const TensorOrScalar& a, const TensorOrScalar& b);
/// log(exp(a) + exp(b)) without overflow on the way.
Tensor logaddexp(const TensorOrScalar& a, const TensorOrScalar& b);
/// log2(2^a + 2^b).
Tensor logaddexp2(const TensorOrScalar& a, const TensorOrScalar& b);
/// a * log(b), 0 where a is 0 and b is not NaN.
Tensor xlogy(const TensorOrScalar& a, const TensorOrScalar& b);

// ---- bits; integers and bools only. Shifts by the width or more give 0, or -1 for a negative
// number shifted right.
/// Each bit set that is set in both; on bools, and.
Tensor bitwise_and(const TensorOrScalar& a, const TensorOrScalar& b);
/// Each bit set that is set in either; on bools, or.
Tensor bitwise_or(const TensorOrScalar& a, const TensorOrScalar& b);
/// Each bit set that is set in one alone; on bools, whether they differ.
Tensor bitwise_xor(const TensorOrScalar& a, const TensorOrScalar& b);
/// a * 2^b modulo the range of the dtype.
Tensor bitwise_left_shift(const TensorOrScalar& a, const TensorOrScalar& b);
/// a / 2^b rounded down.
Tensor bitwise_right_shift(const TensorOrScalar& a, const TensorOrScalar& b);
/// Another name of bitwise_left_shift.
Tensor lshift(const TensorOrScalar& a, const TensorOrScalar& b);
/// Another name of bitwise_right_shift.
Tensor rshift(const TensorOrScalar& a, const TensorOrScalar& b);

// ---- comparison and logic; results are bool
/// a == b.
Tensor eq(const TensorOrScalar& a, const TensorOrScalar& b);
/// a != b; true where either is NaN.
Tensor ne(const TensorOrScalar& a, const TensorOrScalar& b);
/// a < b.
Tensor lt(const TensorOrScalar& a, const TensorOrScalar& b);
/// a <= b.
Tensor le(const TensorOrScalar& a, const TensorOrScalar& b);
/// a > b.
Tensor gt(const TensorOrScalar& a, const TensorOrScalar& b);
/// a >= b.
Tensor ge(const TensorOrScalar& a, const TensorOrScalar& b);
/// Whether neither is 0.
Tensor logical_and(const TensorOrScalar& a, const TensorOrScalar& b);
/// Whether one is not 0.
Tensor logical_or(const TensorOrScalar& a, const TensorOrScalar& b);
/// Whether exactly one is not 0.
Tensor logical_xor(const TensorOrScalar& a, const TensorOrScalar& b);
/// |a - b| <= atol + rtol * |b|, or equal; NaN equals NaN if `equal_nan`.
Tensor isclose(const TensorOrScalar& a, const TensorOrScalar& b, double rtol = 1e-5,
               double atol = 1e-8, bool equal_nan = false);
/// Whether all are close; realises.
bool allclose(const TensorOrScalar& a, const TensorOrScalar& b, double rtol = 1e-5,
              double atol = 1e-8, bool equal_nan = false);

// ---- ternary
/// `a` where `condition` (bool) holds, else `b`.
Tensor where(const Tensor& condition, const TensorOrScalar& a, const TensorOrScalar& b);
/// start + weight * (end - start), computed from the nearer end.
Tensor lerp(const Tensor& start, const Tensor& end, const TensorOrScalar& weight);
/// min(max(x, low), high); either bound may be left out. At a number as bound no gradient passes to
/// x; a tensor shares it.
Tensor clamp(const Tensor& x, const std::optional<TensorOrScalar>& low = {},
             const std::optional<TensorOrScalar>& high = {});
/// Another name of clamp.
Tensor clip(const Tensor& x, const std::optional<TensorOrScalar>& low = {},
            const std::optional<TensorOrScalar>& high = {});
/// x + value * a * b, and x + value * a / b.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
/// x + value * a / b.
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);

namespace detail {
/// erfinv without a gradient of its own, for random numbers.
Tensor erfinv_value(const Tensor& x);
}  // namespace detail

// ---- operators; a number stands on either side. `/` divides as in Python, `%` is remainder, `==`
// compares elements.
// clang-format off
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator+(const Tensor& a, const Scalar& b) { return add(a, b); }
inline Tensor operator+(const Scalar& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator-(const Tensor& a, const Scalar& b) { return sub(a, b); }
inline Tensor operator-(const Scalar& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator*(const Tensor& a, const Scalar& b) { return mul(a, b); }
inline Tensor operator*(const Scalar& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator/(const Tensor& a, const Scalar& b) { return div(a, b); }
inline Tensor operator/(const Scalar& a, const Tensor& b) { return div(a, b); }
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator%(const Tensor& a, const Scalar& b) { return remainder(a, b); }
inline Tensor operator%(const Scalar& a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }
inline Tensor operator&(const Tensor& a, const Scalar& b) { return bitwise_and(a, b); }
inline Tensor operator&(const Scalar& a, const Tensor& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
inline Tensor operator|(const Tensor& a, const Scalar& b) { return bitwise_or(a, b); }
inline Tensor operator|(const Scalar& a, const Tensor& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return bitwise_xor(a, b); }
inline Tensor operator^(const Tensor& a, const Scalar& b) { return bitwise_xor(a, b); }
inline Tensor operator^(const Scalar& a, const Tensor& b) { return bitwise_xor(a, b); }
inline Tensor operator<<(const Tensor& a, const Tensor& b) { return bitwise_left_shift(a, b); }
inline Tensor operator<<(const Tensor& a, const Scalar& b) { return bitwise_left_shift(a, b); }
inline Tensor operator<<(const Scalar& a, const Tensor& b) { return bitwise_left_shift(a, b); }
inline Tensor operator>>(const Tensor& a, const Tensor& b) { return bitwise_right_shift(a, b); }
inline Tensor operator>>(const Tensor& a, const Scalar& b) { return bitwise_right_shift(a, b); }
inline Tensor operator>>(const Scalar& a, const Tensor& b) { return bitwise_right_shift(a, b); }
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator==(const Tensor& a, const Scalar& b) { return eq(a, b); }
inline Tensor operator==(const Scalar& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator!=(const Tensor& a, const Scalar& b) { return ne(a, b); }
inline Tensor operator!=(const Scalar& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<(const Tensor& a, const Scalar& b) { return lt(a, b); }
inline Tensor operator<(const Scalar& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator<=(const Tensor& a, const Scalar& b) { return le(a, b); }
inline Tensor operator<=(const Scalar& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>(const Tensor& a, const Scalar& b) { return gt(a, b); }
inline Tensor operator>(const Scalar& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator>=(const Tensor& a, const Scalar& b) { return ge(a, b); }
inline Tensor operator>=(const Scalar& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }
inline Tensor operator!(const Tensor& x) { return logical_not(x); }
// clang-format on

}  // namespace lazuli
