#include "ir/places.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ir/index.h"

namespace lazuli {
namespace {

// The one axis that v is reduced over; null: there are more.
NodeRef reduced_axis(const Stage& s, const Value& v) {
  NodeRef axis;
  for (size_t a = 0; a < s.axes.size(); a++) {
    if (s.keeps(v, static_cast<int>(a))) continue;
    if (axis) return {};
    axis = s.axes[a];
  }
  return axis;
}

struct Comparison {
  NodeRef element, extreme;
};

// How `found` says that an element is the extreme, which is a Read: eq(element, extreme), or the
// element is a NaN; the latter for floats, and only for them. Where both may be, both ways.
std::vector<Comparison> comparisons_of(const NodeRef& found) {
  std::vector<Comparison> list;
  const auto add = [&](const NodeRef& equal, const Node* nan) {
    if (equal->op != Op::Eq || is_float(equal->src[0]->dtype) != (nan != nullptr)) return;
    for (const size_t side : {0, 1}) {
      const NodeRef &element = equal->src[1 - side], &extreme = equal->src[side];
      if (extreme->op == Op::Read && (!nan || nan == element.get()))
        list.push_back({element, extreme});
    }
  };
  if (found->op != Op::Or) {
    add(found, nullptr);
    return list;
  }
  for (const size_t side : {0, 1}) {
    const NodeRef& n = found->src[1 - side];
    if (n->op == Op::Ne && n->src[0].get() == n->src[1].get())
      add(found->src[side], n->src[0].get());
  }
  return list;
}

struct Extreme {
  Stage* stage = nullptr;
  int value = -1;
  NodeRef row;  // the axis that it is reduced over
  std::vector<NodeRef> dims;
};

// The extreme whose place `search`, a value of stage s, is.
std::optional<Extreme> extreme_of(const Kernel& kernel, const Stage& s, const Value& search) {
  const NodeRef axis = reduced_axis(s, search);
  if (search.reduce != Op::ReduceMin || search.place_of >= 0 || !axis ||
      search.expr->op != Op::Where) {
    return {};
  }
  // What stands where nothing is found is no smaller than any place.
  const Sources& where = search.expr->src;
  if (where[1].get() != axis.get() || where[2]->lo < axis->hi) return {};
  for (const Comparison& c : comparisons_of(where[0])) {
    const auto [owner, extreme] = kernel.find_value(static_cast<int>(c.extreme->integer()));
    const NodeRef row = reduced_axis(*owner, *extreme);
    const bool fits = is_extreme(*extreme) && extreme->expr->dtype != DType::Bool && row &&
                      !place_of(*owner, *extreme) && row->hi == axis->hi &&
                      extreme->dims.size() == search.dims.size();
    if (!fits) continue;
    Substitution ours{{row, axis}};
    bool same = true;
    for (size_t d = 0; d < search.dims.size(); d++) {
      const NodeRef &theirs = extreme->dims[d], &at = search.dims[d];
      same &= c.extreme->src[d].get() == at.get() && theirs->hi == at->hi;
      ours[theirs] = at;
    }
    if (same && substitute(extreme->expr, ours).get() == c.element.get())
      return Extreme{owner, extreme->id, row, extreme->dims};
  }
  return {};
}

}  // namespace

void find_places(Kernel& kernel) {
  for (size_t i = 0; i < kernel.stages.size(); i++) {
    Stage& s = *kernel.stages[i];
    for (size_t j = 0; j < s.values.size(); j++) {
      const std::optional<Extreme> found = extreme_of(kernel, s, s.values[j]);
      if (!found || found->stage == &s) continue;
      Value place = std::move(s.values[j]);
      s.values.erase(s.values.begin() + static_cast<std::ptrdiff_t>(j--));
      place.place_of = found->value;
      place.expr = found->row;
      place.dims = found->dims;
      found->stage->values.push_back(std::move(place));
    }
    if (s.values.empty())
      kernel.stages.erase(kernel.stages.begin() + static_cast<std::ptrdiff_t>(i--));
  }
}

}  // namespace lazuli
