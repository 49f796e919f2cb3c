#include "ir/simplify.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/evaluate.h"
#include "core/graph.h"
#include "core/ops_creation.h"
#include "core/topology.h"
#include "ir/simplify_rules.h"

namespace lazuli {
namespace {

uint64_t constant_bits(const NodeRef& constant) {
  return std::get<ScalarBits>(constant->arg).bits;
}
NodeRef zero(const Node& n) {
  return constant(Scalar(0), n.dtype, n.shape);
}

// ---- rules

NodeRef strip(const NodeRef& n, Simplifier&) {
  const bool graph_only = n->op == Op::Fresh || n->op == Op::Detach || n->op == Op::CustomVjp;
  return graph_only ? n->src[0] : NodeRef();
}

NodeRef empty_array(const NodeRef& n, Simplifier&) {
  return n->numel() == 0 ? zero(*n) : NodeRef();
}

NodeRef reads_nothing(const NodeRef& n, Simplifier&) {
  if (n->src.empty() || n->numel() == 0) return {};
  if (n->op == Op::Scatter) return n->src[1]->numel() == 0 ? n->src[0] : NodeRef();
  if (n->src[0]->numel() != 0) return {};
  return is_reduce(n->op) ? constant_of_bits(reduce_identity(n->op, n->dtype), n->dtype, n->shape)
                          : zero(*n);
}

NodeRef fold_constants(const NodeRef& n, Simplifier&) {
  if (!is_elementwise(n->op)) return {};
  uint64_t bits[3];
  for (size_t i = 0; i < n->src.size(); i++) {
    if (!is_constant(n->src[i])) return {};
    bits[i] = constant_bits(n->src[i]);
  }
  const uint64_t r = evaluate(n->op, n->dtype, {bits, n->src.size()}, n->src.back()->dtype);
  return constant_of_bits(r, n->dtype, n->shape);
}

// x op e = x, bit for bit; `left` if the operand may stand on either side.
struct Neutral {
  Op op;
  double value;
  bool left, floats, integers;
};
constexpr Neutral kNeutral[] = {
    {Op::Mul, 1, true, true, true},     {Op::Div, 1, false, true, false},
    {Op::IDiv, 1, false, false, true},  {Op::Sub, 0, false, true, true},
    {Op::Add, -0.0, true, true, false}, {Op::Add, 0, true, false, true},
    {Op::Or, 0, true, false, true},     {Op::Xor, 0, true, false, true},
    {Op::Shl, 0, false, false, true},   {Op::Shr, 0, false, false, true},
};

NodeRef neutral_operand(const NodeRef& n, Simplifier&) {
  if (n->src.size() != 2) return {};
  for (const Neutral& row : kNeutral) {
    if (row.op != n->op || !(is_float(n->dtype) ? row.floats : row.integers)) continue;
    const uint64_t bits = to_bits(Scalar(row.value), n->dtype);
    if (is_constant(n->src[1]) && constant_bits(n->src[1]) == bits) return n->src[0];
    if (row.left && is_constant(n->src[0]) && constant_bits(n->src[0]) == bits) return n->src[1];
  }
  return {};
}

NodeRef absorbing_operand(const NodeRef& n, Simplifier&) {
  if ((n->op != Op::Mul && n->op != Op::And) || is_float(n->dtype)) return {};
  for (const NodeRef& s : n->src) {
    if (is_constant(s) && constant_bits(s) == 0) return s;
  }
  const bool keeps = n->op == Op::And && n->dtype == DType::Bool;
  for (size_t i = 0; keeps && i < 2; i++) {
    if (is_constant(n->src[i])) return n->src[1 - i];
  }
  return {};
}

NodeRef equal_operands(const NodeRef& n, Simplifier&) {
  if (n->src.size() < 2 || n->src[n->src.size() - 2].get() != n->src.back().get()) return {};
  switch (n->op) {
    case Op::Max:
    case Op::Min:
    case Op::And:
    case Op::Or:
    case Op::Where:
      return n->src.back();
    default:
      return {};
  }
}

NodeRef constant_condition(const NodeRef& n, Simplifier&) {
  if (n->op != Op::Where) return {};
  if (is_constant(n->src[0])) return constant_bits(n->src[0]) ? n->src[1] : n->src[2];
  if (is_op(n->src[0], Op::Not)) {
    return elementwise(Op::Where, {n->src[0]->src[0], n->src[2], n->src[1]});
  }
  return {};
}

NodeRef double_negation(const NodeRef& n, Simplifier&) {
  if (n->op != Op::Neg && n->op != Op::Not) return {};
  return is_op(n->src[0], n->op) ? n->src[0]->src[0] : NodeRef();
}

// a + -b = a - b, a - -b = a + b, -a * -b = a * b: signs are exact.
NodeRef negated_operand(const NodeRef& n, Simplifier&) {
  const auto negated = [&](size_t i) { return is_op(n->src[i], Op::Neg); };
  if (n->op == Op::Add) {
    if (negated(1)) return elementwise(Op::Sub, {n->src[0], n->src[1]->src[0]});
    if (negated(0)) return elementwise(Op::Sub, {n->src[1], n->src[0]->src[0]});
  }
  if (n->op == Op::Sub && negated(1)) return elementwise(Op::Add, {n->src[0], n->src[1]->src[0]});
  if ((n->op == Op::Mul || n->op == Op::Div) && negated(0) && negated(1)) {
    return elementwise(n->op, {n->src[0]->src[0], n->src[1]->src[0]});
  }
  return {};
}

// Does every value of `from` survive the conversion to `to`?
bool holds(DType to, DType from) {
  if (from == to || from == DType::Bool) return true;
  const DTypeInfo &a = info(from), &b = info(to);
  if (a.kind == Kind::Float) {
    return b.kind == Kind::Float && b.size > a.size && to != DType::F16;
  }
  if (b.kind == Kind::Float) {
    constexpr int kMantissa[] = {11, 8, 24, 53};
    const int bits = 8 * a.size - a.is_signed;
    return bits <= kMantissa[static_cast<int>(to) - static_cast<int>(DType::F16)];
  }
  if (to == DType::Bool) return false;
  return a.is_signed == b.is_signed ? b.size >= a.size : !a.is_signed && b.size > a.size;
}

NodeRef cast_of_cast(const NodeRef& n, Simplifier&) {
  if (n->op != Op::Cast || !is_op(n->src[0], Op::Cast)) return {};
  const NodeRef& x = n->src[0]->src[0];
  return holds(n->src[0]->dtype, x->dtype) ? cast(x, n->dtype) : NodeRef();
}

NodeRef bitcast_of_bitcast(const NodeRef& n, Simplifier&) {
  if (n->op != Op::Bitcast || !is_op(n->src[0], Op::Bitcast)) return {};
  return bitcast(n->src[0]->src[0], n->dtype);
}

// A condition made a number and compared with zero.
NodeRef number_of_condition(const NodeRef& n, Simplifier&) {
  if (n->op != Op::Ne || !is_constant(n->src[1]) || constant_bits(n->src[1]) != 0) return {};
  if (!is_op(n->src[0], Op::Cast) || n->src[0]->src[0]->dtype != DType::Bool) return {};
  return n->src[0]->src[0];
}

// The elements at the places of their own order, which nothing else reads.
NodeRef gather_in_order(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Gather || !is_op(n->src.back(), Op::ArgSort)) return {};
  const NodeRef &x = n->src[0], &order = n->src.back();
  if (order->src[0].get() != x.get() || order->shape != x->shape) return {};
  for (int64_t a = 0; a + 1 < x->rank(); a++) {
    const NodeRef& index = n->src[static_cast<size_t>(a) + 1];
    if (index.get() != detail::coordinate(x->shape, a).get()) return {};
  }
  return s.read_once(order) ? s(sorted(x, order->integer() != 0)) : NodeRef();
}

constexpr Rule kAlgebra[] = {
    {"strip what only the graph needs", strip},
    {"an array without elements is a constant", empty_array},
    {"what reads no element is a constant", reads_nothing},
    {"fold constants", fold_constants},
    {"drop a neutral operand", neutral_operand},
    {"an absorbing operand is the result", absorbing_operand},
    {"choose between equals", equal_operands},
    {"decide a constant condition", constant_condition},
    {"negate twice", double_negation},
    {"absorb signs", negated_operand},
    {"cast at once", cast_of_cast},
    {"bitcast at once", bitcast_of_bitcast},
    {"a condition as a number as a condition", number_of_condition},
    {"sort where only the elements are read", gather_in_order},
    {"an exponential that cannot overflow", mark_not_positive},
    {"scatter rows by their first places", scatter_rows},
};

}  // namespace

