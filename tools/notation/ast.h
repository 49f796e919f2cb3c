// The syntax tree of the notation: an arena of expressions in which every child stands before its
// parent, so that a chain of any length is freed without recursion.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "tools/notation/source.h"

namespace lazuli::notation {

/// Index of an expression in Program::exprs.
using ExprId = int32_t;
inline constexpr ExprId kNoExpr = -1;

enum class ExprKind : uint8_t {
  None,       // `None`: an argument left out, a new axis in an index
  Bool,       // integer is 0 or 1
  Int,        // integer
  Float,      // real
  Word,       // text: a bare word that is no input and no variable
  String,     // text: a quoted word
  Input,      // index into Program::inputs; `declares` where it is declared
  Variable,   // text: assigned by an earlier statement
  Unary,      // text: - ~; children {operand}
  Binary,     // text: an operator; children {left, right}
  Call,       // text: the function; arguments
  Method,     // text: the method; children {object}; arguments
  Attribute,  // text: T or mT; children {object}
  Index,      // children {object, item, ...}
  Slice,      // in an index: start, stop, step
  Ellipsis,   // in an index
  List,       // children
  Tuple,      // children
};

struct Argument {
  std::string keyword;  // empty by position
  size_t place = 0;     // where the keyword or the value begins
  ExprId value = kNoExpr;
};

/// Names of libraries, which stand before a dot in other languages.
inline constexpr std::array<std::string_view, 8> kLibraries{"torch", "F",   "nn",  "np",
                                                            "numpy", "jnp", "jax", "lazuli"};

/// `start:stop:step` with those that are written.
struct SliceBounds {
  bool has_start = false, has_stop = false, has_step = false;
  int64_t start = 0, stop = 0, step = 1;
};

struct Expr {
  ExprKind kind = ExprKind::None;
  bool declares = false;
  Span span;
  size_t place = 0;  // where an error about it points: an operator, a name
  std::string text;
  int64_t integer = 0;
  double real = 0;
  int input = -1;
  SliceBounds slice;
  std::vector<ExprId> children;
  std::vector<Argument> arguments;
};

/// What an input is filled with when nothing is bound to it. Bits: each value of an integer dtype,
/// negative ones too, is as likely as any other.
enum class FillKind : uint8_t { Normal, Uniform, Ids, Bits, Zeros, Ones, Arange, Bernoulli };

struct FillInfo {
  FillKind kind;
  std::string_view name;
  bool has_argument;
  bool for_bool, for_int, for_float;  // which kinds of dtype it can fill
};

std::span<const FillInfo> fills();
std::span<const std::string_view> fill_names();

struct Fill {
  FillKind kind = FillKind::Normal;
  bool stated = false;  // written in the text, not a default
  double argument = 0;  // N of ids, p of bernoulli
};

/// The default of a dtype: normal, ids(100), bernoulli(0.5).
Fill default_fill(DType dtype);

/// One dimension. A symbolic one has a name and bounds; `size` is its value in this run.
struct Dim {
  int64_t size = 0;
  std::string name;
  bool declares = false;  // the bounds are written here
  int64_t low = 0, high = 0;
};

struct InputDecl {
  std::string name;
  DType dtype = DType::F32;
  std::vector<Dim> dims;
  Fill fill;
  size_t place = 0;

  std::vector<int64_t> shape() const;
};

/// `name = value`, or only a value.
struct Statement {
  std::string name;
  size_t place = 0;
  ExprId value = kNoExpr;
};

/// A parsed text. It owns a copy of the text for error messages.
struct Program {
  std::string text;
  std::vector<Expr> exprs;
  std::vector<InputDecl> inputs;
  std::vector<Statement> statements;

  const Expr& at(ExprId id) const { return exprs[static_cast<size_t>(id)]; }
  /// The last statement's value.
  ExprId result() const { return statements.back().value; }
};

/// `f32[n=1..512:100,784]~uniform`; the fill only if it is stated.
std::string to_text(const InputDecl& input);

/// The float as the notation reads it back: `2.0`, `1e-05`, `inf`, `nan`.
std::string float_text(double value);

/// The program in one canonical spelling that parses back to itself: every operator in parentheses.
std::string to_text(const Program& program);
std::string to_text(const Program& program, ExprId id);

}  // namespace lazuli::notation
