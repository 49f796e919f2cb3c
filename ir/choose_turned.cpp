// Operands that lie across the vectors of those who read them: loaded in squares along their own
// rows, and turned in registers.
#include <algorithm>

#include "ir/choose_rules.h"
#include "ir/index.h"

namespace lazuli {

namespace {

// Whether it loads without a mask, or reads what all threads see.
bool is_whole(const ScheduleWriter& w, const Node& load) {
  if (load.op == Op::Load) return load.src.size() == 1;
  return w.kernel().find_value(static_cast<int>(load.integer())).second->scope == Scope::Shared;
}

// The load of `s`, or what it reads, whose lanes would be scattered while one of `axes` walks it in
// order: a transpose. -1: none.
int find_transposed(const ScheduleWriter& w, const Stage& s, const NodeRef& lane,
                    const std::vector<NodeRef>& axes, NodeRef& along) {
  const std::vector<NodeRef> loads = operands_of(s);
  for (size_t i = 0; i < loads.size(); i++) {
    const Strides st = strides_along(w.kernel(), loads[i], lane);
    if (st.other == 0 || !is_whole(w, *loads[i])) continue;
    for (const NodeRef& a : axes) {
      const Strides other = strides_along(w.kernel(), loads[i], a);
      if (a.get() == lane.get() || other.unit == 0 || extent(a) < w.lanes()) continue;
      const bool linear =
          std::any_of(loads[i]->src.begin(), loads[i]->src.end(),
                      [&](const NodeRef& x) { return linear_form(x).coefficient(lane) != 0; });
      if (!linear) continue;
      along = a;
      return static_cast<int>(i);
    }
  }
  return -1;
}

// The axes of `s` that a load uses: those of a stage that it is lifted into are copies of them, in
// the same order.
std::vector<NodeRef> lifted_axes(const Stage& s, const NodeRef& load) {
  std::vector<NodeRef> used;
  for (const NodeRef& a : s.axes) {
    if (uses(load, a)) used.push_back(a);
  }
  return used;
}

}  // namespace

Squares lift_squares(ScheduleWriter& w, Stage* s, const NodeRef& lane,
                     const std::vector<NodeRef>& axes) {
  Squares q;
  if (w.lanes() < 4 || extent(lane) < w.lanes()) return q;
  const int n = find_transposed(w, *s, lane, axes, q.along);
  if (n < 0) return q;
  const auto others =
      std::count_if(w.kernel().stages.begin(), w.kernel().stages.end(),
                    [&](const auto& other) { return other->name.rfind(s->name + ".t", 0) == 0; });
  const std::string t =
      fmt::format("{}.t{}", s->name, others > 0 ? std::to_string(others + 1) : "");
  const std::vector<NodeRef> axes_used = lifted_axes(*s, operands_of(*s)[static_cast<size_t>(n)]);
  w.step("lift {} {} {}", s->name, n, t);
  q.stage = w.kernel().find_stage(t);
  for (size_t i = 0; i < axes_used.size(); i++) {
    const std::string own = w.loop(*q.stage, q.stage->axes[i]);
    if (axes_used[i].get() == q.along.get()) {
      q.own_along = own;
    } else if (axes_used[i].get() == lane.get()) {
      q.own_lane = own;
    } else {
      q.around += " " + own;
    }
  }
  return q;
}

void place_squares(ScheduleWriter& w, const Squares& q, const Stage& s, const std::string& loop) {
  w.step(
      "split {0} {1} {1}.u {1}.v {2}; order {0}{3} {4} {1}.u {1}.v; unroll {0} {4} {1}.u; vector "
      "{0} {1}.v",
      q.stage->name, q.own_along, w.lanes(), q.around, q.own_lane);
  w.step("at {} {} {}; scope {} reg", q.stage->name, s.name, loop, q.stage->values[0].name);
}

bool lies_along(const Stage& s, const NodeRef& axis) {
  return std::all_of(s.values.begin(), s.values.end(), [&](const Value& v) {
    return !v.dims.empty() && v.dims.back().get() == axis.get();
  });
}

bool stores_along(const Stage& s, const NodeRef& axis) {
  return std::all_of(s.values.begin(), s.values.end(), [&](const Value& v) {
    return v.slot < 0 || !contains(v.dims, axis) || v.dims.back().get() == axis.get();
  });
}

bool schedule_turned_sum(ScheduleWriter& w, Stage* s, const NodeRef& v) {
  constexpr int64_t kMostColumns = 128, kBlocks = 16;
  std::vector<NodeRef> kept, reduced;
  for (const NodeRef& a : s->axes) {
    const bool keeps = keeps_in_all(*s, a);
    const bool sums = std::none_of(s->values.begin(), s->values.end(), [&](const Value& value) {
      return s->keeps(value, axis_index(*s, a));
    });
    if (!keeps && !sums) return false;
    if (a.get() != v.get()) (keeps ? kept : reduced).push_back(a);
  }
  if (!selecting_axes(*s).empty()) return false;
  const bool v_kept = keeps_in_all(*s, v);
  // Sums that keep both would be a square of registers for each.
  std::vector<NodeRef> among = reduced;
  if (!v_kept) among.insert(among.end(), kept.begin(), kept.end());
  std::vector<Squares> squares;
  for (std::vector<NodeRef> along = among;; along = {squares[0].along}) {
    const Squares q = lift_squares(w, s, v, along);
    if (!q.stage) break;
    squares.push_back(q);
  }
  if (squares.empty()) return false;
  const NodeRef along = squares[0].along;
  int64_t length = 1;
  for (const NodeRef& a : reduced) length *= extent(a);
  // Memory adds its terms one after the other, and is walked in order.
  const bool in_registers = v_kept && (length > kTallest || !lies_along(*s, v));
  const auto is_along = [&](const NodeRef& a) { return a.get() == along.get(); };
  const bool along_kept = std::erase_if(kept, is_along) > 0;
  std::erase_if(reduced, is_along);
  const std::string n = w.loop(*s, v), r = w.loop(*s, along);
  const std::string rows = " " + r + ".o", columns = " " + n + ".o";
  w.step("split {0} {1} {1}.o {1}.i {2}; split {0} {3} {3}.o {3}.v {2}", s->name, r, w.lanes(), n);
  std::string order = w.loops(*s, kept), inmost = columns;
  if (in_registers) {
    order += columns + w.loops(*s, reduced) + rows;
    inmost = rows;
  } else if (v_kept) {
    // Partial sums of a block of columns stay in L1.
    const int64_t unit = 2 * w.lanes(),
                  model = std::clamp(extent(v) / kBlocks / unit * unit, unit, kMostColumns),
                  block =
                      w.choose_number("columns at a time of " + s->name, model, {unit, 2 * model});
    w.step("split {0} {1}.o {1}.b {1}.o {2}", s->name, n, block / w.lanes());
    order += " " + n + ".b" + w.loops(*s, reduced) + rows + columns;
  } else if (along_kept) {
    order += rows + w.loops(*s, reduced) + columns;
  } else {
    order += w.loops(*s, reduced) + rows + columns;
  }
  w.step("order {0}{1} {2}.i {3}.v; unroll {0} {2}.i; vector {0} {3}.v", s->name, order, r, n);
  for (const Squares& q : squares) place_squares(w, q, *s, inmost.substr(1));
  w.reason(fmt::format("{}: operands are turned in squares of registers", s->name));
  w.parallel(s);
  return true;
}

namespace {

// Adds a load that lanes along `lane` would take one by one; false if `along` does not walk it in
// order.
bool note_across(const ScheduleWriter& w, std::vector<AcrossLoad>& list, Stage* reader,
                 const NodeRef& load, const NodeRef& lane, const NodeRef& along) {
  const bool linear = load->src.size() == 1 && linear_form(load->src[0]).coefficient(lane) != 0;
  if (!linear || strides_along(w.kernel(), load, along.get()).unit == 0 ||
      extent(along) < w.lanes())
    return false;
  const auto known = std::find_if(list.begin(), list.end(),
                                  [&](const AcrossLoad& x) { return x.load.get() == load.get(); });
  if (known == list.end()) {
    list.push_back({load, lane, along, {reader}});
    return true;
  }
  if (known->lane.get() != lane.get() || known->along.get() != along.get()) return false;
  known->readers.push_back(reader);
  return true;
}

// Bytes of a row of all loads.
int64_t across_row_bytes(const std::vector<AcrossLoad>& list, const std::vector<NodeRef>& grid) {
  int64_t bytes = 0;
  for (const AcrossLoad& x : list) {
    int64_t size = size_of(x.load->dtype);
    for (const NodeRef& a : ScheduleWriter::axes_without(*x.readers[0], grid)) {
      if (uses(x.load, a)) size *= extent(a);
    }
    bytes += size;
  }
  return bytes;
}

bool may_turn(const ScheduleWriter& w, const NodeRef& rows) {
  return w.lanes() >= 4 && extent(rows) >= w.lanes() && w.kernel().sizes.empty();
}

}  // namespace

std::vector<AcrossLoad> loads_across_rows(const ScheduleWriter& w, const StageGroup& g,
                                          const std::vector<NodeRef>& grid,
                                          std::vector<NodeRef>& lanes) {
  lanes.clear();
  if (!may_turn(w, grid.back())) return {};
  std::vector<AcrossLoad> list;
  for (Stage* m : g.members) {
    const std::vector<NodeRef> row = ScheduleWriter::axes_without(*m, grid);
    if (row.empty()) continue;
    const NodeRef v = vector_axis(w.kernel(), *m, row, static_cast<int>(w.lanes()));
    if (!v || extent(v) < w.lanes()) return {};
    if (!stores_along(*m, v)) return {};
    lanes.push_back(v);
    for (const NodeRef& load : loads_of(*m)) {
      if (strides_along(w.kernel(), load, v.get()).other > 0 &&
          !note_across(w, list, m, load, v, grid.back()))
        return {};
    }
  }
  if (across_row_bytes(list, grid) * w.lanes() > w.target().l2 / 2) return {};
  return list;
}

std::vector<AcrossLoad> loads_along_rows(const ScheduleWriter& w, const StageGroup& g,
                                         const std::vector<NodeRef>& grid, int64_t rows) {
  const NodeRef lane = grid.back();
  if (!may_turn(w, lane)) return {};
  std::vector<AcrossLoad> list;
  for (Stage* m : g.members) {
    if (!is_axis_of(*m, lane.get()) || !stores_along(*m, lane)) return {};
    const std::vector<NodeRef> row = ScheduleWriter::axes_without(*m, grid);
    for (const NodeRef& load : loads_of(*m)) {
      if (strides_along(w.kernel(), load, lane.get()).other > 0 &&
          std::none_of(row.begin(), row.end(),
                       [&](const NodeRef& a) { return note_across(w, list, m, load, lane, a); }))
        return {};
    }
  }
  if (across_row_bytes(list, grid) * rows > w.target().l2 / 2) return {};
  return list;
}

void lay_along(ScheduleWriter& w, const std::vector<Stage*>& stages, const NodeRef& lane) {
  std::vector<std::string> steps;
  for (const Stage* m : stages) {
    for (const Value& v : m->values) {
      if (v.slot >= 0 || !contains(v.dims, lane) || v.dims.back().get() == lane.get()) continue;
      std::string order, last;
      for (size_t d = 0; d < v.dims.size(); d++) {
        (v.dims[d].get() == lane.get() ? last : order) += fmt::format(" {}", d);
      }
      steps.push_back(fmt::format("dims {}{}{}", v.name, order, last));
    }
  }
  for (const std::string& step : steps) w.step("{}", step);
}

int64_t rows_of_copies(const ScheduleWriter& w, const std::vector<NodeRef>& grid,
                       const std::vector<AcrossLoad>& list) {
  constexpr int64_t kBlocks = 16;
  int64_t rows = 16 * w.lanes(), outside = 1;
  for (const NodeRef& a : grid) outside *= extent(a);
  const int64_t bytes = across_row_bytes(list, grid);
  const auto fits = [&] { return rows * bytes <= w.target().l2 / 4 && outside / rows >= kBlocks; };
  while (rows > w.lanes() && !fits()) rows /= 2;
  return rows;
}

void copy_turned(ScheduleWriter& w, const StageGroup& g, const std::vector<AcrossLoad>& list,
                 const std::string& loop) {
  Stage* const root = g.root();
  int count = 0;
  for (const AcrossLoad& x : list) {
    const std::vector<NodeRef> loads = loads_of(*x.readers[0]);
    const auto place = std::find_if(loads.begin(), loads.end(),
                                    [&](const NodeRef& l) { return l.get() == x.load.get(); });
    const std::string name = fmt::format("{}.rows{}", root->name, ++count);
    std::string others;
    for (size_t i = 1; i < x.readers.size(); i++) others += " " + x.readers[i]->name;
    const std::vector<NodeRef> axes = lifted_axes(*x.readers[0], x.load);
    w.step("lift {} {} {}{}", x.readers[0]->name, place - loads.begin(), name, others);
    Stage* const t = w.kernel().find_stage(name);
    const auto copy_of = [&](const NodeRef& axis) {
      const auto at = std::find_if(axes.begin(), axes.end(),
                                   [&](const NodeRef& a) { return a.get() == axis.get(); });
      return t->axes[static_cast<size_t>(at - axes.begin())];
    };
    const NodeRef lane = copy_of(x.lane), row = copy_of(x.along);
    lay_along(w, {t}, lane);
    const Squares q = lift_squares(w, t, lane, {row});
    const std::string i = w.loop(*t, row), j = w.loop(*t, lane),
                      rest = w.loops(*t, ScheduleWriter::axes_without(*t, {row, lane}));
    w.step("split {0} {1} {1}.o {1}.i {2}; split {0} {3} {3}.o {3}.v {2}", name, i, w.lanes(), j);
    w.step("order {0}{1} {2}.o {3}.o {2}.i {3}.v; unroll {0} {2}.i; vector {0} {3}.v", name, rest,
           i, j);
    place_squares(w, q, *t, j + ".o");
    w.step("at {} {} {}", name, root->name, loop);
  }
}

}  // namespace lazuli
