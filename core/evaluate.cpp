#include "core/evaluate.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "core/scalar.h"

namespace lazuli {
namespace {

// ---- numbers from bits and back

double float_from(uint64_t bits, DType t) {
  switch (t) {
    case DType::F16:
      return f16_to_f32(static_cast<uint16_t>(bits));
    case DType::BF16:
      return bf16_to_f32(static_cast<uint16_t>(bits));
    case DType::F32:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
    default:
      return std::bit_cast<double>(bits);
  }
}

uint64_t float_bits(double v, DType t) {
  switch (t) {
    case DType::F16:
      return f32_to_f16(static_cast<float>(v));
    case DType::BF16:
      return f32_to_bf16(static_cast<float>(v));
    case DType::F32:
      return std::bit_cast<uint32_t>(static_cast<float>(v));
    default:
      return std::bit_cast<uint64_t>(v);
  }
}

// Sign- or zero-extended to 64 bits.
int64_t int_from(uint64_t bits, DType t) {
  if (t == DType::Bool) return bits != 0;
  const int shift = 64 - 8 * size_of(t);
  const uint64_t high = bits << shift;
  return is_signed(t) ? static_cast<int64_t>(high) >> shift : static_cast<int64_t>(high >> shift);
}

uint64_t int_bits(int64_t v, DType t) {
  if (t == DType::Bool) return v != 0;
  return detail::low_bytes(static_cast<uint64_t>(v), size_of(t));
}

// ---- floats

double digamma(double x) {
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  if (x < 0) {
    if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
    // Reflection: psi(x) = psi(1 - x) - pi / tan(pi x); the fraction keeps the tangent exact for
    // large x.
    const double fraction = x - std::trunc(x);
    return digamma(1 - x) - std::numbers::pi / std::tan(std::numbers::pi * fraction);
  }
  double shift = 0;
  for (; x < 16; x += 1) shift -= 1 / x;
  // Asymptotic series with the Bernoulli numbers (DLMF 5.11.2).
  const double r = 1 / (x * x);
  const double series =
      r *
      (1.0 / 12 -
       r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132 - r * (691.0 / 32760))))));
  return shift + std::log(x) - 0.5 / x - series;
}

double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);  // std::lgamma writes a global
}

double unary(Op op, double x) {
  switch (op) {
    case Op::Neg:
      return -x;
    case Op::Abs:
      return std::fabs(x);
    case Op::Sign:
      return std::isnan(x) ? x : static_cast<double>((x > 0) - (x < 0));
    case Op::Recip:
      return 1 / x;
    case Op::Sqrt:
      return std::sqrt(x);
    case Op::Rsqrt:
      return 1 / std::sqrt(x);
    case Op::Exp:
      return std::exp(x);
    case Op::Exp2:
      return std::exp2(x);
    case Op::Expm1:
      return std::expm1(x);
    case Op::Log:
      return std::log(x);
    case Op::Log2:
      return std::log2(x);
    case Op::Log10:
      return std::log10(x);
    case Op::Log1p:
      return std::log1p(x);
    case Op::Sin:
      return std::sin(x);
    case Op::Cos:
      return std::cos(x);
    case Op::Tan:
      return std::tan(x);
    case Op::Asin:
      return std::asin(x);
    case Op::Acos:
      return std::acos(x);
    case Op::Atan:
      return std::atan(x);
    case Op::Sinh:
      return std::sinh(x);
    case Op::Cosh:
      return std::cosh(x);
    case Op::Tanh:
      return std::tanh(x);
    case Op::Sigmoid:
      return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
    case Op::Asinh:
      return std::asinh(x);
    case Op::Acosh:
      return std::acosh(x);
    case Op::Atanh:
      return std::atanh(x);
    case Op::Erf:
      return std::erf(x);
    case Op::Erfc:
      return std::erfc(x);
    case Op::Lgamma:
      return log_gamma(x);
    case Op::Digamma:
      return digamma(x);
    case Op::Trunc:
      return std::trunc(x);
    case Op::Floor:
      return std::floor(x);
    case Op::Ceil:
      return std::ceil(x);
    case Op::Round:
      return std::nearbyint(x);
    default:
      internal_error("evaluate: no such op of one float");
  }
}

double maximum(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}
double minimum(double a, double b) {
  return std::isnan(a) || a < b ? a : b;
}

