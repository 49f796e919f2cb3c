// Values that are computed again in the kernels that read them: much larger than all they are made
// of, cheap next to the memory they would go through, or too large to be kept at all. Attention's
// scores over long sequences are the case: their size is the product of two lengths.
#include <algorithm>
#include <map>
#include <set>

#include "ir/fuse.h"

namespace lazuli {
namespace {

constexpr int64_t kTooLarge = int64_t{256}
                              << 20;  // bytes that are never stored if they can be computed again
constexpr size_t kConeNodes = 16;
constexpr int kConeContractions = 2;
constexpr int64_t kConeDepth = 128;  // elements of a contraction that is computed again
constexpr double kTriangle = 0.5;

// What is computed again for one value: members, how many multiplications those of them take that
// are contractions, and which part of the value is not masked by place, outside of which loops do
// not run.
struct Cone {
  std::set<int> members;
  std::map<int, double> products;
  double kept = 1;
};

// The axis of which n is the index, or that and a number; -1: n is something else.
int64_t place_along(const Node& n) {
  const Node& base = moved_from(n);
  if (base.op != Op::Add && base.op != Op::Sub) return counted_axis(n);
  return moved_from(*base.src[1]).op == Op::Const ? place_along(*base.src[0]) : -1;
}

// Whether a condition holds on one side of a diagonal at most.
bool is_triangle_condition(const Node& condition) {
  const Node& c = moved_from(condition);
  if (c.op == Op::And) return is_triangle_condition(*c.src[0]) || is_triangle_condition(*c.src[1]);
  return (c.op == Op::Lt || c.op == Op::Le) && place_along(*c.src[0]) >= 0 &&
         place_along(*c.src[1]) >= 0;
}

// Whether n puts a constant where such a condition does not hold.
bool is_masked(const Node& n) {
  return n.op == Op::Where && moved_from(*n.src[2]).op == Op::Const &&
         is_triangle_condition(*n.src[0]);
}

class Recompute {
 public:
  Recompute(const Partition& p, const Target& target, bool together)
      : p_(p), target_(target), together_(together) {}

  Recomputed run() {
    find_readers();
    const int count = static_cast<int>(p_.nodes.size());
    for (int n = 0; n < count; n++) {
      if (p_[n].role != Role::Member || readers_[static_cast<size_t>(n)].empty()) continue;
      if (auto cone = cone_of(n); !cone.members.empty() && pays(n, cone)) {
        again_.insert(cone.members.begin(), cone.members.end());
        cones_[n] = std::move(cone);
      }
    }
    if (cones_.empty()) return {};
    for (int n = 0; n < count; n++) {
      if (p_[n].is_member()) plain_[n] = rebuilt(n);
    }
    for (const NodeRef& root : p_.roots) result_.roots.push_back(version(p_.graph.find(root), -1));
    return std::move(result_);
  }

 private:
  // Kernels, and members of them, that read a member of another.
  void find_readers() {
    readers_.resize(p_.nodes.size());
    users_.resize(p_.nodes.size());
    for (size_t n = 0; n < p_.nodes.size(); n++) {
      const int group = p_.nodes[n].group;
      for (int m : p_.nodes[n].members) {
        if (p_[m].group == group) continue;
        readers_[static_cast<size_t>(m)].insert(group);
        users_[static_cast<size_t>(m)].push_back(static_cast<int>(n));
      }
    }
  }

  // Members above values a quarter of the size of n; none if n does not qualify.
  Cone cone_of(int n) const {
    const Node& v = p_.node(n);
    const int64_t size = v.numel();
    if (size * size_of(v.dtype) < target_.l3 / 2 || p_[n].array) return {};
    if (!is_elementwise(v.op) && !is_contraction(v)) return {};
    Cone cone;
    std::set<int> edges, passed;
    std::vector<int> stack{n};
    int contractions = 0;
    while (!stack.empty()) {
      const int x = stack.back();
      stack.pop_back();
      if (cone.members.count(x) || edges.count(x) || !passed.insert(x).second) continue;
      const Node& y = p_.node(x);
      if (is_masked(y)) cone.kept = kTriangle;
      if (!p_[x].passes()) {
        if (p_[x].role == Role::Leaf || y.numel() * 4 <= size) {
          if (y.op != Op::Const && y.op != Op::Iota) edges.insert(x);
          continue;
        }
        if (is_contraction(y)) {
          const int64_t depth = y.src[0]->numel() / std::max<int64_t>(y.numel(), 1);
          if (depth > kConeDepth || ++contractions > kConeContractions) return {};
          cone.products[x] = static_cast<double>(y.src[0]->numel());
        } else if (!is_elementwise(y.op)) {
          return {};
        }
        cone.members.insert(x);
        if (cone.members.size() > kConeNodes) return {};
      }
      stack.insert(stack.end(), p_.sources(x).begin(), p_.sources(x).end());
    }
    int64_t inputs = 0;
    for (int e : edges) inputs += p_.node(e).numel();
    return contractions > 0 && 2 * inputs <= size ? cone : Cone{};
  }

