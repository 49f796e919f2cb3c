// In which order the steps of a plan are run.
#pragma once

#include <vector>

#include "core/node_map.h"
#include "ir/plan.h"

namespace lazuli {

/// Puts the steps of `plan`, which stand in an order that can be run, into one that takes less
/// memory and finds more of it in caches: what ends the life of arrays comes soon, what follows
/// from inputs late, and what changes a donor after those that read it. Returns where each went.
std::vector<int> order_steps(Plan& plan, const NodeSet& donors);

}  // namespace lazuli
