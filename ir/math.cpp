#include "ir/math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "core/error.h"
#include "core/graph.h"
#include "ir/index.h"
#include "ir/math_functions.h"
#include "ir/math_gamma.h"

namespace lazuli {
namespace {

template <typename T>
constexpr DType dtype_of() {
  if (std::is_same_v<T, bool>) return DType::Bool;
  if (std::is_same_v<T, float>) return DType::F32;
  if (std::is_same_v<T, double>) return DType::F64;
  if (std::is_same_v<T, int32_t>) return DType::I32;
  if (std::is_same_v<T, int64_t>) return DType::I64;
  return sizeof(T) == 4 ? DType::U32 : DType::U64;
}

template <typename T>
uint64_t bits_of(T v) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<uint32_t>(v);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(v);
  } else {
    return static_cast<uint64_t>(v);
  }
}

// Each of the thousand places that build a node calls one of these, which is a third of the time to
// compile them inline.
NodeRef node_of(Op op, DType dtype, const NodeRef& a) {
  return scalar_op(op, dtype, {a});
}
NodeRef node_of(Op op, DType dtype, const NodeRef& a, const NodeRef& b) {
  return scalar_op(op, dtype, {a, b});
}
NodeRef node_of(Op op, DType dtype, const NodeRef& a, const NodeRef& b, const NodeRef& c) {
  return scalar_op(op, dtype, {a, b, c});
}
NodeRef constant(DType dtype, uint64_t bits) {
  return make({.op = Op::Const, .dtype = dtype, .arg = ScalarBits{bits}});
}
NodeRef where_rarely(DType dtype, const NodeRef& c, const NodeRef& a, const NodeRef& b) {
  return make({.op = Op::Where, .dtype = dtype, .arg = kRarely, .src = {c, a, b}});
}

// A node that stands for a T: operators on it build nodes.
template <typename T>
struct Expr {
  NodeRef node;

  Expr() = default;
  explicit Expr(NodeRef n) : node(std::move(n)) {}
  template <typename A>
  requires std::is_arithmetic_v<A> Expr(A v)
      : node(constant(dtype_of<T>(), bits_of(static_cast<T>(v)))) {}

  template <typename R = T, typename... S>
  static Expr<R> op(Op o, const S&... src) {
    return Expr<R>(node_of(o, dtype_of<R>(), src.node...));
  }

  friend Expr operator+(const Expr& a, const Expr& b) { return op(Op::Add, a, b); }
  friend Expr operator-(const Expr& a, const Expr& b) { return op(Op::Sub, a, b); }
  friend Expr operator*(const Expr& a, const Expr& b) { return op(Op::Mul, a, b); }
  friend Expr operator/(const Expr& a, const Expr& b) { return op(Op::Div, a, b); }
  friend Expr operator-(const Expr& a) { return op(Op::Neg, a); }
  friend Expr operator&(const Expr& a, const Expr& b) { return op(Op::And, a, b); }
  friend Expr operator|(const Expr& a, const Expr& b) { return op(Op::Or, a, b); }
  friend Expr operator^(const Expr& a, const Expr& b) { return op(Op::Xor, a, b); }
  friend Expr operator<<(const Expr& a, const Expr& b) { return op(Op::Shl, a, b); }
  friend Expr operator>>(const Expr& a, const Expr& b) { return op(Op::Shr, a, b); }
  friend Expr operator!(const Expr& a) { return op(Op::Not, a); }
  friend Expr<bool> operator<(const Expr& a, const Expr& b) { return op<bool>(Op::Lt, a, b); }
  friend Expr<bool> operator<=(const Expr& a, const Expr& b) { return op<bool>(Op::Le, a, b); }
  friend Expr<bool> operator==(const Expr& a, const Expr& b) { return op<bool>(Op::Eq, a, b); }
  friend Expr<bool> operator!=(const Expr& a, const Expr& b) { return op<bool>(Op::Ne, a, b); }
  friend Expr fma(const Expr& a, const Expr& b, const Expr& c) { return op(Op::Fma, a, b, c); }
  friend Expr sqrt(const Expr& a) { return op(Op::Sqrt, a); }
  friend Expr abs(const Expr& a) { return op(Op::Abs, a); }
  friend Expr round(const Expr& a) { return op(Op::Round, a); }
  friend Expr eighth_root(const Expr& a) { return op(Op::EighthRoot, a); }
  friend Expr recip_estimate(const Expr& a) { return op(Op::RecipEstimate, a); }
  friend Expr long_rem(const Expr& a, const Expr& b) { return op(Op::Rem, a, b); }
  friend Expr where(const Expr<bool>& c, const Expr& a, const Expr& b) {
    return op(Op::Where, c, a, b);
  }
  friend Expr rare(const Expr<bool>& c, const Expr& a, const Expr& b) {
    return Expr(where_rarely(dtype_of<T>(), c.node, a.node, b.node));
  }
};

template <typename T, typename S>
Expr<T> bitcast(const Expr<S>& a) {
  return Expr<S>::template op<T>(Op::Bitcast, a);
}
template <typename T, typename S>
Expr<T> cast(const Expr<S>& a) {
  return Expr<S>::template op<T>(Op::Cast, a);
}

using Builder = NodeRef (*)(DType, const Sources&);

template <auto kF32, auto kF64>
NodeRef unary(DType t, const Sources& s) {
  return t == DType::F64 ? kF64(Expr<double>(s[0])).node : kF32(Expr<float>(s[0])).node;
}
template <auto kF32, auto kF64>
NodeRef binary(DType t, const Sources& s) {
  return t == DType::F64 ? kF64(Expr<double>(s[0]), Expr<double>(s[1])).node
                         : kF32(Expr<float>(s[0]), Expr<float>(s[1])).node;
}

