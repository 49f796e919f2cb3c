#include "tools/notation/ast.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <variant>

namespace lazuli::notation {
namespace {

// clang-format off
constexpr std::array<FillInfo, 8> kFills{{
    // kind               name         argument  bool   int    float
    {FillKind::Normal,    "normal",    false,    false, false, true},
    {FillKind::Uniform,   "uniform",   false,    false, false, true},
    {FillKind::Ids,       "ids",       true,     false, true,  true},
    {FillKind::Bits,      "bits",      false,    false, true,  false},
    {FillKind::Zeros,     "zeros",     false,    true,  true,  true},
    {FillKind::Ones,      "ones",      false,    true,  true,  true},
    {FillKind::Arange,    "arange",    false,    false, true,  true},
    {FillKind::Bernoulli, "bernoulli", true,     true,  true,  true},
}};
// clang-format on

constexpr auto kFillNames = [] {
  std::array<std::string_view, kFills.size()> names;
  for (size_t i = 0; i < kFills.size(); ++i) names[i] = kFills[i].name;
  return names;
}();

std::string slice_text(const SliceBounds& s) {
  std::string text = s.has_start ? std::to_string(s.start) : "";
  text += ":";
  if (s.has_stop) text += std::to_string(s.stop);
  if (s.has_step) text += ":" + std::to_string(s.step);
  return text;
}

std::string fill_text(const Fill& fill) {
  const FillInfo& info = kFills[static_cast<size_t>(fill.kind)];
  if (fill.kind == FillKind::Ids)
    return fmt::format("~ids({})", static_cast<int64_t>(fill.argument));
  return info.has_argument ? fmt::format("~{}({})", info.name, float_text(fill.argument))
                           : fmt::format("~{}", info.name);
}

/// Prints with a stack of what is still to come, so that depth costs no C++ stack.
class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string run(ExprId root) {
    stack_.emplace_back(root);
    while (!stack_.empty()) {
      const Piece piece = std::move(stack_.back());
      stack_.pop_back();
      if (const auto* text = std::get_if<std::string>(&piece)) {
        out_ += *text;
        continue;
      }
      pieces_.clear();
      expand(program_.at(std::get<ExprId>(piece)));
      stack_.insert(stack_.end(), pieces_.rbegin(), pieces_.rend());
    }
    return out_;
  }

 private:
  using Piece = std::variant<std::string, ExprId>;

  void add(std::string_view text) { pieces_.emplace_back(std::string(text)); }
  void add(ExprId id) { pieces_.emplace_back(id); }

  void add_list(const std::vector<ExprId>& items, size_t from = 0) {
    for (size_t i = from; i < items.size(); ++i) {
      if (i > from) add(", ");
      add(items[i]);
    }
  }

  void add_arguments(const Expr& e) {
    add("(");
    for (size_t i = 0; i < e.arguments.size(); ++i) {
      if (i > 0) add(", ");
      if (!e.arguments[i].keyword.empty()) add(e.arguments[i].keyword + "=");
      add(e.arguments[i].value);
    }
    add(")");
  }

  void expand(const Expr& e) {
    switch (e.kind) {
      case ExprKind::None:
        return add("None");
      case ExprKind::Bool:
        return add(e.integer != 0 ? "true" : "false");
      case ExprKind::Int:
        return add(std::to_string(e.integer));
      case ExprKind::Float:
        return add(float_text(e.real));
      case ExprKind::Word:
      case ExprKind::Variable:
        return add(e.text);
      case ExprKind::String: {
        const char* const quote = e.text.find('"') == std::string::npos ? "\"" : "'";
        return add(quote + e.text + quote);
      }
      case ExprKind::Input: {
        const InputDecl& input = program_.inputs[static_cast<size_t>(e.input)];
        return add(e.declares ? input.name + ":" + notation::to_text(input) : input.name);
      }
      case ExprKind::Unary:
        add("(" + e.text);
        add(e.children[0]);
        return add(")");
      case ExprKind::Binary:
        add("(");
        add(e.children[0]);
        add(" " + e.text + " ");
        add(e.children[1]);
        return add(")");
      case ExprKind::Call:
        add(e.text);
        return add_arguments(e);
      case ExprKind::Method:
        add(e.children[0]);
        add("." + e.text);
        return add_arguments(e);
      case ExprKind::Attribute:
        add(e.children[0]);
        return add("." + e.text);
      case ExprKind::Index:
        add(e.children[0]);
        add("[");
        add_list(e.children, 1);
        return add("]");
      case ExprKind::Slice:
        return add(slice_text(e.slice));
      case ExprKind::Ellipsis:
        return add("...");
      case ExprKind::List:
        add("[");
        add_list(e.children);
        return add("]");
      case ExprKind::Tuple:
        add("(");
        add_list(e.children);
        return add(e.children.size() == 1 ? ",)" : ")");
    }
  }

  const Program& program_;
  std::vector<Piece> stack_, pieces_;
  std::string out_;
};

}  // namespace

std::span<const FillInfo> fills() {
  return kFills;
}
std::span<const std::string_view> fill_names() {
  return kFillNames;
}

Fill default_fill(DType dtype) {
  if (is_float(dtype)) return {.kind = FillKind::Normal};
  if (dtype == DType::Bool) return {.kind = FillKind::Bernoulli, .argument = 0.5};
  return {.kind = FillKind::Ids, .argument = 100};
}

std::vector<int64_t> InputDecl::shape() const {
  std::vector<int64_t> sizes;
  for (const Dim& dim : dims) sizes.push_back(dim.size);
  return sizes;
}

std::string to_text(const InputDecl& input) {
  std::string text = std::string(name(input.dtype)) + "[";
  for (size_t i = 0; i < input.dims.size(); ++i) {
    const Dim& dim = input.dims[i];
    if (i > 0) text += ",";
    if (dim.declares) {
      text += fmt::format("{}={}..{}:{}", dim.name, dim.low, dim.high, dim.size);
    } else {
      text += dim.name.empty() ? std::to_string(dim.size) : dim.name;
    }
  }
  return text + "]" + (input.fill.stated ? fill_text(input.fill) : "");
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string to_text(const Program& program, ExprId id) {
  return Printer(program).run(id);
}

std::string to_text(const Program& program) {
  std::string text;
  for (const Statement& statement : program.statements) {
    if (!text.empty()) text += "; ";
    if (!statement.name.empty()) text += statement.name + " = ";
    text += to_text(program, statement.value);
  }
  return text;
}

}  // namespace lazuli::notation
