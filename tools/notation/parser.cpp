#include "tools/notation/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>

#include "core/error.h"
#include "core/shape.h"
#include "tools/notation/lexer.h"

namespace lazuli::notation {
namespace {

constexpr uint64_t kInt64Limit = uint64_t{1} << 63;

struct BinaryLevel {
  std::string_view mark;
  int level;
};

// Python's precedence, the weakest first. `**` is stronger than a sign and is parsed apart.
constexpr int kComparison = 1;
constexpr std::array<BinaryLevel, 18> kBinaryLevels{{
    {"<", kComparison},
    {"<=", kComparison},
    {">", kComparison},
    {">=", kComparison},
    {"==", kComparison},
    {"!=", kComparison},
    {"|", 2},
    {"^", 3},
    {"&", 4},
    {"<<", 5},
    {">>", 5},
    {"+", 6},
    {"-", 6},
    {"*", 7},
    {"/", 7},
    {"//", 7},
    {"%", 7},
    {"@", 7},
}};

struct WordHabit {
  std::string_view word;
  std::string_view instead;
};

// Words of Python that the notation spells otherwise.
constexpr std::array<WordHabit, 6> kWordHabits{{{"and", "&"},
                                                {"or", "|"},
                                                {"not", "~"},
                                                {"True", "true"},
                                                {"False", "false"},
                                                {"null", "None"}}};

constexpr std::array<std::string_view, 5> kConstants{"true", "false", "inf", "nan", "None"};
constexpr std::array<std::string_view, 2> kAttributes{"T", "mT"};

constexpr auto kDTypeNames = [] {
  std::array<std::string_view, kDTypeCount> names;
  for (size_t i = 0; i < kDTypes.size(); ++i) names[i] = kDTypes[i].name;
  return names;
}();

constexpr std::string_view kDTypeList = "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64";

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string habit_hint(std::string_view word) {
  for (const WordHabit& habit : kWordHabits) {
    if (habit.word == word) return fmt::format("; did you mean '{}'?", habit.instead);
  }
  return "";
}

// What is wanted by another's name of a dtype, such as float32, or what comes near.
std::string dtype_hint(std::string_view word) {
  constexpr std::pair<std::string_view, std::string_view> kLong[] = {
      {"bfloat", "bf"}, {"float", "f"}, {"uint", "u"}, {"int", "i"}};
  for (const auto& [prefix, instead] : kLong) {
    if (!word.starts_with(prefix)) continue;
    const std::string name = fmt::format("{}{}", instead, word.substr(prefix.size()));
    DType dtype;
    if (parse_dtype(name, dtype)) return fmt::format("; did you mean '{}'?", name);
  }
  return suggestion(word, kDTypeNames);
}

/// The largest integer of an integer dtype.
double largest(DType dtype) {
  return std::ldexp(1.0, size_of(dtype) * 8 - (is_signed(dtype) ? 1 : 0)) - 1;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokenize(text)), text_(text) {
    program_.text = std::string(text);
  }

  Program run() {
    if (current().kind == TokenKind::End)
      fail(current(), "expected an expression, the text is empty");
    for (;;) {
      statement();
      const Token& token = current();
      if (token.kind != TokenKind::End && !is(";")) {
        fail_expected("an operator, ';' or the end of the text", token);
      }
      while (is(";")) advance();
      if (current().kind == TokenKind::End) break;
    }
    const Statement& last = program_.statements.back();
    if (!last.name.empty()) {
      fail_at(text_, last.place,
              fmt::format("the last statement assigns {}, but it is the result; expected an "
                          "expression, as in '...; {}'",
                          last.name, last.name));
    }
    return std::move(program_);
  }

 private:
  // --- tokens ---

