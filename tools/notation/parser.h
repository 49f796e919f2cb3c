// From text to the syntax tree.
#pragma once

#include <string>
#include <string_view>

#include "tools/notation/ast.h"

namespace lazuli::notation {

/// How deep parentheses, brackets, calls and signs may nest. Chains (`x + x + ...`,
/// `x.exp().exp()...`) have no limit.
inline constexpr int kMaxNesting = 400;

/// Parses the whole notation. Names are resolved to inputs and variables here, functions and their
/// parameters are not. Throws UserError that says what was expected and found, the line, a caret,
/// and the nearest known name.
Program parse(std::string_view text);

}  // namespace lazuli::notation
