// What each step of a plan is, as text that holds no nodes, hence no arrays: explain tells of it
// when the graph is gone.
#pragma once

#include <string>
#include <vector>

#include "ir/plan.h"
#include "runtime/inspect.h"

namespace lazuli {

/// The name of step `i`, which runs the op of `library`, or a kernel where that is null.
std::string step_name(const Node* library, size_t i);

/// One for each step.
std::vector<StepNote> step_notes(const Plan& plan);

}  // namespace lazuli
