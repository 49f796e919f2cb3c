// The tokens of the notation.
#pragma once

#include <cstdint>
#include <string_view>

#include "tools/notation/source.h"

namespace lazuli::notation {

enum class TokenKind : uint8_t { Name, Int, Float, String, Mark, End };

/// One token. `text` views the source: of a string without its quotes, else all of it. A mark is an
/// operator, a bracket or a separator, told apart by its text.
struct Token {
  TokenKind kind = TokenKind::End;
  Span span;
  std::string_view text;
  uint64_t integer = 0;  // of Int
  double real = 0;       // of Int and Float
};

}  // namespace lazuli::notation
