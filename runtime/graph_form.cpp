#include "runtime/graph_form.h"

#include <algorithm>

namespace lazuli {

uint64_t form_of(std::span<const NodeRef> roots) {
  uint64_t form = roots.size();
  for (const NodeRef& r : roots) form = form * 0x9E3779B97F4A7C15u + present_form(*r);
  return form;
}

GraphForm::GraphForm(const Topology& graph, std::span<const NodeRef> roots) : key_(form_of(roots)) {
  std::vector<int> places(graph.size());  // of the nodes
  const auto place_of = [&](int node) {
    const Node& n = *graph.nodes[static_cast<size_t>(node)];
    if (!is_literal(n)) return places[static_cast<size_t>(node)];
    literals_.push_back({n.dtype, std::get<ScalarBits>(n.arg).bits});
    literal_forms_.push_back(n.form);
    return -static_cast<int>(literals_.size());
  };
  for (size_t i = 0; i < graph.size(); i++) {
    const Node& n = *graph.nodes[i];
    if (is_literal(n)) continue;
    places[i] = static_cast<int>(places_.size());
    const std::span<const int> src = graph.sources(i);
    places_.push_back({present_form(n), static_cast<uint32_t>(sources_.size()),
                       static_cast<uint32_t>(src.size()), n.op, n.realised()});
    if (n.realised()) values_.push_back(places[i]);
    for (int s : src) sources_.push_back(place_of(s));
    if (n.op == Op::Shrink && !n.realised()) cuts_.push_back(n.ints());
  }
  std::reverse(cuts_.begin(), cuts_.end());
  for (const NodeRef& r : roots) roots_.push_back(place_of(graph.find(r)));
}

// From the roots down: a node's place is known when one of its users has been compared, and every
// other user must name the same node for that place.
bool GraphForm::match(std::span<const NodeRef> roots, std::vector<NodeRef>& values,
                      std::vector<uint64_t>& bits) const {
  if (roots.size() != roots_.size()) return false;
  std::vector<const Node*> nodes(places_.size());
  bits.resize(literals_.size());
  const auto put = [&](int place, const Node* n) {
    if (place < 0) {
      const auto i = static_cast<size_t>(-1 - place);
      if (!is_literal(*n) || n->form != literal_forms_[i]) return false;
      bits[i] = std::get_if<ScalarBits>(&n->arg)->bits;
      return true;
    }
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
    if (n.realised() != p.value) return false;
    if (p.value) {
      if (present_form(n) != p.form) return false;
      continue;
    }
    if (n.form != p.form || n.op != p.op || n.src.size() != p.source_count) return false;
    if (n.op == Op::Shrink && n.ints() != *cut++) return false;
    const int* place = sources_.data() + p.first_source;
    for (const NodeRef& s : n.src) {
      if (!put(*place++, s)) return false;
    }
  }
  std::vector<const Node*> distinct;
  distinct.reserve(values_.size());
  for (int place : values_) distinct.push_back(nodes[static_cast<size_t>(place)]);
  values.assign(distinct.begin(), distinct.end());
  std::sort(distinct.begin(), distinct.end());
  return std::adjacent_find(distinct.begin(), distinct.end()) == distinct.end();
}

}  // namespace lazuli
