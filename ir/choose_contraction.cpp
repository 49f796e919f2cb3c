// The rule for contractions of one tile, with what follows from it element by element.
#include <algorithm>
#include <limits>
#include <set>

#include "ir/choose_terms.h"
#include "ir/choose_tiles.h"
#include "ir/index.h"

namespace lazuli {
namespace {

std::string batch_loops(const ScheduleWriter& w, const Stage& s, const Stage& contraction,
                        const Contraction& c) {
  return w.loops(s, batch_axes(contraction, c));
}

struct TiledSum {
  Stage* stage;
  Contraction c;
};

// The contractions of a group that holds nothing else but their epilogue, all with the same tile.
// Or none.
std::vector<TiledSum> tiled_sums(const ScheduleWriter& w, const StageGroup& g) {
  std::vector<TiledSum> list;
  std::vector<Stage*> others;
  for (Stage* m : g.members) {
    const Contraction c = contraction_of(*m, {});
    c.is ? list.push_back({m, c}) : others.push_back(m);
  }
  const Reads reads(w.kernel());
  for (const TiledSum& t : list) {
    const Contraction& first = list[0].c;
    const Stage& s = *t.stage;
    const bool keeps_bounded = std::any_of(s.axes.begin(), s.axes.end(), [&](const NodeRef& a) {
      return s.is_triangular_along(axis_index(s, a.get())) && contains(s.values[0].dims, a);
    });
    if (keeps_bounded || (s.is_triangular() && list.size() > 1)) return {};
    if (t.c.v.get() != first.v.get() || t.c.r.get() != first.r.get() ||
        t.c.y.get() != first.y.get())
      return {};
    for (const TiledSum& u : list) {
      if (reads.reads(u.stage, t.stage)) return {};
    }
    for (const Stage* m : others) {
      if (!is_epilogue(w.kernel(), *m, *t.stage)) return {};
    }
  }
  if (list.size() == 1) list[0].c = with_full_vectors(w, *list[0].stage, list[0].c, others);
  return list;
}

// Bytes that `stages` load and store of arrays for each sum of contraction `s`, beside its factors.
int64_t bytes_beside(const Stage& s, const Contraction& c, const std::vector<Stage*>& stages) {
  int64_t bytes = 0;
  std::set<const Node*> loads;
  for (const Stage* m : stages) {
    for (const Value& v : m->values) {
      if (v.slot >= 0) bytes += size_of(v.expr->dtype);
      if (m == &s) continue;
      visit(v.expr, [&](const NodeRef& n) {
        const bool whole = n->op == Op::Load && uses(n, c.v.get()) && uses(n, c.r.get());
        if (whole && loads.insert(n.get()).second) bytes += size_of(n->dtype);
      });
    }
  }
  return bytes;
}

// Whether row tiles go outside, and panels are a phase of their own: where threads could not share
// out the panels evenly; where a had better be walked once, since few panels stay near (see below),
// or a does not; or where memory is much of the work, which comes faster by whole rows than by the
// columns of a panel. Of several threads, each had better take the columns that it takes of the
// same array in other products, if they are not too narrow. `beside`: of each sum (see
// bytes_beside).
bool rows_go_outside(ScheduleWriter& w, Stage& s, const Contraction& c, const Tile& tile,
                     int64_t beside) {
  constexpr int64_t kFewPanels = 8;
  // A byte from far takes some eighth of a cycle, a term a thirty-second: a quarter of the time.
  constexpr int64_t kTermsOfByte = 16;
  const int64_t columns = tile.nv * w.lanes(), vectors = (extent(c.v) + w.lanes() - 1) / w.lanes();
  const int64_t around = batch_of(s, c) * (c.y ? (extent(c.y) + tile.ny - 1) / tile.ny : 1);
  const int64_t panels = around * ((vectors + tile.nv - 1) / tile.nv);
  const int64_t term = depth_of(c) * factor_size(s);  // bytes of it in a row or column
  const int64_t a = extent(c.r) * term, b = panels * columns * term, l2 = w.target().l2;
  const double uneven = uneven_share(w.target(), around, vectors, tile.nv);
  // To pack small panels before all rows takes a phase, and of several threads each finds half the
  // lines in the other's cache. Where nothing else is packed in one, and each has as many panels,
  // all of a is read for each panel instead.
  constexpr double kEven = 1.05;
  const Packer packer(w, &s, c, tile);
  const int64_t walked =
      around * (a + extent(c.r) * extent(c.v) * size_of(s.values[0].expr->dtype));
  const bool by_panels =
      walked <= l2 / 2 && uneven <= kEven && packer.would_pack_b(true) && !packer.would_pack_a();
  const bool together = b <= l2 / 16 && !by_panels;
  const bool near = !w.target().far_l3 || b <= l2 / 2;
  const bool once = panels < kFewPanels && near && (together || a > l2 / 2);
  const bool is_narrow = columns * factor_size(s) < 3 * kCacheLine,
             streams = (w.target().threads <= 1 || is_narrow) &&
                       beside * kTermsOfByte >= depth_of(c) &&
                       beside * extent(c.r) * extent(c.v) * batch_of(s, c) > l2 && b <= l2 / 4;
  const bool model =
      extent(c.r) / tile.mr >= kManyRowTiles && (once || streams || uneven > kSharedRows);
  if (extent(c.r) <= tile.mr || extent(c.v) <= columns) return model;
  return w.choose_whether("rows outside of " + s.name, model);
}

// Few rows times a large operand whose rows lie along the columns: it is read from memory once and
// in order, some terms of the sum a visit. The partial sums stay in cache, in blocks of columns as
// long as leaves some to share out. False: it is none, or memory would round its sums.
bool schedule_few_rows_of_columns(ScheduleWriter& w, Stage* s, Stage* root, const Contraction& c) {
  // More than kFewest rows, which schedule_visits has left, load and store more sums in each visit,
  // which then has more terms.
  constexpr int64_t kMostRows = 12, kFewest = 8, kLeast = 512;
  const int64_t terms = extent(c.r) > kFewest ? 16 : 8;
  const Value& v = s->values[0];
  const NodeRef& b = factor(v, c.b);
  const Strides along = strides_along(w.kernel(), b, c.v);
  int64_t bytes = factor_size(*s), others = 1;
  for (const NodeRef& axis : s->axes) bytes *= uses(b, axis) ? extent(axis) : 1;
  const bool fits = extent(c.r) <= kMostRows && !c.y && c.op == Op::Mul && c.reduced.size() == 1 &&
                    along.unit > 0 && along.other == 0 && bytes > w.target().l2 &&
                    extent(c.reduced[0]) > 2 * terms && accumulator(v.expr->dtype) == v.expr->dtype;
  if (!fits) return false;
  for (const NodeRef& d : v.dims) {
    if (d.get() != c.v.get() && d.get() != c.r.get()) others *= extent(d);
  }
  const int64_t most = w.target().l2 / 2 / (extent(c.r) * factor_size(*s));
  const int64_t blocks = bytes > w.target().l3 / 2 ? 4 : bytes > w.target().l3 / 4 ? 8 : 16;
  // Or one for each thread.
  const int64_t each = std::max(extent(c.v) * others / w.target().threads, 2 * w.lanes());
  const int64_t wanted = std::min(std::max(extent(c.v) * others / blocks, kLeast), each);
  const int64_t whole = std::max(std::min(wanted, most) / w.lanes(), int64_t{1}) * w.lanes();
  const int64_t block = std::min(whole, extent(c.v));
  const std::string k = w.loop(*s, c.reduced[0]), column = w.loop(*s, c.v) + ".b";
  const std::string outside = batch_loops(w, *root, *s, c) + " " + column;
  w.step("split {0} {1} {2} {1} {3}", s->name, w.loop(*s, c.v), column, block);
  const ScheduleWriter::Split sp = w.split_vectors(*s, c.v, 1);
  w.step("split {0} {1} {1}.o {1}.i {2}", s->name, k, terms);
  w.step("order {0}{1} {2}.o {3} {2}.i {4}{5}; unroll {0} {2}.i {4} {6}; vector {0} {7}", s->name,
         outside, k, sp.blocks, w.loop(*s, c.r), sp.inner(), sp.unrolled, sp.lane);
  if (root != s) {
    w.step("split {0} {1} {2} {1} {3}", root->name, w.loop(*root, c.v), column, block);
    const ScheduleWriter::Split own = w.split_vectors(*root, c.v, 2);
    w.step("order {0}{1} {2}{3}; unroll {0} {4}; vector {0} {5}", root->name, outside,
           w.loop(*root, c.r), own.all(), own.unrolled, own.lane);
    w.step("at {} {} {}", s->name, root->name, column);
  }
  w.parallel(root);
  w.reason(fmt::format("{}: few rows of a large operand that is read once, {} terms a visit",
                       s->name, terms));
  return true;
}

// The shares of panels that are so many columns wide.
Shares shares_of(const ScheduleWriter& w, const Contraction& c, int64_t around, const Tile& tile,
                 int64_t columns) {
  constexpr int64_t kMany = 16;  // panels are long enough that one more is felt
  const int64_t vectors = (extent(c.v) + w.lanes() - 1) / w.lanes();
  return share_tiles(w.target(), around, vectors, columns / w.lanes(), extent(c.r) / tile.mr,
                     tile.cycles * static_cast<double>(around),
                     columns > tile.nv * w.lanes() ? kMany : 8);
}

// The columns at a time, at most `fitting` and two tiles at least, that the threads share best. In
// a block of fewer, each element of a that comes from a cache serves less.
int64_t even_block(const ScheduleWriter& w, const Contraction& c, int64_t around, const Tile& tile,
                   int64_t fitting) {
  constexpr double kElementOfA = 4;  // in columns
  const int64_t step = tile.nv * w.lanes();
  int64_t best = fitting;
  double least = std::numeric_limits<double>::max();
  for (int64_t n = fitting; n >= 2 * step; n -= step) {
    const double cost =
        shares_of(w, c, around, tile, n).time * (1 + kElementOfA / static_cast<double>(n));
    if (cost < least) {
      least = cost;
      best = n;
    }
  }
  return best;
}

// Whether what follows a tile element by element walks its rows in a loop, and finds the sums in
// scratch. Written out for all registers of the tile, a long function is most of the kernel's code:
// as fast, and twice as long to compile.
bool epilogue_loops(ScheduleWriter& w, const Stage& root, const Tile& tile) {
  constexpr int64_t kMostOperations = 192;
  if (tile.mr == 1) return false;
  const int64_t operations = expression_cost(root) * tile.mr * tile.ny * tile.nv;
  return w.choose_whether("loop over rows of " + root.name, operations > kMostOperations);
}

}  // namespace

Stage* panel_stage(ScheduleWriter& w, const StageGroup& g) {
  if (w.lanes() == 1) return nullptr;
  const std::vector<TiledSum> sums = tiled_sums(w, g);
  if (sums.size() != 1) return nullptr;
  Stage* s = sums[0].stage;
  const Contraction& c = sums[0].c;
  if (extent(c.v) < w.lanes()) return nullptr;  // dot products may do better
  const NodeRef& b = factor(s->values[0], c.b);
  if (b->op != Op::Read) return nullptr;
  const auto [p, v] = w.kernel().find_value(static_cast<int>(b->integer()));
  if (!is_private_copy(w.kernel(), *p)) return nullptr;
  const Tile tile = tile_of(w, *s, c, extent(c.r), batch_of(*s, c));
  if (rows_go_outside(w, *s, c, tile, bytes_beside(*s, c, g.members))) return nullptr;
  // What one panel reads of it.
  int64_t elements = 1;
  for (size_t d = 0; d < v->dims.size(); d++) {
    const std::optional<int64_t> reach = length_in_panel(w, *s, c, tile, b->src[d]);
    if (!reach) return nullptr;
    int64_t length = std::min(*reach, extent(v->dims[d]));
    if (d + 1 == v->dims.size()) length = (length + w.lanes() - 1) / w.lanes() * w.lanes();
    elements *= length;
  }
  // Cycles of filling and of using it; the part that neighbouring panels compute too must be cheap.
  const double fill = static_cast<double>(elements / w.lanes()) * (2 + expression_cost(*p) / 2.0);
  const double use = static_cast<double>(extent(c.r) * tile.ny * tile.nv * depth_of(c)) / 2;
  const bool fits = elements * size_of(v->expr->dtype) <= w.target().l2 / 4;
  const bool inside =
      w.choose_whether(fmt::format("{} inside {}", p->name, s->name), fits && fill * 8 <= use);
  return inside ? p : nullptr;
}

namespace {

// Contractions of one tile, and what follows from them element by element.
class TiledGroup {
 public:
  TiledGroup(ScheduleWriter& w, StageGroup& g, std::vector<TiledSum> sums, Stage* root);

