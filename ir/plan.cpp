#include "ir/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/graph.h"
#include "core/topology.h"
#include "ir/choose_convolution.h"
#include "ir/fuse.h"
#include "ir/simplify.h"
#include "ir/softmax_chunks.h"
#include "ir/step_order.h"

namespace lazuli {
namespace {

// A reshape of an array is the same bytes.
const Node* array_of(const Partition& p, const Node* n) {
  while (n->op == Op::Reshape && !p[p.graph.find(n)].stored) n = n->src[0];
  return n;
}

class Planner {
 public:
  Planner(Partition& p, std::span<const NodeRef> donors,
          const std::function<void(const std::shared_ptr<Kernel>&)>& made)
      : p_(p),
        donors_(donors.begin(), donors.end()),
        made_(made),
        last_step_(p.nodes.size(), -1) {}

  Plan run() {
    std::vector<int> step_of(p_.groups.size(), -1);
    for (size_t g = 0; g < p_.groups.size(); g++) {
      if (stores_nothing(p_.groups[g])) continue;
      step_of[g] = static_cast<int>(plan_.steps.size());
      step(p_.groups[g]);
    }
    for (const NodeRef& root : p_.roots) output(root);
    plan_.decisions = std::move(p_.decisions);
    const std::vector<int> place = order_steps(plan_, donors_);
    for (Decision& d : plan_.decisions) {
      const int step = step_of[static_cast<size_t>(d.step)];
      d.step = step < 0 ? step : place[static_cast<size_t>(step)];
    }
    plan_.roots = p_.roots;
    return std::move(plan_);
  }

 private:
  static bool is_input(const Node& n) { return n.realised() || n.op == Op::Buffer; }

  int slot(const Node* n) {
    auto [it, fresh] = slots_.try_emplace(n, static_cast<int>(plan_.slots.size()));
    if (fresh) {
      plan_.slots.push_back({is_input(*n) ? PlanSlot::Role::Input : PlanSlot::Role::Temporary,
                             n->dtype, n->shape, NodeRef(n)});
    }
    return it->second;
  }

  // A kernel whose values are all evaluated by their readers is none.
  bool stores_nothing(const Group& group) const {
    const auto stored = [&](int n) { return p_[n].stored; };
    return std::none_of(group.main.begin(), group.main.end(), stored) &&
           std::none_of(group.finish.begin(), group.finish.end(), stored);
  }

  void step(const Group& group) {
    PlanStep s;
    for (int n : group.members()) s.members.push_back(p_.node_ref(n));
    if (group.library) {
      s.node = s.members[0];
      for (const NodeRef& x : s.node->src) s.arguments.push_back(slot(array_of(p_, x)));
      s.arguments.push_back(slot(s.node));
    } else {
      BuiltKernel built = build_kernel(p_, group);
      built.kernel->name = "kernel";
      verify_algorithm(*built.kernel);
      for (size_t i = 0; i < built.arguments.size(); i++) {
        KernelArgument& a = built.kernel->arguments[i];
        a.made = !a.output && !is_input(*p_.node_ref(built.arguments[i]));
      }
      if (made_) made_(built.kernel);
      s.kernel = std::move(built.kernel);
      for (int n : built.arguments) s.arguments.push_back(slot(p_.node_ref(n)));
    }
    s.operations = operations(group);
    plan_.steps.push_back(std::move(s));
  }

  // Ops of the group and of what it evaluates from what is stored elsewhere. Reshapes and
  // repetitions cost nothing and are left out.
  std::vector<Op> operations(const Group& group) {
    const auto step = static_cast<int>(plan_.steps.size());
    std::vector<int> evaluated = group.members();
    for (int n : evaluated) last_step_[static_cast<size_t>(n)] = step;
    for (size_t i = 0; i < evaluated.size(); i++) {
      for (int s : p_.sources(evaluated[i])) {
        if (p_[s].role == Role::Leaf || p_[s].stored) continue;
        if (std::exchange(last_step_[static_cast<size_t>(s)], step) != step) evaluated.push_back(s);
      }
    }
    std::sort(evaluated.begin(), evaluated.end());
    std::vector<Op> out;
    for (int n : evaluated) {
      const Op op = p_.node(n).op;
      if (op != Op::Reshape && op != Op::Expand && op != Op::Checkpoint) out.push_back(op);
    }
    return out;
  }

  void output(const NodeRef& root) {
    const Node* n = array_of(p_, root);
    const int s = slot(n);
    PlanSlot& slot = plan_.slots[static_cast<size_t>(s)];
    if (slot.role == PlanSlot::Role::Temporary) slot.role = PlanSlot::Role::Output;
    plan_.outputs.push_back(s);
  }

