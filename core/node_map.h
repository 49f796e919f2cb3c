// Maps and sets keyed by nodes: what a pass over a graph remembers of each.
#pragma once

#include <tsl/robin_map.h>
#include <tsl/robin_set.h>

#include <array>

#include "core/large_pages.h"
#include "core/node.h"

namespace lazuli {

/// Nodes made one after another lie one after another (core/cell_pool.h); the slots of neighbours
/// are neighbours too, so that a walk in order of construction stays in cache. Runs of nodes are
/// spread by a multiplicative hash.
struct NodePlaceHash {
  size_t operator()(const Node* n) const {
    const auto address = reinterpret_cast<uintptr_t>(n);
    return ((address >> 10) * 0x9E3779B97F4A7C15u >> 29) << 3 | (address >> 7 & 7);
  }
};

/// As std::unordered_map, but inserting moves the values: no reference into the map outlives an
/// insertion. The map does not keep its nodes alive.
template <typename V>
using NodeMap = tsl::robin_map<const Node*, V, NodePlaceHash, std::equal_to<const Node*>,
                               LargePages<std::pair<const Node*, V>>>;
using NodeSet =
    tsl::robin_set<const Node*, NodePlaceHash, std::equal_to<const Node*>, LargePages<const Node*>>;

/// The same, keeping its nodes alive: for passes that make nodes as they go, which could else be
/// freed and others made in their place.
template <typename V>
using NodeRefMap =
    tsl::robin_map<NodeRef, V, NodePlaceHash, NodeEqual, LargePages<std::pair<NodeRef, V>>>;

/// A number for each node of a large graph. Numbers lie in pages by the order in which the nodes
/// were made, which is much the order of every walk, so that looking one up seldom leaves the
/// cache; nodes far apart cost a page each. For one thread: even a look remembers its page.
class NodeNumbers {
 public:
  /// What the others have.
  explicit NodeNumbers(int none) : none_(none) { numbers_.reserve(kRecent); }

  int get(const Node* n) const {
    const uint64_t page = n->serial / kPage;
    Recent& last = recent_[page % kRecent];
    if (page != last.page) {
      const auto it = pages_.find(page);
      if (it == pages_.end()) return none_;
      last = {page, it->second};
    }
    return numbers_[last.place][n->serial % kPage];
  }
  int& operator[](const Node* n) {
    const uint64_t page = n->serial / kPage;
    Recent& last = recent_[page % kRecent];
    if (page != last.page) {
      const auto [it, fresh] = pages_.try_emplace(page, static_cast<uint32_t>(numbers_.size()));
      if (fresh) numbers_.emplace_back().fill(none_);
      last = {page, it->second};
    }
    return numbers_[last.place][n->serial % kPage];
  }

 private:
  static constexpr size_t kPage = 64, kRecent = 8;
  struct Recent {
    uint64_t page = UINT64_MAX;
    uint32_t place = 0;
  };
  // Walks meet several runs of pages; unspread, those would lie over each other in the table.
  struct PageHash {
    size_t operator()(uint64_t page) const { return page * 0x9E3779B97F4A7C15u >> 32; }
  };
  int none_;
  PassVector<std::array<int, kPage>> numbers_;
  tsl::robin_map<uint64_t, uint32_t, PageHash> pages_;
  mutable std::array<Recent, kRecent> recent_;  // pages: a walk is at several places at a time
};

}  // namespace lazuli
