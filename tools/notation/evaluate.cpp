// From the syntax tree to lazy tensors.
#include <fmt/format.h>

#include <array>
#include <type_traits>

#include "core/error.h"
#include "tools/notation/arithmetic.h"
#include "tools/notation/functions.h"
#include "tools/notation/index.h"
#include "tools/notation/notation.h"
#include "tools/notation/source.h"
#include "tools/notation/transforms.h"

namespace lazuli::notation {
namespace {

struct Spelling {
  std::string_view mark, function;
};

// The function that an operator on tensors calls.
constexpr std::array<Spelling, 18> kBinaryFunctions{{
    {"+", "add"},
    {"-", "sub"},
    {"*", "mul"},
    {"/", "div"},
    {"//", "floor_divide"},
    {"%", "remainder"},
    {"**", "pow"},
    {"@", "matmul"},
    {"<", "lt"},
    {"<=", "le"},
    {">", "gt"},
    {">=", "ge"},
    {"==", "eq"},
    {"!=", "ne"},
    {"&", "bitwise_and"},
    {"|", "bitwise_or"},
    {"^", "bitwise_xor"},
    {"<<", "bitwise_left_shift"},
}};
constexpr std::string_view kShiftRight = "bitwise_right_shift";

std::string_view binary_function(std::string_view mark) {
  for (const Spelling& row : kBinaryFunctions) {
    if (row.mark == mark) return row.function;
  }
  return kShiftRight;
}

class Evaluator {
 public:
  Evaluator(const Program& program, const Bindings& bindings) : program_(program) {
    for (const InputDecl& input : program.inputs) {
      const auto found = bindings.find(input.name);
      require(found != bindings.end(), "the input {} is not bound", input.name);
      inputs_.push_back(found->second);
    }
  }

  Result run() {
    for (const Statement& statement : program_.statements) {
      Value value = evaluate(statement.value);
      if (statement.name.empty()) {
        last_ = std::move(value);
      } else {
        variables_.insert_or_assign(statement.name, std::move(value));
      }
    }
    Result result{.tensors = {}, .is_tuple = last_.get<Sequence>() != nullptr};
    placed(last_.place, [&] { collect(last_, result); });
    return result;
  }

 private:
  static void collect(const Value& value, Result& result) {
    if (const auto* sequence = value.get<Sequence>()) {
      for (const Value& item : sequence->items) collect(item, result);
      return;
    }
    if (const auto* word = value.get<Word>()) throw UndeclaredWord(word->text, value.place);
    const std::optional<Tensor> tensor = to_tensor(value);
    require(tensor.has_value(), "the result is {}; expected a tensor", describe(value));
    result.tensors.push_back(*tensor);
  }

  // Chains such as `a + b + c` and `x.f().g()` lean to the left; they are walked, not recursed
  // into.
  Value evaluate(ExprId id) {
    std::vector<const Expr*> spine;
    const Expr* e = &program_.at(id);
    while (leans_left(*e)) {
      spine.push_back(e);
      e = &program_.at(e->children[0]);
    }
    Value value = base(*e);
    value.place = e->span.begin;
    for (; !spine.empty(); spine.pop_back()) {
      const Expr& outer = *spine.back();
      value = placed(outer.place, [&] { return step(outer, std::move(value)); });
      value.place = outer.span.begin;
    }
    return value;
  }

  static bool leans_left(const Expr& e) {
    if (e.kind == ExprKind::Method) return !is_lazy_transform(e.text);
    return e.kind == ExprKind::Binary || e.kind == ExprKind::Attribute || e.kind == ExprKind::Index;
  }

  /// Runs `f`; an error of the user's that has no place gets that of its argument, or this one.
  template <typename F>
  std::invoke_result_t<F> placed(size_t place, F f) const {
    try {
      return f();
    } catch (const PlacedError&) {
      throw;
    } catch (const UndeclaredWord& error) {
      const bool is_function = !find_functions(error.word).empty();
      const std::string near = is_function ? "" : suggestion(error.word, known_names());
      fail_at(program_.text, error.place.value_or(place),
              near.empty() ? error.what()
                           : fmt::format("'{}' is no input and no variable{}", error.word, near));
    } catch (const ArgumentError& error) {
      fail_at(program_.text, error.place.value_or(place), error.what());
    } catch (const UserError& error) {
      fail_at(program_.text, place, error.what());
    }
  }

  std::vector<std::string_view> known_names() const {
    std::vector<std::string_view> names;
    for (const InputDecl& input : program_.inputs) names.push_back(input.name);
    for (const auto& [name, value] : variables_) names.push_back(name);
    return names;
  }

  bool is_size(const std::string& word) const {
    for (const InputDecl& input : program_.inputs) {
      for (const Dim& d : input.dims) {
        if (!d.name.empty() && d.name == word) return true;
      }
    }
    return false;
  }

