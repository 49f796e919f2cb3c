// The rules of the simplifier, as tables. A rule looks at one node whose sources are simplified
// already, and gives the node that takes its place, or null. What a rule builds it passes through
// Simplifier::operator(), so results are in normal form too.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/node_map.h"

namespace lazuli {

class Simplifier;

struct Rule {
  const char* name;
  NodeRef (*apply)(const NodeRef&, Simplifier&);
};

std::span<const Rule> algebra_rules();
std::span<const Rule> movement_rules();
std::span<const Rule> reduction_rules();

class Simplifier {
 public:
  explicit Simplifier(std::vector<std::string>* trace) : trace_(trace) {}

  /// Applies rules to `n`, whose sources are simplified, until none fits.
  NodeRef operator()(NodeRef n);
  /// May a rule that makes `n` superfluous for one of its readers assume that no other needs it?
  bool read_once(const NodeRef& n) const;
  void count_uses(const NodeRef& n, int uses) { uses_[n] += uses; }
  /// Forgets the uses of nodes, and what the last pass has done.
  void begin_pass() {
    uses_ = NodeNumbers(0);
    calls_ = 0;
    cut_short_ = false;
  }
  /// How often this pass has called the simplifier, for nodes of the graph or new ones.
  int64_t calls() const { return calls_; }
  /// Has a rule that moves an op towards the leaves stopped on the way, to go on in another pass?
  bool cut_short() const { return cut_short_; }
  /// Did no rule fit `n`, whatever else may read its sources?
  bool settled(const NodeRef& n) const {
    return is_leaf(n->op) || n->realised() || settled_.get(n) != 0;
  }

 private:
  NodeNumbers uses_{0}, settled_{0};
  mutable bool refused_ = false;  // a rule that might fit in another pass
  std::vector<std::string>* trace_;
  int depth_ = 0;
  int64_t calls_ = 0;
  bool cut_short_ = false;
};

/// Is `n` such an op and not realised: rules must not look below a realised node.
inline bool is_op(const NodeRef& n, Op op) {
  return n->op == op && !n->realised();
}
inline bool is_constant(const NodeRef& n) {
  return is_op(n, Op::Const);
}
/// The movement node `move` with another source, of the same shape as its own.
NodeRef move_like(const NodeRef& move, const NodeRef& source);
/// The order that undoes a permutation.
inline Ints inverse(const Ints& order) {
  Ints back(order.size(), 0);
  for (size_t i = 0; i < order.size(); i++) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return back;
}

/// Elements [begin, end) along one axis; zeros around along one axis.
NodeRef shrink_axis(const NodeRef& x, size_t axis, int64_t begin, int64_t end);
NodeRef pad_axis(const NodeRef& x, size_t axis, int64_t before, int64_t after);
/// Axis `from` becomes axis `to`; the others stay in order.
NodeRef move_axis(const NodeRef& x, size_t from, size_t to);
/// Exp of x, of which no element is positive; and the rule that finds these.
NodeRef exp_not_positive(const NodeRef& x);
NodeRef mark_not_positive(const NodeRef& n, Simplifier& s);
/// Is `difference` = z - max(z), the greatest of each row, as a softmax has it? Where that is -inf
/// another number may stand for it.
bool is_shifted(const NodeRef& difference, Simplifier& s);
/// The rule that keeps of a scatter's places those that rows begin at.
NodeRef scatter_rows(const NodeRef& n, Simplifier& s);
NodeRef constant_of_bits(uint64_t bits, DType dtype, Shape shape);

}  // namespace lazuli
