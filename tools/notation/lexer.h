// From text to tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/notation/token.h"

namespace lazuli::notation {

/// Splits `text` into tokens that view it, the last of kind End. White space and comments (`#` to
/// the end of the line) are dropped. Throws UserError for a character that no token has, an open
/// string and a malformed number.
std::vector<Token> tokenize(std::string_view text);

/// How an error names a token: `'text'`, or `the end of the text`.
std::string describe(const Token& token);

}  // namespace lazuli::notation
