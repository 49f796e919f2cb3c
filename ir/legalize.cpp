#include "ir/legalize.h"

#include "ir/index.h"
#include "ir/math.h"

namespace lazuli {
namespace {

NodeRef const_of(int64_t v, DType t) {
  return scalar_const(Scalar(v), t);
}
NodeRef scalar_where(const NodeRef& c, const NodeRef& a, const NodeRef& b) {
  return scalar_op(Op::Where, a->dtype, {c, a, b});
}
NodeRef compare(Op op, const NodeRef& a, const NodeRef& b) {
  return scalar_op(op, DType::Bool, {a, b});
}
NodeRef either(const NodeRef& a, const NodeRef& b) {
  return scalar_op(Op::Or, DType::Bool, {a, b});
}
NodeRef logical_not(const NodeRef& a) {
  return scalar_op(Op::Not, DType::Bool, {a});
}

// x / 0 = 0, MIN / -1 = MIN, x rem 0 = 0: divisors that trap are replaced before, the result after.
NodeRef divide(Op op, const NodeRef& x, const NodeRef& y) {
  const DType t = x->dtype;
  const bool quotient = op == Op::IDiv;
  if (is_const(y)) {
    const int64_t d = const_scalar(*y).as_int();
    if (d == 0) return const_of(0, t);
    if (d == -1 && is_signed(t)) return quotient ? scalar_op(Op::Neg, t, {x}) : const_of(0, t);
    return scalar_binary(op, x, y);
  }
  const NodeRef zero = compare(Op::Eq, y, const_of(0, t));
  NodeRef unsafe = zero;
  NodeRef minus = is_signed(t) ? compare(Op::Eq, y, const_of(-1, t)) : NodeRef();
  if (minus) unsafe = either(zero, minus);
  const NodeRef r = scalar_binary(op, x, scalar_where(unsafe, const_of(1, t), y));
  if (!quotient) return scalar_where(unsafe, const_of(0, t), r);
  const NodeRef negated = minus ? scalar_where(minus, scalar_op(Op::Neg, t, {x}), r) : r;
  return scalar_where(zero, const_of(0, t), negated);
}

// A count outside [0, width) gives 0, or the sign where a negative number is shifted right.
NodeRef shift(Op op, const NodeRef& x, const NodeRef& y) {
  const DType t = x->dtype;
  const int64_t width = 8 * size_of(t);
  const NodeRef last = const_of(width - 1, t);
  NodeRef inside = compare(Op::Le, y, last);
  if (is_signed(t)) inside = logical_and(inside, compare(Op::Le, const_of(0, t), y));
  if (is_const(y)) {
    const Scalar count = const_scalar(*y);
    if (count.as_int() >= 0 && count.as_int() < width) return scalar_binary(op, x, y);
    return op == Op::Shr && is_signed(t) ? scalar_binary(op, x, last) : const_of(0, t);
  }
  if (op == Op::Shr && is_signed(t)) return scalar_binary(op, x, scalar_where(inside, y, last));
  return scalar_where(inside, scalar_binary(op, x, scalar_where(inside, y, const_of(0, t))),
                      const_of(0, t));
}

NodeRef sign(const NodeRef& x) {
  const DType t = x->dtype;
  const NodeRef zero = const_of(0, t);
  const NodeRef neither =
      is_float(t) ? scalar_binary(Op::Add, x, zero) : zero;  // NaN stays, -0 becomes 0
  const NodeRef positive = scalar_where(compare(Op::Lt, zero, x), const_of(1, t), neither);
  if (!is_signed(t)) return positive;
  return scalar_where(compare(Op::Lt, x, zero), const_of(-1, t), positive);
}

class Legalizer {
 public:
  explicit Legalizer(const MathOps& ops) : ops_(ops) {}

  NodeRef run(const NodeRef& root) {
    visit(root, [&](const NodeRef& n) {
      Sources src;
      for (const NodeRef& s : n->src) src.push_back(legal_.at(s));
      legal_[n] = one(n, std::move(src));
    });
    return legal_.at(root);
  }

 private:
  NodeRef one(const NodeRef& n, Sources src) {
    if (!is_elementwise(n->op)) return rebuild_with(n, std::move(src));
    if (n->op == Op::Bitcast) {
      // A bool is a byte of 0 or 1 in memory only.
      const bool logical = n->dtype == DType::Bool || src[0]->dtype == DType::Bool;
      return scalar_op(logical ? Op::Cast : Op::Bitcast, n->dtype, std::move(src));
    }
    if (n->op == Op::Cast) return cast(src[0], n->dtype);
    if (n->op == Op::Add && !is_half(n->dtype)) {
      if (NodeRef r = one_plus_tanh(n)) return r;
    }
    bool half = is_half(n->dtype);
    for (const NodeRef& s : src) half |= is_half(s->dtype);
    if (!half) return plain(n->op, n->dtype, std::move(src), n->arg);
    const DType narrow = n->dtype;
    bool exact = n->op == Op::Where || n->op == Op::Neg || n->op == Op::Abs || n->op == Op::Max ||
                 n->op == Op::Min;
    for (NodeRef& s : src) {
      if (!is_half(s->dtype)) continue;
      s = widen(s);
      exact &= exact_.count(s) > 0 || is_const(s);
    }
    if (!is_half(narrow)) return plain(n->op, narrow, std::move(src));
    NodeRef wide = plain(n->op, DType::F32, std::move(src), n->arg);
    NodeRef r = scalar_op(Op::Cast, narrow, {wide});
    if (exact) {
      wide_[r] = wide;
      exact_[wide] = wide;
    }
    return r;
  }

