// Rules for kernels without contractions: pointwise, column sums, row programs.
#include <algorithm>

#include "ir/choose_rules.h"
#include "ir/choose_tiles.h"
#include "ir/index.h"
#include "ir/stage_rows.h"

namespace lazuli {
namespace {

// Outputs too large for the last cache that nobody reads back bypass it.
std::vector<std::string> streamed_values(const ScheduleWriter& w, const Stage& s) {
  std::vector<std::string> names;
  for (const Value& v : s.values) {
    if (v.slot < 0 || v.reduces() || v.dims.empty()) continue;
    const KernelArgument& a = w.kernel().arguments[static_cast<size_t>(v.slot)];
    const bool large = a.size * size_of(a.dtype) > w.target().l3;
    const int64_t row = extent(v.dims.back());
    const bool fits = row % w.lanes() == 0 || can_stage_row(w.target(), a.dtype, row);
    if (large && fits && readers_of(w.kernel(), s).empty()) names.push_back(v.name);
  }
  return names;
}

void stream_outputs(ScheduleWriter& w, Stage* s) {
  for (const std::string& n : streamed_values(w, *s)) w.step("stream {}", n);
}

}  // namespace

void fuse_siblings(ScheduleWriter& w, StageGroup& g,
                   const std::function<bool(const Stage& a, const Stage& b)>& apart) {
  Reads reads(w.kernel());
  for (size_t i = 0; i < g.members.size(); i++) {
    for (size_t j = i + 1; j < g.members.size(); j++) {
      Stage *a = g.members[i], *b = g.members[j];
      if (!std::equal(a->axes.begin(), a->axes.end(), b->axes.begin(), b->axes.end(), NodeEqual()))
        continue;
      if (a->limit != b->limit || a->begin != b->begin || (apart && apart(*a, *b))) continue;
      // b must follow from a at the same point, and from nothing that needs all of a.
      bool legal = reads_in_place(reads, *b, *a);
      for (const Value& v : a->values) legal &= !v.reduces() || !reads.reads(b, v.id);
      // Stages between that read a come later if b does not need them.
      bool inside = false, late = true;
      bool early = std::none_of(b->values.begin(), b->values.end(),
                                [](const Value& v) { return v.slot >= 0; });
      for (const auto& c : w.kernel().stages) {
        if (c.get() == a || c.get() == b) {
          inside = c.get() == a;
        } else if (inside) {
          early &= !reads.reads(b, c.get());
          late &= !reads.reads(c.get(), a);
        }
      }
      if (!legal || !(early || late) || !reads.reads(b, a)) continue;
      w.step("fuse {} {}", a->name, b->name);
      reads = Reads(w.kernel());
      if (!early) g.members[j] = a;
      g.members.erase(g.members.begin() + static_cast<ptrdiff_t>(early ? j : i));
      i = static_cast<size_t>(-1);
      break;
    }
  }
}

void forward_values(ScheduleWriter& w, const StageGroup& g) {
  std::vector<std::string> names;
  for (const Stage* s : g.members) {
    for (const Value& v : s->values) {
      if (v.slot >= 0 || v.reduces()) continue;
      bool outside = false, inside = false;
      for (const auto& reader : w.kernel().stages) {
        const std::vector<int> ids = values_read(*reader);
        const bool reads = std::find(ids.begin(), ids.end(), v.id) != ids.end();
        (reader.get() == s ? inside : outside) |= reads;
      }
      if (inside && !outside) names.push_back(v.name);
    }
  }
  for (const std::string& n : names) w.step("scope {} reg", n);
}

namespace {

constexpr int64_t kCollide = 4096;  // bytes

// A pointwise stage with a transposed operand.
bool schedule_transpose(ScheduleWriter& w, Stage* s) {
  if (s->axes.size() < 2) return false;
  NodeRef lane;
  for (const Value& v : s->values) {
    if (v.dims.empty()) return false;
    lane = v.dims.back();
  }
  const Squares q = lift_squares(w, s, lane, s->axes);
  if (!q.stage) return false;
  const std::string i = w.loop(*s, q.along), j = w.loop(*s, lane);
  const std::string outside = w.loops(*s, ScheduleWriter::axes_without(*s, {q.along, lane}));
  const int64_t lanes = w.lanes();
  // Rows of whole cache lines alone bypass the cache: a tile writes parts of many.
  const int64_t row = extent(lane) * size_of(s->values[0].expr->dtype);
  const std::vector<std::string> streamed =
      row % kCacheLine == 0 ? streamed_values(w, *s) : std::vector<std::string>();
  std::string order;
  if (streamed.empty() || row % kCollide != 0) {
    constexpr int64_t kSquares = 32;  // that a parallel iteration walks along a row of the source
    w.step("split {0} {1} {1}.o {1}.i {2}; split {0} {1}.o {1}.b {1}.o {3}", s->name, i, lanes,
           kSquares);
    // Of memory, two squares beside each other take whole pairs of lines.
    const int64_t beside = q.stage->values[0].expr->op == Op::Load ? 2 : 1;
    w.step("split {0} {1} {1}.o {1}.u {2}", s->name, j, beside * lanes);
    order = fmt::format("{}.b {}.o", i, j);
  } else {
    // Rows that lie in the same sets and banks are written in stretches: from as many rows of the
    // source as the machine follows.
    constexpr int64_t kRows = 128, kShared = 256;
    w.step("split {0} {1} {1}.p {1} {2}; split {0} {1} {1}.b {1}.o {3}", s->name, i, kShared,
           2 * lanes);
    w.step("split {0} {1}.o {1}.o {1}.i {2}", s->name, i, lanes);
    w.step("split {0} {1} {1}.b {1}.o {2}; split {0} {1}.o {1}.o {1}.u {3}", s->name, j, kRows,
           2 * lanes);
    order = fmt::format("{0}.p {1}.b {0}.b {1}.o", i, j);
  }
  w.step("split {0} {1}.u {1}.u {1}.v {2}", s->name, j, lanes);
  w.step("order {0}{1} {2} {3}.o {3}.i {4}.u {4}.v; unroll {0} {3}.i {4}.u; vector {0} {4}.v",
         s->name, outside, order, i, j);
  place_squares(w, q, *s, i + ".o");
  for (const std::string& n : streamed) w.step("stream {}", n);
  return true;
}

}  // namespace

bool schedule_pointwise(ScheduleWriter& w, StageGroup& g) {
  if (g.members.size() > 1) fuse_siblings(w, g);
  Stage* s = g.root();
  if (g.members.size() > 1 || reduces(*s)) return false;
  forward_values(w, g);
  flatten_axes(w, s);
  if (schedule_transpose(w, s)) {
    w.reason(fmt::format("{}: an operand is transposed in squares of registers", s->name));
    w.parallel(s);
    return true;
  }
  w.vectorize(s, {}, s->axes);
  w.parallel(s);
  stream_outputs(w, s);
  return true;
}

void find_image(ScheduleWriter& w, StageGroup& g) {
  const Reads reads(w.kernel());
  for (const Stage* m : g.members) {
    if (contraction_of(*m, {}).is) return;
  }
  for (const Stage* m : g.members) {
    if (!reduces(*m)) continue;
    for (const Reads::Read& r : reads.of(m)) {
      const auto [p, v] = w.kernel().find_value(r.value);
      if (g.has(p) || !is_private_copy(w.kernel(), *p)) continue;
      std::vector<bool> fixed(v->dims.size(), false);
      NodeRef at;
      for (const NodeRef& a : g.root()->axes) {
        size_t place = v->dims.size(), count = 0;
        for (size_t d = 0; d < v->dims.size(); d++) {
          if (r.index[d].get() == a.get()) place = d;
          count += uses(r.index[d], a);
        }
        const bool in_grid = std::any_of(g.grid.begin(), g.grid.end(),
                                         [&](const NodeRef& x) { return x.get() == a.get(); });
        if (!in_grid || count != 1 || place == v->dims.size()) break;
        fixed[place] = true;
        at = a;
      }
      int64_t bytes = size_of(v->expr->dtype);
      for (size_t d = 0; d < v->dims.size(); d++) bytes *= fixed[d] ? 1 : extent(v->dims[d]);
      if (!at || bytes > w.target().l2 / 2 ||
          !w.choose_whether(fmt::format("{} inside {}", p->name, g.root()->name), true))
        continue;
      g.image = p;
      g.image_at = at;
      return;
    }
  }
}

bool loads_no_less(const Value& v) {
  bool less = accumulator(v.expr->dtype) != v.expr->dtype;
  visit(v.expr, [&](const NodeRef& n) {
    less |= n->op == Op::Load && size_of(n->dtype) < size_of(v.expr->dtype);
  });
  return !less;
}

namespace {

// Computes the image of a group in the loop that find_image found.
void place_image(ScheduleWriter& w, const StageGroup& g) {
  if (!g.image) return;
  w.vectorize(g.image, {}, g.image->axes);
  w.step("at {} {} {}", g.image->name, g.root()->name, w.loop(*g.root(), g.image_at));
}

// The sums of a group that consists of them and what follows from each; null if it is no such.
Stage* sums_with_epilogue(ScheduleWriter& w, const StageGroup& g) {
  if (g.members.size() != 2) return nullptr;
  Stage* s = g.members[g.members[0] == g.root()];
  const bool fits = s->values.size() == 1 && reduces(*s) && is_epilogue(w.kernel(), *g.root(), *s);
  return fits ? s : nullptr;
}

}  // namespace

// Sums over outer axes: vectors along a kept axis. Where the sum is long, a block of columns is
// walked row by row in the order of memory, some rows a visit, with the partial sums in the output
// itself, or in scratch where more follows from them, which stays in L1.
bool schedule_columns(ScheduleWriter& w, StageGroup& g) {
  constexpr int64_t kLargest = 1024, kRows = 8, kBlocks = 16, kFewestApart = 16, kFewRows = 4;
  struct Visit {
    int64_t rows, vectors;
  };
  constexpr Visit kAlone{1, 8}, kFewTogether{4, 4}, kTogether{kRows, 2};
  Stage* const root = g.root();
  Stage* const s = g.members.size() == 1 ? root : sums_with_epilogue(w, g);
  if (!s || !reduces(*s) || w.lanes() == 1) return false;
  const auto lanes = static_cast<int>(w.lanes());
  const NodeRef v = s == root ? vector_axis_of_sums(w.kernel(), *s, lanes)
                              : vector_axis(w.kernel(), *s, s->axes, lanes);
  if (!v || !keeps_in_all(*s, v) || extent(v) < w.lanes()) return false;
  std::vector<NodeRef> kept, reduced;
  for (const NodeRef& a : s->axes) {
    if (a.get() != v.get()) (keeps_in_all(*s, a) ? kept : reduced).push_back(a);
  }
  // A value that keeps an axis which another reduces is no column sum.
  for (const NodeRef& r : reduced) {
    for (const Value& value : s->values) {
      if (s->keeps(value, axis_index(*s, r))) return false;
    }
  }
  int64_t length = 1;
  for (const NodeRef& r : reduced) length *= extent(r);
  const bool memory = length >= kLongSum && length <= kTallest && extent(v) >= kWideRow &&
                      extent(reduced.back()) >= kRows && lies_along(*s, v);
  const int64_t bytes = length * extent(v) * size_of(s->values[0].expr->dtype);
  if (s != root) {
    // Registers hold the sums of what does not come from afar; memory would round some.
    const DType dtype = s->values[0].expr->dtype;
    if (!memory || bytes <= w.target().l2 || accumulator(dtype) != dtype) return false;
  }
  if (s == root && !g.image && schedule_turned_sum(w, s, v)) return true;
  // Terms that come lane by lane are read in no order: registers hold the sums, unless all that is
  // summed comes from afar.
  const bool scattered = std::any_of(s->values.begin(), s->values.end(), [&](const Value& value) {
    bool found = false;
    visit(value.expr, [&](const NodeRef& n) {
      const bool summed =
          std::any_of(reduced.begin(), reduced.end(), [&](const NodeRef& a) { return uses(n, a); });
      found |= n->op == Op::Load && summed && strides_along(w.kernel(), n, v.get()).other > 0;
    });
    return found;
  });
  int64_t others = 1;
  for (const NodeRef& k : kept) others *= extent(k);
  if (!memory || (scattered && others * bytes <= w.target().l2)) {
    w.vectorize(s, {}, s->axes, contains(selecting_axes(*s), v) ? NodeRef() : v);
    place_image(w, g);
    w.parallel(s);
    return true;
  }
  const std::string n = w.loop(*s, v), r = w.loop(*s, reduced.back());
  // Blocks enough to share out, of whole cache lines; longer ones where rows stream from memory, or
  // from the last cache, and whole rows where other axes are shared out.
  const int64_t fewer = s != root                   ? 4
                        : bytes > w.target().l3 / 2 ? 4
                        : bytes > w.target().l3 / 4 ? 2
                                                    : 1;
  const int64_t unit = 4 * w.lanes(), wanted = extent(v) / (kBlocks / fewer);
  // Of whole rows, as much as leaves room in L1 for the rows beside the sums. Or all of it, one row
  // after the other as they lie, where that is what the machine reads ahead best: a few together
  // only if the sums come from L2. Sums that are loaded and stored for each row must be no more
  // bytes than it, and without the rest of a block, unless memory takes longer.
  const int64_t parts = (extent(v) + 2 * kLargest - 1) / (2 * kLargest),
                part = ((extent(v) + parts - 1) / parts + unit - 1) / unit * unit,
                row_bytes = extent(v) * size_of(s->values[0].expr->dtype);
  const bool may_be_whole = others >= kEnoughChunks && !w.target().far_l3 &&
                            s->values.size() == 1 && loads_no_less(s->values[0]);
  const bool from_memory = others * bytes > w.target().l3;
  const bool alone = may_be_whole && row_bytes < w.target().l1 / 2 &&
                     (from_memory || extent(v) % (kAlone.vectors * w.lanes()) == 0);
  const bool whole = alone || (may_be_whole && from_memory && row_bytes <= w.target().l2 / 4);
  // One for each thread, if blocks are then still as many lines as are read ahead.
  const int64_t each = extent(v) * others / w.target().threads / unit * unit;
  const int64_t few = std::clamp(wanted / unit * unit, 2 * unit, kLargest);
  const int64_t shared = std::min(few, std::max(each, unit));
  // A far L3 brings rows sooner that are read as they lie, in parts as wide as threads can share
  // evenly: 1024 of 1024 take 0.77 of the time on Xeons of the fifth generation, a few of
  // 3000 1.07.
  const auto widest = [&] {
    int64_t blocks = parts;
    while (blocks * others % w.target().threads != 0) blocks++;
    return ((extent(v) + blocks - 1) / blocks + unit - 1) / unit * unit;
  };
  const int64_t model = whole                     ? extent(v)
                        : others >= kEnoughChunks ? part
                        : w.target().far_l3 && extent(v) <= kFewRows * length
                            ? std::max(widest(), shared)
                            : shared;
  const int64_t block = w.choose_number("columns at a time of " + s->name, model,
                                        {std::max(model / 2 / unit, int64_t{1}) * unit, 2 * model});
  // Of those that lie far apart, several come faster than one, without prefetches: a part of the
  // rows each, as many as are taken at once. Others would be added in another order, so there is
  // nothing to try.
  const NodeRef& last = reduced.back();
  const bool apart = whole && !w.target().l2_prefetch && !is_bounded(*s, last.get()) &&
                     extent(last) >= kFewestApart;
  const Visit best = alone && !apart ? kAlone : whole ? kFewTogether : kTogether;
  const int64_t visit = apart ? best.rows
                              : w.choose_number("rows a visit of " + s->name, best.rows,
                                                {kRows / 2, kRows, 2 * kRows});
  std::vector<NodeRef> outer_reduced(reduced.begin(), reduced.end() - 1);
  const std::string around = w.loops(*s, kept), rows = w.loops(*s, outer_reduced);
  w.step(
      "split {0} {1} {1}.b {1} {2}; split {0} {1} {1}.o {1}.u {3}; split {0} {1}.u {1}.u {1}.v {4}",
      s->name, n, block, best.vectors * w.lanes(), w.lanes());
  if (apart) {
    w.step("split {0} {1} {1}.i {1}.o {2}", s->name, r, extent(last) / visit);
  } else {
    w.step("split {0} {1} {1}.o {1}.i {2}", s->name, r, visit);
  }
  w.step(
      "order {0}{1} {2}.b{3} {4}.o {2}.o {4}.i {2}.u {2}.v; unroll {0} {4}.i {2}.u; vector {0} "
      "{2}.v",
      s->name, around, n, rows, r);
  if (s != root) {
    const std::string column = w.loop(*root, v);
    w.step("split {0} {1} {1}.b {1} {2}", root->name, column, block);
    const ScheduleWriter::Split own = w.split_vectors(*root, v, 2);
    w.step("order {0}{1} {2}.b {3}; unroll {0} {4}; vector {0} {5}", root->name,
           w.loops(*root, kept), column, own.all(), own.unrolled, own.lane);
    w.step("at {} {} {}.b", s->name, root->name, column);
    w.reason(
        fmt::format("{}: a large operand is read once, in order, {} rows a visit", s->name, visit));
  }
  place_image(w, g);
  w.parallel(root);
  return true;
}

namespace {

constexpr int64_t kBlockVectors = 4;  // of rows that lie along the vectors

// The loop of the root inside which all other members are computed, and the axes outside it.
struct RowPlan {
  std::vector<NodeRef> grid;  // loops around
  NodeRef block;        // the last of them, if it is walked in blocks because vectors run along it
  bool narrow = false;  // they do since rows are so short
  bool all_along = false;  // those of every member run along `block`, to which operands are turned
};

// Rows of few elements would leave most lanes empty: vectors run across them, along the last axis
// that has many. What the grid has behind that one becomes a part of the row.
void walk_across(const ScheduleWriter& w, const StageGroup& g, RowPlan& plan) {
  constexpr int64_t kMany = 256;
  std::vector<NodeRef> grid = plan.grid;
  while (!grid.empty() && extent(grid.back()) < kMany) grid.pop_back();
  plan.narrow =
      !grid.empty() && std::all_of(g.members.begin(), g.members.end(), [&](const Stage* s) {
        int64_t row = 1;
        for (const NodeRef& a : ScheduleWriter::axes_without(*s, grid)) row *= extent(a);
        return contains(s->axes, grid.back().get()) && 2 * row <= w.lanes();
      });
  if (!plan.narrow) return;
  plan.block = grid.back();
  plan.grid = std::move(grid);
}

// Vectors of long rows run inside a row. Where the members' accesses are contiguous along the
// grid's last axis instead, that axis is walked in blocks, and vectors run inside a block.
RowPlan plan_rows(ScheduleWriter& w, const StageGroup& g) {
  RowPlan plan;
  // What an index chooses between has parts in common: all of it is computed in one iteration.
  for (const NodeRef& a : g.grid) {
    const bool selects = std::any_of(g.members.begin(), g.members.end(), [&](const Stage* s) {
      return contains(selecting_axes(*s), a);
    });
    if (!selects) plan.grid.push_back(a);
  }
  if (plan.grid.empty()) plan.grid = g.grid;
  if (w.lanes() == 1) return plan;
  int64_t inside = 0, along = 0, longest = 0;  // the last: of the axes inside a row, for vectors
  for (const Stage* s : g.members) {
    const std::vector<NodeRef> row = ScheduleWriter::axes_without(*s, plan.grid);
    const NodeRef in_row = vector_axis(w.kernel(), *s, row, static_cast<int>(w.lanes()));
    if (in_row) longest = std::max(longest, extent(in_row));
    const NodeRef v = vector_axis(w.kernel(), *s, s->axes, static_cast<int>(w.lanes()));
    if (!v) continue;
    int64_t work = expression_cost(*s) + 1;
    for (const NodeRef& a : s->axes) work *= extent(a);
    const bool in_grid = v.get() == plan.grid.back().get();
    (in_grid ? along : inside) += work;
  }
  // A single vector is worth it when most of it is used, or more than inside a row.
  const int64_t last = extent(plan.grid.back());
  if (along > inside && 2 * last > w.lanes()) plan.block = plan.grid.back();
  if (!plan.block) walk_across(w, g, plan);
  const bool has_rows = !ScheduleWriter::axes_without(*g.root(), plan.grid).empty();
  if (!plan.block && !has_rows && along > inside && last > longest) plan.block = plan.grid.back();
  return plan;
}

// Vectors of a block along which each of several arrays is written: as many as keep the members'
// values in L1, for each array continues somewhere else.
int64_t long_block(const ScheduleWriter& w, const StageGroup& g, const RowPlan& plan) {
  int64_t bytes = 0;
  for (const Stage* s : g.members) {
    for (const Value& v : s->values) {
      int64_t size = v.slot < 0 ? size_of(v.expr->dtype) : 0;
      for (const NodeRef& d : v.dims) size *= contains(plan.grid, d) ? 1 : extent(d);
      bytes += size;
    }
  }
  int64_t vectors = 32;
  while (vectors > 4 && vectors * w.lanes() * bytes > w.target().l1 * 3 / 4) vectors /= 2;
  return vectors;
}

// A member that keeps nothing but grid axes is a scalar of its row; it stays in registers if all
// who read it do so at the row.
bool is_row_scalar(const Value& v, const std::vector<NodeRef>& grid) {
  return std::all_of(v.dims.begin(), v.dims.end(), [&](const NodeRef& d) {
    return std::any_of(grid.begin(), grid.end(),
                       [&](const NodeRef& a) { return a.get() == d.get(); });
  });
}

// Where one row of all scratch values is more than half of L1, a value that the root's output is
// computed from at the same point is kept in that output.
bool keep_in_output(ScheduleWriter& w, Stage* root, Stage* s, const Value& v) {
  if (s->values.size() > 2 || v.reduces()) return false;
  for (const Value& out : root->values) {
    if (out.slot < 0 || out.reduces() || out.expr->dtype != v.expr->dtype ||
        out.dims.size() != v.dims.size())
      continue;
    bool same =
        std::equal(out.dims.begin(), out.dims.end(), v.dims.begin(), v.dims.end(), NodeEqual());
    const Reads reads(w.kernel());
    for (const auto& reader : w.kernel().stages) {
      for (const Reads::Read& r : reads.of(reader.get())) {
        if (r.value != v.id) continue;
        for (size_t d = 0; same && d < r.index.size(); d++)
          same = r.index[d].get() == out.dims[d].get();
      }
    }
    bool taken = false;
    for (const auto& other : w.kernel().stages) {
      for (const Value& o : other->values) taken |= o.alias == out.id;
    }
    if (!same || taken || !readers_of(w.kernel(), *root).empty()) continue;
    w.step("inplace {} {}", v.name, out.name);
    return true;
  }
  return false;
}

// Where one member sums rows, and the others are scalars of a row, several rows are walked at a
// time: how many, and how far apart.
ScheduleWriter::RowsTogether rows_together(const ScheduleWriter& w, const StageGroup& g,
                                           const RowPlan& plan) {
  if (plan.block || w.lanes() == 1) return {};
  ScheduleWriter::RowsTogether together;
  int64_t walks = 0;
  for (const Stage* s : g.members) {
    const std::vector<NodeRef> local = ScheduleWriter::axes_without(*s, plan.grid);
    if (local.empty()) continue;
    const bool sums = std::none_of(local.begin(), local.end(),
                                   [&](const NodeRef& a) { return keeps_in_all(*s, a); });
    // Vectors along the rows themselves would leave none to take together.
    std::vector<NodeRef> walked = local;
    walked.push_back(plan.grid.back());
    const NodeRef v = vector_axis(w.kernel(), *s, walked, static_cast<int>(w.lanes()));
    if (!sums || contains(selecting_axes(*s), plan.grid.back()) || !v ||
        v.get() == plan.grid.back().get())
      return {};
    together = w.rows_together(*s, plan.grid.back());
    if (together.rows == 1) return {};
    walks++;
  }
  return walks == 1 ? together : ScheduleWriter::RowsTogether();
}

void schedule_member(ScheduleWriter& w, Stage* s, const RowPlan& plan) {
  const std::vector<NodeRef> outer(plan.grid.begin(), plan.grid.end() - (plan.block ? 1 : 0));
  flatten_axes(w, s, plan.grid, w.lanes() / 2);
  w.vectorize(s, outer, ScheduleWriter::axes_without(*s, outer),
              plan.narrow || plan.all_along ? plan.block : NodeRef(), plan.block);
}

// A row that vectors fill along another axis than its last is stored with that axis last, where no
// reader's vectors run along the last one. The results of a kernel keep their order.
void store_along_vectors(ScheduleWriter& w, const StageGroup& g, const RowPlan& plan) {
  const std::vector<NodeRef> around(plan.grid.begin(), plan.grid.end() - (plan.block ? 1 : 0));
  const auto lane_of = [&](const Stage& s) {
    const bool block = plan.block && &s == g.root();
    return block ? plan.block : w.lane_axis(s, ScheduleWriter::axes_without(s, around));
  };
  for (Stage* s : g.members) {
    const NodeRef lane = lane_of(*s);
    if (!lane || extent(lane) < w.lanes() || !keeps_in_all(*s, lane)) continue;
    const bool last = std::all_of(s->values.begin(), s->values.end(), [&](const Value& v) {
      return !v.dims.empty() && v.dims.back().get() == lane.get();
    });
    const bool local = std::all_of(s->values.begin(), s->values.end(), [&](const Value& v) {
      return v.slot < 0 && contains(v.dims, lane);
    });
    if (last || !local) continue;
    const Reads reads(w.kernel());  // in the order of dimensions that it has by now
    bool across = false;
    for (const Stage* reader : readers_of(w.kernel(), *s)) {
      const NodeRef other = g.has(reader) ? lane_of(*reader) : NodeRef();
      for (const Reads::Read& r : reads.of(reader)) {
        const bool of_s = std::any_of(s->values.begin(), s->values.end(),
                                      [&](const Value& v) { return v.id == r.value; });
        across |= of_s && (!other || uses(r.index.back(), other));
      }
    }
    if (!across) lay_along(w, {s}, lane);
  }
}

}  // namespace

bool schedule_rows(ScheduleWriter& w, StageGroup& g) {
  fuse_siblings(w, g);
  forward_values(w, g);
  Stage* root = g.root();
  if (g.members.size() == 1) {
    NodeRef v;
    if (reduces(*root) && w.lanes() > 1) {
      v = vector_axis_of_sums(w.kernel(), *root, static_cast<int>(w.lanes()));
      if (v && !g.image && schedule_turned_sum(w, root, v)) return true;
    }
    const bool selects = v && contains(selecting_axes(*root), v);
    w.vectorize(root, {}, root->axes, selects ? NodeRef() : v);
    place_image(w, g);
    w.parallel(root);
    return true;
  }
  if (g.members.size() == 2) {
    const TakenStage t = taken_by_vectors(w, g, g.members[0]);
    if (t.reader && schedule_taken(w, t, {})) {
      w.parallel(root);
      return true;
    }
  }
  RowPlan plan = plan_rows(w, g);
  // Where vectors along the grid would store across what they read, those inside the rows turn it.
  std::vector<AcrossLoad> turned;
  std::vector<NodeRef> lanes;
  const bool stores = std::all_of(g.members.begin(), g.members.end(), [&](const Stage* m) {
    return !plan.block || stores_along(*m, plan.block);
  });
  if (!plan.narrow && (!plan.block || !stores)) {
    turned = loads_across_rows(w, g, plan.grid, lanes);
  }
  const bool inside = !turned.empty();
  if (inside) {
    plan.block = {};
    for (const NodeRef& a : lanes) lay_along(w, g.members, a);
  }
  if (plan.block && !plan.narrow) {
    turned = loads_along_rows(w, g, plan.grid, kBlockVectors * w.lanes());
    plan.all_along = !turned.empty();
    if (plan.all_along) lay_along(w, g.members, plan.block);
  }
  // Rows of nothing: every member has grid axes only. Vectors then run along the last grid axis.
  std::string at;
  ScheduleWriter::RowsTogether some;
  if (turned.empty()) some = rows_together(w, g, plan);
  const bool together = some.rows > 1, apart = some.apart > 1;
  if (turned.empty() && !plan.narrow && !together) store_along_vectors(w, g, plan);
  if (together) {
    plan.block = plan.grid.back();
    at = w.loop(*root, plan.block) + ".o";
    for (Stage* s : g.members) {
      const bool scalar = ScheduleWriter::axes_without(*s, plan.grid).empty();
      if (!scalar) {
        schedule_member(w, s, plan);
        continue;
      }
      const std::string n = w.loop(*s, plan.block);
      const std::string around = w.loops(*s, {plan.grid.begin(), plan.grid.end() - 1});
      w.step("split {0} {1} {1}.o {1} {2}", s->name, n, some.rows * some.apart);
      if (apart) {
        w.step("split {0} {1} {1} {1}.v {2}; order {0}{3} {1}.o {1} {1}.v; vector {0} {1}.v",
               s->name, n, w.lanes(), around);
      } else {
        w.step("order {0}{1} {2}.o {2}; unroll {0} {2}", s->name, around, n);
      }
    }
  } else if (plan.block) {
    const std::string n = w.loop(*root, plan.block);
    std::vector<NodeRef> outer(plan.grid.begin(), plan.grid.end() - 1);
    const std::string around = w.loops(*root, outer);
    std::vector<NodeRef> rest = ScheduleWriter::axes_without(*root, plan.grid), chosen;
    for (const NodeRef& a : selecting_axes(*root)) {
      if (std::erase_if(rest, [&](const NodeRef& r) { return r.get() == a.get(); }) > 0)
        chosen.push_back(a);
    }
    const std::string copies = w.loops(*root, chosen);
    // Elements of narrow rows are collected one by one: a long text for each vector.
    const int64_t vectors = plan.narrow      ? 2
                            : copies.empty() ? kBlockVectors
                                             : long_block(w, g, plan);
    const int64_t block = vectors * w.lanes();
    w.step("split {0} {1} {1}.b {1} {2}", root->name, n, block);
    w.step("split {0} {1} {1}.u {1}.v {2}", root->name, n, w.lanes());
    w.step("order {0}{1} {2}.b{3} {2}.u{4} {2}.v; vector {0} {2}.v; unroll {0} {5}", root->name,
           around, n, w.loops(*root, rest), copies, copies.empty() ? n + ".u" : copies);
    at = n + ".b";
  } else {
    at = w.loop(*root, plan.grid.back());
    w.vectorize(root, plan.grid, ScheduleWriter::axes_without(*root, plan.grid));
  }
  bool in_output = false;
  for (Stage* s : g.members) {
    if (s == root) continue;
    if (!together) schedule_member(w, s, plan);
    w.step("at {} {} {}", s->name, root->name, at);
    int64_t row = 1;
    for (const NodeRef& a : ScheduleWriter::axes_without(*s, plan.grid)) row *= extent(a);
    for (size_t i = 0; i < s->values.size(); i++) {
      const Value& v = s->values[i];
      if (v.slot >= 0 || v.scope == Scope::Shared || v.scope == Scope::Register) continue;
      if ((!plan.block || together) && is_row_scalar(v, plan.grid)) {
        if (!apart) w.step("scope {} reg", v.name);
      } else if (!plan.block && row * size_of(v.expr->dtype) > w.target().l1 / 2) {
        in_output |= keep_in_output(w, root, s, v);
      }
    }
  }
  int64_t copied = kBlockVectors * w.lanes();
  if (inside) {
    copied = rows_of_copies(w, plan.grid, turned);
    w.step("split {0} {1} {1}.b {1} {2}", root->name, at, copied);
    at += ".b";
  }
  if (!turned.empty()) {
    copy_turned(w, g, turned, at);
    w.reason(fmt::format("{}: operands are turned in squares of registers, {} rows at a time",
                         root->name, copied));
  }
  place_image(w, g);
  w.parallel(root);
  if (!in_output) stream_outputs(w, root);
  return true;
}

}  // namespace lazuli
