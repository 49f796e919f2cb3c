#include "core/origins.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <vector>

#include "core/gradient_graph.h"
#include "core/topology.h"

namespace lazuli {
namespace {

// A value that may be asked about. The array that takes the place of a node stands for the same.
using Identity = uint64_t;

// All that is known; of nodes that are alive alone, so that a state that is made anew from the last
// one for ever is made of what is held now, not of all that ever was.
struct Table {
  std::mutex mutex;
  NodeMap<Identity> identity;              // of nodes that arrays were made of
  NodeMap<std::vector<Identity>> origins;  // of arrays; sorted
  tsl::robin_map<Identity, int> holders;   // how many nodes have this identity
  Identity last = 0;

  Identity identity_of(const Node* n) {
    const auto [it, is_new] = identity.try_emplace(n, last + 1);
    if (is_new) {
      holders[++last] = 1;
      n->set_in_origins();
    }
    return it->second;
  }
};
Table& table() {
  static auto* t = new Table;  // outlives every static tensor
  return *t;
}

// A node that hands no gradient to its sources.
bool ends_gradient(const Node& n) {
  return !is_float(n.dtype) || !is_differentiable(n.op);
}

// The first source that gradients reach: that of a CustomVjp goes to its inputs, not to its value.
size_t first_of(const Node& n) {
  return n.op == Op::CustomVjp ? 1 : 0;
}

// Whether a gradient may be asked for by this node: a number is no input.
bool may_be_input(const Node& n) {
  return is_float(n.dtype) && (!n.src.empty() || has_identity(n.op));
}

// Whether there is anything to note at all, which is seldom so, without a number for each node.
bool is_any_to_note(std::span<const NodeRef> made) {
  NodeMap<uint32_t> uses;  // of nodes that more than one thing holds
  PassVector<const Node*> stack;
  for (const NodeRef& n : made) {
    if (ends_gradient(*n) && !n->in_origins()) continue;
    uses[n] += 2;  // by `made` and by the tensor, which goes on to the array
    stack.push_back(n);
  }
  while (!stack.empty()) {
    const Node& n = *stack.back();
    stack.pop_back();
    if (n.in_origins()) return true;
    if (ends_gradient(n)) continue;
    for (size_t k = first_of(n); k < n.src.size(); k++) {
      const Node* const s = n.src[k];
      if (may_be_input(*s) && (s->count() == 1 || ++uses[s] == 1)) stack.push_back(s);
    }
  }
  for (const NodeRef& n : made) {
    const auto use = uses.find(n);
    if (use != uses.end() && use->second > 2) return true;  // another is made of it
  }
  return std::any_of(uses.begin(), uses.end(),
                     [](const auto& use) { return use.first->count() > use.second; });
}

// Identities that each node is made of, 64 at a time.
class Reach {
 public:
  explicit Reach(const Topology& graph) : graph_(graph), mask_(graph.size()) {}

  void add(size_t node, size_t identity) { seeds_.push_back({node, identity}); }
  // Calls found(root, identity) for all below the roots.
  template <typename F>
  void each(std::span<const size_t> roots, size_t identities, F found) {
    for (size_t base = 0; base < identities; base += 64) {
      std::fill(mask_.begin(), mask_.end(), 0);
      for (const auto& [node, identity] : seeds_) {
        if (identity - base < 64) mask_[node] |= uint64_t{1} << (identity - base);
      }
      for (size_t i = 0; i < mask_.size(); i++) {
        const std::span<const int> sources = graph_.sources(i);
        if (sources.empty()) continue;
        for (int s : sources.subspan(first_of(*graph_.nodes[i]))) {
          mask_[i] |= mask_[static_cast<size_t>(s)];
        }
      }
      for (size_t r = 0; r < roots.size(); r++) {
        for (uint64_t rest = mask_[roots[r]]; rest; rest &= rest - 1) {
          found(r, base + static_cast<size_t>(std::countr_zero(rest)));
        }
      }
    }
  }

