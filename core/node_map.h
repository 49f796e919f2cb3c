// Maps and sets keyed by nodes: what a pass over a graph remembers of each.
#pragma once

#include <tsl/robin_map.h>
#include <tsl/robin_set.h>

#include "core/large_pages.h"
#include "core/node.h"

namespace lazuli {

/// Nodes made one after another lie one after another (core/cell_pool.h); the slots of neighbours are neighbours too, so
/// that a walk in order of construction stays in cache. Runs of nodes are spread by a multiplicative hash.
struct NodePlaceHash {
  size_t operator()(const Node* n) const {
    const auto address = reinterpret_cast<uintptr_t>(n);
    return ((address >> 11) * 0x9E3779B97F4A7C15u >> 29) << 3 | (address >> 8 & 7);
  }
};

/// As std::unordered_map, but inserting moves the values: no reference into the map outlives an insertion. The map does
/// not keep its nodes alive.
template <typename V>
using NodeMap = tsl::robin_map<const Node*, V, NodePlaceHash, std::equal_to<const Node*>,
                               LargePages<std::pair<const Node*, V>>>;
using NodeSet = tsl::robin_set<const Node*, NodePlaceHash, std::equal_to<const Node*>, LargePages<const Node*>>;

/// The same, keeping its nodes alive: for passes that make nodes as they go, which could else be freed and others made in
/// their place.
template <typename V>
using NodeRefMap = tsl::robin_map<NodeRef, V, NodePlaceHash, NodeEqual, LargePages<std::pair<NodeRef, V>>>;

}  // namespace lazuli
