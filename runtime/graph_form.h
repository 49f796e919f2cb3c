// Which plan runs a graph, found without hashing it: every node carries a hash of its form from its
// construction on (core/node.h), so that the roots name a plan, and one comparison with the graph
// that the plan was made for, node by node, proves that it is the right one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/topology.h"

namespace lazuli {

/// What graphs that one plan runs have in common, as far as is known without looking below the
/// roots; others may have it too.
uint64_t form_of(std::span<const NodeRef> roots);

/// The graph below some roots as it was when its plan was made, without its nodes.
class GraphForm {
 public:
  /// `graph` stops at values. Not while values are attached, as match().
  GraphForm(const Topology& graph, std::span<const NodeRef> roots);

  uint64_t key() const { return key_; }
  /// Whether the graph below `roots` has the same ops over the same sources, and values at the same
  /// places, different ones where these were different. Then the values, in the order of the
  /// topology; linear in its nodes and their sources.
  bool match(std::span<const NodeRef> roots, std::vector<NodeRef>& values) const;

 private:
  struct Place {
    uint64_t form;
    uint32_t first_source;
    Op op;
    bool value;
  };

  uint64_t key_;
  std::vector<Place> places_;  // sources before users
  std::vector<int> sources_, roots_;
  std::vector<Ints> cuts_;  // of the shrinks, the last one first: forms need not tell them apart
};

}  // namespace lazuli
