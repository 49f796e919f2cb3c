#include "core/dtype.h"

#include <bit>
#include <algorithm>
#include <cmath>

namespace lazuli {

DType promote(DType a, DType b) {
  if (a == b) return a;
  const DTypeInfo &x = info(a), &y = info(b);
  if (x.kind != y.kind) return x.kind > y.kind ? a : b;
  if (x.kind == Kind::Float) {
    if (x.size == y.size) return DType::F32;  // f16 with bf16
    return x.size > y.size ? a : b;
  }
  if (x.is_signed == y.is_signed) return x.size > y.size ? a : b;
  const DTypeInfo& s = x.is_signed ? x : y;
  const DTypeInfo& u = x.is_signed ? y : x;
  if (s.size > u.size) return s.dtype;
  constexpr DType kWider[] = {DType::I16, DType::I32, DType::I64, DType::F32};
  return kWider[std::countr_zero(static_cast<unsigned>(u.size)) & 3];
}

bool parse_dtype(std::string_view text, DType& out) {
  for (const DTypeInfo& row : kDTypes) {
    if (row.name == text) {
      out = row.dtype;
      return true;
    }
  }
  return false;
}

namespace {

// Rounds a double to a float format with `mant` explicit mantissa bits and `bias`, to nearest even, in one step.
uint16_t round_to_16(double v, int mant, int bias) {
  const uint64_t u = std::bit_cast<uint64_t>(v);
  const auto sign = static_cast<uint16_t>((u >> 63) << 15);
  const int exp_max = 2 * bias + 1;
  const auto inf = static_cast<uint16_t>(sign | (exp_max << mant));
  if (std::isnan(v)) return static_cast<uint16_t>(inf | (1 << (mant - 1)));
  if (std::isinf(v)) return inf;
  if (v == 0) return sign;
  int e = 0;
  const double m = std::frexp(std::fabs(v), &e);  // m in [0.5, 1)
  const int exponent = std::max(e - 1, 1 - bias);
  // The value in units of the last place of the result; nearbyint rounds to nearest even.
  const double units = std::nearbyint(std::ldexp(m, e - exponent + mant));
  const auto scaled = static_cast<uint32_t>(units);
  const uint32_t bits =
      scaled + (static_cast<uint32_t>(exponent - (1 - bias)) << mant);  // the carry moves the exponent
  if (bits >= static_cast<uint32_t>(exp_max << mant)) return inf;
  return static_cast<uint16_t>(sign | bits);
}

}  // namespace

float f16_to_f32(uint16_t h) {
  constexpr uint32_t kBiases = (127u - 15u) << 23;  // apart
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, magnitude = h & 0x7fff;
  uint32_t bits = (magnitude << 13) + kBiases;
  if (magnitude >= 0x7c00) bits += kBiases;  // infinity and NaN
  if (magnitude < 0x0400) bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  return std::bit_cast<float>(sign | bits);
}
uint16_t f32_to_f16(float v) {
  constexpr uint32_t kBiases = (127u - 15u) << 23, kLeastNormal = 0x38800000u;
  const uint32_t u = std::bit_cast<uint32_t>(v), magnitude = u & 0x7fffffffu;
  const uint32_t sign = (u >> 16) & 0x8000u;
  uint32_t bits = 0;
  if (magnitude > 0x7f800000u) {
    bits = 0x7e00;
  } else if (magnitude >= 0x477ff000u) {  // from 65520 on the next is infinity
    bits = 0x7c00;
  } else if (magnitude >= kLeastNormal) {
    bits = (magnitude - kBiases + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  } else {
    // The last place of a half is that of what lies between a half and 1, 2^-24.
    bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  }
  return static_cast<uint16_t>(sign | bits);
}
uint16_t f64_to_f16(double v) { return round_to_16(v, 10, 15); }
float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }
uint16_t f32_to_bf16(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  if (std::isnan(v)) return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
uint16_t f64_to_bf16(double v) { return round_to_16(v, 7, 127); }

}  // namespace lazuli
