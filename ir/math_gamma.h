// log |Gamma| and its derivative, in f64 alone (f32 goes through it): Stirling's series, to which
// the argument is moved by the recurrence, and reflection for negative numbers. Near their zeros
// the error is absolute, a few 1e-15.
#pragma once

#include "ir/math_functions.h"

namespace lazuli::math {

// B_2k / (2k (2k - 1)) and B_2k / 2k: the series in 1/z^2 of log Gamma and psi (DLMF 5.11.1
// and 5.11.2).
inline constexpr std::array kLgammaSeries{1.0 / 12,    -1.0 / 360,       1.0 / 1260,
                                          -1.0 / 1680, 1.0 / 1188,       -691.0 / 360360,
                                          1.0 / 156,   -3617.0 / 122400, 43867.0 / 244188};
inline constexpr std::array kDigammaSeries{1.0 / 12,   -1.0 / 120,     1.0 / 252,
                                           -1.0 / 240, 1.0 / 132,      -691.0 / 32760,
                                           1.0 / 12,   -3617.0 / 8160, 43867.0 / 14364};

/// y > 0 moved to z >= 8: either itself or y + 8, and then product is y (y + 1) ... (y + 7), else
/// 1, and sum is the sum of the reciprocals of these factors, else 0.
template <template <typename> class V>
struct Moved {
  V<double> z, product, sum;
};

template <template <typename> class V>
Moved<V> move_up(V<double> y) {
  using F = V<double>;
  const V<bool> small = y < F(8);
  const F low = where(small, y, F(1));  // nothing overflows below
  // Factors from both ends in pairs: (y + k) (y + 7 - k) = w + k (7 - k).
  const F w = low * (low + F(7)), w1 = w + F(6), w2 = w + F(10), w3 = w + F(12);
  const F outer = w * w1, inner = w2 * w3;
  const F numerator = fma(w + w1, inner, (w2 + w3) * outer) * (low + low + F(7));
  const F product = outer * inner;
  return {where(small, y + F(8), y), where(small, product, F(1)),
          where(small, numerator / product, F(0))};
}

/// pi times the distance of x to the nearest integer.
template <template <typename> class V>
V<double> angle_from_integer(V<double> x) {
  return abs(x - round(x)) * V<double>(Table<double>::kPi.high);
}

template <template <typename> class V>
V<double> lgamma(V<double> x) {
  using F = V<double>;
  // A tiny number has the value of its opposite.
  const V<bool> negative = x < F(-0x1p-60);
  const auto [z, product, sum] = move_up(where(negative, F(1) - x, abs(x)));
  const F inverse = F(1) / z;
  const F constant(0.41893853320467274178);  // log(2 pi) / 2 - 1/2
  const F stirling = fma(z - F(0.5), log(z) - F(1),
                         fma(inverse, poly(inverse * inverse, kLgammaSeries), constant));
  // Gamma(x) Gamma(1 - x) = pi / sin(pi x).
  const F sine = sin_of(reduce(angle_from_integer(x)), 0);
  const F correction = log(where(negative, F(Table<double>::kPi.high) * product / sine, product));
  const V<bool> zero = (x == F(1)) | (x == F(2));
  const F positive = where(zero, F(0), stirling - correction);
  const F y = where(negative, correction - stirling, positive);
  const V<bool> pole = (x <= F(0)) & (x == round(x));
  return where(pole, F(kInf), where(abs(x) < F(kInf), y, abs(x)));
}

template <template <typename> class V>
V<double> digamma(V<double> x) {
  using F = V<double>;
  const V<bool> negative = x < F(0);
  const auto [z, product, sum] = move_up(where(negative, F(1) - x, x));
  const F inverse = F(1) / z, square = inverse * inverse;
  const F above = log(z) - fma(square, poly(square, kDigammaSeries), fma(inverse, F(0.5), sum));
  // psi(1 - x) - psi(x) = pi / tan(pi x), whose sign is that of x less its nearest integer.
  const F tangent = flip_sign(tan_of(reduce(angle_from_integer(x))), sign_of(x - round(x)));
  const F reflected = where(x == round(x), F(kNaN), above - F(Table<double>::kPi.high) / tangent);
  const F y = where(negative, reflected, where(x < F(kInf), above, x));
  return where(x == F(0), flip_sign(F(-kInf), sign_of(x)), y);
}

}  // namespace lazuli::math
