#include "ir/places.h"

#include <algorithm>
#include <optional>

#include "ir/index.h"

namespace lazuli {
namespace {

// Whether the axes of `a`, which are `ours` of b, end at the same sizes.
bool same_bounds(const Stage& a, const Stage& b, const Substitution& ours) {
  return std::all_of(a.axes.begin(), a.axes.end(), [&](const NodeRef& axis) {
    const auto place = [](const Stage& s, const NodeRef& x) {
      return static_cast<int>(std::find_if(s.axes.begin(), s.axes.end(),
                                           [&](const NodeRef& y) { return y.get() == x.get(); }) -
                              s.axes.begin());
    };
    const auto x = a.bound.find(place(a, axis)), y = b.bound.find(place(b, ours.at(axis)));
    if (x == a.bound.end() || y == b.bound.end()) return x == a.bound.end() && y == b.bound.end();
    return substitute(x->second, ours).get() == y->second.get();
  });
}

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

// eq(element, extreme), or is the element a NaN; the latter for floats, and only for them.
std::optional<Comparison> comparison_of(const NodeRef& found) {
  const auto equality = [](const NodeRef& n) -> std::optional<Comparison> {
    if (n->op != Op::Eq) return {};
    for (const size_t side : {0, 1}) {
      if (n->src[side]->op == Op::Read) return Comparison{n->src[1 - side], n->src[side]};
    }
    return {};
  };
  if (found->op != Op::Or) {
    const std::optional<Comparison> c = equality(found);
    return c && !is_float(c->element->dtype) ? c : std::nullopt;
  }
  for (const size_t side : {0, 1}) {
    const NodeRef& nan = found->src[1 - side];
    const std::optional<Comparison> c = equality(found->src[side]);
    const bool tells = nan->op == Op::Ne && nan->src[0].get() == nan->src[1].get();
    if (c && tells && nan->src[0].get() == c->element.get()) return c;
  }
  return {};
}

struct Extreme {
  Stage* stage = nullptr;
  const Value* value = nullptr;
  NodeRef row;  // the axis that it is reduced over
};

// The extreme whose place `search`, all that stage s computes, is.
std::optional<Extreme> extreme_of(const Kernel& kernel, const Stage& s, const Value& search) {
  const NodeRef axis = reduced_axis(s, search);
  const bool least_index = search.reduce == Op::ReduceMin && axis && search.expr->op == Op::Where &&
                           search.expr->src[1].get() == axis.get();
  if (!least_index || s.is_triangular()) return {};
  const std::optional<Comparison> c = comparison_of(search.expr->src[0]);
  if (!c) return {};
  const auto [owner, extreme] = kernel.find_value(static_cast<int>(c->extreme->integer()));
  const NodeRef row = reduced_axis(*owner, *extreme);
  const bool fits = is_extreme(*extreme) && extreme->expr->dtype != DType::Bool && row &&
                    !owner->is_triangular() && !place_of(*owner, *extreme) && row->hi == axis->hi &&
                    extreme->dims.size() == search.dims.size();
  if (!fits) return {};
  Substitution ours{{row, axis}};
  for (size_t d = 0; d < search.dims.size(); d++) {
    const NodeRef &theirs = extreme->dims[d], &at = search.dims[d];
    if (c->extreme->src[d].get() != at.get() || theirs->hi != at->hi) return {};
    ours[theirs] = at;
  }
  const bool same_rows =
      substitute(extreme->expr, ours).get() == c->element.get() && same_bounds(*owner, s, ours);
  return same_rows ? std::optional(Extreme{owner, extreme, row}) : std::nullopt;
}

}  // namespace

void find_places(Kernel& kernel) {
  for (size_t i = 0; i < kernel.stages.size(); i++) {
    const Stage& s = *kernel.stages[i];
    if (s.values.size() != 1) continue;
    const std::optional<Extreme> found = extreme_of(kernel, s, s.values[0]);
    if (!found) continue;
    Value place = s.values[0];
    place.place_of = found->value->id;
    place.expr = found->row;
    place.dims = found->value->dims;
    found->stage->values.push_back(std::move(place));
    kernel.stages.erase(kernel.stages.begin() + static_cast<std::ptrdiff_t>(i--));
  }
}

}  // namespace lazuli
