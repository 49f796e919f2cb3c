// Elementwise mathematics: conversion, unary, binary and ternary functions. Operands broadcast as
// in NumPy and promote as in PyTorch; functions with fractional results turn integers into f32.
// Division and remainder by an integer zero give 0.
#pragma once

#include <optional>
#include <string_view>

#include "core/promotion.h"
#include "core/tensor.h"

namespace lazuli {

// ---- conversion
/// Elements converted to `dtype`: float to integer truncates and saturates (NaN gives 0), to bool
/// is `!= 0`.
Tensor cast(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, DType dtype);
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

// ---- unary
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
/// -1, 0 or 1; 0 for NaN.
Tensor sign(const Tensor& x);
Tensor square(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor erfc(const Tensor& x);
/// The inverse of erf: ±inf at ±1, NaN outside. M. Giles, "Approximating the erfinv function"
/// (2010) for f32, two Newton steps on it for f64.
Tensor erfinv(const Tensor& x);
Tensor lgamma(const Tensor& x);
Tensor digamma(const Tensor& x);
/// The derivative of digamma: by recurrence to arguments of 7 and more, then the asymptotic series.
Tensor trigamma(const Tensor& x);
Tensor trunc(const Tensor& x);
Tensor floor(const Tensor& x);
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
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isposinf(const Tensor& x);
Tensor isneginf(const Tensor& x);
Tensor isfinite(const Tensor& x);
/// Whether the sign bit is set: true for -0.
Tensor signbit(const Tensor& x);
Tensor logical_not(const Tensor& x);
Tensor bitwise_not(const Tensor& x);

// ---- binary arithmetic
/// a + alpha * b; on bools, or.
Tensor add(const TensorOrScalar& a, const TensorOrScalar& b, const Scalar& alpha = 1);
Tensor sub(const TensorOrScalar& a, const TensorOrScalar& b, const Scalar& alpha = 1);
/// On bools, and.
Tensor mul(const TensorOrScalar& a, const TensorOrScalar& b);
/// The quotient: a float; with rounding_mode "trunc" or "floor", rounded and of the operands'
/// dtype.
Tensor div(const TensorOrScalar& a, const TensorOrScalar& b, std::string_view rounding_mode = "");
Tensor true_divide(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor floor_divide(const TensorOrScalar& a, const TensorOrScalar& b);
/// With the sign of the divisor, as Python's %.
Tensor remainder(const TensorOrScalar& a, const TensorOrScalar& b);
/// tinygrad's name of remainder.
Tensor mod(const TensorOrScalar& a, const TensorOrScalar& b);
/// With the sign of the dividend, as C's fmod.
Tensor fmod(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor pow(const TensorOrScalar& a, const TensorOrScalar& b);
/// NaN if either is NaN.
Tensor maximum(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor minimum(const TensorOrScalar& a, const TensorOrScalar& b);
/// The other one if one is NaN.
Tensor fmax(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor fmin(const TensorOrScalar& a, const TensorOrScalar& b);
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
Tensor bitwise_and(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor bitwise_or(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor bitwise_xor(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor bitwise_left_shift(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor bitwise_right_shift(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor lshift(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor rshift(const TensorOrScalar& a, const TensorOrScalar& b);

// ---- comparison and logic; results are bool
Tensor eq(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor ne(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor lt(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor le(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor gt(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor ge(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor logical_and(const TensorOrScalar& a, const TensorOrScalar& b);
Tensor logical_or(const TensorOrScalar& a, const TensorOrScalar& b);
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
Tensor clip(const Tensor& x, const std::optional<TensorOrScalar>& low = {},
            const std::optional<TensorOrScalar>& high = {});
/// x + value * a * b, and x + value * a / b.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value = 1);
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