  const Token& current(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool is(std::string_view mark, size_t ahead = 0) const {
    return current(ahead).kind == TokenKind::Mark && current(ahead).text == mark;
  }
  const Token& advance() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool accept(std::string_view mark) {
    if (!is(mark)) return false;
    advance();
    return true;
  }
  void expect(std::string_view mark, std::string_view wanted) {
    if (!accept(mark)) fail_expected(wanted, current());
  }

  [[noreturn]] void fail(const Token& token, const std::string& message) const {
    fail_at(text_, token.span.begin, message);
  }
  [[noreturn]] void fail_expected(std::string_view wanted, const Token& found) const {
    const std::string hint = found.kind == TokenKind::Name ? habit_hint(found.text) : "";
    fail(found, fmt::format("expected {}, found {}{}", wanted, describe(found), hint));
  }

  // --- the arena ---

  ExprId add(Expr e) {
    program_.exprs.push_back(std::move(e));
    return static_cast<ExprId>(program_.exprs.size() - 1);
  }
  Expr start(ExprKind kind, const Token& token) const {
    Expr e;
    e.kind = kind;
    e.span = token.span;
    e.place = token.span.begin;
    return e;
  }
  /// Adds `e`, which began at `begin` and ends with the last token taken.
  ExprId finish(Expr e, size_t begin) {
    e.span = {begin, tokens_[at_ > 0 ? at_ - 1 : 0].span.end};
    return add(std::move(e));
  }
  size_t begin_of(ExprId id) const { return program_.at(id).span.begin; }

  // --- statements ---

  void statement() {
    Statement s{.name = {}, .place = current().span.begin};
    if (current().kind == TokenKind::Name && is("=", 1)) {
      const Token name = advance();
      check_name(name, "a variable");
      if (input_of_.count(name.text) > 0) {
        fail(name,
             fmt::format("{} is an input and cannot be assigned; take another name", name.text));
      }
      advance();
      s.name = std::string(name.text);
    }
    s.value = expression();
    if (is("="))
      fail(current(),
           "only a name can be assigned; expected NAME = expression, or '==' to compare");
    if (!s.name.empty()) variables_.insert(s.name);
    program_.statements.push_back(std::move(s));
  }

  void check_name(const Token& name, std::string_view what) const {
    if (contains(kConstants, name.text) || contains(kDTypeNames, name.text)) {
      fail(name, fmt::format("{} is a word of the notation and cannot name {}; take another name",
                             name.text, what));
    }
  }

  // --- operators ---

  ExprId expression() { return binary(kComparison); }

  const BinaryLevel* binary_level() const {
    if (current().kind != TokenKind::Mark) return nullptr;
    const auto* const row =
        std::find_if(kBinaryLevels.begin(), kBinaryLevels.end(),
                     [&](const BinaryLevel& r) { return r.mark == current().text; });
    return row == kBinaryLevels.end() ? nullptr : row;
  }

  ExprId binary(int weakest) {
    ExprId left = unary();
    bool compared = false;
    for (const BinaryLevel* row = binary_level(); row != nullptr && row->level >= weakest;
         row = binary_level()) {
      const Token& mark = advance();
      if (row->level == kComparison && compared) {
        fail(mark, "comparisons do not chain; expected (a < b) & (b < c)");
      }
      compared = row->level == kComparison;
      left = join(left, mark, binary(row->level + 1));
    }
    return left;
  }

  ExprId join(ExprId left, const Token& mark, ExprId right) {
    Expr e = start(ExprKind::Binary, mark);
    e.text = std::string(mark.text);
    e.children = {left, right};
    return finish(std::move(e), begin_of(left));
  }

  // Every cycle of the grammar passes through here, so this is where depth is counted.
  ExprId unary() {
    if (++depth_ > kMaxNesting) {
      fail(current(),
           fmt::format("the expression nests deeper than {} levels; name its parts with 'h = ...;'",
                       kMaxNesting));
    }
    const ExprId id = is("-") || is("~") ? sign() : power();
    --depth_;
    return id;
  }

  ExprId sign() {
    const Token mark = advance();
    const Token& next = current();
    if (mark.text == "-" && next.kind == TokenKind::Int && !is("**", 1)) {
      if (next.integer > kInt64Limit) too_large(next);
      Expr e = start(ExprKind::Int, mark);
      e.integer = static_cast<int64_t>(0 - advance().integer);
      return finish(std::move(e), mark.span.begin);
    }
    const ExprId operand = unary();
    Expr& value = program_.exprs[static_cast<size_t>(operand)];
    if (mark.text == "-" && value.kind == ExprKind::Float) {
      value.real = -value.real;
      value.span.begin = value.place = mark.span.begin;
      return operand;
    }
    Expr e = start(ExprKind::Unary, mark);
    e.text = std::string(mark.text);
    e.children = {operand};
    return finish(std::move(e), mark.span.begin);
  }

  ExprId power() {
    const ExprId base = postfix(primary());
    if (!is("**")) return base;
    const Token& mark = advance();
    return join(base, mark, unary());
  }

  // --- what follows a value ---

  ExprId postfix(ExprId value) {
    for (;;) {
      if (is(".")) {
        value = member(value);
      } else if (is("[")) {
        value = index(value);
      } else if (is("(")) {
        fail(current(), "this value is not a function; expected an operator before '('");
      } else {
        return value;
      }
    }
  }

  // As in torch.nn.functional.relu(x): to evaluate it says that there are no prefixes.
  bool is_part_of_library(ExprId object) const {
    const Expr* e = &program_.exprs[static_cast<size_t>(object)];
    while (e->kind == ExprKind::Attribute) {
      e = &program_.exprs[static_cast<size_t>(e->children[0])];
    }
    return e->kind == ExprKind::Word && contains(kLibraries, e->text);
  }

  ExprId member(ExprId object) {
    advance();
    const Token name = current();
    if (name.kind != TokenKind::Name) fail_expected("the name of a method after '.'", name);
    advance();
    Expr e = start(ExprKind::Method, name);
    e.text = std::string(name.text);
    e.children = {object};
    if (is("(")) {
      e.arguments = arguments(name.text);
    } else if (contains(kAttributes, name.text) || is_part_of_library(object)) {
      e.kind = ExprKind::Attribute;
    } else {
      fail(name, fmt::format("expected '(' after .{}; only .T and .mT stand without arguments",
                             name.text));
    }
    return finish(std::move(e), begin_of(object));
  }

  std::vector<Argument> arguments(std::string_view function) {
    advance();
    std::vector<Argument> list;
    while (!is(")")) {
      Argument argument{.keyword = {}, .place = current().span.begin};
      if (current().kind == TokenKind::Name && is("=", 1)) {
        argument.keyword = std::string(advance().text);
        advance();
      }
      argument.value = expression();
      check_order(list, argument, function);
      list.push_back(std::move(argument));
      if (!is(")"))
        expect(",", fmt::format("an operator, ',' or ')' after an argument of {}", function));
    }
    advance();
    return list;
  }

  void check_order(const std::vector<Argument>& list, const Argument& next,
                   std::string_view function) const {
    if (next.keyword.empty() && !list.empty() && !list.back().keyword.empty()) {
      fail_at(
          text_, next.place,
          fmt::format("an argument of {} by position follows one by keyword; expected NAME=value",
                      function));
    }
    for (const Argument& seen : list) {
      if (!next.keyword.empty() && seen.keyword == next.keyword) {
        fail_at(text_, next.place,
                fmt::format("{} gets {} twice; expected it once", function, next.keyword));
      }
    }
  }

  // --- indexing ---

  ExprId index(ExprId object) {
    const Token& open = advance();
    Expr e = start(ExprKind::Index, open);
    e.children = {object};
    if (is("]"))
      fail(current(), "the index is empty; expected an integer, a slice, a tensor, None or ...");
    bool has_ellipsis = false;
    while (!is("]")) {
      if (is("...")) {
        if (has_ellipsis) fail(current(), "an index has one '...' at most; expected ':' here");
        has_ellipsis = true;
      }
      e.children.push_back(index_item());
      if (!is("]")) expect(",", "an operator, ',' or ']' in the index");
    }
    advance();
    return finish(std::move(e), begin_of(object));
  }

  ExprId index_item() {
    const Token& first = current();
    if (is("...")) return add(start(ExprKind::Ellipsis, advance()));
    const bool number = first.kind == TokenKind::Int;
    const bool negative = is("-") && current(1).kind == TokenKind::Int;
    if (is(":") || (number && is(":", 1)) || (negative && is(":", 2))) return slice();
    const ExprId item = expression();
    if (is(":"))
      fail(first,
           "the bounds of a slice are integer literals; expected start:stop:step such as 1:-1 or "
           "::2");
    return item;
  }

  ExprId slice() {
    const size_t begin = current().span.begin;
    Expr e = start(ExprKind::Slice, current());
    SliceBounds& s = e.slice;
    s.has_start = bound(s.start);
    expect(":", "':' in a slice");
    s.has_stop = bound(s.stop);
    if (accept(":")) {
      const Token& step = current();
      s.has_step = bound(s.step);
      if (s.has_step && s.step == 0)
        fail(step, "the step of a slice cannot be 0; expected 1, -1 or another step");
    }
    return finish(std::move(e), begin);
  }

  /// An integer literal if one stands here; any other value is an error.
  bool bound(int64_t& value) {
    if (is(":") || is(",") || is("]")) return false;
    const Token first = current();
    const bool negative = accept("-");
    if (current().kind != TokenKind::Int) {
      if (current().kind == TokenKind::End)
        fail_expected("':', ',' or ']' in the index", current());
      fail(first,
           "the bounds of a slice are integer literals; expected start:stop:step such as 1:-1 or "
           "::2");
    }
    value = integer(negative);
    return true;
  }

  // --- values ---

  [[noreturn]] void too_large(const Token& token) const {
    fail(token, fmt::format("the integer {} does not fit 64 bits with a sign; write a float ({}.0)",
                            token.text, token.text));
  }

  int64_t integer(bool negative) {
    const Token& token = advance();
    if (token.integer > kInt64Limit - (negative ? 0 : 1)) too_large(token);
    return static_cast<int64_t>(negative ? 0 - token.integer : token.integer);
  }

  ExprId primary() {
    const Token token = current();
    switch (token.kind) {
      case TokenKind::Int: {
        Expr e = start(ExprKind::Int, token);
        e.integer = integer(false);
        return add(std::move(e));
      }
      case TokenKind::Float: {
        Expr e = start(ExprKind::Float, advance());
        e.real = token.real;
        return add(std::move(e));
      }
      case TokenKind::String: {
        Expr e = start(ExprKind::String, advance());
        e.text = std::string(token.text);
        return add(std::move(e));
      }
      case TokenKind::Name:
        return named();
      case TokenKind::Mark:
        if (is("(")) return parenthesis();
        if (is("[")) return list();
        if (is("...") || is(":"))
          fail(token,
               fmt::format("{} belongs in an index; expected an expression", describe(token)));
        break;
      case TokenKind::End:
        break;
    }
    fail_expected("an expression", token);
  }

  ExprId parenthesis() {
    const size_t begin = advance().span.begin;
    Expr tuple = start(ExprKind::Tuple, current());
    tuple.place = begin;
    bool has_comma = false;
    while (!is(")")) {
      tuple.children.push_back(expression());
      if (is(")")) break;
      expect(",", "an operator, ',' or ')' after '('");
      has_comma = true;
    }
    advance();
    if (tuple.children.size() == 1 && !has_comma) return tuple.children[0];
    return finish(std::move(tuple), begin);
  }

  ExprId list() {
    const size_t begin = advance().span.begin;
    Expr e = start(ExprKind::List, current());
    e.place = begin;
    while (!is("]")) {
      e.children.push_back(expression());
      if (!is("]")) expect(",", "an operator, ',' or ']' in the list");
    }
    advance();
    return finish(std::move(e), begin);
  }

  ExprId named() {
    const Token& token = current();
    if (is(":", 1) && current(2).kind == TokenKind::Name) return declaration();
    if (contains(kConstants, token.text)) return constant();
    if (is(":", 1) && is("[", 2)) {
      fail(current(2),
           fmt::format("expected a dtype after '{}:' ({}), found '['", token.text, kDTypeList));
    }
    if (is("(", 1)) return call();
    if (const std::string hint = habit_hint(token.text); !hint.empty()) {
      fail(token, fmt::format("expected an expression, found '{}'{}", token.text, hint));
    }
    advance();
    const auto input = input_of_.find(token.text);
    if (input != input_of_.end()) {
      Expr e = start(ExprKind::Input, token);
      e.input = input->second;
      return add(std::move(e));
    }
    Expr e = start(variables_.count(token.text) > 0 ? ExprKind::Variable : ExprKind::Word, token);
    e.text = std::string(token.text);
    return add(std::move(e));
  }

  ExprId constant() {
    const Token token = advance();
    Expr e = start(ExprKind::None, token);
    if (token.text == "true" || token.text == "false") {
      e.kind = ExprKind::Bool;
      e.integer = token.text == "true" ? 1 : 0;
    } else if (token.text != "None") {
      e.kind = ExprKind::Float;
      e.real = token.text == "inf" ? std::numeric_limits<double>::infinity()
                                   : std::numeric_limits<double>::quiet_NaN();
    }
    return add(std::move(e));
  }

  ExprId call() {
    const Token name = advance();
    Expr e = start(ExprKind::Call, name);
    e.text = std::string(name.text);
    e.arguments = arguments(name.text);
    return finish(std::move(e), name.span.begin);
  }

  // --- declarations ---

  ExprId declaration() {
    const Token name = advance();
    check_name(name, "an input");
    if (variables_.count(name.text) > 0) {
      fail(name, fmt::format("{} is assigned already and cannot be an input; take another name",
                             name.text));
    }
    advance();
    InputDecl input;
    input.name = std::string(name.text);
    input.place = name.span.begin;
    const Token dtype = advance();
    if (!parse_dtype(dtype.text, input.dtype)) {
      fail(dtype, fmt::format("expected a dtype after '{}:' ({}), found '{}'{}", name.text,
                              kDTypeList, dtype.text, dtype_hint(dtype.text)));
    }
    expect("[",
           fmt::format("'[' and the shape after '{}:{}' ([] for a scalar)", name.text, dtype.text));
    dimensions(input);
    input.fill = is("~") ? fill(input) : default_fill(input.dtype);

    Expr e = start(ExprKind::Input, name);
    e.declares = true;
    e.input = enter(std::move(input), name);
    return finish(std::move(e), name.span.begin);
  }

  /// The index of a new input, or of the same one declared before in the same words.
  int enter(InputDecl input, const Token& name) {
    const auto known = input_of_.find(name.text);
    if (known != input_of_.end()) {
      const std::string before = to_text(program_.inputs[static_cast<size_t>(known->second)]);
      if (before != to_text(input)) {
        fail(name, fmt::format("{} is declared already as {}; expected {} alone", name.text, before,
                               name.text));
      }
      return known->second;
    }
    const int index = static_cast<int>(program_.inputs.size());
    input_of_.emplace(name.text, index);
    program_.inputs.push_back(std::move(input));
    return index;
  }

  void dimensions(InputDecl& input) {
    const std::string wanted = fmt::format("',' or ']' in the shape of {}", input.name);
    const Token first = current();
    while (!is("]")) {
      input.dims.push_back(dimension());
      if (!is("]")) expect(",", wanted);
    }
    advance();
    if (input.dims.size() > kMaxRank) {
      fail(first, fmt::format("{} has {} dimensions; at most {} are possible", input.name,
                              input.dims.size(), kMaxRank));
    }
    uint64_t elements = 1;
    bool overflow = false;
    for (const Dim& dim : input.dims) {
      if (dim.size == 0) return;
      overflow = overflow || elements > (kInt64Limit - 1) / static_cast<uint64_t>(dim.size);
      elements = overflow ? 0 : elements * static_cast<uint64_t>(dim.size);
    }
    if (overflow) fail(first, fmt::format("{} has more than 2^63 elements", input.name));
  }

  Dim dimension() {
    const Token token = current();
    if (token.kind == TokenKind::Int) return Dim{.size = integer(false), .name = {}};
    if (token.kind != TokenKind::Name) {
      fail_expected("the size of a dimension (an integer, or n=1..512:100)", token);
    }
    advance();
    if (is("=")) return symbolic(token);
    const auto known = symbols_.find(token.text);
    if (known == symbols_.end()) {
      std::vector<std::string_view> names;
      for (const auto& [name, dim] : symbols_) names.push_back(name);
      fail(token,
           fmt::format(
               "{} is no symbolic dimension; expected {}=LOW..HIGH:SIZE where it is first met{}",
               token.text, token.text, suggestion(token.text, names)));
    }
    Dim dim = known->second;
    dim.declares = false;
    return dim;
  }

  Dim symbolic(const Token& name) {
    advance();
    const std::string form =
        fmt::format("{}=LOW..HIGH:SIZE, such as {}=1..512:100", name.text, name.text);
    const auto number = [&] {
      if (current().kind != TokenKind::Int) fail_expected(form, current());
      return integer(false);
    };
    Dim dim{.name = std::string(name.text), .declares = true};
    dim.low = number();
    expect("..", form);
    dim.high = number();
    expect(":", form);
    dim.size = number();
    if (dim.low > dim.high || dim.size < dim.low || dim.size > dim.high) {
      fail(name, fmt::format("{} is {} but its bounds are {}..{}; expected LOW <= SIZE <= HIGH",
                             name.text, dim.size, dim.low, dim.high));
    }
    const auto [known, is_new] = symbols_.emplace(name.text, dim);
    const Dim& before = known->second;
    if (!is_new && (before.low != dim.low || before.high != dim.high || before.size != dim.size)) {
      fail(name, fmt::format("{} is declared already as {}..{}:{}; expected {} alone", name.text,
                             before.low, before.high, before.size, name.text));
    }
    return dim;
  }

  Fill fill(const InputDecl& input) {
    advance();
    const Token token = current();
    if (token.kind != TokenKind::Name)
      fail_expected("what fills the input after '~' (such as normal)", token);
    advance();
    const auto names = fill_names();
    const auto found = std::find(names.begin(), names.end(), token.text);
    if (found == names.end()) {
      fail(token, fmt::format("expected what fills {} after '~' ({}), found '{}'{}", input.name,
                              fmt::join(names, " "), token.text, suggestion(token.text, names)));
    }
    const FillInfo& row = fills()[static_cast<size_t>(found - names.begin())];
    const bool fits = input.dtype == DType::Bool ? row.for_bool
                      : is_float(input.dtype)    ? row.for_float
                                                 : row.for_int;
    if (!fits)
      fail(token,
           fmt::format("~{} cannot fill {}, which is {}", row.name, input.name, name(input.dtype)));
    Fill result{.kind = row.kind, .stated = true};
    if (row.has_argument) {
      result.argument = fill_argument(row);
    } else if (is("(")) {
      fail(current(), fmt::format("~{} takes no argument", row.name));
    }
    if (row.kind == FillKind::Ids && !is_float(input.dtype) &&
        result.argument - 1 > largest(input.dtype)) {
      fail(token, fmt::format(
                      "~ids({:.0f}) has integers that {} cannot hold; expected N of {:.0f} or less",
                      result.argument, name(input.dtype), largest(input.dtype) + 1));
    }
    return result;
  }

  double fill_argument(const FillInfo& row) {
    const bool is_ids = row.kind == FillKind::Ids;
    const std::string form =
        is_ids ? "ids(N) with an integer N of 1 or more" : "bernoulli(p) with p from 0 to 1";
    if (!is("(")) {
      if (!is_ids) return 0.5;
      fail_expected(form, current());
    }
    advance();
    const Token number = current();
    const bool fits = is_ids ? number.kind == TokenKind::Int && number.integer >= 1 &&
                                   number.integer < kInt64Limit
                             : (number.kind == TokenKind::Int || number.kind == TokenKind::Float) &&
                                   number.real <= 1;
    if (!fits) fail_expected(form, number);
    advance();
    expect(")", fmt::format("')' after the argument of ~{}", row.name));
    return number.real;
  }

  std::vector<Token> tokens_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  Program program_;
  std::map<std::string, int, std::less<>> input_of_;
  std::set<std::string, std::less<>> variables_;
  std::map<std::string, Dim, std::less<>> symbols_;
};

}  // namespace

Program parse(std::string_view text) {
  return Parser(text).run();
}

}  // namespace lazuli::notation
