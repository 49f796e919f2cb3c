#include "codegen/llvm_types.h"

#include <fmt/format.h>

#include <bit>

#include "core/scalar.h"

namespace lazuli {

std::string_view element_type(DType t) {
  constexpr std::string_view kNames[] = {"i1",  "i8",  "i16",  "i32", "i64",   "i8",    "i16",
                                         "i32", "i64", "half", "i16", "float", "double"};
  return kNames[static_cast<size_t>(t)];
}
std::string_view memory_type(DType t) {
  return t == DType::Bool ? "i8" : element_type(t);
}

std::string mangled(DType t, int lanes) {
  constexpr std::string_view kNames[] = {"i1",  "i8",  "i16", "i32", "i64", "i8", "i16",
                                         "i32", "i64", "f16", "i16", "f32", "f64"};
  const std::string_view e = kNames[static_cast<size_t>(t)];
  return lanes > 1 ? fmt::format("v{}{}", lanes, e) : std::string(e);
}

std::string float_bits(double v) {
  return fmt::format("0x{:016X}", std::bit_cast<uint64_t>(v));
}

std::string literal(uint64_t bits, DType t) {
  switch (t) {
    case DType::Bool:
      return bits ? "1" : "0";
    case DType::F16:
      return fmt::format("0xH{:04X}", bits & 0xffff);
    case DType::BF16:
      return fmt::format("{}", bits & 0xffff);
    case DType::F32: {
      const auto f = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (f !=
          f) {  // a signalling NaN would be quietened by the conversion: keep the payload's place
        const uint64_t b = bits & 0xffffffff;
        const uint64_t d = (b >> 31) << 63 | uint64_t{0x7ff} << 52 | (b & 0x7fffff) << 29;
        return fmt::format("0x{:016X}", d);
      }
      return float_bits(static_cast<double>(f));
    }
    case DType::F64:
      return fmt::format("0x{:016X}", bits);
    default:
      return fmt::format("{}", from_bits(bits, t).as_int());
  }
}

}  // namespace lazuli