// The sum, product and quotient of two f32 in f64, rounded once more to f32, are those of f32: 53
// bits are at least twice 24 and two (Figueroa, "When is double rounding innocuous?").
double binary(Op op, double a, double b) {
  switch (op) {
    case Op::Add:
      return a + b;
    case Op::Sub:
      return a - b;
    case Op::Mul:
      return a * b;
    case Op::Div:
      return a / b;
    case Op::Rem:
      return std::fmod(a, b);
    case Op::Pow:
      return std::pow(a, b);
    case Op::Max:
      return maximum(a, b);
    case Op::Min:
      return minimum(a, b);
    case Op::Atan2:
      return std::atan2(a, b);
    default:
      internal_error("evaluate: no such op of two floats");
  }
}

// ---- integers, extended to 64 bits; the caller wraps the result

int64_t unary(Op op, int64_t x, DType t) {
  switch (op) {
    case Op::Neg:
      return static_cast<int64_t>(-static_cast<uint64_t>(x));
    case Op::Not:
      return t == DType::Bool ? !x : ~x;
    case Op::Abs:
      return is_signed(t) && x < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x;
    case Op::Sign:
      return is_signed(t) ? (x > 0) - (x < 0) : x != 0;
    default:
      internal_error("evaluate: no such op of one integer");
  }
}

bool less(int64_t a, int64_t b, DType t) {
  return is_signed(t) ? a < b : static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
}

int64_t divide(int64_t a, int64_t b, DType t) {
  if (b == 0) return 0;
  if (!is_signed(t))
    return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  return b == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(a)) : a / b;
}

int64_t remainder(int64_t a, int64_t b, DType t) {
  if (b == 0) return 0;
  if (!is_signed(t))
    return static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
  return b == -1 ? 0 : a % b;
}

bool in_width(int64_t count, DType t) {
  return count >= 0 && count < 8 * size_of(t);
}

int64_t binary(Op op, int64_t a, int64_t b, DType t) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (op) {
    case Op::Add:
      return static_cast<int64_t>(x + y);
    case Op::Sub:
      return static_cast<int64_t>(x - y);
    case Op::Mul:
      return static_cast<int64_t>(x * y);
    case Op::IDiv:
      return divide(a, b, t);
    case Op::Rem:
      return remainder(a, b, t);
    case Op::Max:
      return less(a, b, t) ? b : a;
    case Op::Min:
      return less(b, a, t) ? b : a;
    case Op::And:
      return a & b;
    case Op::Or:
      return a | b;
    case Op::Xor:
      return a ^ b;
    case Op::Shl:
      return in_width(b, t) ? static_cast<int64_t>(x << b) : 0;
    case Op::Shr:
      if (in_width(b, t)) return is_signed(t) ? a >> b : static_cast<int64_t>(x >> b);
      return is_signed(t) && a < 0 ? -1 : 0;
    default:
      internal_error("evaluate: no such op of two integers");
  }
}

template <typename T, typename Less>
bool compare(Op op, T a, T b, Less is_less) {
  switch (op) {
    case Op::Lt:
      return is_less(a, b);
    case Op::Le:
      return is_less(a, b) || a == b;
    case Op::Eq:
      return a == b;
    case Op::Ne:
      return !(a == b);
    default:
      internal_error("evaluate: no such comparison");
  }
}

uint64_t convert(uint64_t bits, DType from, DType to) {
  if (from == to) return bits;
  if (is_float(from)) {
    const double v = float_from(bits, from);
    if (is_float(to)) return float_bits(v, to);
    return to == DType::Bool ? v != 0 : to_bits(Scalar(v), to);
  }
  const int64_t v = int_from(bits, from);
  if (!is_float(to)) return int_bits(v, to);
  const bool wide = from == DType::U64;
  if (to == DType::F64) {
    return float_bits(wide ? static_cast<double>(static_cast<uint64_t>(v)) : static_cast<double>(v),
                      to);
  }
  // Rounded to f32 from the integer itself, not from its f64.
  return float_bits(wide ? static_cast<float>(static_cast<uint64_t>(v)) : static_cast<float>(v),
                    to);
}

uint64_t evaluate_float(Op op, DType dtype, std::span<const uint64_t> bits) {
  const double a = float_from(bits[0], dtype);
  if (bits.size() == 1) return float_bits(unary(op, a), dtype);
  const double b = float_from(bits[1], dtype);
  if (bits.size() == 2) return float_bits(binary(op, a, b), dtype);
  const double c = float_from(bits[2], dtype);
  ensure(op == Op::Fma, "evaluate: no such op of three floats");
  if (dtype == DType::F64) return float_bits(std::fma(a, b, c), dtype);
  return float_bits(std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)),
                    dtype);
}

