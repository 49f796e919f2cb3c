// A scatter whose places follow each other along the last axis, as those of an embedding's gradient
// do, needs the first place of each row alone: an array of all is more to write and to read than
// what it says where to put.
#include <optional>

#include "core/graph.h"
#include "ir/simplify_rules.h"

namespace lazuli {
namespace {

constexpr int64_t kShortestRow = 8;
constexpr int kDeepest = 16, kMostVisited = 256;  // that are looked at

int64_t integer_of(const NodeRef& constant) {
  return static_cast<int64_t>(std::get<ScalarBits>(constant->arg).bits);
}

// How one axis of an array moves it: by a step for each index, or in no way that is known. Steps
// wrap, as the elements do.
using StepOfAxis = std::optional<uint64_t>;

// A coordinate: the counts 0, 1, ... along an axis of so many, and nothing else.
bool counts(const NodeRef& n, int depth = 0) {
  if (is_op(n, Op::Iota)) return true;
  const bool same = is_op(n, Op::Reshape) || is_op(n, Op::Expand) || is_op(n, Op::Permute);
  return same && depth < kDeepest && counts(n->src[0], depth + 1);
}

// Whether a comparison of a coordinate with a constant holds for all of it.
bool holds_for_all(const NodeRef& n) {
  if (!is_op(n, Op::Le) && !is_op(n, Op::Lt)) return false;
  const NodeRef &a = n->src[0], &b = n->src[1];
  const auto last = [](NodeRef c) {
    while (c->op != Op::Iota) c = c->src[0];
    return c->numel() - 1;
  };
  const int64_t strict = n->op == Op::Lt ? 1 : 0;
  if (is_constant(a) && counts(b)) return integer_of(a) + strict <= 0;
  return is_constant(b) && counts(a) && last(a) + strict <= integer_of(b);
}

// `left`: nodes that may still be looked at, for a graph may be far larger than it is deep.
StepOfAxis step_along(const NodeRef& n, size_t axis, int& left);

StepOfAxis step_of_movement(const NodeRef& n, size_t axis, int& left) {
  const NodeRef& x = n->src[0];
  switch (n->op) {
    case Op::Expand:
    case Op::Shrink:
      return step_along(x, axis, left);
    case Op::Permute:
      return step_along(x, static_cast<size_t>(n->ints()[axis]), left);
    case Op::Reshape: {
      // The axis of the source with as many elements, and as many inside of it.
      int64_t inner = 1, inner_of_x = 1;
      for (size_t a = axis + 1; a < n->shape.size(); a++) inner *= n->shape[a];
      for (size_t a = x->shape.size(); a-- > 0; inner_of_x *= x->shape[a]) {
        if (inner_of_x == inner && x->shape[a] == n->shape[axis]) return step_along(x, a, left);
      }
      return {};
    }
    default:
      return {};
  }
}

StepOfAxis step_along(const NodeRef& n, size_t axis, int& left) {
  if (n->numel() == 1 || n->shape[axis] == 1 || is_constant(n)) return 0;
  if (n->realised() || left-- <= 0) return {};
  if (n->op == Op::Iota) return 1;
  if (is_movement(n->op)) return step_of_movement(n, axis, left);
  if (!is_elementwise(n->op)) return {};
  if (holds_for_all(n)) return 0;
  StepOfAxis steps[3];
  bool still = true;
  for (size_t i = 0; i < n->src.size(); i++) {
    steps[i] = step_along(n->src[i], axis, left);
    if (!steps[i]) return {};
    still &= *steps[i] == 0;
  }
  if (still) return 0;
  if (n->dtype != DType::I64) return {};
  if (n->op == Op::Add) return *steps[0] + *steps[1];
  if (n->op == Op::Sub) return *steps[0] - *steps[1];
  if (n->op != Op::Mul) return {};
  for (size_t i : {0, 1}) {
    if (is_constant(n->src[i])) return *steps[1 - i] * static_cast<uint64_t>(integer_of(n->src[i]));
  }
  return {};
}

}  // namespace

NodeRef scatter_rows(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Scatter) return {};
  const NodeRef& index = n->src[1];
  if (index->rank() == 0 || index->shape.back() < kShortestRow || !is_op(index, Op::Where))
    return {};
  // Rows that lie outside are left out as a whole: their first place is negative.
  const NodeRef& outside = index->src[2];
  const size_t last = index->shape.size() - 1;
  if (!is_constant(outside) || integer_of(outside) >= 0) return {};
  int left = kMostVisited;
  const StepOfAxis condition = step_along(index->src[0], last, left),
                   place = step_along(index->src[1], last, left);
  if (condition != 0u || place != 1u) return {};
  return with_src(n, {n->src[0], s(shrink_axis(index, last, 0, 1)), n->src[2]});
}

}  // namespace lazuli