  // Some terms at a time, where one of the rules for that applies.
  bool schedule_by_terms();
  void schedule();

 private:
  int64_t column_block();
  int64_t row_block(int64_t columns) const;
  int64_t rows_of_each();
  int64_t rows_of_thread(int64_t columns);
  std::string split_block(const NodeRef& axis, int64_t size);
  bool is_once(const TiledSum& sum) const;
  bool panels_go_outside() const;
  bool each_may_make(const std::string& what, int64_t elements, int64_t unit, double vector_cycles);
  bool each_packs_b();
  bool schedule_parts_of_panels();
  bool turns_rows() const;
  int64_t terms_in_l1(int64_t sums) const;
  bool each_copies(int place);
  bool reads_all_rows() const;
  const Stage* copy_of(int place) const;

  // A copy of a that is made in a loop over parts of an axis.
  struct Image {
    const Stage* stage = nullptr;
    NodeRef along = {};
    int64_t part = 0;
    std::string loop = {};
  };
  Image image_of_rows();
  std::string outer_loops(const TileLoops& t) const;
  void order_loops(const TileLoops& t);
  void pack(const TileLoops& t);
  void give_reasons();

  // Axes around the tile that panels of b depend on, and others.
  struct AroundPanels {
    std::vector<NodeRef> of_panels, of_rows;
  };
  AroundPanels axes_around_panels() const;
  std::vector<NodeRef> axes_between_lanes() const;

