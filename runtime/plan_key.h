// The identity of a graph's structure: what two graphs must share so that the plan of one runs the other.
#pragma once

#include <span>
#include <vector>

#include "core/node.h"

namespace lazuli {

struct PlanKey {
  Hash128 hash;                 // of the structure; leaves count by first visit, shape and dtype, not by identity
  std::vector<NodeRef> leaves;  // realised nodes, in order of first visit
};

/// Linear in the nodes not realised yet.
PlanKey plan_key(std::span<const NodeRef> roots);

}  // namespace lazuli
