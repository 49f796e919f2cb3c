#include "runtime/graph_form.h"

#include <algorithm>

namespace lazuli {

uint64_t form_of(std::span<const NodeRef> roots) {
  uint64_t form = roots.size();
  for (const NodeRef& r : roots) form = form * 0x9E3779B97F4A7C15u + present_form(*r);
  return form;
}

GraphForm::GraphForm(const Topology& graph, std::span<const NodeRef> roots) : key_(form_of(roots)) {
  for (size_t i = 0; i < graph.size(); i++) {
    const Node& n = *graph.nodes[i];
    places_.push_back(
        {present_form(n), static_cast<uint32_t>(sources_.size()), n.op, n.realised()});
    for (int s : graph.sources(i)) sources_.push_back(s);
    if (n.op == Op::Shrink && !n.realised()) cuts_.push_back(n.ints());
  }
  std::reverse(cuts_.begin(), cuts_.end());
  for (const NodeRef& r : roots) roots_.push_back(graph.find(r));
}

// From the roots down: a node's place is known when one of its users has been compared, and every
// other user must name the same node for that place.
bool GraphForm::match(std::span<const NodeRef> roots, std::vector<NodeRef>& values) const {
  if (roots.size() != roots_.size()) return false;
  std::vector<const Node*> nodes(places_.size());
  const auto put = [&](int place, const Node* n) {
    const Node*& there = nodes[static_cast<size_t>(place)];
    if (there == nullptr) there = n;
    return there == n;
  };
  for (size_t r = 0; r < roots.size(); r++) {
    if (!put(roots_[r], roots[r])) return false;
  }
  auto cut = cuts_.begin();
  for (size_t i = places_.size(); i-- > 0;) {
    const Node& n = *nodes[i];
    const Place& p = places_[i];
    if (n.realised() != p.value || present_form(n) != p.form) return false;
    if (p.value) continue;
    const size_t end = i + 1 < places_.size() ? places_[i + 1].first_source : sources_.size();
    if (n.op != p.op || n.src.size() != end - p.first_source) return false;
    if (n.op == Op::Shrink && n.ints() != *cut++) return false;
    for (size_t k = 0; k < n.src.size(); k++) {
      if (!put(sources_[p.first_source + k], n.src[k])) return false;
    }
  }
  std::vector<const Node*> distinct;
  for (size_t i = 0; i < places_.size(); i++) {
    if (places_[i].value) distinct.push_back(nodes[i]);
  }
  values.assign(distinct.begin(), distinct.end());
  std::sort(distinct.begin(), distinct.end());
  return std::adjacent_find(distinct.begin(), distinct.end()) == distinct.end();
}

}  // namespace lazuli
