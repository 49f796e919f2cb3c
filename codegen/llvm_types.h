// How LLVM IR spells element types and constants.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace lazuli {

/// "float", "i32": an element in registers. bf16 is carried as its bits: LLVM would round it
/// through library calls.
std::string_view element_type(DType t);
/// The same in memory, where a Bool has a byte.
std::string_view memory_type(DType t);
/// "v8f32", "i64": how the name of an intrinsic spells an operand type.
std::string mangled(DType t, int lanes);
/// A double, and an f32 as one: the hexadecimal form of its bits.
std::string float_bits(double v);
/// A constant of the type, of whose value these are the bits.
std::string literal(uint64_t bits, DType t);

}  // namespace lazuli
