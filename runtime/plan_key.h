// The identity of a graph's structure: what two graphs must share so that the plan of one runs the
// other.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/graph_form.h"

namespace lazuli {

struct PlanKey {
  Hash128 hash;  // of the structure; leaves count by first visit, shape and dtype, not by identity,
                 // literals by shape and dtype
  std::vector<NodeRef> leaves;  // realised nodes, in order of first visit
  std::vector<NodeRef> ranges;  // nodes that are ranges of arrays which nothing else reads
  std::shared_ptr<const GraphForm> form;
};

/// What a plan follows from beside its target.
struct GraphKey {
  Hash128 hash;                 // literals count by value; leaves as in a PlanKey
  std::vector<NodeRef> leaves;  // arrays and placeholders, in order of first visit
};

/// Nothing if a value in the graph has an op and sources still: simplifying can make that very node
/// anew, so that what a plan reads depends on more than its form. `donors` as in make_plan(). While
/// values are held.
std::optional<GraphKey> graph_key(std::span<const NodeRef> roots, std::span<const NodeRef> donors);

/// Linear in the nodes not realised yet.
PlanKey plan_key(std::span<const NodeRef> roots);

/// Makes `ranges` values that lie where their arrays do: which batch of the data a step takes is an
/// argument then, not a constant of its plan. Not for a thread that holds values.
void attach_ranges(std::span<const NodeRef> ranges);

}  // namespace lazuli
