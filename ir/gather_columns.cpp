// Products of which one factor's columns are several short rows: once they are packed beside each
// other, as "im2col" does for a convolution, they fill vectors.
#include <algorithm>

#include "ir/choose_rules.h"
#include "ir/choose_tiles.h"
#include "ir/index.h"

namespace lazuli {
namespace {

// The part of all lanes that `columns` of them fill.
double filled(int64_t columns, int64_t lanes) {
  return static_cast<double>(columns) / static_cast<double>((columns + lanes - 1) / lanes * lanes);
}

// The axis next to the columns in the result, if it is b's alone; or null.
NodeRef axis_outside(const Value& v, const Contraction& c) {
  for (size_t d = 1; d < v.dims.size(); d++) {
    const NodeRef& outside = v.dims[d - 1];
    const bool of_b = uses(factor(v, c.b), outside) && !uses(factor(v, c.a), outside);
    if (v.dims[d].get() == c.v.get() && of_b) return outside;
  }
  return {};
}

// Cycles for each column of a term, predicted, as rows and as one.
bool gains(const ScheduleWriter& w, const Stage& s, const Contraction& c, const NodeRef& outside) {
  constexpr double kMargin = 1.03;
  constexpr double kPacked = 2, kApart = 0.5;  // to pack what would lie well, and in another order
  constexpr double kShortDots = 0.6;           // of the peak, with so few vectors for each sum
  constexpr int64_t kShort = 4;
  const Value& v = s.values[0];
  const bool dots = has_dots(w, s, c);
  if (dots && extent(c.reduced.back()) >= kShort * w.lanes()) return false;
  double uses_of_b = 1;
  for (const NodeRef& d : v.dims) {
    const bool around = !uses(factor(v, c.b), d);
    uses_of_b *= around ? static_cast<double>(extent(d)) : 1;
  }
  const bool apart = strides_along(w.kernel(), factor(v, c.b), c.v).other > 0;
  const double products = uses_of_b / static_cast<double>(2 * w.lanes());
  const double as_rows = products / (dots ? kShortDots : filled(extent(c.v), w.lanes())),
               as_one = products / filled(extent(outside) * extent(c.v), w.lanes());
  return (as_one + (apart ? kApart : kPacked)) * kMargin < as_rows;
}

// Packs the rows of one sum as one; false if that gains nothing, or cannot be.
bool gather(ScheduleWriter& w, size_t stage) {
  const Stage& s = *w.kernel().stages[stage];
  const Contraction c = contraction_of(s, {});
  if (!c.is || c.op != Op::Mul) return false;
  const NodeRef outside = axis_outside(s.values[0], c);
  if (!outside || !gains(w, s, c, outside)) return false;
  // As one axis in all but the factor that is packed.
  Kernel others = clone(w.kernel());
  Value& sum = others.stages[stage]->values[0];
  sum.expr = factor(sum, c.a);
  if (!can_merge(others, outside, c.v)) return false;
  const std::string j = w.loop(s, outside), k = w.loop(s, c.v);
  if (!w.choose_whether(fmt::format("{} and {} of {} as one", j, k, s.name), true)) return false;
  w.step("merge {0} {1} {2} {2}f", s.name, j, k);
  w.reason(fmt::format("{}: {} rows of {} columns are packed as one", s.name, extent(outside),
                       extent(c.v)));
  return true;
}

}  // namespace

void gather_columns(ScheduleWriter& w) {
  if (w.lanes() == 1) return;
  for (size_t i = 0; i < w.kernel().stages.size(); i++) {
    while (gather(w, i)) continue;
  }
}

}  // namespace lazuli
