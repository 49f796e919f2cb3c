#include "core/scalar.h"

#include <cmath>

namespace lazuli {
namespace {

// Truncates to an integer type, saturating; NaN gives 0.
uint64_t saturate(double v, DType t) {
  if (std::isnan(v)) return 0;
  const int bits = 8 * size_of(t);
  if (is_signed(t)) {
    const double limit = std::ldexp(1.0, bits - 1);
    if (v >= limit) return detail::low_bytes((uint64_t{1} << (bits - 1)) - 1, size_of(t));
    if (v < -limit) return detail::low_bytes(uint64_t{1} << (bits - 1), size_of(t));
    return detail::low_bytes(static_cast<uint64_t>(static_cast<int64_t>(v)), size_of(t));
  }
  if (v <= -1.0) return 0;
  if (v >= std::ldexp(1.0, bits)) return detail::low_bytes(~uint64_t{0}, size_of(t));
  return v < 0 ? 0 : detail::low_bytes(static_cast<uint64_t>(v), size_of(t));
}

}  // namespace

int64_t Scalar::as_int() const {
  return is_float() ? static_cast<int64_t>(saturate(float_, DType::I64)) : int_;
}

uint64_t to_bits(const Scalar& v, DType t) {
  switch (t) {
    case DType::Bool: return v.is_float() ? v.as_double() != 0 : v.as_int() != 0;
    case DType::F16: return f64_to_f16(v.as_double());
    case DType::BF16: return f64_to_bf16(v.as_double());
    case DType::F32: {
      // An integer above 2^53 must not be rounded twice; one of 2^63 and more has wrapped.
      const float f = v.is_float()              ? static_cast<float>(v.as_double())
                      : v.as_double() >= 0x1p63 ? static_cast<float>(static_cast<uint64_t>(v.as_int()))
                                                : static_cast<float>(v.as_int());
      return std::bit_cast<uint32_t>(f);
    }
    case DType::F64:
      return std::bit_cast<uint64_t>(v.as_double());
    default:
      return v.is_float() ? saturate(v.as_double(), t)
                          : detail::low_bytes(static_cast<uint64_t>(v.as_int()), size_of(t));
  }
}

Scalar from_bits(uint64_t bits, DType t) {
  switch (t) {
    case DType::Bool: return Scalar(bits != 0);
    case DType::I8: return Scalar(static_cast<int64_t>(static_cast<int8_t>(bits)));
    case DType::I16: return Scalar(static_cast<int64_t>(static_cast<int16_t>(bits)));
    case DType::I32: return Scalar(static_cast<int64_t>(static_cast<int32_t>(bits)));
    case DType::I64: return Scalar(static_cast<int64_t>(bits));
    case DType::F16: return Scalar(f16_to_f32(static_cast<uint16_t>(bits)));
    case DType::BF16: return Scalar(bf16_to_f32(static_cast<uint16_t>(bits)));
    case DType::F32: return Scalar(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case DType::F64: return Scalar(std::bit_cast<double>(bits));
    default: return Scalar(static_cast<unsigned long>(bits));
  }
}

}  // namespace lazuli
