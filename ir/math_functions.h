// The elementary functions, written once over a value type V: V<float> may be a number (tests) or a
// node (kernels), and an operator then computes or builds. No branches, and only what every target
// has: + - * / fma sqrt abs, compare and select, conversion, and integer operations on the bits;
// with kRoots, eighth_root, which is a permutation of a vector; with kEstimate, recip_estimate.
//
// Style of the code: polynomials are evaluated by Estrin's scheme (latency, not count, bounds long
// bodies); n of 2^n is read off the low bits of a sum rounded by a large constant, since
// conversions are slow; minima are compare-and-select with the variable last, one instruction on
// x86 that also lets NaN through. `rare(c, slow, fast)` is `where` with the hint that c is seldom
// true in any lane.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include "ir/math_tables.h"

namespace lazuli::math {

#define LAZULI_MATH template <template <typename> class V, typename S>
// With kRoots, f32 is computed by roots of two; f64 never is.
#define LAZULI_MATH_OF_EXP template <template <typename> class V, typename S, bool kRoots = false>
// With kEstimate, f32 is divided by way of estimates; f64 never is.
#define LAZULI_MATH_OF_QUOTIENT \
  template <template <typename> class V, typename S, bool kEstimate = false>

template <typename S>
using UintOf = typename Table<S>::Uint;
template <typename S>
using IntOf = typename Table<S>::Int;

template <typename S>
inline constexpr int kWidth = 8 * static_cast<int>(sizeof(S));
template <typename S>
inline constexpr UintOf<S> kSignBit = UintOf<S>{1} << (kWidth<S> - 1);
template <typename S>
inline constexpr UintOf<S> kOneBits = UintOf<S>{Table<S>::kBias} << Table<S>::kMantissa;
template <typename S>
inline constexpr UintOf<S> kMantissaBits = (UintOf<S>{1} << Table<S>::kMantissa) - 1;
/// 2^n.
constexpr double power(int n) {
  double p = 1;
  for (; n > 0; n--) p *= 2;
  for (; n < 0; n++) p /= 2;
  return p;
}
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

LAZULI_MATH V<UintOf<S>> bits(V<S> x) {
  return bitcast<UintOf<S>>(x);
}

/// At least (at most) `bound`; NaN stays.
LAZULI_MATH V<S> at_least(V<S> x, double bound) {
  return where(x < V<S>(bound), V<S>(bound), x);
}
LAZULI_MATH V<S> at_most(V<S> x, double bound) {
  return where(V<S>(bound) < x, V<S>(bound), x);
}

/// x with its sign flipped where the top bit of `sign` is set; the lower bits of `sign` are ignored
/// or known to be 0.
LAZULI_MATH V<S> flip_sign(V<S> x, V<UintOf<S>> sign) {
  return bitcast<S>(bits(x) ^ sign);
}
LAZULI_MATH V<UintOf<S>> sign_of(V<S> x) {
  return bits(x) & V<UintOf<S>>(kSignBit<S>);
}

/// c[0] + c[1] x + ... by Estrin's scheme.
template <template <typename> class V, typename S, size_t N>
V<S> poly(V<S> x, const std::array<double, N>& c) {
  std::array<V<S>, N> term;
  for (size_t i = 0; i < N; i++) term[i] = V<S>(c[i]);
  for (size_t n = N; n > 1; n = (n + 1) / 2) {
    if (n < N) x = x * x;
    // One term beyond a power of two would cost a square more and save no time.
    if (n % 2 && std::has_single_bit(n - 1)) {
      term[n - 2] = fma(x, term[n - 1], term[n - 2]);
      n--;
    }
    for (size_t i = 0; i < n / 2; i++) term[i] = fma(x, term[2 * i + 1], term[2 * i]);
    if (n % 2) term[n / 2] = term[n - 1];
  }
  return term[0];
}

/// The same by Horner's rule, the least there is to do: where several are evaluated side by side.
template <template <typename> class V, typename S, size_t N>
V<S> horner(V<S> x, const std::array<double, N>& c) {
  V<S> y(c[N - 1]);
  for (size_t i = N - 1; i-- > 0;) y = fma(x, y, V<S>(c[i]));
  return y;
}

/// The same with Horner's rule for the last step: one rounding less where c[0] dominates.
template <template <typename> class V, typename S, size_t N>
V<S> poly_to_one(V<S> x, const std::array<double, N>& c) {
  std::array<double, N - 1> rest;
  for (size_t i = 1; i < N; i++) rest[i - 1] = c[i];
  return fma(x, poly(x, rest), V<S>(c[0]));
}

// ---- exponentials

/// x = n log 2 + r with |r| <= log(2)/2; the low bits of `field` are those of n + bias, plus a
/// multiple of 2^(width - mantissa). With the bias of an exponent field it takes a shift to make
/// 2^n of it. An even one leaves the ties as they are.
LAZULI_MATH struct Exponent {
  V<UintOf<S>> field;
  V<S> r;
};

LAZULI_MATH Exponent<V, S> split_exp(V<S> x, int bias) {
  using T = Table<S>;
  const V<S> round(T::kRound + bias), t = fma(x, V<S>(T::kLog2e.high), round), n = t - round;
  return {bits(t), fma(n, V<S>(-T::kLn2.low), fma(n, V<S>(-T::kLn2.high), x))};
}

LAZULI_MATH Exponent<V, S> split_exp2(V<S> x, int bias) {
  using T = Table<S>;
  const V<S> round(T::kRound + bias), t = x + round;
  return {bits(t), (x - (t - round)) * V<S>(T::kLn2.high)};
}

/// e^r - 1 for |r| <= log(2)/2, to full relative accuracy.
LAZULI_MATH V<S> expm1_core(V<S> r) {
  return fma(r * r, poly(r, Table<S>::kExp), r);
}

/// 2^n of n + kBias; it must be a normal number.
LAZULI_MATH V<S> power_of_two(V<UintOf<S>> field) {
  return bitcast<S>(field << Table<S>::kMantissa);
}

/// x y, whose result may be denormal or vanish: Zen 5 takes some 25 cycles for such a product, but
/// one for such a sum.
LAZULI_MATH V<S> small_product(V<S> x, V<S> y) {
  return fma(x, y, V<S>(0));
}

/// x = (n + k/8) log 2 + r with |r| <= log(2)/16, and p = e^r - 1 as far as 1 + p needs it; the low
/// 12 bits of `field` are those of 8 (n + bias) + k.
template <template <typename> class V>
struct Eighths {
  V<uint32_t> field;
  V<float> p;
};

template <template <typename> class V>
Eighths<V> split_exp_in_eighths(V<float> x, int bias) {
  using T = Table<float>;
  const V<float> round(T::kRound / 8 + bias), t = fma(x, V<float>(T::kLog2e.high), round),
                                              n = t - round;
  // All but the linear term does without the last bits of r, and so begins before they are known.
  const V<float> r = fma(n, V<float>(-T::kLn2.high), x);
  return {bits(t), fma(r * r, horner(r, T::kExpOfEighth), fma(n, V<float>(-T::kLn2.low), r))};
}

/// The bits of 2^(n + k/8).
template <template <typename> class V>
V<uint32_t> root_bits(V<uint32_t> field) {
  return (field << 20) + eighth_root(field);
}

/// 2^n (1 + p) of n + 2 kBias, rounded once even where the result is denormal: 2^n is applied as
/// two factors.
LAZULI_MATH V<S> scale(V<UintOf<S>> field, V<S> p) {
  const V<UintOf<S>> half = field >> 1;
  const V<S> first = power_of_two<V, S>(half);
  return small_product(fma(first, p, first), power_of_two<V, S>(field - half));
}

LAZULI_MATH_OF_EXP V<S> exp(V<S> x) {
  using T = Table<S>;
  const V<S> bounded = at_least(at_most(x, T::kExpHigh), T::kExpLow);
  if constexpr (kRoots && sizeof(S) == 4) {
    const auto [field, p] = split_exp_in_eighths(bounded, 2 * T::kBias);
    const V<uint32_t> half = (field >> 4) << T::kMantissa;
    const V<S> first = bitcast<S>(root_bits(field) - half);
    return small_product(fma(first, p, first), bitcast<S>(half));
  } else {
    const auto [field, r] = split_exp(bounded, 2 * T::kBias);
    return scale<V, S>(field, expm1_core(r));
  }
}

/// The same bits for x <= 0: nothing overflows, and one factor in range may be made one that is not
/// by a constant.
LAZULI_MATH_OF_EXP V<S> exp_not_positive(V<S> x) {
  using T = Table<S>;
  // More than what the least n lacks of a normal number, and an even sum with the bias.
  constexpr int up = 99;
  const V<S> bounded = at_least(x, T::kExpLow), down(power(-up));
  if constexpr (kRoots && sizeof(S) == 4) {
    const auto [field, p] = split_exp_in_eighths(bounded, T::kBias + up);
    const V<S> s = bitcast<S>(root_bits(field));
    return small_product(fma(s, p, s), down);
  } else {
    const auto [field, r] = split_exp(bounded, T::kBias + up);
    const V<S> s = power_of_two<V, S>(field);
    return small_product(fma(s, expm1_core(r), s), down);
  }
}

LAZULI_MATH V<S> exp2(V<S> x) {
  using T = Table<S>;
  const auto [field, r] = split_exp2(at_least(at_most(x, T::kExp2High), T::kExp2Low), 2 * T::kBias);
  return scale<V, S>(field, expm1_core(r));
}

/// a / b for b and 1 / b far from the ends of the range. By an estimate within e of 1 / b, a
/// quotient within e of a / b is within e^2 after one correction, before it is rounded: 0.57 ULP
/// for 2^-14. A reciprocal is within e^3, since a sigmoid's sum leaves no room for more.
LAZULI_MATH_OF_QUOTIENT V<S> quotient(V<S> a, V<S> b) {
  if constexpr (kEstimate && sizeof(S) == 4) {
    const V<S> r = recip_estimate(b), q = a * r;
    return fma(fma(-b, q, a), r, q);
  } else {
    return a / b;
  }
}
LAZULI_MATH_OF_QUOTIENT V<S> reciprocal(V<S> b) {
  if constexpr (kEstimate && sizeof(S) == 4) {
    const V<S> r = recip_estimate(b), rest = fma(-b, r, V<S>(1));
    return fma(fma(rest, rest, rest), r, r);
  } else {
    return V<S>(1) / b;
  }
}

/// (e^x - 1) 2^offset, without the care that tiny x needs.
LAZULI_MATH V<S> scaled_expm1(V<S> x, int offset) {
  const auto [field, r] = split_exp(x, Table<S>::kBias + offset);
  const V<S> s = power_of_two<V, S>(field);
  return fma(s, expm1_core(r), s - V<S>(power(offset)));
}

LAZULI_MATH V<S> expm1(V<S> x) {
  using T = Table<S>;
  const V<S> y = scaled_expm1(at_least(at_most(x, T::kExpHigh), T::kExpm1Low), -1) * V<S>(2);
  return where(abs(x) < V<S>(T::kTiny), x, y);
}

LAZULI_MATH V<S> sinh(V<S> x) {
  using T = Table<S>;
  const V<S> a = abs(x);
  const V<S> q =
      scaled_expm1(at_most(a, T::kSinhHigh), -2);  // a quarter, so that nothing overflows too early
  const V<S> y = (q + q / fma(q, V<S>(4), V<S>(1))) * V<S>(2);
  return flip_sign(where(a < V<S>(T::kTinyCube), a, y), sign_of(x));
}

LAZULI_MATH V<S> cosh(V<S> x) {
  using T = Table<S>;
  const auto [field, r] = split_exp(at_most(abs(x), T::kSinhHigh), T::kBias - 2);
  const V<S> s = power_of_two<V, S>(field);
  const V<S> q = fma(s, expm1_core(r), s);
  return (q + V<S>(0.0625) / q) * V<S>(2);
}

/// tanh(a) for 0 <= a <= kTanhHigh.
template <template <typename> class V, bool kEstimate>
V<double> tanh_positive(V<double> a) {
  using T = Table<double>;
  const V<double> z = a * a, one(1), near = fma(a * z, poly(z, T::kTanh), a);
  const auto [field, r] = split_exp(a + a, T::kBias);
  const V<double> s = power_of_two<V, double>(field);
  const V<double> far = one - V<double>(2) / fma(s, expm1_core(r), s + one);
  return where(a < V<double>(T::kTanhNear), near, far);
}
template <template <typename> class V, bool kEstimate>
V<float> tanh_positive(V<float> a) {  // (1 - e^-2a) / (1 + e^-2a): both sides are rounded once
  const auto [field, r] = split_exp(-(a + a), Table<float>::kBias);
  const V<float> s = power_of_two<V, float>(field), p = expm1_core(r), one(1);
  return quotient<V, float, kEstimate>(fma(-s, p, one - s), fma(s, p, one + s));
}

LAZULI_MATH_OF_QUOTIENT V<S> tanh(V<S> x) {
  const V<S> a = at_most(abs(x), Table<S>::kTanhHigh);
  return flip_sign(tanh_positive<V, kEstimate>(a), sign_of(x));
}

/// 1 / (1 + e^-x). Both terms are scaled alike, so that no e^-x overflows before the quotient
/// vanishes, and the quotient is a normal number.
LAZULI_MATH_OF_QUOTIENT V<S> sigmoid(V<S> x) {
  using T = Table<S>;
  constexpr int down = -88;  // of either type: 2^n overflows neither here nor at kExpLow
  const V<S> bounded = at_least(at_most(x, T::kSigmoidHigh), T::kExpLow);
  const auto [field, r] = split_exp(-bounded, T::kBias + down);
  const V<S> s = power_of_two<V, S>(field), one(power(down));
  return small_product(reciprocal<V, S, kEstimate>(fma(s, expm1_core(r), one) + s), one);
}

/// The same bits for x >= -87.3 (-700 in f64), whose sigmoid is a normal number.
LAZULI_MATH_OF_QUOTIENT V<S> sigmoid_with_normal_result(V<S> x) {
  using T = Table<S>;
  const auto [field, r] = split_exp(-at_most(x, T::kSigmoidHigh), T::kBias);
  const V<S> s = power_of_two<V, S>(field), one(1);
  return reciprocal<V, S, kEstimate>(fma(s, expm1_core(r), one) + s);
}

// ---- logarithms

/// A positive number as 2^e (1 + f) with 1 + f in [2/3, 4/3); `biased` has e, biased, in its
/// exponent field.
LAZULI_MATH struct Mantissa {
  V<S> e, f;
  V<UintOf<S>> biased;
};

/// `extra` is subtracted from e. Denormals are not looked after.
LAZULI_MATH Mantissa<V, S> split_log_normal(V<S> x, V<S> extra_bias) {
  using T = Table<S>;
  using U = UintOf<S>;
  const V<U> t = bits(x) + V<U>(kOneBits<S> - T::kTwoThirds);
  // The biased exponent, put in the mantissa of 2^mantissa, is a float without a conversion.
  const auto unit = U{T::kBias + T::kMantissa} << T::kMantissa;
  const V<S> e = bitcast<S>((t >> T::kMantissa) | V<U>(unit)) - extra_bias;
  const V<S> f = bitcast<S>((t & V<U>(kMantissaBits<S>)) + V<U>(T::kTwoThirds)) - V<S>(1);
  return {e, f, t};
}

/// What to subtract from e for log of a normal number.
template <typename S>
inline constexpr double kLogBias = static_cast<double>((uint64_t{1} << Table<S>::kMantissa) +
                                                       Table<S>::kBias);

LAZULI_MATH Mantissa<V, S> split_log_normal(V<S> x) {
  return split_log_normal(x, V<S>(kLogBias<S>));
}
/// A denormal number times 2^this is normal.
template <typename S>
inline constexpr int kNormalShift = Table<S>::kMantissa + 2;

LAZULI_MATH Mantissa<V, S> split_log_denormal(V<S> x) {
  return split_log_normal(x * V<S>(power(kNormalShift<S>)), V<S>(kLogBias<S> + kNormalShift<S>));
}
/// Of a positive number, normal or not.
LAZULI_MATH Mantissa<V, S> split_log(V<S> x) {
  const V<bool> denormal = x < V<S>(Table<S>::kMinNormal);
  return split_log_normal(where(denormal, x * V<S>(power(kNormalShift<S>)), x),
                          where(denormal, V<S>(kLogBias<S> + kNormalShift<S>), V<S>(kLogBias<S>)));
}

/// log(1 + f) - f + c for 1 + f in [2/3, 4/3); c is small.
template <template <typename> class V>
V<float> log_tail(V<float> f, V<float> c) {
  return fma(f * f, fma(f, poly(f, Table<float>::kLog), V<float>(-0.5)), c);
}
template <template <typename> class V>
V<double> log_tail(V<double> f, V<double> c) {  // by atanh(f / (2 + f)): a division, half the terms
  const V<double> s = f / (V<double>(2) + f), z = s * s, h = V<double>(0.5) * f * f;
  return fma(s, fma(z, poly(z, Table<double>::kLog), h), c - h);
}

/// e log 2 + log(1 + f).
template <template <typename> class V>
V<float> join_log(V<float> e, V<float> f) {  // log 2 as one float is wrong by 2^-28.4 of it
  return fma(e, V<float>(Table<float>::kLn2.high), log_tail(f, f));
}
template <template <typename> class V>
V<double> join_log(V<double> e, V<double> f) {
  const auto& ln2 = Table<double>::kLn2;
  return fma(e, V<double>(ln2.high), f + log_tail(f, e * V<double>(ln2.low)));
}

/// The same over log(base), of which `two` is log 2 / log(base) and `unit` 1 / log(base).
LAZULI_MATH V<S> join_log_of_base(V<S> e, V<S> f, Parts2 two, Parts2 unit) {
  V<S> y = f * V<S>(unit.low);
  if (two.low != 0) y = fma(e, V<S>(two.low), y);
  y = fma(log_tail(f, V<S>(0)), V<S>(unit.high), y);
  return fma(e, V<S>(two.high), fma(f, V<S>(unit.high), y));
}

/// Is x negative? Of a zero or NaN either answer will do: its sign bit alone selects in f32.
template <template <typename> class V>
V<bool> below_zero(V<float> x) {
  return bitcast<int32_t>(x) < V<int32_t>(0);
}
template <template <typename> class V>
V<bool> below_zero(V<double> x) {
  return x < V<double>(0);
}

/// y where 0 < x < inf; else what a logarithm is there.
LAZULI_MATH V<S> log_edges(V<S> x, V<S> y) {
  y = where(below_zero(x), V<S>(kNaN), where(x < V<S>(kInf), y, x));
  return where(x == V<S>(0), V<S>(-kInf), y);
}

/// Not a positive normal number?
LAZULI_MATH V<bool> is_log_edge(V<S> x) {
  using T = Table<S>;
  using U = UintOf<S>;
  constexpr U least = U{1} << T::kMantissa, inf = ((U{1} << (kWidth<S> - 1 - T::kMantissa)) - 1)
                                                  << T::kMantissa;
  return V<U>(inf - least) <= bits(x) - V<U>(least);
}

/// The logarithm of x, which `join` makes of the e and f of a positive number.
template <template <typename> class V, typename S, typename Join>
V<S> log_by_parts(V<S> x, Join join) {
  const auto of = [&](const Mantissa<V, S>& m) { return join(m.e, m.f); };
  const V<S> usual = of(split_log_normal(x));
  // Zeros and negative numbers may be many, but seldom are denormal ones.
  const V<bool> denormal = (V<S>(0) < x) & (x < V<S>(Table<S>::kMinNormal));
  const V<S> positive = rare(denormal, of(split_log_denormal(x)), usual);
  return rare(is_log_edge(x), log_edges(x, positive), usual);
}

LAZULI_MATH V<S> log(V<S> x) {
  return log_by_parts<V, S>(x, [](V<S> e, V<S> f) { return join_log(e, f); });
}

LAZULI_MATH V<S> log2(V<S> x) {
  return log_by_parts<V, S>(x, [](V<S> e, V<S> f) {
    return join_log_of_base(e, f, {1, 0}, Table<S>::kLog2e);
  });
}

LAZULI_MATH V<S> log10(V<S> x) {
  return log_by_parts<V, S>(x, [](V<S> e, V<S> f) {
    return join_log_of_base(e, f, Table<S>::kLog10Of2, Table<S>::kLog10e);
  });
}

/// log(1 + x) with `edges(u, y)` where u = 1 + x is no positive normal number.
template <template <typename> class V, typename S, typename Edges>
V<S> log1p_with(V<S> x, Edges edges) {
  using T = Table<S>;
  using U = UintOf<S>;
  const V<S> u = x + V<S>(1);
  const auto m = split_log_normal(u);
  // 1 + f = 2^-e (1 + x) from x itself, since u is rounded. 4 * 2^-e, because 2^-e may be denormal.
  const V<U> field = m.biased & V<U>(~kMantissaBits<S> & ~kSignBit<S>);
  const V<S> s = bitcast<S>(V<U>((U{2} * T::kBias + 2) << T::kMantissa) - field);
  // Powers of a tiny x would be denormal, which some CPUs take 90 cycles for.
  const V<bool> tiny = !(V<S>(T::kTiny) <= abs(x));
  const V<S> quarter = where(tiny, V<S>(0), x * V<S>(0.25));
  const V<S> f = fma(s, quarter, fma(s, V<S>(0.25), V<S>(-1)));
  const V<S> y = join_log(m.e, f);
  return where(tiny, x, edges(u, y));
}

LAZULI_MATH V<S> log1p(V<S> x) {
  return log1p_with<V, S>(x,
                          [](V<S> u, V<S> y) { return rare(is_log_edge(u), log_edges(u, y), y); });
}
/// For functions of many steps, which a branch among them makes slower.
LAZULI_MATH V<S> log1p_without_branch(V<S> x) {
  return log1p_with<V, S>(x, [](V<S> u, V<S> y) { return log_edges(u, y); });
}

LAZULI_MATH V<S> atanh(V<S> x) {
  const V<S> a = abs(x), twice = a + a, rest = V<S>(1) - a;
  // For a < 1/2, 2a + 2a^2/(1-a) is 2a/(1-a) with less rounding.
  const V<S> z = where(a < V<S>(0.5), fma(twice, a / rest, twice), twice / rest);
  return flip_sign(V<S>(0.5) * log1p_without_branch(z), sign_of(x));
}

LAZULI_MATH V<S> asinh(V<S> x) {
  const V<S> a = abs(x), square = a * a;
  const V<bool> large = V<S>(Table<S>::kSquareLarge) < a;
  const V<S> z = a + square / (V<S>(1) + sqrt(square + V<S>(1)));
  const V<S> y =
      log1p_without_branch(where(large, a, z)) + where(large, V<S>(Table<S>::kLn2.high), V<S>(0));
  return flip_sign(y, sign_of(x));
}

LAZULI_MATH V<S> acosh(V<S> x) {
  const V<S> t = x - V<S>(1);
  const V<bool> large = V<S>(Table<S>::kSquareLarge) < x;
  const V<S> z = t + sqrt(fma(t, t, t + t));
  const V<S> y =
      log1p_without_branch(where(large, x, z)) + where(large, V<S>(Table<S>::kLn2.high), V<S>(0));
  return where(V<S>(1) <= x, y, V<S>(kNaN));
}

// ---- trigonometry

/// An angle as r plus a multiple of pi/2; the two low bits of `quadrant` are those of the multiple.
LAZULI_MATH struct Angle {
  V<S> r;
  V<UintOf<S>> quadrant;
};

template <template <typename> class V>
V<uint32_t> mul_high(V<uint32_t> a, V<uint32_t> b) {
  return cast<uint32_t>((cast<uint64_t>(a) * cast<uint64_t>(b)) >> 32);
}
template <template <typename> class V>
V<uint64_t> mul_high(V<uint64_t> a, V<uint64_t> b) {
  const V<uint64_t> mask(0xffffffffu), a0 = a & mask, a1 = a >> 32, b0 = b & mask, b1 = b >> 32;
  const V<uint64_t> middle = a1 * b0 + ((a0 * b0) >> 32), other = a0 * b1 + (middle & mask);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}

/// Three words of the bits of 1/pi, from the bit `position` on; in front of the point stands one
/// word of zeros.
template <template <typename> class V, typename S>
std::array<V<UintOf<S>>, 3> inverse_pi_window(V<UintOf<S>> position) {
  using U = UintOf<S>;
  constexpr int width = kWidth<S>, levels = width == 32 ? 3 : 5;
  std::array<V<U>, 4 + (1 << levels)> word;
  for (size_t i = 0; i < word.size(); i++) {
    U value = 0;
    if (width == 64 && i > 0 && i <= kInversePiBits.size())
      value = static_cast<U>(kInversePiBits[i - 1]);
    if (width == 32 && i > 0)
      value = static_cast<U>(kInversePiBits[(i - 1) / 2] >> (i % 2 ? 32 : 0));
    word[i] = V<U>(value);
  }
  for (int level = levels - 1; level >= 0; level--) {
    const V<bool> set = (position & V<U>(U{static_cast<U>(width)} << level)) != V<U>(0);
    const size_t step = size_t{1} << level;
    for (size_t i = 0; i < 3 + step; i++) word[i] = where(set, word[i + step], word[i]);
  }
  const V<U> shift = position & V<U>(U{width - 1}), rest = V<U>(U{width - 1}) - shift;
  std::array<V<U>, 3> window;
  for (size_t i = 0; i < 3; i++) window[i] = (word[i] << shift) | ((word[i + 1] >> 1) >> rest);
  return window;
}

/// Payne and Hanek's reduction (SIGNUM Newsletter 18, 1983) of a finite a >= 2^(mantissa/2).
LAZULI_MATH Angle<V, S> reduce_huge(V<S> a) {
  using T = Table<S>;
  using U = UintOf<S>;
  constexpr int width = kWidth<S>, mantissa = T::kMantissa, digits = mantissa + 1;
  const V<U> b = bits(a);
  // Only the bits of 2/pi that do not make multiples of 4 matter: a product of two words in fixed
  // point, of which the two top bits are the quadrant.
  const auto from = static_cast<U>(width - 1 - mantissa - T::kBias);
  const auto w = inverse_pi_window<V, S>((b >> mantissa) + V<U>(from));
  const V<U> m = (b & V<U>(kMantissaBits<S>)) | V<U>(kMantissaBits<S> + 1);
  const V<U> carried = mul_high(m, w[2]), low = m * w[1] + carried;
  constexpr U half = U{1} << (width - 3);
  const V<U> high = m * w[0] + mul_high(m, w[1]) + where(low < carried, V<U>(half + 1), V<U>(half));
  const V<U> v = (high & V<U>(2 * half - 1)) - V<U>(half);  // signed
  // v and low as a sum of floats, exactly: two full significands and what is left.
  constexpr U tail = (U{1} << (width - digits)) - 1;
  const auto to_float = [](V<U> part, int exponent) {
    return cast<S>(bitcast<IntOf<S>>(part)) * V<S>(power(exponent));
  };
  const V<S> top = to_float(v & V<U>(~tail), 2 - width);
  const V<S> next = to_float(
      ((v & V<U>(tail)) << (2 * digits - width)) | (low >> (2 * (width - digits))), 2 - 2 * digits);
  const V<S> last = to_float(low & V<U>((U{1} << (2 * (width - digits))) - 1), 2 - 2 * width);
  const V<S> rest = next + last, turn = top + rest, error = (top - turn) + rest;
  const V<S> pi_high(T::kPi.high / 2), pi_low(T::kPi.middle / 2);
  const V<S> r = turn * pi_high;
  const V<S> correction = fma(turn, pi_high, -r) + fma(turn, pi_low, error * pi_high);
  return {where(a < V<S>(kInf), r + correction, V<S>(kNaN)), high >> (width - 2)};
}

/// Cody and Waite's reduction of an a >= 0 that is not huge.
LAZULI_MATH Angle<V, S> reduce(V<S> a) {
  using T = Table<S>;
  const V<S> t = fma(a, V<S>(2 * T::kInversePi), V<S>(T::kRound)), n = t - V<S>(T::kRound);
  const V<S> first = fma(n, V<S>(T::kPi.high / -2), a);  // exact
  const V<S> r = fma(n, V<S>(T::kPi.low / -2), fma(n, V<S>(T::kPi.middle / -2), first));
  return {r, bits(t)};
}

/// Sine and cosine of |r| <= pi/4 and a little.
LAZULI_MATH struct SinCos { V<S> sin, cos; };
LAZULI_MATH SinCos<V, S> sin_cos(V<S> r) {
  const V<S> z = r * r;
  const V<S> s = fma(r * z, poly(z, Table<S>::kSin), r);
  const V<S> c = fma(z * z, poly(z, Table<S>::kCos), fma(z, V<S>(-0.5), V<S>(1)));
  return {s, c};
}

/// sin of an angle `ahead` quadrants further.
LAZULI_MATH V<S> sin_of(Angle<V, S> a, int ahead) {
  using U = UintOf<S>;
  const auto [s, c] = sin_cos(a.r);
  const V<bool> odd = (a.quadrant & V<U>(1)) != V<U>(0);
  const V<U> q = ahead ? a.quadrant + V<U>(static_cast<unsigned>(ahead)) : a.quadrant;
  return flip_sign(ahead % 2 ? where(odd, s, c) : where(odd, c, s),
                   (q << (kWidth<S> - 2)) & V<U>(kSignBit<S>));
}

LAZULI_MATH V<S> tan_of(Angle<V, S> a) {
  using U = UintOf<S>;
  const auto [s, c] = sin_cos(a.r);
  const V<bool> odd = (a.quadrant & V<U>(1)) != V<U>(0);
  return flip_sign(where(odd, c, s) / where(odd, s, c), a.quadrant << (kWidth<S> - 1));
}

LAZULI_MATH V<S> sin(V<S> x) {
  const V<S> a = abs(x);
  const V<bool> huge = V<S>(Table<S>::kTrigLarge) < a;
  return flip_sign(rare(huge, sin_of(reduce_huge(a), 0), sin_of(reduce(a), 0)), sign_of(x));
}

LAZULI_MATH V<S> cos(V<S> x) {
  const V<S> a = abs(x);
  const V<bool> huge = V<S>(Table<S>::kTrigLarge) < a;
  return rare(huge, sin_of(reduce_huge(a), 1), sin_of(reduce(a), 1));
}

LAZULI_MATH V<S> tan(V<S> x) {
  const V<S> a = abs(x);
  const V<bool> huge = V<S>(Table<S>::kTrigLarge) < a;
  return flip_sign(rare(huge, tan_of(reduce_huge(a)), tan_of(reduce(a))), sign_of(x));
}

/// x - trunc(x / y) * y, exactly, where division is correctly rounded. For a quotient of up to
/// 2^(digits - 2) the nearest integer to it is at most 3/4 from the quotient as it is rounded here,
/// and so what is left a multiple of y's last place below y, which needs no rounding; longer
/// divisions, and what is not finite, are the library's.
LAZULI_MATH V<S> rem(V<S> x, V<S> y) {
  const V<S> a = abs(x), b = abs(y), quotient = a / b;
  const V<S> left = fma(-round(quotient), b, a);
  const V<S> r = flip_sign(where(left < V<S>(0), left + b, left), sign_of(x));
  // By zero it is NaN, as what this computes; so are the lanes behind the end of an array.
  const V<bool> is_short = (quotient < V<S>(power(Table<S>::kMantissa - 1))) & (b < V<S>(kInf));
  return rare(!(is_short | (b == V<S>(0))), long_rem(x, y), r);
}

/// asin(s) - s, |s| <= 1/2, of z = s^2.
LAZULI_MATH V<S> asin_tail(V<S> s, V<S> z) {
  return s * z * poly(z, Table<S>::kAsin);
}

LAZULI_MATH V<S> asin(V<S> x) {
  const auto& pi = Table<S>::kPi;
  const V<S> a = abs(x);
  const V<bool> small = a < V<S>(0.5);
  const V<S> z = where(small, a * a, fma(a, V<S>(-0.5), V<S>(0.5)));
  const V<S> s = where(small, a, sqrt(z)), tail = asin_tail(s, z);
  const V<S> far = fma(s, V<S>(-2), V<S>(pi.high / 2)) + fma(tail, V<S>(-2), V<S>(pi.middle / 2));
  return flip_sign(where(small, s + tail, far), sign_of(x));
}

LAZULI_MATH V<S> acos(V<S> x) {
  const auto& pi = Table<S>::kPi;
  const V<S> a = abs(x);
  const V<bool> small = a < V<S>(0.5), negative = x < V<S>(0);
  const V<S> z = where(small, a * a, fma(a, V<S>(-0.5), V<S>(0.5)));
  const V<S> s = where(small, x, sqrt(z)), tail = asin_tail(s, z);
  const V<S> near = V<S>(pi.high / 2) - (s + (tail - V<S>(pi.middle / 2)));
  const V<S> twice = (s + tail) * V<S>(2);
  const V<S> far =
      where(negative, V<S>(pi.high) - (s + (s + fma(tail, V<S>(2), V<S>(-pi.middle)))), twice);
  return where(small, near, far);
}

/// high + low + atan(t) or, where the top bit of `sign` is set, - atan(t); 0 <= t <= 1.
LAZULI_MATH V<S> turn(V<S> high, V<S> low, V<S> t, V<UintOf<S>> sign) {
  const V<S> z = t * t, tail = t * z * poly(z, Table<S>::kAtan);
  return high + (flip_sign(t, sign) + (flip_sign(tail, sign) + low));
}

LAZULI_MATH V<S> atan(V<S> x) {
  using U = UintOf<S>;
  const auto& pi = Table<S>::kPi;
  const V<S> a = abs(x), zero(0);
  const V<bool> steep = V<S>(1) < a;
  const V<S> t = where(steep, V<S>(1), a) / where(steep, a, V<S>(1));
  const V<S> high = where(steep, V<S>(pi.high / 2), zero),
             low = where(steep, V<S>(pi.middle / 2), zero);
  return flip_sign(turn<V, S>(high, low, t, where(steep, V<U>(kSignBit<S>), V<U>(0))), sign_of(x));
}

LAZULI_MATH V<S> atan2(V<S> y, V<S> x) {
  using U = UintOf<S>;
  const auto& pi = Table<S>::kPi;
  const V<S> a = abs(x), b = abs(y), zero(0);
  const V<bool> steep = a < b;
  const V<S> lesser = where(steep, a, b), greater = where(steep, b, a);
  const V<S> at_equal = where(lesser == zero, zero, V<S>(1));  // 0/0 and inf/inf too
  const V<S> t = where(lesser == greater, at_equal, lesser / greater);
  // atan(t), pi/2 - atan(t) where steep, and from pi where x is negative.
  const V<U> left = sign_of(x);
  const V<bool> is_left = left != V<U>(0);
  const V<S> high = where(steep, V<S>(pi.high / 2), where(is_left, V<S>(pi.high), zero));
  const V<S> low = where(steep, V<S>(pi.middle / 2), where(is_left, V<S>(pi.middle), zero));
  const V<U> sign = where(steep, left ^ V<U>(kSignBit<S>), left);
  const V<S> angle = flip_sign(turn<V, S>(high, low, t, sign), sign_of(y));
  return where((x == x) & (y == y), angle, x + y);
}

// ---- error function

/// erfc(a) for a >= 0.8.
LAZULI_MATH V<S> erfc_positive(V<S> a) {
  using T = Table<S>;
  a = at_most(a, T::kErfcHigh);
  const V<S> square = a * a, square_low = fma(a, a, -square);
  const V<S> k(T::kErfcCentre), sum = a + k, sum_low = k - (sum - a);
  const V<S> inverse = V<S>(1) / sum;
  const V<S> inverse_low = fma(-sum, inverse, V<S>(1)) - sum_low * inverse;  // relative
  const V<S> c = poly_to_one((a - k) * inverse, T::kErfc);
  const V<S> g = c * inverse, g_low = fma(c, inverse, -g);
  const auto [field, r] = split_exp(-square, 2 * T::kBias);
  const V<S> p = expm1_core(r + (inverse_low - square_low));
  const V<UintOf<S>> half = field >> 1;
  return small_product((g + fma(g, p, g_low)) * power_of_two<V, S>(half),
                       power_of_two<V, S>(field - half));
}

LAZULI_MATH V<S> erfc(V<S> x) {
  const V<S> a = abs(x), near = V<S>(1) - fma(x, poly(x * x, Table<S>::kErf), x);
  const V<S> y = erfc_positive(a);
  return where(a < V<S>(0.8), near, where(x < V<S>(0), V<S>(2) - y, y));
}

/// erf(a) for a >= 0.
template <template <typename> class V>
V<double> erf_positive(V<double> a) {
  using T = Table<double>;
  const V<double> small = fma(a, poly(a * a, T::kErf), a);
  return where(a < V<double>(T::kErfSmall), small, V<double>(1) - erfc_positive(a));
}
template <template <typename> class V>
V<float> erf_positive(V<float> a) {
  using T = Table<float>;
  a = at_most(a, T::kErfOne);
  // A series to 1.17 and 1 - erfc(a) from there. Below, the latter is less; above, the former is
  // more, so that extremes choose.
  const V<float> near = at_most(fma(a, horner(a * a, T::kErf), a), T::kErfMiddle);
  const V<float> root = horner(a, T::kErfcRoot), square = root * root, fourth = square * square;
  const V<float> far = fma(-fourth, fourth, V<float>(1));
  return where(far < near, near, far);
}

LAZULI_MATH V<S> erf(V<S> x) {
  return flip_sign(erf_positive(abs(x)), sign_of(x));
}

// ---- power

/// An unevaluated sum, |low| at most half a unit in the last place of high.
LAZULI_MATH struct Double { V<S> high, low; };

/// log2(x) of a finite x > 0 with about 10 more bits than S has.
LAZULI_MATH Double<V, S> log2_double(V<S> x) {
  using T = Table<S>;
  const auto m = split_log(x);
  // s = f / (2 + f), log(1 + f) = 2 s (1 + z/3 + z^2 R(z)), z = s^2.
  const V<S> denominator = m.f + V<S>(2), denominator_low = m.f - (denominator - V<S>(2));
  const V<S> inverse = V<S>(1) / denominator, s = m.f * inverse;
  const V<S> s_low = inverse * fma(-s, denominator_low, fma(-s, denominator, m.f));
  const V<S> z = s * s, z_low = fma(s, s, -z) + (s + s) * s_low;
  const V<S> third(T::kThird.high), rest = fma(z, poly(z, T::kPowLog), V<S>(T::kThird.low));
  const V<S> u = third + rest, u_low = (third - u) + rest;
  const V<S> w = z * u, w_low = fma(z, u, -w) + fma(z, u_low, z_low * u);
  const V<S> p = s * w, p_low = fma(s, w, -p) + fma(s, w_low, s_low * w);
  const V<S> l = s + p, l_low = ((s - l) + p) + (p_low + s_low);
  const V<S> c(2 * T::kLog2e.high), c_low(2 * T::kLog2e.low);
  const V<S> b = l * c, b_low = fma(l, c, -b) + fma(l, c_low, l_low * c);
  const V<S> sum = m.e + b, sum_low = ((m.e - sum) + b) + b_low;
  const V<S> high = sum + sum_low;
  return {high, (sum - high) + sum_low};
}

LAZULI_MATH V<S> pow(V<S> x, V<S> y) {
  using T = Table<S>;
  using U = UintOf<S>;
  const V<S> a = abs(x), zero(0), one(1), inf(kInf), nan(kNaN);
  auto [high, low] = log2_double(a);
  high = where(a < inf, where(a == zero, V<S>(-kInf), high), a);
  const V<S> product = y * high;
  const V<bool> inside = abs(product) < V<S>(T::kPowHigh);
  const V<S> product_low = where(inside, fma(y, high, -product) + y * low, zero);
  const V<S> bounded = at_least(at_most(product, T::kExp2High), T::kExp2Low);
  const V<S> round_to(T::kRound + 2 * T::kBias), t = bounded + round_to;
  const V<S> r = ((bounded - (t - round_to)) + product_low) * V<S>(T::kLn2.high);
  V<S> result = scale<V, S>(bits(t), expm1_core(r));
  // Negative bases: odd integers flip the sign, other non-integers have no power.
  const V<S> half = y * V<S>(0.5);
  const V<bool> integer = round(y) == y, odd = integer & (round(half) != half);
  result = flip_sign(result, where(odd, sign_of(x), V<U>(0)));
  result = where((x < zero) & (a < inf) & !integer, nan, result);
  result = where((x == x) & (y == y), result, nan);
  // 1^y and x^0 are 1 even of NaN, and so is (-1)^inf.
  const V<bool> is_one = (x == one) | (y == zero) | ((a == one) & (abs(y) == inf));
  return where(is_one, one, result);
}

#undef LAZULI_MATH_OF_EXP
#undef LAZULI_MATH

}  // namespace lazuli::math