  Partition& p_;
  const NodeSet donors_;
  const std::function<void(const std::shared_ptr<Kernel>&)>& made_;
  Plan plan_;
  NodeMap<int> slots_;
  PassVector<int> last_step_;  // that evaluates a node
};

}  // namespace

namespace {

// The amounts of a pad that only places `x` in a box of its own; null: it is none.
const Ints* pads_of(const NodeRef& x) {
  return x->op == Op::Pad && !x->realised() ? &x->ints() : nullptr;
}

// What writes a value over a box of an array: where(pad(true), pad(value), array), as setitem of
// slices makes it.
bool replaces_box(const NodeRef& n) {
  if (n->op != Op::Where || n->realised()) return false;
  const Ints *there = pads_of(n->src[0]), *value = pads_of(n->src[1]);
  if (!there || !value || *there != *value) return false;
  const NodeRef& inside = n->src[0]->src[0];
  return inside->op == Op::Const && std::get<ScalarBits>(inside->arg).bits != 0;
}

// Roots that change boxes of their donors, one after the other, become Update nodes, which can be
// run in the donor's memory. A root may stand behind identities.
std::vector<NodeRef> with_updates(std::span<const NodeRef> roots, std::span<const NodeRef> donors) {
  std::vector<NodeRef> chosen;
  for (size_t r = 0; r < donors.size(); r++) {
    if (!donors[r]) continue;
    std::vector<NodeRef> chain;
    NodeRef n = roots[r];
    while (n.get() != donors[r].get()) {
      if (!n->realised() && has(n->op, kIdentity)) {
        n = n->src[0];
      } else if (replaces_box(n)) {
        chain.push_back(n);
        n = n->src[2];
      } else {
        chain.clear();
        break;
      }
    }
    chosen.insert(chosen.end(), chain.begin(), chain.end());
  }
  if (chosen.empty()) return {roots.begin(), roots.end()};
  const Topology graph(roots, true);
  std::vector<bool> is_chosen(graph.size());
  for (const NodeRef& n : chosen) is_chosen[static_cast<size_t>(graph.find(n))] = true;
  std::vector<NodeRef> made(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    const NodeRef& n = graph.nodes[i];
    const std::span<const int> sources = graph.sources(i);
    if (n->realised()) {
      made[i] = n;
      continue;
    }
    if (is_chosen[i]) {
      const NodeRef& placed = graph.nodes[static_cast<size_t>(sources[1])];
      Ints begin;
      for (size_t k = 0; k < n->shape.size(); k++) begin.push_back(placed->ints()[2 * k]);
      const int value = graph.sources(static_cast<size_t>(sources[1]))[0];
      made[i] = update(made[static_cast<size_t>(sources[2])], made[static_cast<size_t>(value)],
                       std::move(begin));
      continue;
    }
    Sources src;
    for (int s : sources) src.push_back(made[static_cast<size_t>(s)]);
    made[i] = with_src(n, std::move(src));
  }
  std::vector<NodeRef> out;
  for (const NodeRef& r : roots) out.push_back(made[static_cast<size_t>(graph.find(r))]);
  return out;
}

}  // namespace

Plan make_plan(std::span<const NodeRef> all_roots, const Target& target,
               std::span<const NodeRef> donors,
               const std::function<void(const std::shared_ptr<Kernel>&)>& made) {
  const std::vector<NodeRef> roots = with_updates(all_roots, donors);
  bool settled = false;
  std::vector<NodeRef> simple = simplify(roots, nullptr, &settled);
  std::vector<NodeRef> split = split_softmax(simple);
  if (!settled || split != simple) split = simplify(split);
  ConvolutionGraph graph = choose_convolutions(split, target);
  if (graph.changed) {
    // The notes go along to learn what their nodes become.
    std::vector<NodeRef> all = graph.roots;
    for (const ConvolutionNote& note : graph.notes) all.push_back(note.node);
    all = simplify(all);
    for (size_t i = 0; i < all.size(); i++) {
      (i < roots.size() ? graph.roots[i] : graph.notes[i - roots.size()].node) = all[i];
    }
  }
  Partition p = partition(graph.roots, target);
  for (const ConvolutionNote& note : graph.notes) {
    const NodeRef sum(&moved_from(*note.node));
    const int n = p.graph.find(sum);
    if (n >= 0 && p[n].group >= 0) p.decisions.push_back({n, p[n].group, note.text, sum->op});
  }
  Plan plan = Planner(p, donors, made).run();
  plan.exact = graph.exact;
  if (!donors.empty()) {
    NodeMap<int> slot_of;
    for (size_t s = 0; s < plan.slots.size(); s++) slot_of[plan.slots[s].node] = static_cast<int>(s);
    for (const NodeRef& donor : donors) {
      const auto at = donor ? slot_of.find(donor) : slot_of.end();
      plan.donors.push_back(at == slot_of.end() ? -1 : at->second);
    }
  }
  return plan;
}

std::string print_plan(const Plan& plan) {
  std::string out;
  const Topology graph(plan.roots, true);
  for (size_t i = 0; i < plan.steps.size(); i++) {
    const PlanStep& s = plan.steps[i];
    out +=
        s.kernel ? fmt::format("kernel {}:", i) : fmt::format("step {}: {}", i, name(s.node->op));
    for (const NodeRef& m : s.members) out += fmt::format(" %{} {}", graph.find(m), name(m->op));
    out += "\n";
    for (const Decision& d : plan.decisions) {
      if (d.step == static_cast<int>(i)) out += fmt::format("  %{}: {}\n", d.node, d.text);
    }
  }
  return out;
}

}  // namespace lazuli