  bool is_alone() const { return sums_.size() == 1 && !c_.y && !g_.panel && !in_tiles_; }
  int64_t tile_columns() const { return tile_.nv * w_.lanes(); }
  const NodeRef& factor_b(const TiledSum& sum) const {
    return factor(sum.stage->values[0], sum.c.b);
  }

  ScheduleWriter& w_;
  StageGroup& g_;
  const std::vector<TiledSum> sums_;
  Stage* const root_;
  // Of the last sum, which says how the loops of all run.
  Stage* const s_;
  const Contraction& c_;
  const Tile tile_;
  const bool in_tiles_;
  const std::string batch_;
  std::vector<Packer> packers_;  // of each sum
  std::vector<bool> packed_b_, packed_a_;
  bool packs_b_ = false, packs_a_ = false;
  int64_t depth_ = 0;  // bytes of all terms, in a row or column
  bool rows_first_ = false, finishes_rows_ = false;
  bool only_stores_ = false;   // one element for each sum, and loads none beside the factors
  bool each_packs_b_ = false;  // and walks whole rows
  bool rows_outside_ = false;  // blocks of them, not of columns
  int64_t columns_ = 0, rows_ = 0;      // of a block; 0: there are none
  std::string column_loop_, row_loop_;  // over blocks
  Image image_;
};

TiledGroup::TiledGroup(ScheduleWriter& w, StageGroup& g, std::vector<TiledSum> sums, Stage* root)
    : w_(w),
      g_(g),
      sums_(std::move(sums)),
      root_(root),
      s_(sums_.back().stage),
      c_(sums_.back().c),
      tile_(tile_of(w, *s_, c_, extent(c_.r), batch_of(*s_, c_))),
      in_tiles_(is_in_tiles(*s_)),
      batch_(batch_loops(w, *root, *s_, c_)) {
  std::vector<Stage*> hosts{root};
  for (const TiledSum& t : sums_) {
    if (t.stage != root) hosts.push_back(t.stage);
  }
  const int64_t beside = bytes_beside(*s_, c_, hosts);
  rows_first_ = rows_go_outside(w, *s_, c_, tile_, beside);
  only_stores_ = beside <= size_of(root->values[0].expr->dtype);
  for (const TiledSum& t : sums_) {
    packers_.emplace_back(w, t.stage, t.c, tile_);
    packs_b_ |= packed_b_.emplace_back(packers_.back().packs_b(rows_first_));
    packs_a_ |= packed_a_.emplace_back(packers_.back().packs_a());
    depth_ += depth_of(t.c) * factor_size(*t.stage);
  }
}

bool TiledGroup::schedule_by_terms() {
  constexpr int64_t kDeep = 512;
  const bool sums_alone = root_ == s_, one_axis = c_.reduced.size() == 1;
  if (sums_alone && is_alone() && one_axis && !batch_.empty() &&
      schedule_long_sums(w_, s_, c_, tile_, batch_, packers_[0], packs_a_, packs_b_))
    return true;
  if (is_alone() && schedule_tall(w_, s_, root_, c_, tile_, batch_, packers_[0])) return true;
  if (is_alone() && batch_.empty() && packs_b_ && schedule_parts_of_panels()) return true;
  const bool is_deep = w_.target().l3 / 32 < tile_columns() * depth_;
  if (sums_alone && one_axis && batch_.empty() && !c_.y && packs_b_ &&
      (is_deep || extent(c_.reduced[0]) >= kDeep) &&
      w_.choose_whether("blocks of terms of " + s_->name, is_deep)) {
    schedule_deep(w_, s_, c_, tile_, split_tile(w_, root_, c_, tile_));
    return true;
  }
  if (sums_.size() > 1 || c_.y || g_.panel || !packs_b_ || packs_a_) return false;
  return (sums_alone && schedule_long_panels(w_, s_, c_, tile_)) || schedule_parts_of_panels();
}

// Whether panels of b are made of rows that lie along the sums, turned around in squares.
bool TiledGroup::turns_rows() const {
  const NodeRef& b = factor_b(sums_.back());
  const auto step = [&](const NodeRef& a) { return strides_along(w_.kernel(), b, a).largest; };
  const NodeRef &outer = c_.reduced[0], &inner = c_.reduced.back();
  return b->op == Op::Load && b->src.size() == 1 && step(inner) == 1 && step(c_.v) > 1 &&
         step(outer) * extent(outer) == depth_of(c_);
}

// Terms of a panel whose rows come from a far L3 and are turned around: as many as stay in L1 while
// they are stored and multiplied, if the partial sums stay there as well, while the next ones come
// to L2. 0: not to be so, as of few terms, or where threads could not share out the panels.
int64_t TiledGroup::terms_in_l1(int64_t sums) const {
  constexpr int64_t kTerms = 128;
  const Target& target = w_.target();
  const int64_t each = depth_of(c_) / extent(c_.reduced[0]), lanes = w_.lanes(),
                terms = std::max<int64_t>(kTerms / (each * lanes), 1) * lanes,
                bytes = depth_ / extent(c_.reduced[0]) * terms * tile_columns();
  const bool pays = target.far_l3 && !rows_first_ && !packs_a_ && turns_rows() &&
                    depth_ * tile_columns() > target.l2 / 8 && sums <= target.l1 * 4 / 3 &&
                    bytes <= target.l1 * 4 / 5 && share_evenly(target, packers_[0].column_tiles());
  return pays ? terms : 0;
}

// Where a panel is turned around from far, or is too long for L2, and L3 is far, or it is read for
// many rows around the tile: some terms of it at a time, with partial sums in the output.
bool TiledGroup::schedule_parts_of_panels() {
  constexpr int64_t kFewTiles = 4;  // fewer use a panel too seldom
  const int64_t room = w_.target().l2 / 2, bytes = depth_ * tile_columns();
  const NodeRef& k = c_.reduced[0];
  const AroundPanels around = axes_around_panels();
  if (!around.of_panels.empty()) return false;
  int64_t all_rows = extent(c_.r);
  for (const NodeRef& d : around.of_rows) all_rows *= extent(d);
  const Value& v = s_->values[0];
  const int64_t sums = tile_columns() * size_of(v.expr->dtype) * all_rows;
  const bool often = is_alone() && all_rows >= kFewTiles * tile_.mr;
  int64_t terms = often ? terms_in_l1(sums) : 0;
  if (terms == 0) {
    const bool far =
        w_.target().far_l3 && often && !rows_first_ && is_loaded_as(factor(v, c_.a), v.expr->dtype);
    const bool fits =
        batch_.empty() ? far && bytes > room
                       : panels_go_outside() && bytes > room * 3 / 2 && sums <= w_.target().l2 / 4;
    if (!fits) return false;
    const int64_t parts = (bytes + room - 1) / room;
    terms = (extent(k) + parts - 1) / parts;
  }
  if (terms < 8 || terms >= extent(k) || accumulator(v.expr->dtype) != v.expr->dtype) return false;
  each_copies(c_.a);
  const std::string ks = w_.loop(*s_, k), rows = w_.loops(*s_, around.of_rows);
  const TileLoops t = split_tile(w_, s_, c_, tile_);
  w_.step("split {0} {1} {1}.b {1} {2}", s_->name, ks, terms);
  w_.step("order {} {} {}.b{} {}{}{}", s_->name, t.v, ks, rows, t.r, w_.loops(*s_, c_.reduced),
          t.inner);
  if (root_ != s_) {
    const TileLoops own = split_tile(w_, root_, c_, tile_);
    w_.step("order {} {}{} {}{}; at {} {} {}", root_->name, own.v, w_.loops(*root_, around.of_rows),
            own.r, own.inner, s_->name, root_->name, own.v);
  }
  packers_[0].pack_b({s_, ks + ".b", ""});
  unroll_sum(w_, s_, c_);
  w_.parallel(root_);
  w_.reason(fmt::format(
      "{}: tile of {} rows and {} vectors; panels of b are packed, {} of {} along {} at a time",
      s_->name, tile_.mr, tile_.nv, terms, extent(k), ks));
  return true;
}

// Where a is too large for the cache that it is read from again and again, a block of columns is
// walked by each row tile: read in place it then stays in L1, and the panels of a block in L2;
// packed it stays in L2, and they in the last cache, if that is near. Tile registers are faster
// than the last cache.
int64_t TiledGroup::column_block() {
  if (rows_first_ || c_.y || g_.panel) return 0;
  const int64_t step = tile_columns();
  const bool from_l3 = packs_a_ && !in_tiles_;
  const int64_t cache = from_l3 ? w_.target().l3 / 4 : w_.target().l2;
  const int64_t fitting = cache / 4 / depth_ / step * step;
  const auto possible = [&](int64_t n) { return n >= 2 * step && extent(c_.v) >= 2 * n; };
  // Of many panels the next one is packed ahead, as long as the rows stay in L2 beside them.
  const bool far =
      w_.target().far_l3 && (from_l3 || (packers_[0].has_many_columns() &&
                                         extent(c_.r) * depth_ <= w_.target().l2 * 3 / 4));
  const bool pays = packs_b_ && !far && extent(c_.r) * depth_ > cache / 2 &&
                    (packs_a_ || tile_.mr * depth_ <= w_.target().l1 / 2);
  std::vector<int64_t> others{0};
  for (const int64_t n : {fitting / 2, fitting, 2 * fitting}) {
    const int64_t whole = n / step * step;
    if (possible(whole)) others.push_back(whole);
  }
  return w_.choose_number(
      "columns at a time of " + root_->name,
      pays && possible(fitting) ? even_block(w_, c_, batch_of(*s_, c_), tile_, fitting) : 0,
      others);
}

// Rows that a thread takes at a time, of so many columns, where all panels are packed before, in
// memory that the last cache has room for.
int64_t TiledGroup::row_block(int64_t columns) const {
  int64_t packed = depth_ * extent(c_.v);
  for (const NodeRef& d : batch_axes(*s_, c_))
    packed *= uses(factor_b(sums_.back()), d) ? extent(d) : 1;
  const bool is_bounded_sum = is_bounded(*s_, c_.v.get()) || is_bounded(*s_, c_.r.get());
  if (rows_first_ || c_.y || g_.panel || !packs_b_ || is_bounded_sum || packed > w_.target().l3 / 2)
    return 0;
  const int64_t tiles = extent(c_.r) / tile_.mr;
  std::vector<int64_t> others{0};
  for (const int64_t parts : {2, 4, 8}) {
    if (w_.target().threads > 1 && tiles >= parts * kManyRowTiles)
      others.push_back((tiles + parts - 1) / parts * tile_.mr);
  }
  const int64_t n = w_.choose_number(
      "rows shared out of " + root_->name,
      shares_of(w_, c_, batch_of(*s_, c_), tile_, columns).rows * tile_.mr, others);
  if (n != 1) return n;
  return extent(c_.r) > 2 ? 2 : 0;  // the axis keeps a loop of its own
}

// Rows that a thread takes at a time, where it packs them and finds all panels of b packed by
// itself; 0 where rows are not packed, or other products may have taken the columns of an array
// that these update.
int64_t TiledGroup::rows_of_each() {
  if (!packs_a_ || extent(c_.r) < kManyRowTiles * tile_.mr) return 0;
  if (!only_stores_ && !rows_first_) return 0;
  const int64_t threads = w_.target().threads, tiles = (extent(c_.r) + tile_.mr - 1) / tile_.mr,
                fitting = std::max<int64_t>(w_.target().l2 / 2 / (depth_ * tile_.mr), 1);
  // Few blocks for each thread, since all of b is read for each, but none much longer than others.
  int64_t best = 0, least = std::numeric_limits<int64_t>::max();
  for (const int64_t blocks : {2, 3, 4}) {
    const int64_t each = std::min((tiles + blocks * threads - 1) / (blocks * threads), fitting),
                  turns = ((tiles + each - 1) / each + threads - 1) / threads;
    if (turns * each >= least) continue;
    least = turns * each;
    best = each * tile_.mr;
  }
  return best < extent(c_.r) ? best : 0;
}

std::string TiledGroup::split_block(const NodeRef& axis, int64_t size) {
  const std::string name = w_.loop(*s_, axis) + ".b";
  const auto split = [&](const Stage* stage) {
    w_.step("split {0} {1} {1}.b {1} {2}", stage->name, w_.loop(*stage, axis), size);
  };
  if (root_ != s_) split(root_);
  for (const TiledSum& t : sums_) split(t.stage);
  return name;
}

// Whether all panels of a sum are packed before: one that is made in the loop over them is one
// thread's.
bool TiledGroup::is_once(const TiledSum& sum) const {
  return rows_first_ || (rows_ > 0 && !rows_outside_) || image_.stage != nullptr ||
         (!g_.panel && packs_once(w_, *sum.stage, sum.c, batch_axes(*sum.stage, sum.c)));
}

// Rows that a thread takes at a time, with panels that it packs for them by itself, where the rows
// of a are what another step of the plan has made: by rows as well, so that they are in its caches.
// What others have stored comes from afar. To time the kernel alone would not tell.
int64_t TiledGroup::rows_of_thread(int64_t columns) {
  constexpr int64_t kLeast = 128;  // that a panel is packed for
  const int64_t threads = w_.target().threads, blocks = std::min(threads, extent(c_.r) / kLeast);
  if (blocks < 2 || !is_alone() || !batch_.empty() || rows_first_ || !packs_b_) return 0;
  const NodeRef& a = factor(s_->values[0], c_.a);
  const bool by_rows = loads_along(w_, a, c_.reduced.back()) &&
                       w_.kernel().arguments[static_cast<size_t>(a->integer())].made;
  // Beside an end that is no whole block the next panel would not be foreseen.
  const bool even = extent(c_.r) % blocks == 0 && extent(c_.v) % columns == 0;
  return by_rows && even ? extent(c_.r) / blocks : 0;
}

// Whether axes around the tile that panels do not depend on run inside of what walks these: where
// one panel serves few rows of each, it then stays in L2.
bool TiledGroup::panels_go_outside() const {
  const AroundPanels around = axes_around_panels();
  int64_t panels = packers_.back().column_tiles();
  for (const NodeRef& d : around.of_panels) panels *= extent(d);
  const bool may_be_outside =
      share_evenly(w_.target(), panels) ||
      std::all_of(sums_.begin(), sums_.end(), [&](const TiledSum& t) { return is_once(t); });
  return packs_b_ && columns_ == 0 && !rows_first_ && !g_.panel && !around.of_rows.empty() &&
         may_be_outside && extent(c_.r) < kManyRowTiles * tile_.mr &&
         depth_ * tile_columns() > w_.target().l1;
}

TiledGroup::AroundPanels TiledGroup::axes_around_panels() const {
  AroundPanels around;
  for (const NodeRef& d : batch_axes(*s_, c_)) {
    const bool uses_b = std::any_of(sums_.begin(), sums_.end(),
                                    [&](const TiledSum& t) { return uses(factor_b(t), d); });
    (uses_b ? around.of_panels : around.of_rows).push_back(d);
  }
  return around;
}

// Whether what all threads read all of had better be made by each of them, for itself. What others
// have stored comes from their caches, which may be as far as memory is, and before they store it
// again it has to leave the readers' caches.
bool TiledGroup::each_may_make(const std::string& what, int64_t elements, int64_t unit,
                               double vector_cycles) {
  constexpr double kMost = 0.03;  // of a thread's time
  const int64_t threads = w_.target().threads, bytes = elements * unit;
  if (threads < 2) return false;
  const double sums = tile_.cycles * static_cast<double>(batch_of(*s_, c_)),
               made = vector_cycles * static_cast<double>(elements / w_.lanes()),
               again = made * static_cast<double>(threads - 1);
  return w_.choose_whether("each thread its own " + what,
                           again <= kMost * sums && bytes <= 2 * w_.target().l2 &&
                               bytes * threads <= w_.target().l3 / 4);
}

// Whether each thread packs all panels of b: where it walks whole rows, and panels are the same for
// all of them. Rows of a that have to be packed are then packed by the one that reads them.
bool TiledGroup::each_packs_b() {
  constexpr double kVector = 6;  // cycles
  if (!packs_b_ || sums_.size() > 1 || c_.y || g_.panel || in_tiles_) return false;
  if (!axes_around_panels().of_panels.empty()) return false;
  if (!rows_first_ && rows_of_each() == 0) return false;
  return each_may_make(s_->name + ".b", depth_of(c_) * extent(c_.v), factor_size(*s_), kVector);
}

// The stage that copies what a factor reads, for it alone, as a phase of its own; null if none
// does.
const Stage* TiledGroup::copy_of(int place) const {
  const NodeRef& x = factor(s_->values[0], place);
  if (x->op != Op::Read) return nullptr;
  const Stage* p = w_.kernel().find_value(static_cast<int>(x->integer())).first;
  return !p->at && is_private_copy(w_.kernel(), *p) ? p : nullptr;
}

// Whether each thread makes for itself the padded copy that a factor is read from.
bool TiledGroup::each_copies(int place) {
  const Stage* p = copy_of(place);
  if (!p || sums_.size() > 1 || g_.panel) return false;
  const Value& v = p->values[0];
  int64_t elements = 1;
  for (const NodeRef& a : p->axes) elements *= extent(a);
  if (!each_may_make(p->name, elements, size_of(v.expr->dtype), 2 + expression_cost(*p) / 2.0))
    return false;
  w_.step("scope {} each", v.name);
  return true;
}

// Whether rows of a are read where they lie, all of them for each panel of b.
bool TiledGroup::reads_all_rows() const {
  return !rows_first_ && packs_b_ && !packs_a_ && !axes_around_panels().of_rows.empty();
}

// Where each thread would read all of a copy of a that others make, or one would read it again
// after it has left the cache: the copy is made inside of a loop over parts of an axis around the
// panels, the outermost one that threads can share, and all panels are packed before.
TiledGroup::Image TiledGroup::image_of_rows() {
  const Stage* p = copy_of(c_.a);
  if (!p || columns_ > 0 || sums_.size() > 1 || g_.panel) return {};
  int64_t bytes = size_of(p->values[0].expr->dtype);
  for (const NodeRef& a : p->axes) bytes *= extent(a);
  const int64_t threads = w_.target().threads;
  for (const NodeRef& along : axes_around_panels().of_rows) {
    const int64_t all = extent(along), most = std::max(all * w_.target().l2 / bytes, int64_t{1}),
                  part = threads > 1 ? shared_steps(w_.target(), all, 1) : most;
    if (part == 0 || part >= all) continue;
    const bool pays = w_.choose_whether(fmt::format("{} inside {}", p->name, root_->name), true);
    return pays ? Image{p, along, part} : Image{};
  }
  return {};
}

// Axes around the tile whose results lie between those of neighbouring lanes, and fill their lines
// while they are in L1 if they turn innermost: of a large result, where the panels for all of them
// stay in L2. None where an epilogue follows each tile, or threads share out blocks of rows.
std::vector<NodeRef> TiledGroup::axes_between_lanes() const {
  if (!c_.scattered || root_ != s_ || image_.stage || each_packs_b_ || rows_ > 0) return {};
  if (fits_l2(w_, *s_)) return {};
  const std::vector<NodeRef> around = batch_axes(*s_, c_);
  std::vector<NodeRef> between;
  int64_t panels = 1;
  bool behind = false;
  for (const NodeRef& d : s_->values[0].dims) {
    behind |= d.get() == c_.v.get();
    if (!behind || std::find(around.begin(), around.end(), d) == around.end()) continue;
    between.push_back(d);
    panels *= extent(d);
  }
  if (depth_ * tile_columns() * panels > w_.target().l2 / 2) between.clear();
  return between;
}

// The loops outside of a tile. The innermost one keeps in L1 what the one around it walks.
std::string TiledGroup::outer_loops(const TileLoops& t) const {
  const std::string images = t.y.empty() ? "" : " " + t.y,
                    rows = row_loop_.empty() ? "" : " " + row_loop_,
                    image = image_.stage ? " " + image_.loop : "";
  // The loop of the image stands outside of all.
  const auto loops = [&](std::vector<NodeRef> axes) {
    if (image_.part == 1)
      std::erase_if(axes, [&](const NodeRef& a) { return a.get() == image_.along.get(); });
    return w_.loops(*root_, axes);
  };
  if (panels_go_outside()) {
    const AroundPanels around = axes_around_panels();
    return image + loops(around.of_panels) + images + " " + t.v + loops(around.of_rows) + rows +
           " " + t.r;
  }
  if (rows_outside_ && columns_ > 0)
    return fmt::format("{} {} {} {}", rows, column_loop_, t.r, t.v);
  if (rows_outside_) return fmt::format("{} {} {}", rows, t.v, t.r);
  if (columns_ > 0) return fmt::format("{} {}{} {} {}", batch_, column_loop_, rows, t.r, t.v);
  if (const std::vector<NodeRef> between = axes_between_lanes(); !between.empty()) {
    std::vector<NodeRef> around = batch_axes(*s_, c_);
    for (const NodeRef& d : between) std::erase(around, d);
    const std::string tiles =
        rows_first_ ? rows + " " + t.r + " " + t.v : " " + t.v + rows + " " + t.r;
    return w_.loops(*s_, around) + tiles + w_.loops(*s_, between);
  }
  if (rows_first_) return batch_ + rows + " " + t.r + images + " " + t.v;
  if (each_packs_b_) return batch_ + rows + " " + t.v + " " + t.r;
  return image + loops(batch_axes(*s_, c_)) + images + " " + t.v + rows + " " + t.r;
}

void TiledGroup::order_loops(const TileLoops& t) {
  const std::string outer = outer_loops(t);
  if (root_ == s_) {
    w_.step("order {}{}{}{}", s_->name, outer, w_.loops(*s_, c_.reduced), t.inner);
    return;
  }
  w_.step("order {}{}{}", root_->name, outer, t.inner);
  for (const TiledSum& sum : sums_) {
    const Stage& m = *sum.stage;
    const TileLoops u = split_tile(w_, sum.stage, sum.c, tile_);
    w_.step("order {}{}{}{}", m.name, outer, w_.loops(m, sum.c.reduced), u.inner);
    w_.step("at {} {} {}", m.name, root_->name, rows_first_ || columns_ > 0 ? t.v : t.r);
    const bool seen = m.values[0].slot >= 0 || m.values[0].scope == Scope::Shared;
    // The registers are those of one sum.
    if (!seen && &m == s_ && !finishes_rows_) w_.step("scope {} reg", m.values[0].name);
  }
}

void TiledGroup::pack(const TileLoops& t) {
  const std::string& panel_loop = columns_ > 0 ? column_loop_ : t.v;
  for (size_t i = 0; i < sums_.size(); i++) {
    const bool once = is_once(sums_[i]) || each_packs_b_;
    if (packed_b_[i]) packers_[i].pack_b({root_, once ? "" : panel_loop, "", each_packs_b_});
  }
  if (g_.panel) {
    w_.vectorize(g_.panel, {}, g_.panel->axes);
    w_.step("at {} {} {}", g_.panel->name, root_->name, t.v);
  }
  for (size_t i = 0; i < sums_.size(); i++) {
    if (packed_a_[i]) packers_[i].pack_a({root_, "", each_packs_b_ ? row_loop_ : ""});
  }
}

void TiledGroup::schedule() {
  each_packs_b_ = each_packs_b();
  columns_ = each_packs_b_ ? 0 : column_block();
  if (rows_first_ && !packs_b_ && axes_around_panels().of_panels.empty()) each_copies(c_.b);
  if (reads_all_rows() && !each_copies(c_.a)) image_ = image_of_rows();
  if (columns_ > 0) column_loop_ = split_block(c_.v, columns_);
  const int64_t columns = columns_ > 0 ? columns_ : tile_columns();
  if (image_.stage) {
    image_.loop =
        image_.part > 1 ? split_block(image_.along, image_.part) : w_.loop(*root_, image_.along);
  }
  rows_ = each_packs_b_ ? rows_of_each() : image_.stage ? 0 : rows_of_thread(columns);
  rows_outside_ = rows_ > 0 && !each_packs_b_;
  if (rows_ == 0 && !each_packs_b_ && !image_.stage) rows_ = row_block(columns);
  if (rows_ > 0) row_loop_ = split_block(c_.r, rows_);
  // Tile registers are stored to memory.
  finishes_rows_ = root_ != s_ && (in_tiles_ || epilogue_loops(w_, *root_, tile_));
  const TileLoops t = split_tile(w_, root_, c_, tile_, !finishes_rows_);
  order_loops(t);
  pack(t);
  for (const TiledSum& sum : sums_) unroll_sum(w_, sum.stage, sum.c);
  if (image_.stage) {
    for (const Loop& l : image_.stage->loops) {
      if (l.kind == LoopKind::Parallel) w_.step("serial {} {}", image_.stage->name, l.name);
    }
    w_.step("at {} {} {}; scope {} scratch", image_.stage->name, root_->name, image_.loop,
            image_.stage->values[0].name);
    w_.reason(fmt::format("{}: made for {} of {} along {} at a time", image_.stage->name,
                          image_.part, extent(image_.along), w_.loop(*root_, image_.along)));
  }
  if (rows_ > 0 && !each_packs_b_) {
    const std::string& column = columns_ > 0 ? column_loop_ : t.v;
    w_.step("parallel {}{} {} {}", root_->name, batch_, rows_outside_ ? row_loop_ : column,
            rows_outside_ ? column : row_loop_);
    w_.reason(fmt::format("{}: {} rows at a time of {} columns, shared out among {} threads",
                          root_->name, rows_, columns, w_.target().threads));
  } else {
    w_.parallel(root_);
  }
  give_reasons();
}

void TiledGroup::give_reasons() {
  for (size_t i = 0; i < sums_.size(); i++) {
    w_.reason(fmt::format("{}: tile of {} rows, {} images and {} vectors; {}{}",
                          sums_[i].stage->name, tile_.mr, tile_.ny, tile_.nv,
                          packed_b_[i] ? "panels of b are packed"
                          : g_.panel   ? "panels of b are computed where they are read"
                                       : "b is read where it lies",
                          packed_a_[i] ? "; a is packed" : ""));
  }
  if (finishes_rows_) w_.reason(root_->name + ": a loop over the rows of a tile, for less code");
}

}  // namespace

bool schedule_contraction(ScheduleWriter& w, StageGroup& g) {
  if (w.lanes() == 1) return false;
  std::vector<TiledSum> sums = tiled_sums(w, g);
  if (sums.empty()) return false;
  const std::optional<std::vector<Stage*>> epilogue = epilogue_of(w.kernel(), g);
  // Sums that nothing brings together are phases of their own.
  if (!epilogue || (epilogue->empty() && sums.size() > 1)) return false;
  Stage* const last = merge_epilogue(w, *epilogue);
  for (TiledSum& t : sums) {
    if (pack_words(w, t.stage, sums.size() == 1)) t.c = contraction_of(*t.stage, {});
  }
  // Summed axes in the order of b's memory, so that consecutive steps find neighbouring lines.
  for (auto& [stage, c] : sums) {
    c.reduced = in_order_of_memory(w, factor(stage->values[0], c.b), c.reduced);
  }
  Stage* const s = sums.back().stage;
  Stage* const root = last != nullptr ? last : s;
  std::vector<Stage*> stages;
  for (const TiledSum& t : sums) stages.push_back(t.stage);
  if (!g.panel && schedule_visits(w, stages, root)) return true;
  if (sums.size() == 1 && !g.panel && schedule_few_rows_of_columns(w, s, root, sums[0].c))
    return true;
  TiledGroup tiled(w, g, std::move(sums), root);
  if (!tiled.schedule_by_terms()) tiled.schedule();
  return true;
}

}  // namespace lazuli
