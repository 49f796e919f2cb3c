// Rules for sums of products whose lanes are better laid along a summed axis, and for the storage
// order of their operands.
#include <algorithm>
#include <cmath>

#include "ir/choose_rules.h"
#include "ir/choose_tiles.h"
#include "ir/index.h"

namespace lazuli {
namespace {

// Are neighbours along `axis` neighbours in all that the factor reads?
bool is_along(const ScheduleWriter& w, const NodeRef& factor, const NodeRef& axis) {
  const Strides st = strides_along(w.kernel(), factor, axis);
  return st.unit > 0 && st.other == 0;
}

// Axes that are kept and used by one factor only.
std::vector<NodeRef> axes_of_one(const Value& v, const NodeRef& factor, const NodeRef& other) {
  std::vector<NodeRef> r;
  for (const NodeRef& d : v.dims) {
    if (uses(factor, d) && !uses(other, d)) r.push_back(d);
  }
  return r;
}

// Of these axes the one whose tile wastes least: an axis of 2 to 4 is unrolled whole, else the
// longest.
NodeRef tile_axis(const std::vector<NodeRef>& axes) {
  NodeRef best;
  for (const NodeRef& a : axes) {
    const bool small = extent(a) >= 2 && extent(a) <= 4;
    const bool best_small = best && extent(best) >= 2 && extent(best) <= 4;
    if (!best || (small && !best_small) || (small == best_small && extent(a) > extent(best)))
      best = a;
  }
  return best;
}

// The largest multiple of `unit` that divides n and is at most `most`; 0 if there is none.
int64_t largest_divisor(int64_t n, int64_t most, int64_t unit) {
  for (int64_t d = std::min(n, most) / unit * unit; d > 0; d -= unit) {
    if (n % d == 0) return d;
  }
  return 0;
}

// Where the operands of a tile of `mr` rows are too large for L2, the outermost summed axis goes
// outside of blocks of rows, and of what the other operand has for them: those then stay in L2, and
// their partial sums in the output. Returns the loops outside, with a space before each.
std::string split_for_l2(ScheduleWriter& w, Stage* s, const NodeRef& rows, int64_t mr,
                         std::vector<NodeRef> others, std::vector<NodeRef>* summed) {
  constexpr int64_t kBlocks = 8;       // to share out
  constexpr int64_t kFewVectors = 64;  // of a sum, next to which it costs much to end one
  if (summed->size() < 2 || others.empty()) return "";
  const NodeRef other =
      *std::max_element(others.begin(), others.end(),
                        [](const NodeRef& a, const NodeRef& b) { return extent(a) < extent(b); });
  const NodeRef outermost = summed->front();
  int64_t elements = 1;
  for (const NodeRef& a : contraction_of(*s, {}).reduced) elements *= extent(a);
  elements /= extent(outermost);
  const int64_t bytes = elements * size_of(s->values[0].expr->dtype);
  const bool large = (extent(rows) + extent(other)) * bytes * extent(outermost) > w.target().l2;
  if (!large || elements < kFewVectors * w.lanes()) return "";
  for (int64_t most = w.target().l2 / 2 / bytes; most > 0; most /= 2) {
    const int64_t r = largest_divisor(extent(rows), most, mr),
                  c = largest_divisor(extent(other), most, 1);
    if (r == 0) return "";
    if (extent(rows) / r * (extent(other) / c) < kBlocks) continue;
    const std::string i = w.loop(*s, rows), j = w.loop(*s, other);
    w.step("split {0} {1} {1}.b {1} {2}; split {0} {3} {3}.b {3} {4}", s->name, i, r, j, c);
    summed->erase(summed->begin());
    return fmt::format(" {}.b {}.b{}", i, j, w.loops(*s, {outermost}));
  }
  return "";
}

}  // namespace

bool is_summed_along_lanes(const ScheduleWriter& w, const Stage& s, const Contraction& c) {
  if (!c.is || c.y || c.op != Op::Mul || c.reduced.size() != 1 || extent(c.v) >= w.lanes())
    return false;
  const NodeRef& lane = c.reduced[0];
  return extent(lane) >= 2 * w.lanes() && is_along(w, factor(s.values[0], 0), lane) &&
         is_along(w, factor(s.values[0], 1), lane);
}

bool has_dots(const ScheduleWriter& w, const Stage& s, const Contraction& c) {
  if (extent(c.v) >= w.lanes()) return false;
  const NodeRef& lane = c.reduced.back();
  // A part of a vector will do if it is a much larger one than along the kept axis.
  return extent(lane) >= std::min(w.lanes(), 2 * extent(c.v)) &&
         is_along(w, factor(s.values[0], 0), lane) && is_along(w, factor(s.values[0], 1), lane);
}

namespace {

// The rows of the two factors that a tile of dot products takes at a time.
struct DotTile {
  NodeRef rows, columns;
  int64_t mr = 1, mc = 1;
};

std::optional<DotTile> dot_tile(const ScheduleWriter& w, const Value& v) {
  const NodeRef &f0 = factor(v, 0), &f1 = factor(v, 1);
  DotTile t{tile_axis(axes_of_one(v, f0, f1)), tile_axis(axes_of_one(v, f1, f0))};
  if (!t.rows || !t.columns) return {};
  // The compiler loads ahead where it has many registers, and spills where it has just enough.
  const int registers = w.target().vector_registers;
  const int64_t room = registers - (registers > 16 ? 6 : 4);
  t.mc = std::min<int64_t>(extent(t.columns), 3);
  t.mr = std::min<int64_t>(extent(t.rows), room / t.mc);
  return t;
}

// A sum's vectors of terms are written out where they are few: a loop so short costs more to leave
// than to run.
bool has_few_vectors(const ScheduleWriter& w, const NodeRef& lane) {
  constexpr int64_t kFewVectors = 8;
  return extent(lane) % w.lanes() == 0 && extent(lane) <= kFewVectors * w.lanes();
}

}  // namespace

double dot_cycles(const ScheduleWriter& w, const Stage& s, const Contraction& c) {
  // What it takes to end a loop over vectors, the last of which is a part of one as a rule.
  constexpr double kEnd = 12, kWrittenOut = 2;
  const double across = std::log2(static_cast<double>(w.lanes()));  // to add up the lanes of a sum
  const Value& v = s.values[0];
  const std::optional<DotTile> t = dot_tile(w, v);
  if (!t) return 0;
  const auto parts = [](int64_t n, int64_t size) { return (n + size - 1) / size; };
  const NodeRef& lane = c.reduced.back();
  int64_t walks = depth_of(c) / extent(lane), results = 1;
  for (const NodeRef& d : v.dims) {
    results *= extent(d);
    walks *= d.get() == t->rows.get()      ? parts(extent(d), t->mr)
             : d.get() == t->columns.get() ? parts(extent(d), t->mc)
                                           : extent(d);
  }
  const auto vectors = static_cast<double>(parts(extent(lane), w.lanes()));
  const auto step = static_cast<double>(std::max(t->mr * t->mc, t->mr + t->mc)) / 2;
  const double end = has_few_vectors(w, lane) ? kWrittenOut : kEnd;
  return static_cast<double>(walks) * (vectors * step + end) +
         static_cast<double>(results) * across;
}

// A contraction whose kept axes are too short for vectors, or scattered in both factors, while both
// are contiguous along a summed axis (the weight gradient of a convolution): a tile of dot
// products, with lanes along that axis. What is made of the sums follows each tile.
bool schedule_dot(ScheduleWriter& w, StageGroup& g) {
  Stage* s = g.members.front();
  if (w.lanes() == 1 || g.panel || s->is_triangular()) return false;
  const Contraction c = contraction_of(*s, {});
  if (!c.is || !has_dots(w, *s, c)) return false;
  const Value& v = s->values[0];
  const NodeRef lane = c.reduced.back();
  const NodeRef &f0 = factor(v, 0), &f1 = factor(v, 1);
  const std::optional<DotTile> tile = dot_tile(w, v);
  const std::optional<std::vector<Stage*>> epilogue = epilogue_of(w.kernel(), g);
  if (!tile || !epilogue || epilogue->size() + 1 != g.members.size()) return false;
  for (const Stage* e : *epilogue) {
    if (!is_epilogue(w.kernel(), *e, *s)) return false;
  }
  // The rule of contractions asks the same.
  if (with_full_vectors(w, *s, c, *epilogue).scattered) return false;
  const auto& [rows, columns, mr, mc] = *tile;
  std::vector<NodeRef> kept, both;
  for (const NodeRef& d : v.dims) {
    if (d.get() == rows.get() || d.get() == columns.get()) continue;
    (epilogue->empty() && uses(f0, d) && uses(f1, d) ? both : kept).push_back(d);
  }
  std::vector<NodeRef> summed(c.reduced.begin(), c.reduced.end() - 1);
  const std::string r = w.loop(*s, rows), q = w.loop(*s, columns), l = w.loop(*s, lane);
  std::vector<NodeRef> others = axes_of_one(v, f1, f0);
  std::erase_if(others, [&](const NodeRef& a) { return a.get() == columns.get(); });
  Stage* const root = merge_epilogue(w, *epilogue);
  const std::string blocks =
      root != nullptr ? "" : split_for_l2(w, s, rows, mr, std::move(others), &summed);
  const std::string around = w.loops(*s, kept), inside = w.loops(*s, summed);
  const std::string outside = w.loops(*s, both) + blocks;  // what both factors depend on
  w.step(
      "split {0} {1} {1}.o {1}.i {2}; split {0} {3} {3}.o {3}.i {4}; split {0} {5} {5}.o {5}.v {6}",
      s->name, r, mr, q, mc, l, w.lanes());
  if (root != nullptr) {
    const std::string i = w.loop(*root, rows), j = w.loop(*root, columns);
    w.step("split {0} {1} {1}.o {1}.i {2}; split {0} {3} {3}.o {3}.v {4}", root->name, i, mr, j,
           w.lanes());
    w.step("order {0} {1}.o{3} {1}.i {2}.o {2}.v; unroll {0} {1}.i; vector {0} {2}.v", root->name,
           i, j, w.loops(*root, kept));
    w.step("at {} {} {}", s->name, root->name,
           kept.empty() ? i + ".o" : w.loop(*root, kept.back()));
  }
  if (has_few_vectors(w, lane) && !summed.empty()) w.step("unroll {} {}.o", s->name, l);
  // The operand that few loops depend on stays in cache while the others turn.
  w.step(
      "order {0}{6} {1}.o {2}.o{3}{4} {5}.o {1}.i {2}.i {5}.v; unroll {0} {1}.i {2}.i; vector {0} "
      "{5}.v",
      s->name, r, q, around, inside, l, outside);
  w.parallel(root != nullptr ? root : s);
  w.reason(fmt::format("{}: dot products of {} by {} rows, lanes along the summed axis {}", s->name,
                       mr, mc, l));
  return true;
}

int64_t most_rows_of_dots(const Target& target) {
  return target.vector_registers > 16 ? 24 : 16;
}

// A contraction of few rows whose other factor lies along the summed axis: to pack that for vectors
// along its kept axis would take longer than to use it. A tile of dot products walks several rows
// of it; the next ones while those are in L2. What is made of the sums has vectors of its own, a
// block of columns at a time.
bool schedule_few_rows(ScheduleWriter& w, StageGroup& g) {
  constexpr int64_t kFewVectors = 16, kBlock = 64, kMostColumns = 4;
  // The more rows a tile has, the less often the other factor comes from L2.
  const int64_t few_rows = most_rows_of_dots(w.target()),
                most_rows = w.target().vector_registers > 16 ? 6 : 4;
  if (w.lanes() == 1 || g.panel || g.members.size() > 2) return false;
  Stage *s = g.members.front(), *root = g.root();
  const Contraction c = contraction_of(*s, {});
  const bool fits = c.is && c.op == Op::Mul && !c.y && !s->is_triangular() &&
                    c.reduced.size() == 1 && (root == s || is_epilogue(w.kernel(), *root, *s));
  if (!fits) return false;
  const Value& v = s->values[0];
  const NodeRef &lane = c.reduced[0], &a = factor(v, c.a), &b = factor(v, c.b);
  if (!is_along(w, a, lane) || !is_along(w, b, lane) ||
      strides_along(w.kernel(), b, c.v).other == 0 || extent(lane) < kFewVectors * w.lanes() ||
      extent(c.v) < 2 * kMostColumns)
    return false;
  std::vector<NodeRef> batch, images;  // kept axes of b, and of a alone
  int64_t rows = extent(c.r);
  for (const NodeRef& d : v.dims) {
    if (d.get() == c.v.get() || d.get() == c.r.get()) continue;
    (uses(b, d) ? batch : images).push_back(d);
    if (!uses(b, d)) rows *= extent(d);
  }
  // Each tile converts what it reads.
  bool converts = false;
  visit(b, [&](const NodeRef& n) { converts |= n->op == Op::Cast; });
  if (rows > (converts ? few_rows / 2 : few_rows)) return false;
  // Registers hold the sums, a vector of each row of b, and one of a, or a product too.
  const bool fma = w.target().has_fma && is_float(v.expr->dtype);
  const int64_t room = w.target().vector_registers - (fma ? 1 : 2);
  const int64_t tiles = (extent(c.r) + most_rows - 1) / most_rows;
  const int64_t mr = (extent(c.r) + tiles - 1) / tiles,
                mc = std::min(room / (mr + 1), kMostColumns);
  const std::string r = w.loop(*s, c.r), q = w.loop(*s, c.v), l = w.loop(*s, lane);
  w.step(
      "split {0} {1} {1}.o {1}.i {2}; split {0} {3} {3}.o {3}.i {4}; split {0} {5} {5}.o {5}.v {6}",
      s->name, r, mr, q, mc, l, w.lanes());
  w.step(
      "order {0}{1} {2}.o{3} {4}.o {5}.o {4}.i {2}.i {5}.v; unroll {0} {4}.i {2}.i; vector {0} "
      "{5}.v",
      s->name, w.loops(*s, batch), q, w.loops(*s, images), r, l);
  if (root != s) {
    const std::string columns = w.loop(*root, c.v);
    w.step("split {0} {1} {1}.b {1} {2}; split {0} {1} {1}.o {1}.v {3}", root->name, columns,
           kBlock, w.lanes());
    w.step("order {0}{1} {2}.b{3} {4} {2}.o {2}.v; vector {0} {2}.v", root->name,
           w.loops(*root, batch), columns, w.loops(*root, images), w.loop(*root, c.r));
    w.step("at {} {} {}.b", s->name, root->name, columns);
  }
  w.parallel(root);
  w.reason(fmt::format("{}: dot products of {} by {} rows, lanes along the summed axis {}", s->name,
                       mr, mc, l));
  return true;
}

namespace {

// The dimension of contraction `s` along which the only stage that reads it, point by point, stores
// what it makes of it; -1 if there is no such stage.
int stored_along(const Kernel& kernel, const Stage& s) {
  const Value& v = s.values[0];
  const std::vector<Stage*> readers = readers_of(kernel, s);
  if (v.slot >= 0 || readers.size() != 1 || !is_epilogue(kernel, *readers[0], s)) return -1;
  const NodeRef& last = readers[0]->values[0].dims.back();
  const Reads reads(kernel);
  for (const Reads::Read& r : reads.of(readers[0])) {
    if (r.value != v.id) continue;
    for (size_t d = 0; d < r.index.size(); d++) {
      if (r.index[d].get() == last.get()) return static_cast<int>(d);
    }
  }
  return -1;
}

// "dims V ..." that makes dimension `place` of v its last.
std::string dims_step(const Value& v, size_t place) {
  std::string order;
  for (size_t d = 0; d < v.dims.size(); d++) {
    if (d != place) order += fmt::format(" {}", d);
  }
  return fmt::format("dims {}{} {}", v.name, order, place);
}

}  // namespace

// A value of a phase of its own that a contraction reads along the wrong axis is stored with that
// axis last: cheaper than packing it again.
// A contraction gets the order of its epilogue, which has memory to go through: lanes then run
// along the rows of that.
void order_dims(ScheduleWriter& w) {
  std::vector<std::string> steps;
  std::vector<const Stage*> contractions;
  for (const auto& s : w.kernel().stages) {
    if (contraction_of(*s, {}).is) contractions.push_back(s.get());
  }
  // Of several, the blocks of rows they share decide.
  if (contractions.size() == 1) {
    const Value& v = contractions[0]->values[0];
    const int place = stored_along(w.kernel(), *contractions[0]);
    if (place >= 0 && place + 1 < static_cast<int>(v.dims.size())) {
      steps.push_back(dims_step(v, static_cast<size_t>(place)));
    }
  }
  for (const auto& s : w.kernel().stages) {
    const Contraction c = contraction_of(*s, {});
    if (!c.is || extent(c.v) < w.lanes()) continue;
    const NodeRef& b = factor(s->values[0], c.b);
    if (b->op != Op::Read) continue;
    const auto [owner, v] = w.kernel().find_value(static_cast<int>(b->integer()));
    if (v->slot >= 0 || v->reduces() || owner->values.size() > 1 || !values_read(*owner).empty())
      continue;
    if (readers_of(w.kernel(), *owner).size() != 1) continue;
    size_t place = v->dims.size();
    for (size_t d = 0; d < b->src.size(); d++) {
      if (b->src[d].get() == c.v.get()) place = d;
    }
    if (place + 1 >= v->dims.size()) continue;
    steps.push_back(dims_step(*v, place));
  }
  for (const std::string& step : steps) w.step("{}", step);
}

}  // namespace lazuli