  // One more contraction for all reading kernels, or in each of them, against a store and a load
  // for each. Kernels that read a masked value of an array do not know where it is 0: they multiply
  // all of it, which may be more than what computing it again takes.
  bool pays(int n, const Cone& cone) const {
    const double bytes = static_cast<double>(p_.node(n).numel() * size_of(p_.node(n).dtype));
    const double kernels = static_cast<double>(readers_[static_cast<size_t>(n)].size());
    double products = 0;
    for (const auto& [x, one] : cone.products) {
      if (!together_) {
        products += kernels * one * cone.kept;
      } else if (!again_.count(x)) {
        products += one * cone.kept;
      }
    }
    for (int user : users_[static_cast<size_t>(n)]) {
      const Node& u = p_.node(user);
      if (is_contraction(u)) products -= static_cast<double>(u.src[0]->numel()) * (1 - cone.kept);
    }
    return bytes >= kTooLarge ||
           products / target_.fma_per_second < (1 + kernels) * bytes / target_.bandwidth;
  }

  NodeRef rebuilt(int n) {
    Sources src;
    for (int s : p_.sources(n)) src.push_back(version(s, p_[n].group));
    return with_src(p_.node_ref(n), std::move(src));
  }

  // Node x as kernel g reads it. Chains of movement and inlined nodes are short.
  NodeRef version(int x, int g) {
    if (p_[x].is_member()) {
      const bool again = g >= 0 && cones_.count(x) && p_[x].group != g;
      return again ? copy(x, g, cones_.at(x).members) : plain_.at(x);
    }
    if (!p_[x].passes()) return p_.node_ref(x);
    if (const auto it = versions_.find({x, g}); it != versions_.end()) return it->second;
    Sources src;
    for (int s : p_.sources(x)) src.push_back(version(s, g));
    return versions_[{x, g}] = with_src(p_.node_ref(x), std::move(src));
  }

  // Node x for kernel g, computed from marked copies of what lies below the cone: the mark keeps it
  // apart from the original.
  NodeRef copy(int x, int g, const std::set<int>& cone) {
    const std::pair<int, int> key{x, together_ ? 0 : g};
    if (const auto it = copies_.find(key); it != copies_.end()) return it->second;
    const NodeRef& n = p_.node_ref(x);
    NodeRef r;
    if (n->op == Op::Const || n->op == Op::Iota) {
      r = n;
    } else if (p_[x].passes() || cone.count(x)) {
      Sources src;
      for (int s : p_.sources(x)) src.push_back(copy(s, g, cone));
      r = with_src(n, std::move(src));
      if (p_[x].is_member()) result_.originals[r] = plain_.at(x);
    } else {
      const NodeRef below = p_[x].is_member() ? plain_.at(x) : n;
      r = make({.op = Op::Checkpoint,
                .dtype = n->dtype,
                .shape = n->shape,
                .arg = next_serial(),
                .src = {below}});
    }
    return copies_[key] = r;
  }

  const Partition& p_;
  const Target& target_;
  bool together_;
  std::vector<std::set<int>> readers_;   // kernels
  std::vector<std::vector<int>> users_;  // members of those
  std::set<int> again_;
  std::map<int, Cone> cones_;
  std::map<int, NodeRef> plain_;
  std::map<std::pair<int, int>, NodeRef> versions_, copies_;  // by node and kernel, 0 for all
  Recomputed result_;
};

}  // namespace

Recomputed recompute(const Partition& p, const Target& target, bool together) {
  return Recompute(p, target, together).run();
}

}  // namespace lazuli
