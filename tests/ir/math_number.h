// A number with the operators that ir/math_functions.h is written in: the same source as the
// kernels', computed.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/evaluate.h"
#include "core/op.h"

namespace lazuli::math {

template <typename T>
struct Number {
  T v{};

  Number() = default;
  template <typename A>
  requires std::is_arithmetic_v<A> Number(A a) : v(static_cast<T>(a)) {}

  friend Number operator+(Number a, Number b) { return Number(a.v + b.v); }
  friend Number operator-(Number a, Number b) { return Number(a.v - b.v); }
  friend Number operator*(Number a, Number b) { return Number(a.v * b.v); }
  friend Number operator/(Number a, Number b) { return Number(a.v / b.v); }
  friend Number operator-(Number a) { return Number(-a.v); }
  friend Number operator&(Number a, Number b) { return Number(a.v & b.v); }
  friend Number operator|(Number a, Number b) { return Number(a.v | b.v); }
  friend Number operator^(Number a, Number b) { return Number(a.v ^ b.v); }
  friend Number operator<<(Number a, Number b) { return Number(a.v << b.v); }
  friend Number operator>>(Number a, Number b) { return Number(a.v >> b.v); }
  friend Number operator!(Number a) { return Number(!a.v); }
  friend Number<bool> operator<(Number a, Number b) { return a.v < b.v; }
  friend Number<bool> operator<=(Number a, Number b) { return a.v <= b.v; }
  friend Number<bool> operator==(Number a, Number b) { return a.v == b.v; }
  friend Number<bool> operator!=(Number a, Number b) { return a.v != b.v; }
  friend Number fma(Number a, Number b, Number c) { return std::fma(a.v, b.v, c.v); }
  friend Number sqrt(Number a) { return std::sqrt(a.v); }
  friend Number abs(Number a) { return std::fabs(a.v); }
  friend Number round(Number a) { return std::nearbyint(a.v); }
  friend Number eighth_root(Number a) { return kEighthRoots[a.v % kEighthRoots.size()]; }
  friend Number recip_estimate(Number a) {
    return std::bit_cast<float>(
        lazuli::recip_estimate(std::bit_cast<uint32_t>(static_cast<float>(a.v))));
  }
  friend Number long_rem(Number a, Number b) { return std::fmod(a.v, b.v); }
  friend Number where(Number<bool> c, Number a, Number b) { return c.v ? a : b; }
  friend Number rare(Number<bool> c, Number a, Number b) { return c.v ? a : b; }
};

template <typename T, typename S>
Number<T> bitcast(Number<S> a) {
  return std::bit_cast<T>(a.v);
}
template <typename T, typename S>
Number<T> cast(Number<S> a) {
  return static_cast<T>(a.v);
}

}  // namespace lazuli::math
