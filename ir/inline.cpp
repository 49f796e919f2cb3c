#include "ir/inline.h"

#include <algorithm>

namespace lazuli {
namespace {

class Inliner {
 public:
  Inliner(const Partition& p, MemberUses& uses) : p_(p), uses_(uses) {}

  // From readers to what they read, so that it is known of readers whether they are dead.
  void run() {
    homes_.resize(uses_.list.size());
    for (size_t i = uses_.list.size(); i-- > 0;) {
      MemberUse& use = uses_.list[i];
      const int m = use.number;
      auto& readers = use.readers;
      const auto dead = [&](const auto& r) { return uses_.at(r.first).dead; };
      const auto live = std::remove_if(readers.begin(), readers.end(), dead);
      readers.resize(static_cast<size_t>(live - readers.begin()));
      const Node& v = p_.node(m);
      homes_[i] =
          is_reduce(v.op) ? Home{m, false, 0, nullptr} : Home{-1, use.finish, use.level, &v.shape};
      use.dead = !p_[m].stored && use.readers.empty();
      if (use.dead || p_[m].stored || is_reduce(v.op)) continue;
      use.inlined = inlines(m, use);
      if (use.inlined) homes_[i] = home(readers[0].first);
    }
  }

 private:
  // Where a member is computed: a reduction by itself, a pointwise one in the stage of its shape
  // and level.
  struct Home {
    int reduction = -1;
    bool finish = false;
    int level = 0;
    const Shape* shape = nullptr;
    friend bool operator==(const Home& a, const Home& b) {
      const bool same_shape = a.shape && b.shape ? *a.shape == *b.shape : a.shape == b.shape;
      return a.reduction == b.reduction && a.finish == b.finish && a.level == b.level && same_shape;
    }
  };
  const Home& home(int m) const { return homes_[static_cast<size_t>(p_[m].place)]; }

  // Is pointwise member m evaluated where it is read: once, or by several readers of one stage, or
  // because that is cheap.
  bool inlines(int m, const MemberUse& use) const {
    const Home& first = home(use.readers[0].first);
    bool one_home = true, repeats = false;
    for (const auto& [n, reach] : use.readers) {
      const bool plain = reach.plain && reach.moved == 0 && !reach.repeats;
      const bool same_part = uses_.at(n).finish == use.finish;
      one_home &= plain && same_part && home(n) == first;
      repeats |= reach.repeats || !same_part;
    }
    if (one_home) return true;
    // Where the readers look at fewer elements than there are, evaluating those is least.
    int64_t read = 0;
    for (const auto& [n, reach] : use.readers) read += numel(space(p_.node(n)));
    if (read < p_.node(m).numel()) return true;
    if (use.readers.size() == 1) {
      const Route& reach = use.readers[0].second;
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
      if (x != m && uses_.contains(x)) {
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
  std::vector<Home> homes_;
};

}  // namespace

// Members that n reads, with the way they are reached. Nodes are visited from users to sources.
Routes MemberUses::reads_of(int n) const {
  constexpr int kMany = 8;
  Routes found, open;  // `found` in descending order
  const auto visit_sources = [&](int x, const Route& at) {
    const Op op = p_.node(x).op;
    for (size_t i = 0; i < p_.sources(x).size(); i++) {
      const int s = p_.sources(x)[i];
      auto* place = std::lower_bound(open.begin(), open.end(), s,
                                     [](const auto& o, int number) { return o.first < number; });
      if (place == open.end() || place->first != s) place = open.insert(place, {s, {}});
      Route& r = place->second;
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
    const auto [x, at] = open.back();
    open.pop_back();
    if (contains(x)) {
      found.push_back({x, at});
    } else if (p_[x].role != Role::Leaf && !p_[x].stored) {
      visit_sources(x, at);
    }
  }
  std::reverse(found.begin(), found.end());
  return found;
}

MemberUses::MemberUses(const Partition& p, const Group& group) : p_(p) {
  list.resize(group.main.size() + group.finish.size());
  for (int n : group.members()) {
    at(n).number = n;
    at(n).finish = p[n].finish;
  }
  for (MemberUse& use : list) {
    use.reads = reads_of(use.number);
    for (const auto& [m, reach] : use.reads) {
      MemberUse& source = at(m);
      source.readers.push_back({use.number, reach});
      use.level = std::max(use.level, source.level + is_reduce(p.node(m).op));
    }
  }
}

void decide_inlining(const Partition& p, MemberUses& uses) {
  Inliner(p, uses).run();
}

}  // namespace lazuli