  // 1 + tanh(u) = 2 sigmoid(2u): shorter, and no cancellation where tanh is near -1.
  NodeRef one_plus_tanh(const NodeRef& n) {
    for (size_t i = 0; i < 2; i++) {
      const NodeRef &one = n->src[i], &tanh = n->src[1 - i];
      if (tanh->op != Op::Tanh || !is_const(one)) continue;
      const DType t = n->dtype;
      if (const_scalar(*one).as_double() != 1) continue;
      const NodeRef two = scalar_const(Scalar(2.0), t);
      const NodeRef u = scalar_binary(Op::Mul, legal_.at(tanh->src[0]), two);
      return scalar_binary(Op::Mul, two, plain(Op::Sigmoid, t, {u}));
    }
    return {};
  }

  // The f32 with the same value.
  NodeRef widen(const NodeRef& x) {
    if (is_const(x)) {
      return scalar_const(Scalar(const_scalar(*x).as_double()), DType::F32);
    }
    const auto it = wide_.find(x);
    if (it != wide_.end()) return it->second;
    const NodeRef w = scalar_op(Op::Cast, DType::F32, {x});
    exact_[w] = w;
    return wide_[x] = w;
  }

  NodeRef cast(const NodeRef& x, DType to) {
    const DType from = x->dtype;
    if (from == to) return x;
    if (is_half(from)) {
      const NodeRef w = widen(x);
      return to == DType::F32 ? w : cast(w, to);
    }
    if (is_half(to) && from != DType::F32) {
      return scalar_op(Op::Cast, to, {scalar_op(Op::Cast, DType::F32, {x})});
    }
    return scalar_op(Op::Cast, to, {x});
  }

  NodeRef plain(Op op, DType dtype, Sources src, const Arg& arg = {}) {
    if (src.back()->dtype == DType::Bool) return logic(op, dtype, std::move(src));
    if (is_math(op)) return expand_math(op, dtype, src, arg, ops_);
    const bool floats = is_float(src.back()->dtype);
    switch (op) {
      case Op::Abs:
        if (!floats && !is_signed(dtype)) return src[0];
        break;
      case Op::IDiv:
        return divide(op, src[0], src[1]);
      case Op::Rem:
        return floats ? expand_rem(dtype, src) : divide(op, src[0], src[1]);
      case Op::Shl:
      case Op::Shr:
        return shift(op, src[0], src[1]);
      case Op::Sign:
        return sign(src[0]);
      case Op::Recip:
        return scalar_binary(Op::Div, scalar_const(Scalar(1), dtype), src[0]);
      case Op::Rsqrt:
        return scalar_binary(Op::Div, scalar_const(Scalar(1), dtype),
                             scalar_op(Op::Sqrt, dtype, {src[0]}));
      default:
        break;
    }
    return scalar_op(op, dtype, std::move(src));
  }

  NodeRef logic(Op op, DType dtype, Sources s) {
    switch (op) {
      case Op::Add:
      case Op::Max:
        return either(s[0], s[1]);
      case Op::Mul:
      case Op::Min:
      case Op::IDiv:
        return logical_and(s[0], s[1]);
      case Op::Rem:
        return const_of(0, DType::Bool);
      case Op::Sub:
      case Op::Ne:
        return scalar_op(Op::Xor, DType::Bool, {s[0], s[1]});
      case Op::Eq:
        return logical_not(scalar_op(Op::Xor, DType::Bool, {s[0], s[1]}));
      case Op::Lt:
        return logical_and(logical_not(s[0]), s[1]);
      case Op::Le:
        return either(logical_not(s[0]), s[1]);
      case Op::Abs:
      case Op::Sign:
      case Op::Neg:
        return s[0];
      default:
        return scalar_op(op, dtype, std::move(s));
    }
  }

  NodeRef rebuild_with(const NodeRef& n, Sources src) {
    if (n->src.empty()) return n;
    Substitution map;
    for (size_t i = 0; i < src.size(); i++) {
      if (src[i].get() != n->src[i].get()) map[n->src[i]] = src[i];
    }
    return map.empty() ? n : substitute(n, map);
  }

  MathOps ops_;
  Substitution legal_, wide_, exact_;
};

}  // namespace

void legalize(Kernel& kernel, const MathOps& ops) {
  for (const auto& s : kernel.stages) {
    for (Value& v : s->values) v.expr = Legalizer(ops).run(v.expr);
  }
}

}  // namespace lazuli
