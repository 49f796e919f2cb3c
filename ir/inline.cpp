#include "ir/inline.h"

#include <algorithm>

namespace lazuli {
namespace {

// Members that n reads, with the way they are reached. Nodes are visited from users to sources.
std::map<int, Reach> reads_of(const Partition& p, int n, const MemberUses& members) {
  constexpr int kMany = 8;
  std::map<int, Reach> found;
  std::map<int, Reach, std::greater<>> open;
  const auto visit_sources = [&](int x, const Reach& at) {
    const Op op = p.node(x).op;
    for (size_t i = 0; i < p.sources(x).size(); i++) {
      Reach& r = open[p.sources(x)[i]];
      const bool moves = is_movement(op) || (op == Op::Gather && i == 0);
      if (!moves) {
        r.plain |= at.plain;
        r.moved += at.moved;
        r.repeats |= at.repeats;
      } else {
        r.moved += at.plain + at.moved;
        r.repeats |= at.repeats || op == Op::Expand || op == Op::Window || op == Op::Gather;
      }
      r.moved = std::min(r.moved, kMany);
    }
  };
  visit_sources(n, {.plain = true});
  while (!open.empty()) {
    const auto [x, at] = *open.begin();
    open.erase(open.begin());
    if (members.count(x)) {
      found[x] = at;
    } else if (p[x].role != Role::Leaf && !p[x].stored) {
      visit_sources(x, at);
    }
  }
  return found;
}

class Inliner {
 public:
  Inliner(const Partition& p, MemberUses& uses) : p_(p), uses_(uses) {}

  // From readers to what they read, so that it is known of readers whether they are dead.
  void run() {
    for (auto it = uses_.rbegin(); it != uses_.rend(); ++it) {
      auto& [m, use] = *it;
      std::erase_if(use.readers, [&](const auto& r) { return uses_.at(r.first).dead; });
      const Node& v = p_.node(m);
      home_[m] = is_reduce(v.op) ? Home{.reduction = m, .shape = {}}
                                 : Home{-1, use.finish, use.level, v.shape};
      use.dead = !p_[m].stored && use.readers.empty();
      if (use.dead || p_[m].stored || is_reduce(v.op)) continue;
      use.inlined = inlines(m, use);
      if (use.inlined) home_[m] = home_[use.readers.begin()->first];
    }
  }

 private:
  // Where a member is computed: a reduction by itself, a pointwise one in the stage of its shape
  // and level.
  struct Home {
    int reduction = -1;
    bool finish = false;
    int level = 0;
    Shape shape;
    friend bool operator==(const Home&, const Home&) = default;
  };

  // Is pointwise member m evaluated where it is read: once, or by several readers of one stage, or
  // because that is cheap.
  bool inlines(int m, const MemberUse& use) const {
    const Home& first = home_.at(use.readers.begin()->first);
    bool one_home = true, repeats = false;
    for (const auto& [n, reach] : use.readers) {
      const bool plain = reach.plain && reach.moved == 0 && !reach.repeats;
      const bool same_part = uses_.at(n).finish == use.finish;
      one_home &= plain && same_part && home_.at(n) == first;
      repeats |= reach.repeats || !same_part;
    }
    if (one_home) return true;
    // Where the readers look at fewer elements than there are, evaluating those is least.
    int64_t read = 0;
    for (const auto& [n, reach] : use.readers) read += numel(space(p_.node(n)));
    if (read < p_.node(m).numel()) return true;
    if (use.readers.size() == 1) {
      const Reach& reach = use.readers.begin()->second;
      return !reach.plain && reach.moved == 1 && !repeats;
    }
    return !repeats && is_cheap(m);
  }

  // A few operations on array elements and on values much smaller than the result, such as a row's
  // mean.
  bool is_cheap(int m) const {
    constexpr int kCheapNodes = 6, kCheapLoads = 2;
    const int64_t size = p_.node(m).numel();
    std::vector<int> stack{m};
    int operations = 0, loads = 0;
    while (!stack.empty()) {
      const int x = stack.back();
      stack.pop_back();
      const Node& v = p_.node(x);
      if (x != m && uses_.count(x)) {
        if (v.numel() * 4 > size) return false;
        continue;
      }
      if (v.op == Op::Const || v.op == Op::Iota) continue;
      if (p_[x].stored) {
        if (++loads > kCheapLoads) return false;
        continue;
      }
      if (is_reduce(v.op)) continue;
      if (has(v.op, kCostly) || v.op == Op::Gather) return false;
      if (is_elementwise(v.op) && ++operations > kCheapNodes) return false;
      stack.insert(stack.end(), p_.sources(x).begin(), p_.sources(x).end());
    }
    return true;
  }

  const Partition& p_;
  MemberUses& uses_;
  std::map<int, Home> home_;
};

}  // namespace

MemberUses find_reads(const Partition& p, const Group& group) {
  MemberUses uses;
  for (int n : group.members()) uses[n].finish = p[n].finish;
  for (auto& [n, use] : uses) {
    use.reads = reads_of(p, n, uses);
    for (const auto& [m, reach] : use.reads) {
      MemberUse& source = uses.at(m);
      source.readers[n] = reach;
      use.level = std::max(use.level, source.level + is_reduce(p.node(m).op));
    }
  }
  return uses;
}

void decide_inlining(const Partition& p, MemberUses& uses) {
  Inliner(p, uses).run();
}

}  // namespace lazuli
