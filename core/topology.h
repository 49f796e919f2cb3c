// A graph in the form of arrays, for passes that look at every node: what a pass knows of a node
// stands in a vector at the node's number, where a walk finds it in order.
#pragma once

#include <span>

#include "core/node_map.h"

namespace lazuli {

/// The nodes below some roots, sources before users, with the numbers of their sources.
class Topology {
 public:
  /// With `stop_at_realised`, a node that has a value is a leaf.
  explicit Topology(std::span<const NodeRef> roots, bool stop_at_realised = false);

  size_t size() const { return nodes.size(); }
  /// Numbers of the sources of node `i`, in their order; none of a leaf.
  std::span<const int> sources(size_t i) const {
    return {sources_.data() + first_[i], sources_.data() + first_[i + 1]};
  }
  /// Place of `n` in `nodes`; -1 if it is not below the roots.
  int find(const Node* n) const { return number_.get(n); }

  PassVector<NodeRef> nodes;

 private:
  PassVector<int> sources_;
  PassVector<size_t> first_{0};  // where a node's begin
  NodeNumbers number_{-1};
};

}  // namespace lazuli
