// Columns that are too tall to be walked twice from a cache.
#include <algorithm>
#include <utility>

#include "ir/choose_rules.h"
#include "ir/choose_tiles.h"
#include "ir/index.h"

namespace lazuli {
namespace {

// What a stage takes from the rows of large matrices, all of their columns side by side, to reduce
// them, or for the results of the group.
struct Walk {
  int64_t bytes = 0;      // 0: it is no such
  int64_t of_matrix = 0;  // of one of them, where other axes are kept, too
};

Walk walk_of(const ScheduleWriter& w, const StageGroup& g, const Stage& s) {
  const NodeRef& v = g.grid.back();
  const bool sums = reduces(s);
  const bool plain = (sums || &s == g.root()) && keeps_in_all(s, v.get()) && !s.is_triangular() &&
                     s.bound.empty() && lies_along(s, v) && extent(v) >= kWideRow &&
                     !contraction_of(s, {}).is;
  if (!plain) return {};
  const auto is_row = [&](const NodeRef& a) {
    return sums ? !keeps_in_all(s, a.get()) : !contains(g.grid, a.get());
  };
  int64_t rows = 1, points = 1;
  for (const NodeRef& a : s.axes) {
    points *= extent(a);
    rows *= is_row(a) ? extent(a) : 1;
  }
  if (rows < kLongSum || (sums && rows > kTallest)) return {};
  const auto walks_rows = [&](const NodeRef& n) {
    return std::any_of(s.axes.begin(), s.axes.end(),
                       [&](const NodeRef& a) { return is_row(a) && uses(n, a.get()); });
  };
  Walk walk;
  bool in_order = true;
  for (const Value& value : s.values) {
    visit(value.expr, [&](const NodeRef& n) {
      if ((n->op != Op::Load && n->op != Op::Read) || !walks_rows(n)) return;
      const Strides along = strides_along(w.kernel(), n, v.get());
      in_order &= n->op == Op::Load && along.unit == 1 && along.other == 0;
      walk.bytes += points * size_of(n->dtype);
      walk.of_matrix += rows * extent(v) * size_of(n->dtype);
    });
  }
  return in_order ? walk : Walk();
}

// Whether caches hold too little of what is walked for walking it in blocks: they do hold one of
// several small matrices; but results of those that the last cache holds are better written in
// whole rows.
bool is_far(const Target& target, const Walk& walk, bool sums) {
  if (walk.bytes <= 2 * target.l2) return false;
  return walk.of_matrix > target.l2 || (!sums && walk.bytes <= target.l3);
}

// Whether s reads what one of the members computes.
bool follows(const Reads& reads, const Stage* s, const std::vector<Stage*>& members) {
  return std::any_of(members.begin(), members.end(),
                     [&](const Stage* m) { return reads.reads(s, m); });
}

// Bytes of what members of a group make for stages behind them.
int64_t bytes_across(const Reads& reads, const std::vector<Stage*>& before,
                     const std::vector<Stage*>& behind) {
  int64_t bytes = 0;
  for (const Stage* s : before) {
    for (const Value& v : s->values) {
      const bool read = std::any_of(behind.begin(), behind.end(),
                                    [&](const Stage* r) { return reads.reads(r, v.id); });
      int64_t size = read ? size_of(v.expr->dtype) : 0;
      for (const NodeRef& d : v.dims) size *= extent(d);
      bytes += size;
    }
  }
  return bytes;
}

}  // namespace

std::vector<StageGroup> cut_at_tall_columns(const ScheduleWriter& w,
                                            std::vector<StageGroup> groups) {
  constexpr int64_t kSmallPart =
      16;  // what lies between two groups is one of so many of the matrix
  if (w.lanes() == 1 || !w.kernel().sizes.empty()) return groups;
  const Reads reads(w.kernel());
  std::vector<StageGroup> cut;
  for (StageGroup& g : groups) {
    std::vector<Stage*> before;
    for (size_t i = 0; i < g.members.size() && !g.grid.empty(); i++) {
      const std::vector<Stage*> behind(g.members.begin() + static_cast<ptrdiff_t>(i),
                                       g.members.end());
      const Walk walk = walk_of(w, g, *behind[0]);
      if (is_far(w.target(), walk, reduces(*behind[0])) && follows(reads, behind[0], before) &&
          kSmallPart * bytes_across(reads, before, behind) <= walk.bytes) {
        StageGroup first = g;
        first.members = std::exchange(before, {});
        cut.push_back(std::move(first));
      }
      before.push_back(behind[0]);
    }
    if (!before.empty()) g.members = std::move(before);
    cut.push_back(std::move(g));
  }
  return cut;
}

}  // namespace lazuli
