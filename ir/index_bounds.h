// How far an index goes when loops end at sizes that are known when a kernel runs.
#pragma once

#include <span>
#include <vector>

#include "core/node_map.h"
#include "core/node_ref.h"

namespace lazuli {

/// Exclusive upper bounds of variables, over sizes and other variables.
using AxisBounds = NodeMap<NodeRef>;

/// Is every variable in n one of `sizes`?
bool only_sizes(const NodeRef& n, const NodeMap<int>& sizes);
/// n / by, rounded up.
NodeRef divided_up(const NodeRef& n, int64_t by);
/// An exclusive upper bound of index n over `sizes` alone; null where no bound makes it less than
/// its interval says.
NodeRef upper_bound(const NodeRef& n, const AxisBounds& bounds, const NodeMap<int>& sizes);

}  // namespace lazuli
