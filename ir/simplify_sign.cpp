// Signs that follow from how a number is computed, for the exponentials that cannot overflow.
#include <algorithm>
#include <vector>

#include "core/graph.h"
#include "ir/index.h"
#include "ir/math.h"
#include "ir/simplify_rules.h"

namespace lazuli {
namespace {

// The signs that the elements of an array may have, as bits. NaN and zeros have none.
constexpr int kPositive = 1, kNegative = 2, kAny = kPositive | kNegative;
constexpr int kNodes = 32;  // looked at, at most

int negated(int signs) {
  return (signs & kPositive ? kNegative : 0) | (signs & kNegative ? kPositive : 0);
}
int product(int a, int b) {
  return (a & kPositive ? b : 0) | (a & kNegative ? negated(b) : 0);
}

int signs_of(const NodeRef& n, Simplifier& s, int& left);

// Factors that stand twice make squares, wherever they stand.
int signs_of_product(const NodeRef& n, Simplifier& s, int& left) {
  std::vector<NodeRef> open{n}, factors;
  int signs = kPositive;
  while (!open.empty()) {
    const NodeRef x = open.back();
    open.pop_back();
    if (left-- <= 0) return kAny;
    if (is_op(x, Op::Mul) || is_op(x, Op::Neg)) {
      if (x->op == Op::Neg) signs = negated(signs);
      open.insert(open.end(), x->src.begin(), x->src.end());
    } else if (const auto it = std::find_if(factors.begin(), factors.end(),
                                            [&](const NodeRef& f) { return f.get() == x.get(); });
               it != factors.end()) {
      factors.erase(it);
    } else {
      factors.push_back(x);
    }
  }
  for (const NodeRef& f : factors) signs = product(signs, signs_of(f, s, left));
  return signs;
}

int signs_of(const NodeRef& n, Simplifier& s, int& left) {
  if (n->realised() || !is_float(n->dtype) || left-- <= 0) return kAny;
  const auto of = [&](size_t i) { return signs_of(n->src[i], s, left); };
  switch (n->op) {
    case Op::Const: {
      const double v = const_scalar(*n).as_double();
      return v > 0 ? kPositive : v < 0 ? kNegative : 0;
    }
    case Op::Abs:
    case Op::Exp:
    case Op::Sqrt:
    case Op::Sigmoid:
      return kPositive;
    case Op::Mul:
    case Op::Neg:
      return signs_of_product(n, s, left);
    case Op::Add:
      return of(0) | of(1);
    case Op::Sub:
      return is_shifted(n, s) ? kNegative : of(0) | negated(of(1));
    case Op::Where:
      return of(1) | of(2);
    case Op::Max: {
      const int a = of(0), b = of(1);
      return ((a | b) & kPositive) | (a & b & kNegative);
    }
    case Op::Min: {
      const int a = of(0), b = of(1);
      return (a & b & kPositive) | ((a | b) & kNegative);
    }
    case Op::ReduceAdd:
    case Op::Reshape:
    case Op::Expand:
    case Op::Permute:
    case Op::Pad:
    case Op::Shrink:
    case Op::Contiguous:
      return of(0);
    default:
      return kAny;
  }
}

}  // namespace

NodeRef mark_not_positive(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Exp || is_not_positive_exp(*n)) return {};
  int left = kNodes;
  return signs_of(n->src[0], s, left) & kPositive ? NodeRef() : exp_not_positive(n->src[0]);
}

NodeRef exp_not_positive(const NodeRef& x) {
  return make(
      {.op = Op::Exp, .dtype = x->dtype, .shape = x->shape, .arg = kNotPositive, .src = {x}});
}

}  // namespace lazuli
