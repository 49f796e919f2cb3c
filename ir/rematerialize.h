// Steps of a plan that are run again, so that their results need not be kept from their first use
// to their last: what becomes of a plan that takes more memory than there is.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ir/memory_plan.h"

namespace lazuli {

struct Rematerialized {
  Plan plan;
  std::vector<int> step_of;  // of each step, the one of the given plan that it is
  MemoryPlan memory;
};

/// Runs steps of a plan several times, or later, so that `excess` of its memory, the bytes that are
/// missing, is 0 or less; where that cannot be, so that it is the least that was found. What steps
/// compute stays as it is, and results are written once. `in_place` as in plan_memory(); `costs` of
/// the steps, in any unit: what is cheap for its size and its time is computed again before what is
/// not (Kirisame et al., "Dynamic Tensor Rematerialization", 2020, with the next use in place of
/// the last).
Rematerialized rematerialize(Plan plan, std::span<const std::vector<InPlace>> in_place,
                             std::span<const double> costs,
                             const std::function<int64_t(const MemoryPlan&)>& excess);

}  // namespace lazuli