// For functions that need f64 to be right in f32.
template <auto kF64>
NodeRef through_f64(DType t, const Sources& s) {
  const NodeRef wide = scalar_op(Op::Cast, DType::F64, {s[0]});
  return scalar_op(Op::Cast, t, {kF64(Expr<double>(wide)).node});
}

struct Expansion {
  Op op;
  Builder build;
  int ulp_f32, ulp_f64;  // f32: over all inputs; f64: over samples
};

#define LAZULI_UNARY(f) unary<math::f<Expr, float>, math::f<Expr, double>>
// With what MathOps has for f.
#define LAZULI_SHORTER(f) unary<math::f<Expr, float, true>, math::f<Expr, double>>
#define LAZULI_BINARY(f) binary<math::f<Expr, float>, math::f<Expr, double>>
constexpr std::array kRows{
    Expansion{Op::Exp, LAZULI_UNARY(exp), 2, 2},
    Expansion{Op::Exp2, LAZULI_UNARY(exp2), 2, 2},
    Expansion{Op::Expm1, LAZULI_UNARY(expm1), 2, 2},
    Expansion{Op::Log, LAZULI_UNARY(log), 2, 2},
    Expansion{Op::Log2, LAZULI_UNARY(log2), 2, 2},
    Expansion{Op::Log10, LAZULI_UNARY(log10), 2, 2},
    Expansion{Op::Log1p, LAZULI_UNARY(log1p), 2, 2},
    Expansion{Op::Sin, LAZULI_UNARY(sin), 2, 2},
    Expansion{Op::Cos, LAZULI_UNARY(cos), 2, 2},
    Expansion{Op::Tan, LAZULI_UNARY(tan), 4, 4},
    Expansion{Op::Asin, LAZULI_UNARY(asin), 3, 3},
    Expansion{Op::Acos, LAZULI_UNARY(acos), 2, 2},
    Expansion{Op::Atan, LAZULI_UNARY(atan), 2, 2},
    Expansion{Op::Sinh, LAZULI_UNARY(sinh), 3, 3},
    Expansion{Op::Cosh, LAZULI_UNARY(cosh), 2, 2},
    Expansion{Op::Tanh, LAZULI_UNARY(tanh), 2, 2},
    Expansion{Op::Sigmoid, LAZULI_UNARY(sigmoid), 2, 2},
    Expansion{Op::Asinh, LAZULI_UNARY(asinh), 2, 2},
    Expansion{Op::Acosh, LAZULI_UNARY(acosh), 3, 3},
    Expansion{Op::Atanh, LAZULI_UNARY(atanh), 3, 3},
    Expansion{Op::Erf, LAZULI_UNARY(erf), 2, 2},
    Expansion{Op::Erfc, LAZULI_UNARY(erfc), 4, 4},
    Expansion{Op::Pow, LAZULI_BINARY(pow), 2, 2},
    Expansion{Op::Atan2, LAZULI_BINARY(atan2), 2, 2},
    Expansion{Op::Lgamma, through_f64<math::lgamma<Expr>>, 2, 40},
    Expansion{Op::Digamma, through_f64<math::digamma<Expr>>, 1, 40},
};

const Expansion* find_expansion(Op op) {
  const auto it =
      std::find_if(kRows.begin(), kRows.end(), [&](const Expansion& r) { return r.op == op; });
  return it == kRows.end() ? nullptr : &*it;
}

const Expansion& expansion_of(Op op) {
  const Expansion* row = find_expansion(op);
  if (!row) internal_error("expand_math: " + std::string(name(op)) + " has no expansion");
  return *row;
}

NodeRef expand(Builder build, DType dtype, const Sources& src) {
  if (!is_half(dtype)) return build(dtype, src);
  Sources wide;
  for (const NodeRef& s : src) wide.push_back(scalar_op(Op::Cast, DType::F32, {s}));
  return scalar_op(Op::Cast, dtype, {build(DType::F32, wide)});
}

}  // namespace

bool is_math(Op op) {
  return find_expansion(op) != nullptr;
}

NodeRef expand_math(Op op, DType dtype, const Sources& src, const Arg& arg, const MathOps& ops) {
  Builder build = expansion_of(op).build;
  if (op == Op::Exp) {
    const bool negative = arg == Arg(kNotPositive);
    if (negative) build = LAZULI_UNARY(exp_not_positive);
    if (ops.permutes) build = negative ? LAZULI_SHORTER(exp_not_positive) : LAZULI_SHORTER(exp);
  } else if (op == Op::Sigmoid) {
    const bool normal = arg == Arg(kNormalResult);
    if (normal) build = LAZULI_UNARY(sigmoid_with_normal_result);
    if (ops.estimates) {
      build = normal ? LAZULI_SHORTER(sigmoid_with_normal_result) : LAZULI_SHORTER(sigmoid);
    }
  } else if (op == Op::Tanh && ops.estimates) {
    build = LAZULI_SHORTER(tanh);
  }
  return expand(build, dtype, src);
}

NodeRef expand_rem(DType dtype, const Sources& src) {
  return expand(LAZULI_BINARY(rem), dtype, src);
}

#undef LAZULI_SHORTER
#undef LAZULI_UNARY
#undef LAZULI_BINARY

int stated_ulp(Op op, DType dtype) {
  const Expansion& row = expansion_of(op);
  return is_half(dtype) ? 1 : dtype == DType::F64 ? row.ulp_f64 : row.ulp_f32;
}

}  // namespace lazuli