 private:
  const Topology& graph_;
  PassVector<uint64_t> mask_;
  PassVector<std::pair<size_t, size_t>> seeds_;
};

}  // namespace

void note_origins(std::span<const NodeRef> made, std::span<const NodeRef> arrays) {
  if (!is_any_to_note(made)) return;
  const Topology graph(made, ends_gradient);
  // A node that is counted more often than here is held by something else.
  PassVector<uint32_t> counts(graph.size(), 1);  // the graph's own
  for (size_t i = 0; i < graph.size(); i++) {
    for (int s : graph.sources(i)) counts[static_cast<size_t>(s)]++;
  }
  PassVector<size_t> roots;
  for (const NodeRef& n : made) {
    const auto root = static_cast<size_t>(graph.find(n));
    // Those of `made` and of the tensor, which goes on to the array. It may be asked about where
    // another one is made of it.
    counts[root] += counts[root] == 1 ? 2 : 1;
    roots.push_back(root);
  }
  PassVector<size_t> held;
  bool is_known = false;  // whether there is an array with origins
  for (size_t i = 0; i < graph.size(); i++) {
    const Node& n = *graph.nodes[i];
    if (may_be_input(n) && n.count() > counts[i]) held.push_back(i);
    is_known = is_known || n.in_origins();
  }

  Table& t = table();
  const std::lock_guard lock(t.mutex);
  PassVector<Identity> identities;
  tsl::robin_map<Identity, size_t> number;
  Reach reach(graph);
  const auto add = [&](size_t node, Identity identity) {
    const auto [it, is_new] = number.try_emplace(identity, identities.size());
    if (is_new) identities.push_back(identity);
    reach.add(node, it->second);
  };
  for (size_t i : held) add(i, t.identity_of(graph.nodes[i]));
  for (size_t i = 0; is_known && i < graph.size(); i++) {
    if (!graph.nodes[i]->in_origins()) continue;
    const auto it = t.origins.find(graph.nodes[i]);
    if (it == t.origins.end()) continue;
    for (Identity identity : it->second) {
      if (t.holders.contains(identity)) add(i, identity);
    }
  }
  std::vector<std::vector<Identity>> found(made.size());
  reach.each(roots, identities.size(),
             [&](size_t root, size_t identity) { found[root].push_back(identities[identity]); });
  for (size_t r = 0; r < made.size(); r++) {
    const Node* const array = arrays[r];
    // The array is what the node was to those that are made of that.
    if (const auto it = t.identity.find(made[r]); it != t.identity.end()) {
      const Identity own = it->second;
      t.identity[array] = own;
      t.holders[own]++;
      std::erase(found[r], own);
      array->set_in_origins();
    }
    if (found[r].empty()) continue;
    std::sort(found[r].begin(), found[r].end());
    t.origins[array] = std::move(found[r]);
    array->set_in_origins();
  }
}

NodeRef array_made_of(const NodeRef& x, std::span<const NodeRef> outputs) {
  if (!x->in_origins()) return nullptr;
  const Topology graph(outputs, ends_gradient);
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  const auto wanted = t.identity.find(x);
  if (wanted == t.identity.end()) return nullptr;
  for (const NodeRef& n : graph.nodes) {
    if (!n->in_origins()) continue;
    const auto it = t.origins.find(n);
    if (it != t.origins.end() &&
        std::binary_search(it->second.begin(), it->second.end(), wanted->second)) {
      return n;
    }
  }
  return nullptr;
}

void forget_origins(const Node& n) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  t.origins.erase(&n);
  const auto it = t.identity.find(&n);
  if (it == t.identity.end()) return;
  const auto held = t.holders.find(it->second);
  if (--held.value() == 0) t.holders.erase(held);
  t.identity.erase(it);
}

size_t known_origins() {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  size_t n = t.identity.size() + t.holders.size();
  for (const auto& [array, origins] : t.origins) n += 1 + origins.size();
  return n;
}

}  // namespace lazuli
