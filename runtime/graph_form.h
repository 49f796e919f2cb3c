// Which plan runs a graph, found without hashing it: every node carries a hash of its form from its
// construction on (core/node.h), so that the roots name a plan, and one comparison with the graph
// that the plan was made for, node by node, proves that it is the right one. Neither tells graphs
// apart that differ in literals alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/topology.h"
#include "runtime/literals.h"

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
  /// Whether the graph below `roots` has the same ops over the same sources, and values and
  /// literals at the same places, different values where these were different. Then the values, in
  /// the order of the topology, and the bits of its literals(); linear in the nodes and their
  /// sources.
  bool match(std::span<const NodeRef> roots, std::vector<NodeRef>& values,
             std::vector<uint64_t>& bits) const;
  /// Of the graph that it was made of: one for each place that reads one, sources before users,
  /// roots last.
  const std::vector<Literal>& literals() const { return literals_; }

 private:
  struct Place {
    uint64_t form;
    uint32_t first_source, source_count;
    Op op;
    bool value;
  };

  uint64_t key_;
  std::vector<Place> places_;  // sources before users
  std::vector<int> values_;    // places of values
  // Places; literal i is -1 - i.
  std::vector<int> sources_, roots_;
  std::vector<Literal> literals_;
  std::vector<uint64_t> literal_forms_;
  std::vector<Ints> cuts_;  // of the shrinks, the last one first: forms need not tell them apart
};

}  // namespace lazuli
