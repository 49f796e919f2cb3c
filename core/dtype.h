// Element types: one row each, and PyTorch's rules for what a mix of them becomes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lazuli {

enum class DType : uint8_t { Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64 };
inline constexpr int kDTypeCount = 13;

/// Categories in promotion order: a higher one wins over a lower one.
enum class Kind : uint8_t { Bool, Int, Float };

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as the notation and the printer spell it
  int size;               // bytes of one element in memory (bool: one byte, 0 or 1)
  Kind kind;
  bool is_signed;
};

inline constexpr std::array<DTypeInfo, kDTypeCount> kDTypes{{
    {DType::Bool, "bool", 1, Kind::Bool, false},
    {DType::I8, "i8", 1, Kind::Int, true},
    {DType::I16, "i16", 2, Kind::Int, true},
    {DType::I32, "i32", 4, Kind::Int, true},
    {DType::I64, "i64", 8, Kind::Int, true},
    {DType::U8, "u8", 1, Kind::Int, false},
    {DType::U16, "u16", 2, Kind::Int, false},
    {DType::U32, "u32", 4, Kind::Int, false},
    {DType::U64, "u64", 8, Kind::Int, false},
    {DType::F16, "f16", 2, Kind::Float, true},
    {DType::BF16, "bf16", 2, Kind::Float, true},
    {DType::F32, "f32", 4, Kind::Float, true},
    {DType::F64, "f64", 8, Kind::Float, true},
}};

constexpr const DTypeInfo& info(DType t) { return kDTypes[static_cast<size_t>(t)]; }
constexpr std::string_view name(DType t) { return info(t).name; }
constexpr int size_of(DType t) { return info(t).size; }
constexpr bool is_float(DType t) { return info(t).kind == Kind::Float; }
/// A float of 16 bits.
constexpr bool is_half(DType t) { return t == DType::F16 || t == DType::BF16; }
constexpr bool is_int(DType t) { return info(t).kind == Kind::Int; }
constexpr bool is_integral(DType t) { return info(t).kind != Kind::Float; }  // bool too
constexpr bool is_signed(DType t) { return info(t).is_signed; }

/// The dtype that elements of `a` and `b` are both converted to, as torch.promote_types. Pairs of an unsigned type wider
/// than 8 bits with a signed one, which PyTorch leaves out, give the narrowest signed type that holds both; with u64, f32.
DType promote(DType a, DType b);

/// The dtype that a sum of this dtype is accumulated in: f32 for f16 and bf16, else itself.
constexpr DType accumulator(DType t) {
  return t == DType::F16 || t == DType::BF16 ? DType::F32 : t;
}

/// Parses a name of kDTypes ("f32"); returns false if there is none.
bool parse_dtype(std::string_view text, DType& out);

/// Bit conversions of the 16-bit floats, round to nearest even.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);
/// f64 to the 16-bit floats in one rounding.
uint16_t f64_to_f16(double value);
uint16_t f64_to_bf16(double value);

}  // namespace lazuli