std::span<const Rule> algebra_rules() {
  return kAlgebra;
}

NodeRef constant_of_bits(uint64_t bits, DType dtype, Shape shape) {
  return make(
      {.op = Op::Const, .dtype = dtype, .shape = std::move(shape), .arg = ScalarBits{bits}});
}

bool Simplifier::read_once(const NodeRef& n) const {
  const bool once = uses_.get(n) <= 1;
  refused_ |= !once;
  return once;
}

NodeRef Simplifier::operator()(NodeRef n) {
  const auto step = [&](const NodeRef& x) -> NodeRef {
    for (const auto& table : {algebra_rules(), movement_rules(), reduction_rules()}) {
      for (const Rule& rule : table) {
        if (NodeRef next = rule.apply(x, *this); next && next.get() != x.get()) {
          if (trace_) trace_->push_back(fmt::format("{}: {}", rule.name, name(x->op)));
          return next;
        }
      }
    }
    return {};
  };
  // A rule that moves an op towards the leaves calls back for every node on the way: far enough is
  // far enough.
  constexpr int kDeepest = 48;
  if (depth_ >= kDeepest) {
    refused_ = cut_short_ = true;
    return n;
  }
  depth_++;
  calls_++;
  constexpr int kMostSteps = 10'000;  // of one node
  for (int steps = 0; !settled(n); steps++) {
    ensure(steps < kMostSteps, "simplify: rules undo each other");
    const bool refused = std::exchange(refused_, false);
    NodeRef next = step(n);
    if (!next && !refused_) settled_[n] = 1;
    refused_ |= refused;
    if (!next) break;
    n = std::move(next);
  }
  depth_--;
  return n;
}

