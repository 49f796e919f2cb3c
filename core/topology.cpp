#include "core/topology.h"

namespace lazuli {

// Depth first on a stack of its own. The numbers of a node's finished sources wait on a second
// stack, the last ones of which are the sources of the node on top of the first.
Topology::Topology(std::span<const NodeRef> roots, bool stop_at_realised) {
  struct Visit {
    const Node* node;
    uint32_t next, count;  // sources
  };
  PassVector<Visit> stack;
  PassVector<int> waiting;
  constexpr size_t kSmall = 64;  // nodes: less than that are not worth growing for
  nodes.reserve(kSmall);
  sources_.reserve(kSmall);
  first_.reserve(kSmall);
  stack.reserve(kSmall);
  waiting.reserve(kSmall);
  const auto visit = [&](const Node* n) {
    const auto count = stop_at_realised && n->realised() ? 0 : static_cast<uint32_t>(n->src.size());
    stack.push_back({n, 0, count});
  };
  for (const NodeRef& root : roots) {
    if (number_.get(root) >= 0) continue;
    visit(root);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.next < top.count) {
        const Node* s = top.node->src[top.next++];
        const int number = number_.get(s);
        if (number < 0) {
          visit(s);
        } else {
          waiting.push_back(number);
        }
        continue;
      }
      const auto number = static_cast<int>(nodes.size());
      sources_.insert(sources_.end(), waiting.end() - top.count, waiting.end());
      waiting.resize(waiting.size() - top.count);
      first_.push_back(sources_.size());
      nodes.emplace_back(top.node);
      number_[top.node] = number;
      stack.pop_back();
      waiting.push_back(number);
    }
    waiting.clear();
  }
}

}  // namespace lazuli
