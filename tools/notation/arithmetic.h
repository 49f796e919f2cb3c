// Arithmetic on the numbers of the notation, which are no tensors: as in Python, with integers of
// 64 bits that wrap.
#pragma once

#include <string_view>

#include "tools/notation/value.h"

namespace lazuli::notation {

/// `left op right` of two numbers. UserError for a division by zero and for an operator that
/// numbers lack.
Value number_binary(std::string_view op, const Value& left, const Value& right);

/// `op operand` of a number.
Value number_unary(std::string_view op, const Value& operand);

}  // namespace lazuli::notation
