// Steps of a plan that are run together, one part of their arrays after the other: what the first
// stores is then still in a cache when the next reads it, and temporaries take the memory of one
// part.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "ir/slices.h"
#include "ir/target.h"

namespace lazuli {

/// A loop around successive steps, over parts of an axis that they all walk in parallel.
struct StepLoop {
  int first = 0, last = 0;          // steps, both included
  int64_t count = 1, at_once = 1;   // slices in all, and of one iteration; the last may have fewer
  std::vector<Slices> slices = {};  // of each step
  std::vector<int> kept = {};       // slots that hold the slices of one iteration alone, ascending
  int64_t kept_bytes = 0, whole_bytes = 0;  // that these take, and would take

  bool has(int step) const { return first <= step && step <= last; }
  bool keeps(int slot) const;
  /// Bytes of one slice of a slot that it keeps.
  int64_t slice_bytes(const PlanSlot& slot) const;
};

/// The loops of a plan whose step k can be cut as slices[k] says; a step that is no kernel, or
/// cannot be cut, has none. Where a chain of kernels touches more than it finds in the last cache,
/// parts of it that fit there are run one after the other, if what lies between the kernels is a
/// good part of all and what each part reads anew is not. Steps of a loop share nothing with those
/// of another.
std::vector<StepLoop> find_step_loops(const Plan& plan,
                                      std::span<const std::vector<Slices>* const> slices,
                                      const Target& target);

/// What the loop does, for each of its steps to tell.
std::string told_of(const StepLoop& loop);

}  // namespace lazuli
