// Algebra of the integers that index: one canonical n-ary sum (Lin), division and remainder by constants folded through
// intervals. Equal indices are equal pointers; common subexpressions, strides and footprints are then one-line queries.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/node_map.h"
#include "core/small_vector.h"

namespace lazuli {

using Substitution = NodeRefMap<NodeRef>;

NodeRef index_const(int64_t v);
/// a + factor * b
NodeRef index_add(const NodeRef& a, const NodeRef& b, int64_t factor = 1);
NodeRef index_mul(const NodeRef& a, int64_t factor);
/// Floor division and remainder by a positive constant.
std::pair<NodeRef, NodeRef> index_divmod(const NodeRef& a, int64_t divisor);
/// a < b and so on as Bool nodes, folded to constants where the intervals decide.
NodeRef index_less(const NodeRef& a, const NodeRef& b);
NodeRef index_equal(const NodeRef& a, const NodeRef& b);
NodeRef logical_and(const NodeRef& a, const NodeRef& b);

/// c0 + sum of coefficient * atom, atoms in a fixed order.
struct LinearForm {
  int64_t constant = 0;
  SmallVector<std::pair<NodeRef, int64_t>, 6> terms;
  int64_t coefficient(const Node* atom) const;
  /// Adds factor * n; a sum of several has its order and equal terms brought together by
  /// from_linear() alone.
  void add(const NodeRef& n, int64_t factor);
};
LinearForm linear_form(const NodeRef& n);
NodeRef from_linear(LinearForm form);

/// Replaces nodes; rebuilds index nodes canonically and folds what becomes constant. Iterative.
NodeRef substitute(const NodeRef& n, const Substitution& map);
NodeRef substitute(const NodeRef& n, const Substitution& map, Substitution& memo);

/// Kernel-level elementwise node (shape ()), folding a select with a constant condition and the like.
NodeRef scalar_op(Op op, DType dtype, Sources src, const Arg& arg = {});
/// The op of two values of one dtype, which is that of the result.
inline NodeRef scalar_binary(Op op, const NodeRef& a, const NodeRef& b) {
  return scalar_op(op, a->dtype, {a, b});
}
NodeRef scalar_const(const Scalar& v, DType dtype);
inline bool is_const(const NodeRef& n) {
  return n->op == Op::Const;
}
/// The value of a Const.
Scalar const_scalar(const Node& n);

/// The values that a kernel-level integer of this dtype can have, as far as int64 can say.
std::pair<int64_t, int64_t> dtype_interval(DType dtype);

/// Calls f on every node below `n`, sources first, each once.
void visit(const NodeRef& n, const std::function<void(const NodeRef&)>& f);
bool uses(const NodeRef& n, const Node* what);

/// As infix text: "256*i + j", "(i + 3) // 4".
std::string index_text(const NodeRef& n);

}  // namespace lazuli