  Value base(const Expr& e) {
    if (e.kind == ExprKind::Word && is_size(e.text)) {
      fail_at(program_.text, e.span.begin,
              fmt::format("'{0}' is the size of a dimension, not a value; expected a number, or in "
                          "a reshape -1",
                          e.text));
    }
    if (auto value = literal(e)) return *value;
    switch (e.kind) {
      case ExprKind::Input:
        return {.data = inputs_[static_cast<size_t>(e.input)]};
      case ExprKind::Variable:
        return variables_.at(e.text);
      case ExprKind::List:
      case ExprKind::Tuple: {
        Sequence items{.is_tuple = e.kind == ExprKind::Tuple, .items = {}};
        for (const ExprId child : e.children) items.items.push_back(evaluate(child));
        return {.data = std::move(items)};
      }
      case ExprKind::Unary: {
        Value operand = evaluate(e.children[0]);
        return placed(e.place, [&] { return unary(e.text, std::move(operand)); });
      }
      case ExprKind::Call:
        if (is_lazy_transform(e.text)) return lazy_transform(e, {});
        return call(e, {});
      case ExprKind::Method:
        return lazy_transform(e, e.children);
      default:
        internal_error("this expression has no value of its own");
    }
  }

  // `torch.relu(x)`: the name before the dot is nothing here.
  static void refuse_prefix(const Value& object) {
    const auto* const word = object.get<Word>();
    if (word == nullptr) return;
    for (const std::string_view prefix : kLibraries) {
      if (word->text == prefix) {
        throw ArgumentError(
            fmt::format("'{}' is no input and no variable; functions are written without a "
                        "prefix, as relu(x)",
                        prefix),
            object.place);
      }
    }
    throw UndeclaredWord(word->text, object.place);
  }

  Value step(const Expr& e, Value object) {
    if (e.kind == ExprKind::Method || e.kind == ExprKind::Attribute) refuse_prefix(object);
    switch (e.kind) {
      case ExprKind::Binary:
        return binary(e.text, std::move(object), evaluate(e.children[1]));
      case ExprKind::Method: {
        std::vector<Value> first;
        first.push_back(std::move(object));
        return call(e, std::move(first));
      }
      case ExprKind::Attribute:
        return call_function(e.text, {std::move(object)}, {});
      default:
        return index(e, object);
    }
  }

  static Value unary(std::string_view mark, Value operand) {
    if (operand.is_number()) return number_unary(mark, operand);
    return call_function(mark == "-" ? "neg" : "bitwise_not", {std::move(operand)}, {});
  }

  static Value binary(std::string_view mark, Value left, Value right) {
    if (left.is_number() && right.is_number()) return number_binary(mark, left, right);
    return call_function(binary_function(mark), {std::move(left), std::move(right)}, {});
  }

  Value call(const Expr& e, std::vector<Value> positional) {
    std::vector<std::pair<std::string, Value>> keywords;
    for (const Argument& argument : e.arguments) {
      Value value = evaluate(argument.value);
      if (argument.keyword.empty()) {
        positional.push_back(std::move(value));
      } else {
        keywords.emplace_back(argument.keyword, std::move(value));
      }
    }
    return placed(
        e.place, [&] { return call_function(e.text, std::move(positional), std::move(keywords)); });
  }

  Value index(const Expr& e, const Value& object) {
    std::vector<IndexPart> parts;
    for (size_t i = 1; i < e.children.size(); ++i) {
      const Expr& item = program_.at(e.children[i]);
      if (item.kind == ExprKind::Slice) {
        parts.emplace_back(item.slice);
      } else if (item.kind == ExprKind::Ellipsis) {
        parts.emplace_back(EllipsisPart{});
      } else {
        parts.emplace_back(evaluate(e.children[i]));
      }
    }
    return index_value(object, parts);
  }

  // A transform whose body is evaluated with other values for some of its inputs: vmap(body, x,
  // ...).
  Value lazy_transform(const Expr& e, const std::vector<ExprId>& object) {
    std::vector<ExprId> arguments = object;
    for (const Argument& argument : e.arguments) {
      if (!argument.keyword.empty()) {
        fail_at(program_.text, argument.place,
                fmt::format("{} has no parameter '{}'; the call is {}", e.text, argument.keyword,
                            kVmapSignature));
      }
      arguments.push_back(argument.value);
    }
    if (arguments.size() < 2) {
      fail_at(program_.text, e.place,
              fmt::format("{} needs an expression and an input to map over; the call is {}", e.text,
                          kVmapSignature));
    }
    std::vector<int> mapped;
    std::vector<Tensor> batches;
    for (size_t i = 1; i < arguments.size(); ++i) {
      const Expr& input = program_.at(arguments[i]);
      if (input.kind != ExprKind::Input) {
        fail_at(program_.text, input.place,
                fmt::format("{} maps over inputs alone; expected the name of an input", e.text));
      }
      mapped.push_back(input.input);
      batches.push_back(inputs_[static_cast<size_t>(input.input)]);
    }
    const std::map<std::string, Value> outside = variables_;
    const auto body = [&](std::span<const Tensor> rows) {
      for (size_t i = 0; i < mapped.size(); ++i) inputs_[static_cast<size_t>(mapped[i])] = rows[i];
      return evaluate(arguments[0]);
    };
    Value result = placed(e.place, [&] { return vmap_value(body, batches); });
    for (size_t i = 0; i < mapped.size(); ++i) inputs_[static_cast<size_t>(mapped[i])] = batches[i];
    return result;
  }

  const Program& program_;
  std::vector<Tensor> inputs_;
  std::map<std::string, Value> variables_;
  Value last_;
};

}  // namespace

Result evaluate_program(const Program& program, const Bindings& bindings,
                        const EvalOptions& options) {
  start_random(options.seed);
  return Evaluator(program, bindings).run();
}

std::vector<Tensor> evaluate(const Program& program, const Bindings& bindings,
                             const EvalOptions& options) {
  return evaluate_program(program, bindings, options).tensors;
}

}  // namespace lazuli::notation