namespace {

std::vector<NodeRef> simplify_once(std::span<const NodeRef> roots, const Topology& graph,
                                   Simplifier& simplifier) {
  simplifier.begin_pass();
  PassVector<int> uses(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    for (int s : graph.sources(i)) uses[static_cast<size_t>(s)]++;
  }
  for (const NodeRef& r : roots) uses[static_cast<size_t>(graph.find(r))]++;
  PassVector<NodeRef> done;
  done.reserve(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    const NodeRef& n = graph.nodes[i];
    NodeRef r = n;
    if (!n->realised()) {
      if (is_leaf(n->op)) {
        if (n->numel() == 0) r = zero(*n);
      } else {
        Sources src;
        for (int s : graph.sources(i)) src.push_back(done[static_cast<size_t>(s)]);
        r = simplifier(with_src(n, std::move(src)));
      }
    }
    simplifier.count_uses(r, uses[i]);
    done.push_back(std::move(r));
  }
  std::vector<NodeRef> out;
  for (const NodeRef& r : roots) out.push_back(done[static_cast<size_t>(graph.find(r))]);
  return out;
}

}  // namespace

// A rule that waits for a node to have one reader may find it so only after others have been
// applied; and what moves towards the leaves of a deep graph gets there in as many passes as are
// affordable.
std::vector<NodeRef> simplify(std::span<const NodeRef> roots, std::vector<std::string>* trace,
                              bool* settled) {
  constexpr int kMostPasses = 4;
  constexpr int64_t kMostWork = 1'000'000;  // nodes and calls of the simplifier: some 0.5 s
  Simplifier simplifier(trace);
  std::vector<NodeRef> now(roots.begin(), roots.end());
  int64_t work = 0;
  bool done = false;
  for (int pass = 0; !done; pass++) {
    const Topology graph(now, true);
    done = pass > 0 && std::all_of(graph.nodes.begin(), graph.nodes.end(),
                                   [&](const NodeRef& n) { return simplifier.settled(n); });
    if (done || (pass >= kMostPasses && !(simplifier.cut_short() && work < kMostWork))) break;
    std::vector<NodeRef> next = simplify_once(now, graph, simplifier);
    done = std::equal(now.begin(), now.end(), next.begin(), NodeEqual());
    now = std::move(next);
    work += static_cast<int64_t>(graph.size()) + simplifier.calls();
  }
  if (settled) *settled = done;
  return now;
}

}  // namespace lazuli