// Element `place` of a packed word, whose elements have this dtype.
uint64_t element(uint64_t word, int place, DType dtype) {
  const int width = 8 * size_of(dtype);
  return word >> (width * place) & ((uint64_t{1} << width) - 1);
}

uint64_t evaluate_dot(Op op, DType dtype, std::span<const uint64_t> bits, DType src) {
  if (op == Op::DotBF16) {
    auto sum = static_cast<float>(float_from(bits[2], src));
    for (const int place : {0, 1}) {
      const auto of = [&](size_t k) {
        return static_cast<float>(float_from(element(bits[k], place, DType::BF16), DType::BF16));
      };
      sum = std::fma(of(0), of(1), sum);
    }
    return float_bits(sum, dtype);
  }
  const bool bytes = op != Op::DotI16;
  const DType b = bytes ? DType::I8 : DType::I16, a = op == Op::DotU8I8 ? DType::U8 : b;
  int64_t sum = int_from(bits[2], src);
  for (int place = 0; place < (bytes ? 4 : 2); place++) {
    sum += int_from(element(bits[0], place, a), a) * int_from(element(bits[1], place, b), b);
  }
  return int_bits(sum, dtype);
}

}  // namespace

uint64_t evaluate(Op op, DType dtype, std::span<const uint64_t> bits, DType src) {
  if (is_dot(op)) return evaluate_dot(op, dtype, bits, src);
  if (op == Op::Cast) return convert(bits[0], src, dtype);
  if (op == Op::Bitcast) return bits[0];
  if (op == Op::Where) return bits[0] != 0 ? bits[1] : bits[2];
  if (op == Op::EighthRoot) return kEighthRoots[bits[0] % kEighthRoots.size()];
  if (op == Op::RecipEstimate) return recip_estimate(static_cast<uint32_t>(bits[0]));
  if (has(op, kComparison)) {
    if (is_float(src)) {
      return compare(op, float_from(bits[0], src), float_from(bits[1], src),
                     [](double a, double b) { return a < b; });
    }
    return compare(op, int_from(bits[0], src), int_from(bits[1], src),
                   [src](int64_t a, int64_t b) { return less(a, b, src); });
  }
  if (is_float(src)) return evaluate_float(op, src, bits);
  const int64_t a = int_from(bits[0], src);
  if (bits.size() == 1) return int_bits(unary(op, a, src), dtype);
  return int_bits(binary(op, a, int_from(bits[1], src), src), dtype);
}

Op combiner(Op reduce) {
  switch (reduce) {
    case Op::ReduceAdd:
      return Op::Add;
    case Op::ReduceMul:
      return Op::Mul;
    case Op::ReduceMax:
      return Op::Max;
    case Op::ReduceMin:
      return Op::Min;
    default:
      internal_error("combiner: not a reduction");
  }
}

uint64_t reduce_identity(Op reduce, DType t) {
  switch (reduce) {
    case Op::ReduceAdd:
      return 0;
    case Op::ReduceMul:
      return to_bits(Scalar(1), t);
    case Op::ReduceMax:
    case Op::ReduceMin: {
      const bool lowest = reduce == Op::ReduceMax;
      if (t == DType::Bool) return !lowest;
      const double infinity = std::numeric_limits<double>::infinity();
      return to_bits(Scalar(lowest ? -infinity : infinity), t);  // integers saturate
    }
    default:
      internal_error("reduce_identity: not a reduction");
  }
}

bool sorts_before(uint64_t a, uint64_t b, DType dtype) {
  const Scalar x = from_bits(a, dtype), y = from_bits(b, dtype);
  if (is_float(dtype)) {
    if (std::isnan(x.as_double())) return false;
    return std::isnan(y.as_double()) || x.as_double() < y.as_double();
  }
  return dtype == DType::U64 ? a < b : x.as_int() < y.as_int();
}

uint32_t recip_estimate(uint32_t bits) {
  constexpr uint32_t kLost = (1u << 9) - 1;
  const float exact = 1 / std::bit_cast<float>(bits);
  return std::isnan(exact) ? std::bit_cast<uint32_t>(exact)
                           : std::bit_cast<uint32_t>(exact) & ~kLost;
}

}  // namespace lazuli
