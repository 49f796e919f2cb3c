// Which members of a kernel become values of it, and which are evaluated where they are read: a
// pointwise member read once at the reader's own point, or cheap enough to be evaluated again.
#pragma once

#include <map>

#include "ir/fuse.h"

namespace lazuli {

/// How a member is reached from a reader: at the reader's own point, through how many index maps (a
/// few count as many), and whether any of them repeats elements.
struct Reach {
  bool plain = false, repeats = false;
  int moved = 0;
};

/// What a kernel does with one of its members.
struct MemberUse {
  std::map<int, Reach> reads;    // members that it reads
  std::map<int, Reach> readers;  // and those that read it
  bool finish = false;           // is computed in the finish part
  int level = 0;                 // reductions on the way to it
  bool inlined = false;          // evaluated by its readers
  bool dead = false;             // nobody needs it here
};
using MemberUses = std::map<int, MemberUse>;

/// The members of a group with what they read.
MemberUses find_reads(const Partition& p, const Group& group);

/// Decides which are inlined and which are dead.
void decide_inlining(const Partition& p, MemberUses& uses);

}  // namespace lazuli
