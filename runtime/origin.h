// Where a computed value came from, so that explain can tell of it when its graph is gone.
#pragma once

#include <memory>
#include <vector>

#include "ir/plan.h"
#include "runtime/inspect.h"

namespace lazuli {

class Executable;

/// What each step of a plan is, as text that holds no nodes, hence no arrays.
std::vector<StepNote> step_notes(const Plan& plan);

/// A plan that was run. Values refer to it weakly: a device forgets plans in time.
struct Origin {
  std::vector<StepNote> notes;
  std::shared_ptr<Executable> executable;
};

}  // namespace lazuli
