// Neighbouring axes that are walked as one.
#include <algorithm>

#include "ir/choose_rules.h"
#include "ir/index.h"

namespace lazuli {
namespace {

// Whether a and b, in this order, act as one axis in every access of `expr`: coefficients in the
// ratio of b's extent, or neighbouring coordinates of a read.
bool act_as_one(const NodeRef& expr, const NodeRef& a, const NodeRef& b) {
  bool one = true;
  visit(expr, [&](const NodeRef& n) {
    const auto touches = [&](const NodeRef& x) { return uses(x, a) || uses(x, b); };
    if (n->op == Op::Lin) {
      const LinearForm f = linear_form(n);
      one &= f.coefficient(a) == f.coefficient(b) * extent(b);
    } else if (n->op == Op::Read) {
      for (size_t d = 0; d < n->src.size(); d++) {
        if (!touches(n->src[d]) || n->src[d]->op == Op::Lin) continue;  // a Lin is seen by itself
        const bool outer =
            n->src[d].get() == a.get() && d + 1 < n->src.size() && n->src[d + 1].get() == b.get();
        const bool inner = n->src[d].get() == b.get() && d > 0 && n->src[d - 1].get() == a.get();
        one &= outer || inner;
      }
    } else {
      for (const NodeRef& s : n->src) one &= s.get() != a.get() && s.get() != b.get();
    }
  });
  return one;
}

// Whether a and b are neighbours among the dimensions of v.
bool are_neighbours(const Value& v, const NodeRef& a, const NodeRef& b) {
  for (size_t d = 0; d + 1 < v.dims.size(); d++) {
    if (v.dims[d].get() == a.get() && v.dims[d + 1].get() == b.get()) return true;
  }
  return false;
}

// Whether every coordinate that is read of a value with dimensions a and b, or that holds one of
// them, is a where the dimension is a, and b where it is b; or, if others `may` read it anywhere,
// has nothing of them.
bool coordinates_agree(const Kernel& kernel, const NodeRef& a, const NodeRef& b, bool may) {
  bool agree = true;
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      visit(v.expr, [&](const NodeRef& n) {
        if (n->op != Op::Read) return;
        const Value& source = *kernel.find_value(static_cast<int>(n->integer())).second;
        for (size_t d = 0; d < n->src.size(); d++) {
          const NodeRef& dim = source.dims[d];
          const bool one = dim.get() == a.get() || dim.get() == b.get();
          const bool neither = !uses(n->src[d], a) && !uses(n->src[d], b);
          agree &= one ? n->src[d].get() == dim.get() || (may && neither) : neither;
        }
      });
    }
  }
  return agree;
}

}  // namespace

bool can_merge(const Kernel& kernel, const NodeRef& a, const NodeRef& b) {
  int stages = 0;
  bool sums = true;
  for (const auto& s : kernel.stages) {
    const bool has_a = contains(s->axes, a), has_b = contains(s->axes, b);
    if (!has_a && !has_b) continue;
    if (!has_a || !has_b || s->is_triangular() || !s->bound.empty()) return false;
    stages++;
    sums &= contraction_of(*s, {}).is;
    for (const Value& v : s->values) {
      // Sums other than contractions, which look for such axes themselves, keep the order of their
      // terms.
      const bool summed = !contains(v.dims, a) && !contains(v.dims, b);
      if (summed ? !contraction_of(*s, {}).is : !are_neighbours(v, a, b)) return false;
      if (!act_as_one(v.expr, a, b)) return false;
    }
  }
  // Rows of a contraction that no other stage has are one wherever others read them; of other
  // values, neighbours in two coordinates tell what slides over what.
  return coordinates_agree(kernel, a, b, stages == 1 && sums);
}

bool can_flatten(const Stage& s, const NodeRef& a, const NodeRef& b) {
  return std::all_of(s.values.begin(), s.values.end(), [&](const Value& v) {
    return act_as_one(v.expr, a, b) && are_neighbours(v, a, b);
  });
}

void flatten_axes(ScheduleWriter& w, Stage* s, const std::vector<NodeRef>& apart, int64_t most) {
  if (s->is_triangular()) return;
  for (size_t i = s->axes.size(); i-- > 1;) {
    if (i >= s->axes.size()) continue;
    const NodeRef a = s->axes[i - 1], b = s->axes[i];
    const bool may = extent(b) <= most && !contains(apart, a) && !contains(apart, b);
    if (may && can_flatten(*s, a, b))
      w.step("flatten {} {} {} {}", s->name, w.loop(*s, a), w.loop(*s, b), w.loop(*s, b) + "f");
  }
}

void merge_axes(ScheduleWriter& w) {
  const Kernel& kernel = w.kernel();
  for (size_t k = 0; k < kernel.stages.size(); k++) {
    const Stage& s = *kernel.stages[k];
    for (size_t i = s.axes.size(); i-- > 1;) {
      if (i >= s.axes.size()) continue;
      const NodeRef a = s.axes[i - 1], b = s.axes[i];
      if (!can_merge(kernel, a, b)) continue;
      w.step("merge {} {} {} {}", s.name, w.loop(s, a), w.loop(s, b), w.loop(s, b) + "f");
    }
  }
}

}  // namespace lazuli
