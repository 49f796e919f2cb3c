#include "ir/choose_tiles.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "ir/dots.h"
#include "ir/index.h"
#include "ir/program_cost.h"

namespace lazuli {

namespace {

// What a vector of b takes longer to load where windows slide over its memory, so that most lie in
// two cache lines.
double late_vectors(const ScheduleWriter& w, const Stage& s, const Contraction& c) {
  const NodeRef& b = factor(s.values[0], c.b);
  const auto is_unit = [&](const NodeRef& axis) {
    return strides_along(w.kernel(), b, axis.get()).unit > 0;
  };
  const bool slides = w.target().split_load > 0 && is_unit(c.v) &&
                      std::any_of(c.reduced.begin(), c.reduced.end(), is_unit);
  return slides ? w.target().split_load : 0;
}

// Whether a tile of several images reads each of them where it lies: they neither overlap nor are
// packed for other reasons.
bool has_images_apart(const ScheduleWriter& w, const Stage& s, const Contraction& c) {
  if (!c.y) return false;
  const NodeRef& b = factor(s.values[0], c.b);
  const Strides lanes = strides_along(w.kernel(), b, c.v);
  int64_t span = 0;  // elements from the first term of a sum to the last
  for (const NodeRef& k : c.reduced) {
    span += (extent(k) - 1) * strides_along(w.kernel(), b, k).largest;
  }
  return lanes.unit > 0 && lanes.other == 0 && span < strides_along(w.kernel(), b, c.y).largest;
}

TileSpace tile_space(const ScheduleWriter& w, const Stage& s, const Contraction& c, int64_t rows,
                     int64_t around) {
  return {.target = w.target(),
          .lanes = static_cast<int>(w.lanes()),
          .rows = rows,
          .images = c.y ? extent(c.y) : 1,
          .columns = extent(c.v),
          .depth = depth_of(c),
          .op = c.op,
          .more = c.more,
          .scattered = c.scattered,
          .late = late_vectors(w, s, c),
          .apart = has_images_apart(w, s, c),
          .around = around};
}

}  // namespace

Tile model_tile(const ScheduleWriter& w, const Stage& s, const Contraction& c, int64_t rows,
                int64_t around) {
  return choose_tile(tile_space(w, s, c, rows, around));
}

namespace {

// Whether tile registers hold sums of this contraction, as dots of `op`, faster than vectors. Few
// rows wait for the other factor, of which vectors take more columns at once.
bool fits_tiles(const ScheduleWriter& w, const Stage& s, const Contraction& c, Op op) {
  constexpr int64_t kLeastRows = 8, kLeastRowsOfBytes = 17;
  return w.target().has_tiles && w.lanes() == TileShape::kColumns && op != Op::DotI16 && !c.y &&
         c.reduced.size() == 1 && !s.is_triangular() && w.kernel().sizes.empty() &&
         s.values[0].expr->dtype == dot_sum(op) &&
         extent(c.r) >= (op == Op::DotBF16 ? kLeastRows : kLeastRowsOfBytes);
}

}  // namespace

bool is_in_tiles(const Stage& s) {
  return s.whole_steps;
}

Tile tile_of(ScheduleWriter& w, const Stage& s, const Contraction& c, int64_t rows,
             int64_t around) {
  if (is_in_tiles(s)) {
    const Tile tile{std::min<int64_t>(rows, TileShape::kMostRows), 1,
                    TileShape::kMostColumns / w.lanes()};
    return tile;
  }
  const auto text = [&](const Tile& t) {
    return c.y ? fmt::format("{}x{}x{}", t.mr, t.ny, t.nv) : fmt::format("{}x{}", t.mr, t.nv);
  };
  const TileSpace space = tile_space(w, s, c, rows, around);
  const Tile model = choose_tile(space);
  const std::vector<Tile> others = other_tiles(space);
  std::vector<Choice::Option> options;
  for (const Tile& t : others) options.push_back({text(t), t.cycles / model.cycles});
  const std::string taken = w.choose("tile of " + s.name, text(model), std::move(options));
  const auto other =
      std::find_if(others.begin(), others.end(), [&](const Tile& t) { return text(t) == taken; });
  return other == others.end() ? model : *other;
}

TileLoops split_tile(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile,
                     bool rows_unrolled) {
  TileLoops t;
  const std::string v = w.loop(*s, c.v), r = w.loop(*s, c.r);
  const ScheduleWriter::Split sp = w.split_vectors(*s, c.v, tile.nv);
  w.step("split {0} {1} {1}.o {1}.i {2}", s->name, r, tile.mr);
  t.v = sp.blocks;
  t.r = r + ".o";
  std::string unrolled = (rows_unrolled ? r + ".i " : "") + sp.unrolled;
  t.inner = " " + r + ".i";
  if (c.y) {
    const std::string y = w.loop(*s, c.y);
    t.y = y;
    if (tile.ny > 1) {
      w.step("split {0} {1} {1}.o {1}.i {2}", s->name, y, tile.ny);
      t.y = y + ".o";
      t.inner += " " + y + ".i";
      unrolled += " " + y + ".i";
    }
  }
  t.inner += sp.inner();
  w.step("unroll {0} {1}; vector {0} {2}", s->name, unrolled, sp.lane);
  return t;
}

namespace {

// Whether every access of `expr` walks a and b, in this order, as one axis.
bool walks_as_one(const Kernel& kernel, const NodeRef& expr, const NodeRef& a, const NodeRef& b) {
  bool one = true;
  visit(expr, [&](const NodeRef& n) {
    if (n->op != Op::Load && n->op != Op::Read) return;
    if (n->src.empty()) return;  // a single number
    NodeRef place = n->src[0];
    if (n->op == Op::Read) {
      const auto [owner, found] = kernel.find_value(static_cast<int>(n->integer()));
      const Value& v = *found;
      for (size_t d = 0; d < n->src.size(); d++) {
        if (!uses(n->src[d], b)) continue;
        // Storage that is rounded up leaves gaps.
        const int own = axis_index(*owner, v.dims[d].get());
        for (const Loop& l : owner->loops) {
          one &= l.axis != own || l.stride * l.extent <= extent(v.dims[d]);
        }
      }
      for (size_t d = 1; d < n->src.size(); d++) {
        place = index_add(n->src[d], place, extent(v.dims[d]));
      }
    } else if (n->src.size() > 1) {
      one &= !uses(n->src[1], a) && !uses(n->src[1], b);
    }
    const LinearForm form = linear_form(place);
    one &= form.coefficient(a) == form.coefficient(b) * extent(b);
    for (const auto& [atom, c] : form.terms) {
      const bool itself = atom.get() == a.get() || atom.get() == b.get();
      one &= itself || (!uses(atom, a) && !uses(atom, b));
    }
  });
  return one;
}

}  // namespace

std::vector<NodeRef> in_order_of_memory(const ScheduleWriter& w, const NodeRef& expr,
                                        std::vector<NodeRef> axes) {
  std::stable_sort(axes.begin(), axes.end(), [&](const NodeRef& x, const NodeRef& y) {
    return strides_along(w.kernel(), expr, x).largest > strides_along(w.kernel(), expr, y).largest;
  });
  return axes;
}

namespace {

// The one axis that two neighbouring ones of a stage become.
NodeRef flattened(ScheduleWriter& w, const Stage& s, const NodeRef& outer, const NodeRef& inner) {
  const std::string n = w.loop(s, inner), flat = n + "f";
  w.step("flatten {} {} {} {}", s.name, w.loop(s, outer), n, flat);
  const auto loop =
      std::find_if(s.loops.begin(), s.loops.end(), [&](const Loop& l) { return l.name == flat; });
  return s.axes[static_cast<size_t>(loop->axis)];
}

// Whether a sum tells the phases of an array apart: written out, which one it reads is known, and
// not worked out beside few products.
bool tells_phases(const Stage& s, const NodeRef& axis) {
  bool does = false;
  visit(s.values[0].expr, [&](const NodeRef& x) { does |= x->op == Op::FMod && uses(x, axis); });
  return does;
}

// Whether products are worth some 10 milliseconds more of compiling, which sums over several axes
// take where the last is written out.
bool pays_for_code(const Stage& s, const Contraction& c) {
  constexpr double kMany = 1e8;
  double products = 1;
  for (const NodeRef& a : s.axes) products *= static_cast<double>(extent(a));
  return c.reduced.size() == 1 || products >= kMany;
}

}  // namespace

void unroll_sum(ScheduleWriter& w, Stage* s, Contraction c) {
  if (is_in_tiles(*s)) {
    w.step("split {0} {1} {1}.o {1}.i {2}", s->name, w.loop(*s, c.reduced[0]), TileShape::kStep);
    return;
  }
  constexpr int64_t kLong = 32, kFewSteps = 8;
  // Some 48 multiply-adds an iteration: more of a long sum gain nothing, and cost the compiler as
  // much again.
  const int64_t unroll = w.target().vector_registers > 16 ? 2 : 4;
  // What the operands walk as one becomes one loop, which ends once.
  while (c.reduced.size() > 1) {
    const NodeRef inner = c.reduced.back(), outer = c.reduced.end()[-2];
    if (s->is_triangular() || !walks_as_one(w.kernel(), s->values[0].expr, outer, inner)) break;
    c.reduced.pop_back();
    c.reduced.back() = flattened(w, *s, outer, inner);
  }
  const NodeRef& last = c.reduced.back();
  const std::string k = w.loop(*s, last);
  const auto loop =
      std::find_if(s->loops.begin(), s->loops.end(), [&](const Loop& l) { return l.name == k; });
  // Where tiles are small, the loop of a short sum takes as long as its products. Not so for what
  // is read of a that the loop around does not change: without a loop the compiler loads it before
  // that, for more registers than there are.
  const bool small = unroll > 2, is_short = small && loop->extent <= kFewSteps;
  const bool in_phases = is_short && tells_phases(*s, last),
             changes =
                 loop == s->loops.begin() ||
                 uses(factor(s->values[0], c.a), s->axes[static_cast<size_t>((loop - 1)->axis)]);
  const int64_t n = loop->extent;
  const bool whole = n <= unroll || in_phases || (is_short && changes && pays_for_code(*s, c));
  const int64_t model = whole ? n : !is_short && (small || extent(last) > kLong) ? unroll : 1;
  std::vector<int64_t> others;
  for (const int64_t steps : {1, 2, 4, 8}) {
    if (steps <= n) others.push_back(steps);
  }
  if (model == n) others.push_back(n);
  const int64_t steps = w.choose_number("steps of " + s->name, model, others);
  if (steps == n) {
    w.step("unroll {} {}", s->name, k);
  } else if (steps > 1) {
    w.step("split {0} {1} {1}.o {1}.i {2}; unroll {0} {1}.i", s->name, k, steps);
  }
}

namespace {

Factor look_at(const Kernel& kernel, const NodeRef& f, const NodeRef& v, const NodeRef& k) {
  Factor r;
  int accesses = 0;
  visit(f, [&](const NodeRef& n) {
    r.stored |= n->op == Op::Read;
    accesses += n->op == Op::Read || n->op == Op::Load;
    r.plain &= !is_elementwise(n->op) && !(n->op == Op::Load && n->src.size() > 1);
  });
  r.plain &= accesses == 1;
  r.along_v = strides_along(kernel, f, v);
  r.along_k = strides_along(kernel, f, k);
  return r;
}

}  // namespace

Packer::Packer(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile)
    : w_(w), s_(s), c_(c), tile_(tile) {
  const Value& v = s->values[0];
  b_ = look_at(w.kernel(), factor(v, c.b), c.v, c.reduced.back());
  a_ = look_at(w.kernel(), factor(v, c.a), c.r, c.reduced.back());
  depth_ = depth_of(c);
}

// Where the columns end at a size, the last tile is of parts.
int64_t Packer::column_tiles() const {
  const int64_t whole = extent(c_.v) / (tile_.nv * w_.lanes());
  const bool ends_in_parts = tile_.nv > 1 && s_->bound.count(axis_index(*s_, c_.v.get())) > 0;
  return (whole + (ends_in_parts ? 1 : 0)) * (c_.y ? extent(c_.y) / tile_.ny : 1);
}

// A factor of words has its stage already.
bool Packer::has_words() const {
  return is_dot(s_->values[0].expr->op);
}

int64_t factor_size(const Stage& s) {
  return size_of(factor(s.values[0], 0)->dtype);
}

// How far apart rows of a panel lie, in elements, along the sums: nearest and furthest. Those of
// windows overlap.
std::pair<int64_t, int64_t> Packer::row_steps() const {
  const NodeRef& b = factor(s_->values[0], c_.b);
  int64_t nearest = b_.along_k.largest, furthest = nearest;
  for (const NodeRef& k : c_.reduced) {
    const int64_t step = strides_along(w_.kernel(), b, k).largest;
    nearest = std::min(nearest, step);
    furthest = std::max(furthest, step);
  }
  return {nearest, furthest};
}

// Words have a stage that packs them already. What a stage has stored, with its lanes side by side,
// lies as a panel does.
std::optional<bool> Packer::settled_b() const {
  if (has_words()) return true;
  if (b_.stored && b_.along_v.other == 0) return false;
  return {};
}
std::optional<bool> Packer::settled_a() const {
  if (has_words()) return true;
  if (a_.stored) return false;
  return {};
}

// A panel is worth its copy if the lanes are not neighbours, or if many tiles read it again and its
// rows lie far apart, or come from L2 every time, which is faster line after line; for fewer tiles,
// where its rows share lines of L1 and push each other out.
bool Packer::would_pack_b(bool rows_outside) const {
  if (const std::optional<bool> settled = settled_b()) return *settled;
  const bool scattered = b_.along_v.other > 0;
  const auto [nearest, furthest] = row_steps();
  const int64_t size = factor_size(*s_), columns = tile_.nv * w_.lanes();
  const int64_t step = (nearest >= columns ? furthest : b_.along_k.largest) * size;
  const bool collide = leaves_l1(columns * size, step);
  constexpr int64_t kLong = 64;  // terms, of which all but a few come from L2 where sets are shared
  const int64_t tiles = !collide ? kFewRowTiles : sets_at(step) == 1 && depth_ >= kLong ? 2 : 4;
  // Rows that follow each other are a panel as they lie. Whole lines come from L2 as fast as a tile
  // needs them, so it is enough if all of them fit; of a row that ends within a line more is loaded
  // than is used.
  const int64_t row = (rows_outside ? extent(c_.v) : columns) * size;
  const bool comes_from_l2 =
      nearest > columns && leaves_l1(row, row % kCacheLine == 0 ? kCacheLine : step);
  return b_.plain ? scattered || ((step >= 1024 || comes_from_l2) && row_tiles() >= tiles)
                  : row_tiles() >= 2;
}

bool Packer::packs_b(bool rows_outside) {
  const bool model = would_pack_b(rows_outside);
  return settled_b() ? model : w_.choose_whether("packed b of " + s_->name, model);
}

bool Packer::leaves_l1(int64_t row, int64_t step) const {
  const int64_t lines = (row + kCacheLine - 1) / kCacheLine;
  return depth_ * lines > kept_lines(lines, step);
}

int64_t Packer::sets_at(int64_t step) const {
  const int64_t sets = w_.target().l1 / kCacheLine / w_.target().l1_ways;
  return step % kCacheLine == 0 ? sets / std::gcd(sets, step / kCacheLine) : sets;
}

// Fewer than all where rows share sets.
int64_t Packer::kept_lines(int64_t lines, int64_t step) const {
  const int64_t sets = w_.target().l1 / kCacheLine / w_.target().l1_ways;
  return std::min(sets_at(step) * lines, sets) * w_.target().l1_ways;
}

// Rows are worth their copy for so many tiles of columns if they are long, or if they lie across
// lines that push each other out of L1.
bool Packer::would_pack_a() const {
  if (const std::optional<bool> settled = settled_a()) return *settled;
  const bool across = a_.along_v.unit > 0 && a_.along_v.other == 0,
             collide = c_.reduced.size() == 1 &&
                       depth_ > kept_lines(1, a_.along_k.largest * factor_size(*s_));
  const bool large = (depth_ > 64 || (across && collide)) && column_tiles() >= 4;
  return a_.plain ? large && !reads_rows_well(a_.along_v.largest) : column_tiles() >= 2;
}

bool Packer::packs_a() {
  const bool model = would_pack_a();
  return settled_a() ? model : w_.choose_whether("packed a of " + s_->name, model);
}

// A row that lies together is read nearly as fast where it lies: to exchange its elements with
// those of other rows costs more than it saves in so many tiles of columns; in any number where L1
// all but holds a tile's and L3 is far: on Xeons 128 x 3,072 products of 768 take 0.97 of the time.
bool Packer::reads_rows_well(int64_t row_stride) const {
  const bool together = a_.along_k.unit > 0 && a_.along_k.other == 0;
  // Rows at such a distance share sets of L1, and push each other out if they are more than these
  // have ways.
  const int64_t sets = sets_at(row_stride * factor_size(*s_));
  const bool collide = (tile_.mr + sets - 1) / sets > w_.target().l1_ways - 2,
             stay = tile_.mr * depth_ * factor_size(*s_) <= w_.target().l1 * 4 / 3;
  return together && !collide && (!has_many_columns() || (stay && w_.target().far_l3));
}

int64_t bytes_of_arrays(const Kernel& kernel, const NodeRef& expr) {
  int64_t bytes = 0;
  bool computed = false;
  visit(expr, [&](const NodeRef& n) {
    if (n->op == Op::Read) {
      const auto [s, v] = kernel.find_value(static_cast<int>(n->integer()));
      if (!is_private_copy(kernel, *s)) computed = true;
      int64_t size = size_of(v->expr->dtype);
      for (const NodeRef& d : v->dims) size *= extent(d);
      bytes += size;
    }
    if (n->op != Op::Load) return;
    const KernelArgument& a = kernel.arguments[static_cast<size_t>(n->integer())];
    bytes += a.size * size_of(a.dtype);
  });
  return computed ? 0 : bytes;
}

bool packs_once(const ScheduleWriter& w, const Stage& s, const Contraction& c,
                const std::vector<NodeRef>& around) {
  constexpr int64_t kCopies = 2;  // of each element
  const NodeRef& b = factor(s.values[0], c.b);
  int64_t turns = 1, packed = size_of(b->dtype);
  for (const NodeRef& a : around) turns *= uses(b, a) ? 1 : extent(a);
  for (const NodeRef& a : s.axes) packed *= uses(b, a) ? extent(a) : 1;
  const int64_t most = std::min(kCopies * bytes_of_arrays(w.kernel(), b), w.target().l3 / 4);
  return turns > 1 && packed <= most;
}

bool is_loaded_as(const NodeRef& x, DType dtype) {
  return x->op == Op::Load && x->dtype == dtype;
}

bool loads_along(const ScheduleWriter& w, const NodeRef& x, const NodeRef& axis) {
  const Strides along = strides_along(w.kernel(), x, axis);
  return x->op == Op::Load && along.unit == 1 && along.other == 0;
}

std::optional<int64_t> length_in_panel(const ScheduleWriter& w, const Stage& s,
                                       const Contraction& c, const Tile& tile,
                                       const NodeRef& index) {
  int64_t length = 1;
  for (const auto& [axis, step] : linear_form(index).terms) {
    if (!is_axis_of(s, axis.get())) return {};
    int64_t steps = s.keeps(s.values[0], axis_index(s, axis.get())) ? 1 : extent(axis);
    if (axis.get() == c.v.get()) steps = tile.nv * w.lanes();
    if (axis.get() == c.y.get()) steps = tile.ny;
    length += std::abs(step) * (std::min(steps, extent(axis)) - 1);
  }
  return length;
}

int64_t Packer::phases() const {
  constexpr int64_t kMost = 4, kFewer = 3;
  const NodeRef& b = factor(s_->values[0], c_.b);
  if (b->op != Op::Read || b->src.empty()) return 0;
  const int64_t n = linear_form(b->src.back()).coefficient(c_.v);
  if (n < 2 || n > kMost || (n & (n - 1)) != 0) return 0;
  const Value& whole = *w_.kernel().find_value(static_cast<int>(b->integer())).second;
  if (extent(whole.dims.back()) % n != 0) return 0;
  const auto [quotient, remainder] = index_divmod(b->src.back(), n);
  if (linear_form(quotient).coefficient(c_.v) != 1 || uses(remainder, c_.v)) return 0;
  int64_t elements = 1;  // of what one panel reads
  for (size_t d = 0; d < b->src.size(); d++) {
    const std::optional<int64_t> length = length_in_panel(w_, *s_, c_, tile_, b->src[d]);
    if (!length || (d + 1 < b->src.size() && uses(b->src[d], c_.v))) return 0;
    elements *= *length;
  }
  const int64_t panel = depth_ * tile_.ny * tile_.nv * w_.lanes();
  const bool model = kFewer * elements <= panel;
  return w_.choose_whether("phases of b of " + s_->name, model) ? n : 0;
}

void Packer::separate_phases(const PackPlace& place, int64_t count) {
  const std::string p = s_->name + ".b";
  w_.step("polyphase {} {} {} {}", s_->name, c_.b, p, count);
  Stage* stage = w_.kernel().find_stage(p);
  const std::vector<NodeRef> axes = stage->values[0].dims;
  const std::vector<NodeRef> outer(axes.begin(), axes.end() - 2);
  const std::string phase = w_.loop(*stage, axes.end()[-2]);
  const ScheduleWriter::Split sp = w_.split_vectors(*stage, axes.back(), 1);
  w_.step("order {0}{1} {2} {3}{4}; unroll {0} {3} {5}; vector {0} {6}", p, w_.loops(*stage, outer),
          sp.blocks, phase, sp.inner(), sp.unrolled, sp.lane);
  finish(p, place, place.b_loop);
}

void Packer::pack_b(const PackPlace& place) {
  const int64_t count = has_words() ? 0 : phases();
  if (count > 0) return separate_phases(place, count);
  const std::string p = s_->name + ".b";
  if (!has_words()) w_.step("pack {} {} {}", s_->name, c_.b, p);
  Stage* stage = w_.kernel().find_stage(p);
  const NodeRef v = twin(*stage, c_.v);
  std::vector<NodeRef> summed;
  for (const NodeRef& k : c_.reduced) {
    if (const NodeRef t = twin(*stage, k)) summed.push_back(t);
  }
  // Where columns lie across vectors, what is summed and lies together is one longer row to turn.
  for (size_t i = summed.size(); i-- > 1;) {
    if (strides_along(w_.kernel(), stage->values[0].expr, v).other == 0) break;
    if (!can_flatten(*stage, summed[i - 1], summed[i])) continue;
    summed[i - 1] = flattened(w_, *stage, summed[i - 1], summed[i]);
    summed.erase(summed.begin() + static_cast<std::ptrdiff_t>(i));
  }
  const Squares squares = lift_squares(w_, stage, v, summed);
  // The loops over the sum, in the order of memory, and as the tile walks what they store.
  std::string ks, stored_ks;
  for (const NodeRef& k : in_order_of_memory(w_, stage->values[0].expr, summed)) {
    if (k.get() != squares.along.get()) ks += " " + w_.loop(*stage, k);
  }
  for (const NodeRef& k : summed) {
    const std::string n = w_.loop(*stage, k);
    stored_ks += k.get() == squares.along.get() ? fmt::format(" {0}.o {0}.i", n) : " " + n;
  }
  const std::string batch = rest(*stage, c_.v);
  const ScheduleWriter::Split sp = w_.split_vectors(*stage, v, tile_.nv);
  // One vector of columns after the other: a square fills half of the registers.
  if (squares.stage) {
    const std::string n = w_.loop(*stage, squares.along);
    w_.step("split {0} {1} {1}.o {1}.i {2}", p, n, w_.lanes());
    w_.step("order {0}{1} {2} {3}{4} {5}.o {5}.i {6}; unroll {0} {5}.i", p, batch, sp.blocks,
            sp.unrolled, ks, n, sp.lane);
    place_squares(w_, squares, *stage, n + ".o");
  } else {
    w_.step("order {0}{1} {2}{3}{4}; unroll {0} {5}", p, batch, sp.blocks, ks, sp.inner(),
            sp.unrolled);
  }
  w_.step("vector {0} {5}; store {0}{1} {2}{3}{4}", p, batch, sp.blocks, stored_ks, sp.inner(),
          sp.lane);
  finish(p, place, place.b_loop);
  make_start(place);
}

void Packer::make_start(const PackPlace& place) {
  const NodeRef& product = s_->values[0].expr;
  const NodeRef start = is_dot(product->op) ? dot_start(product) : NodeRef();
  if (!start) return;
  const NodeRef& sums = start->src[0];  // negated
  const auto [stage, value] = w_.kernel().find_value(static_cast<int>(sums->integer()));
  NodeRef v;
  std::vector<NodeRef> around;
  for (size_t d = 0; d < sums->src.size(); d++) {
    if (sums->src[d].get() == c_.v.get()) {
      v = value->dims[d];
    } else {
      around.push_back(value->dims[d]);
    }
  }
  const std::string ks = w_.loops(*stage, w_.axes_without(*stage, value->dims));
  const std::string outer = w_.loops(*stage, around);
  const ScheduleWriter::Split sp = w_.split_vectors(*stage, v, tile_.nv);
  w_.step("order {0}{1} {2}{3}{4}; unroll {0} {5}; vector {0} {6}", stage->name, outer, sp.blocks,
          ks, sp.inner(), sp.unrolled, sp.lane);
  finish(stage->name, place, place.b_loop);
}

void Packer::pack_a(const PackPlace& place) {
  const std::string p = s_->name + ".a";
  if (!has_words()) w_.step("pack {} {} {}", s_->name, c_.a, p);
  Stage* stage = w_.kernel().find_stage(p);
  const NodeRef r = twin(*stage, c_.r);
  const std::string batch = rest(*stage, c_.r), n = w_.loop(*stage, r);
  if (!has_words() && !place.by_tiles && reads_rows_well(depth_)) {
    // Computed once for all columns, along the rows.
    const std::string k = w_.loop(*stage, twin(*stage, c_.reduced.back()));
    std::string ks = depth(*stage);
    ks.resize(ks.size() - k.size() - 1);
    const ScheduleWriter::Split sp = w_.split_vectors(*stage, twin(*stage, c_.reduced.back()), 4);
    w_.step("order {0}{1} {2}{3}{4}; unroll {0} {5}; vector {0} {6}", p, batch, n, ks, sp.all(),
            sp.unrolled, sp.lane);
  } else {
    const std::string ks = depth(*stage);
    std::string tiles = n + ".o";
    w_.step("split {0} {1} {1}.o {1}.i {2}", p, n, tile_.mr);
    if (is_in_tiles(*s_)) {
      // A tile loads words of a row side by side, and rows behind each other. Lanes along the words
      // where memory has them so.
      const NodeRef k = twin(*stage, c_.reduced[0]);
      const std::string words = w_.loop(*stage, k);
      const int64_t terms = dot_terms(s_->values[0].expr->op);
      if (strides_along(w_.kernel(), stage->values[0].expr, k).largest == terms) {
        w_.step("split {0} {1} {1}.o {1}.v {2}; order {0}{3} {4}.o {4}.i {1}.o {1}.v", p, words,
                w_.lanes(), batch, n);
        w_.step("vector {} {}.v", p, words);
      } else {
        w_.step("split {0} {1} {1}.o {1}.v {2}; order {0}{3} {4}.o {1}.o {1}.v {4}.i", p, words,
                w_.lanes(), batch, n);
      }
      w_.step("store {0}{1} {2}.o {3}.o {2}.i {3}.v", p, batch, n, words);
      finish(p, place, place.a_loop);
      return;
    }
    if (has_words()) {
      // The elements of several words are too many for registers; they come in the order of memory.
      const NodeRef& word = stage->values[0].expr;
      const auto stride = [&](const NodeRef& x) {
        return strides_along(w_.kernel(), word, x).largest;
      };
      const bool by_row = stride(r) > stride(twin(*stage, c_.reduced.back()));
      const std::string rows = " " + n + ".i";
      w_.step("order {}{} {}.o{}", p, batch, n, by_row ? rows + ks : ks + rows);
    } else {
      // A line of memory holds rows of several tiles.
      constexpr int64_t kTiles = 4;
      const bool shares_lines = strides_along(w_.kernel(), stage->values[0].expr, r).largest == 1;
      if (shares_lines && row_tiles() >= 2 * kTiles) {
        w_.step("split {0} {1}.o {1}.b {1}.o {2}", p, n, kTiles);
        w_.step("order {0}{1} {2}.b{3} {2}.o {2}.i; unroll {0} {2}.o {2}.i", p, batch, n, ks);
        tiles = n + ".b " + tiles;
      } else {
        w_.step("order {0}{1} {2}.o{3} {2}.i; unroll {0} {2}.i", p, batch, n, ks);
      }
    }
    w_.step("store {0}{1} {2}{3} {4}.i", p, batch, tiles, ks, n);
  }
  finish(p, place, place.a_loop);
}

// The axis of the packed stage that stands for `axis`: packing keeps names and order.
NodeRef Packer::twin(const Stage& stage, const NodeRef& axis) const {
  size_t i = 0;
  const Value& packed = stage.values[0];
  for (const NodeRef& f : combination(s_->values[0])->src) {
    if (f->op != Op::Read || f->integer() != packed.id) continue;
    for (; i < f->src.size(); i++) {
      if (f->src[i].get() == axis.get()) return packed.dims[i];
    }
  }
  return {};
}

std::string Packer::depth(const Stage& stage) const {
  std::string r;
  for (const NodeRef& k : c_.reduced) {
    if (const NodeRef t = twin(stage, k)) r += " " + w_.loop(stage, t);
  }
  return r;
}

std::string Packer::rest(const Stage& stage, const NodeRef& tiled) const {
  std::string r;
  for (const NodeRef& d : s_->values[0].dims) {
    if (d.get() == tiled.get()) continue;
    if (const NodeRef t = twin(stage, d)) r += " " + w_.loop(stage, t);
  }
  return r;
}

void Packer::finish(const std::string& p, const PackPlace& place, const std::string& loop_name) {
  if (!loop_name.empty()) {
    w_.step("at {} {} {}", p, place.host->name, loop_name);
  } else if (place.each) {
    w_.step("scope {} each", p);
  } else {
    w_.step("scope {} shared", p);
    w_.parallel(w_.kernel().find_stage(p));
  }
}

bool pack_words(ScheduleWriter& w, Stage* s, bool alone) {
  constexpr int64_t kFewRows = 4, kFewVectors = 2, kBusyRows = 8;
  const Contraction c = contraction_of(*s, {});
  if (extent(c.r) < kFewRows || extent(c.v) < kFewVectors * w.lanes()) return false;
  for (const Op op : {Op::DotI8, Op::DotU8I8, Op::DotI16, Op::DotBF16}) {
    if (!has_dot(w.target(), op, static_cast<int>(w.lanes())) || !dot_factors(s->values[0], op))
      continue;
    // The axis that wastes least in its last word.
    const auto waste = [&](const NodeRef& k) {
      const int64_t n = dot_terms(op), words = (extent(k) + n - 1) / n;
      return static_cast<double>(words * n) / static_cast<double>(extent(k));
    };
    const NodeRef along =
        *std::min_element(c.reduced.begin(), c.reduced.end(),
                          [&](const NodeRef& x, const NodeRef& y) { return waste(x) < waste(y); });
    constexpr double kMostWaste = 1.4;
    if (waste(along) > kMostWaste) continue;
    const bool tiles =
        alone && fits_tiles(w, *s, c, op) && extent(along) >= TileShape::kStep * dot_terms(op);
    // Vectors have no dot of signed bytes; slow ones of bf16 are for what waits for memory.
    const bool slow = op == Op::DotBF16 && w.target().slow_bf16_dot && extent(c.r) >= kBusyRows;
    const bool only_tiles = op == Op::DotI8 || slow;
    if (only_tiles && !tiles) continue;
    const char* names[2];
    names[c.a] = "a";
    names[c.b] = "b";
    w.step("dot {0} {1} {2} {0}.{3} {0}.{4}{5}", s->name, w.loop(*s, along), name(op), names[0],
           names[1], tiles ? fmt::format(" {}", TileShape::kStep) : "");
    w.reason(fmt::format("{}: {} elements of each factor in a word, for {}{}", s->name,
                         dot_terms(op), name(op), tiles ? " in tile registers" : ""));
    return true;
  }
  return false;
}

// Stages over the contraction's kept axes, reading it at the same point, become its one epilogue.
bool is_epilogue(const Kernel& kernel, const Stage& e, const Stage& c) {
  if (reduces(e) || e.axes.size() != c.values[0].dims.size()) return false;
  for (const NodeRef& d : c.values[0].dims) {
    if (!is_axis_of(e, d)) return false;
  }
  const Reads reads(kernel);
  for (const Reads::Read& r : reads.of(&e)) {
    if (r.value != c.values[0].id) continue;
    for (size_t d = 0; d < r.index.size(); d++) {
      if (r.index[d].get() != c.values[0].dims[d].get()) return false;
    }
  }
  return true;
}

std::optional<std::vector<Stage*>> epilogue_of(const Kernel& kernel, const StageGroup& g) {
  std::vector<Stage*> epilogue;
  const Reads reads(kernel);
  for (Stage* m : g.members) {
    if (contraction_of(*m, {}).is) continue;
    if (!epilogue.empty()) {
      const std::vector<NodeRef>&a = epilogue[0]->axes, &b = m->axes;
      if (!std::equal(a.begin(), a.end(), b.begin(), b.end(), NodeEqual())) return {};
    }
    for (const Stage* e : epilogue) {
      if (!reads_in_place(reads, *m, *e)) return {};
    }
    epilogue.push_back(m);
  }
  return epilogue;
}

Stage* merge_epilogue(ScheduleWriter& w, const std::vector<Stage*>& epilogue) {
  for (size_t i = 1; i < epilogue.size(); i++) {
    w.step("fuse {} {}", epilogue[0]->name, epilogue[i]->name);
  }
  return epilogue.empty() ? nullptr : epilogue[0];
}

std::vector<NodeRef> batch_axes(const Stage& s, const Contraction& c) {
  std::vector<NodeRef> axes = s.values[0].dims;
  std::erase_if(axes, [&](const NodeRef& d) {
    return d.get() == c.v.get() || d.get() == c.r.get() || d.get() == c.y.get();
  });
  return axes;
}

int64_t batch_of(const Stage& s, const Contraction& c) {
  int64_t n = 1;
  for (const NodeRef& d : batch_axes(s, c)) n *= extent(d);
  return n;
}

bool fits_l2(const ScheduleWriter& w, const Stage& s) {
  const Value& v = s.values[0];
  int64_t bytes = size_of(v.expr->dtype);
  for (const NodeRef& d : v.dims) bytes *= extent(d);
  return bytes <= w.target().l2;
}

// Where vectors along the last axis would be mostly empty: lanes along an axis that fills them, in
// whichever factor it is and however its neighbours lie, since panels of that can be packed. Rows
// are the longest axis of the other factor, of which single elements are read; if they are few too,
// to read the large factor in another order gains less. It takes more code, which must be worth it,
// and elements that are converted are better converted in vectors. The same where dot products
// would have their lanes along few terms.
Contraction with_full_vectors(const ScheduleWriter& w, const Stage& s, const Contraction& given,
                              const std::vector<Stage*>& after) {
  constexpr int64_t kFewRows = 8;
  constexpr double kGain = 2, kWorth = 2e4;
  const double store = w.target().fast_gather ? kScatterCycles : 2;  // cycles of a lane
  const double dots = has_dots(w, s, given) ? dot_cycles(w, s, given) : 0;
  if (dots == 0 && 2 * extent(given.v) > w.lanes()) return given;
  const Value& v = s.values[0];
  bool converts = false;
  visit(v.expr, [&](const NodeRef& n) { converts |= n->op == Op::Cast && is_float(n->dtype); });
  if (converts) return given;
  // What is read and stored element by element.
  size_t arrays = after.empty() ? 1 : 0;
  for (const Stage* m : after) {
    arrays += loads_of(*m).size();
    for (const Value& made : m->values) arrays += made.slot >= 0;
  }
  auto results = static_cast<double>(arrays);
  for (const NodeRef& d : v.dims) results *= static_cast<double>(extent(d));
  const auto cycles = [&](const Contraction& c) {
    return static_cast<double>(batch_of(s, c)) * model_tile(w, s, c, extent(c.r)).cycles +
           (c.scattered ? store * results : 0);
  };
  Contraction best = given;
  double least = dots > 0 ? dots : cycles(given);
  if (least < kWorth) return given;
  std::vector<NodeRef> axes(v.dims.begin(), v.dims.end());
  // Lines of a result that leaves L2 before all their elements have come are written again and
  // again: the fewer, the nearer lanes lie.
  if (!fits_l2(w, s)) std::reverse(axes.begin(), axes.end());
  for (const NodeRef& d : axes) {
    const bool in0 = uses(factor(v, 0), d), in1 = uses(factor(v, 1), d);
    if (in0 == in1 || extent(d) < w.lanes()) continue;
    Contraction c = given;
    c.v = d;
    c.a = in1 ? 0 : 1;
    c.b = 1 - c.a;
    c.r = c.y = {};
    c.scattered = true;
    for (const NodeRef& e : v.dims) {
      const bool row = uses(factor(v, c.a), e) && !uses(factor(v, c.b), e);
      if (row && (!c.r || extent(e) > extent(c.r))) c.r = e;
    }
    const bool few = dots == 0 && 4 * extent(given.v) > w.lanes() && extent(c.r) <= kFewRows;
    if (!c.r || few) continue;
    if (cycles(c) * kGain >= least) continue;
    best = c;
    least = cycles(c) * kGain;
  }
  return best;
}

}  // namespace lazuli
