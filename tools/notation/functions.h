// The functions of the notation: one table of signatures with PyTorch's names and defaults, each
// bound to a C++ function.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tools/notation/ast.h"
#include "tools/notation/bind.h"

namespace lazuli::notation {

/// One row. The signature reads `name(a, b=1, *rest)`: defaults are literals of the notation,
/// `*rest` takes all further arguments by position, or one list, and `**names` all other keywords.
/// Rows of one name are overloads, tried in order.
struct Function {
  std::string_view signature;
  Builtin builtin;

  std::string_view name() const { return signature.substr(0, signature.find('(')); }
};

// The table, in parts.
std::vector<Function> creation_functions();
std::vector<Function> elementwise_functions();
std::vector<Function> array_functions();
std::vector<Function> random_functions();
std::vector<Function> order_functions();
std::vector<Function> nn_functions();
std::vector<Function> pool_functions();
std::vector<Function> transform_functions();

/// The value of a literal; nothing of what is none, or holds others.
std::optional<Value> literal(const Expr& e);

/// The parts one after the other.
std::vector<Function> join_rows(std::vector<std::vector<Function>> parts);

/// All rows of the name, in the order of the table; empty if there is none.
std::vector<const Function*> find_functions(std::string_view name);

/// Every row.
const std::vector<Function>& all_functions();

/// The distinct names, for suggestions.
const std::vector<std::string_view>& function_names();

/// A mistake in an argument, with the place of the argument where it is known.
class ArgumentError : public UserError {
 public:
  ArgumentError(const std::string& message, std::optional<size_t> place)
      : UserError(message), place(place) {}
  std::optional<size_t> place;
};

/// A word stands where a tensor must be. Whoever knows the inputs and variables can say which one
/// is near.
class UndeclaredWord : public ArgumentError {
 public:
  UndeclaredWord(const std::string& word, std::optional<size_t> place);
  std::string word;
};

struct Parameter {
  std::string name;
  bool is_rest = false;      // *name
  bool is_keywords = false;  // **name
  bool has_default = false;
  Value standard;  // the default
};

/// The parameters of a signature.
std::vector<Parameter> parse_signature(std::string_view signature);

/// Calls `name` with these arguments, matched to the overloads by number, keyword and type. Throws
/// UserError without a place: unknown name, wrong number, unknown keyword, wrong type, or what the
/// function itself says.
Value call_function(std::string_view name, std::vector<Value> positional,
                    std::vector<std::pair<std::string, Value>> keywords);

}  // namespace lazuli::notation
