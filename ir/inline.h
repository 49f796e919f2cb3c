// Which members of a kernel become values of it, and which are evaluated where they are read: a
// pointwise member read once at the reader's own point, or cheap enough to be evaluated again.
#pragma once

#include "ir/fuse.h"

namespace lazuli {

/// How a member is reached from a reader: at the reader's own point, through how many index maps (a
/// few count as many), and whether any of them repeats elements.
struct Route {
  bool plain = false, repeats = false;
  int moved = 0;
};

using Routes = SmallVector<std::pair<int, Route>, 1>;  // of nodes, in ascending order

/// What a kernel does with one of its members.
struct MemberUse {
  int number = -1;       // of the node
  Routes reads;          // members that it reads
  Routes readers;        // and those that read it
  bool finish = false;   // is computed in the finish part
  int level = 0;         // reductions on the way to it
  bool inlined = false;  // evaluated by its readers
  bool dead = false;     // nobody needs it here
};

/// The members of a group with what they read, in ascending order.
class MemberUses {
 public:
  MemberUses(const Partition& p, const Group& group);

  bool contains(int n) const {
    const auto place = place_of(n);
    return place < list.size() && list[place].number == n;
  }
  MemberUse& at(int n) { return list[place_of(n)]; }
  const MemberUse& at(int n) const { return list[place_of(n)]; }

  std::vector<MemberUse> list;

 private:
  size_t place_of(int n) const { return static_cast<size_t>(p_[n].place); }
  Routes reads_of(int n) const;

  const Partition& p_;
};

/// Decides which are inlined and which are dead.
void decide_inlining(const Partition& p, MemberUses& uses);

}  // namespace lazuli
