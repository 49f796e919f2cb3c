// The rule for row programs around contractions.
#include <algorithm>
#include <map>

#include "ir/choose_tiles.h"
#include "ir/index.h"

namespace lazuli {
namespace {

constexpr double kBlockWork = 2e6;  // multiply-adds: some 40 microseconds of one core

// One contraction of a row program: where its tile runs, and in which stage.
struct RowContraction {
  Stage* stage;
  Contraction c;
  Stage* host;        // the stage that its tile loops are in: its one pointwise reader, or itself
  int64_t terms = 0;  // of its sum that a block has; 0: it is summed at once
  bool dots = false;  // with lanes along the summed axis
};

// A contraction that keeps an axis outside of its tile, and the stages that it reads, directly or
// not, which keep that axis too: they are computed for one index of it at a time.
struct Chunks {
  Stage* owner = nullptr;  // null: there is no such contraction
  NodeRef axis;
  std::vector<Stage*> inside;

  bool holds(const Stage* s) const {
    return std::find(inside.begin(), inside.end(), s) != inside.end();
  }
};

// Multiply-adds of the contractions of one row, all that stands in a block but the rows.
double row_work(const StageGroup& g, const std::vector<RowContraction>& list) {
  double work = 0;
  for (const RowContraction& r : list) {
    double one = 1;
    for (const NodeRef& a : r.stage->axes) {
      if (!contains(g.grid, a)) one *= static_cast<double>(extent(a));
    }
    work += one;
  }
  return work;
}

// Bytes of the factors that all rows of a block share, as the keys and values of attention.
double shared_bytes(const StageGroup& g, const std::vector<RowContraction>& list) {
  double bytes = 0;
  for (const RowContraction& r : list) {
    const NodeRef b = factor(r.stage->values[0], r.c.b);
    double one = size_of(b->dtype);
    for (const NodeRef& a : r.stage->axes) {
      if (!contains(g.grid, a) && uses(b, a.get())) one *= static_cast<double>(extent(a));
    }
    bytes += one;
  }
  return bytes;
}

// The largest number of rows whose local values stay in a third of L2, with the cheapest tiles, and
// of which threads get equally many. Few rows are shared out to sixteen blocks, or two for each
// thread, unless a block would then have little to do, or many of them would read what all share
// from beyond L2 for a few rows each.
int64_t choose_block(ScheduleWriter& w, const StageGroup& g,
                     const std::vector<RowContraction>& list, const Chunks& chunks,
                     const NodeRef& block) {
  int64_t bytes = 4;
  for (const Stage* s : g.members) {
    for (const Value& v : s->values) {
      int64_t row = size_of(v.expr->dtype);
      for (const NodeRef& d : v.dims) {
        const bool one = chunks.holds(s) && d.get() == chunks.axis.get();
        if (!contains(g.grid, d) && !one) row *= extent(d);
      }
      if (v.slot < 0) bytes = std::max(bytes, row);
    }
  }
  int64_t outside = 1;
  for (const NodeRef& a : g.grid) outside *= a.get() == block.get() ? 1 : extent(a);
  const int64_t n = extent(block);
  // A tile of dots has some four rows, other tiles twice as many.
  const bool dots =
      std::all_of(list.begin(), list.end(), [](const RowContraction& r) { return r.dots; });
  const int64_t fewest_kept = dots ? 4 : 8;
  int64_t most = std::clamp<int64_t>(w.target().l2 / 3 / bytes, fewest_kept, 128);
  const bool tiles_rows = std::any_of(list.begin(), list.end(), [&](const RowContraction& r) {
    return r.c.r.get() == block.get();
  });
  const auto worthwhile = static_cast<int64_t>(kBlockWork / row_work(g, list));
  const int64_t fewest = std::clamp<int64_t>(worthwhile, tiles_rows ? 4 : 1, 16);
  constexpr int64_t kFew = 16;
  const int64_t threads = std::max(w.target().threads, 1);
  const int64_t shared_out = std::max(fewest, n * outside / std::max<int64_t>(2 * threads, 16));
  const bool read_again = shared_out < kFew && n > 2 * shared_out &&
                          shared_bytes(g, list) > static_cast<double>(w.target().l2 / 2);
  most = std::min({most, n, read_again ? std::max(fewest, n * outside / threads) : shared_out});
  double best = 1e300;
  int64_t chosen = std::min<int64_t>(most, n);
  const int64_t least =
      std::min<int64_t>(n, tiles_rows ? 2 : 1);  // a tile has a loop over its rows
  for (int64_t q = std::max((most + 1) / 2, least); q <= most; q++) {
    double cycles = 0;
    for (const RowContraction& r : list) {
      const bool rows = r.c.r.get() == block.get();
      cycles += model_tile(w, *r.stage, r.c, rows ? q : extent(r.c.r)).cycles /
                static_cast<double>(rows ? q : 1);
    }
    if (n % q) cycles *= 1.06;  // a ragged block is a second copy of the whole body
    cycles *= uneven_share(w.target(), outside, n, q) *
              late_share(w.target(), outside * ((n + q - 1) / q));
    if (cycles <= best * 1.0001) {
      best = cycles;
      chosen = q;
    }
  }
  std::vector<int64_t> others;
  for (const int64_t q : {chosen / 2, 2 * chosen, 4 * chosen}) {
    if (q > 0) others.push_back(std::min(q, n));
  }
  return w.choose_number("rows at a time of " + g.root()->name, chosen, others);
}

// Are vectors of n elements mostly empty?
bool wastes_lanes(int64_t n, int64_t lanes) {
  constexpr double kFilled = 0.5;
  return static_cast<double>(n) < kFilled * static_cast<double>((n + lanes - 1) / lanes * lanes);
}

// Tiles of a block have their lanes along another axis than its rows. Where a contraction that is
// not stored has rows last, it and what else is not stored lie row by row from here on; but where
// something that is stored has them last, lanes along rows write it in order, and where a row's
// elements are too few for the lanes, these are better along rows.
void lay_by_rows(ScheduleWriter& w, const StageGroup& g, const std::vector<NodeRef>& fixed) {
  const Node* const rows = g.grid.back().get();
  const auto is_local = [](const Value& v) { return v.slot < 0 && v.scope != Scope::Shared; };
  bool any = false;
  for (const Stage* s : g.members) {
    const Contraction c = contraction_of(*s, fixed);
    if (c.is && c.v.get() == rows && is_local(s->values[0])) {
      const std::vector<NodeRef>& dims = s->values[0].dims;
      const int64_t n = dims.size() > 1 ? extent(dims[dims.size() - 2]) : 1;
      if (wastes_lanes(n, w.lanes()) && !wastes_lanes(extent(c.v), w.lanes())) return;
      any = true;
    }
    for (const Value& v : s->values) {
      const bool by_columns = v.dims.size() > g.grid.size() && v.dims.back().get() == rows;
      if (v.slot >= 0 && by_columns) return;
    }
  }
  if (!any) return;
  std::vector<std::string> steps;
  for (const Stage* s : g.members) {
    for (const Value& v : s->values) {
      if (!is_local(v) || v.dims.empty() || v.dims.back().get() != rows) continue;
      size_t place = 0;
      while (contains(fixed, v.dims[place].get())) place++;
      std::string order;
      for (size_t d = 0; d + 1 < v.dims.size(); d++) {
        if (d == place) order += fmt::format(" {}", v.dims.size() - 1);
        order += fmt::format(" {}", d);
      }
      if (place + 1 < v.dims.size()) steps.push_back(fmt::format("dims {}{}", v.name, order));
    }
  }
  for (const std::string& step : steps) w.step("{}", step);
}

std::vector<RowContraction> find_contractions(const ScheduleWriter& w, const StageGroup& g,
                                              const std::vector<NodeRef>& fixed) {
  std::vector<RowContraction> list;
  std::map<const Stage*, int> hosted;
  for (Stage* s : g.members) {
    Contraction c = contraction_of(*s, fixed);
    // Lanes along the rows of a block do not form tiles.
    if (!c.is || c.v.get() == g.grid.back().get()) continue;
    if (c.y.get() == g.grid.back().get()) c.y = {};
    RowContraction r{s, c, s};
    r.dots = is_summed_along_lanes(w, *s, c);
    const std::vector<Stage*> readers = readers_of(w.kernel(), *s);
    const bool private_value = s->values[0].slot < 0 && s->values[0].scope != Scope::Shared;
    if (!r.dots && private_value && readers.size() == 1 && g.has(readers[0]) &&
        is_epilogue(w.kernel(), *readers[0], *s) && !contraction_of(*readers[0], fixed).is &&
        hosted[readers[0]]++ == 0) {
      r.host = readers[0];
    }
    list.push_back(r);
  }
  return list;
}

// Rows of a block at a distance at which they share lines of L1 push the columns of b out of it
// that the next tile of rows reads again. Where those are many, the sum is walked in blocks of
// terms, with partial results in memory.
void choose_terms(ScheduleWriter& w, RowContraction& r, const NodeRef& block, int64_t rows) {
  if (r.c.reduced.size() != 1 || r.c.y || r.c.r.get() != block.get()) return;
  constexpr int64_t kFewTiles = 4;
  const Tile tile = model_tile(w, *r.stage, r.c, rows);
  const int64_t n = extent(r.c.reduced[0]), size = factor_size(*r.stage), l1 = w.target().l1;
  const int64_t line = tile.nv * w.lanes() * size;
  const int64_t ways = w.target().l1_ways;
  const bool collide = n * size % (l1 / ways) == 0 && 2 * tile.mr > ways;
  if (!collide || rows < kFewTiles * tile.mr || n * line <= l1) return;
  int64_t terms = l1 / 4 / line;
  for (int64_t t = terms / 2; t <= l1 / 4 / line; t++) {
    if (n % t == 0) terms = t;
  }
  r.terms = w.choose_number("terms at a time of " + r.stage->name, terms, {terms / 2, 2 * terms});
  r.host = r.stage;
}

Chunks find_chunks(const ScheduleWriter& w, const StageGroup& g,
                   const std::vector<RowContraction>& list) {
  const Reads reads(w.kernel());
  for (const RowContraction& r : list) {
    if (r.host != r.stage || r.dots) continue;
    for (const NodeRef& axis : r.stage->values[0].dims) {
      const bool tiled =
          axis.get() == r.c.v.get() || axis.get() == r.c.r.get() || axis.get() == r.c.y.get();
      if (tiled || contains(g.grid, axis)) continue;
      Chunks c{r.stage, axis, {}};
      std::vector<const Stage*> open{r.stage};
      for (size_t seen = 0; seen < open.size(); seen++) {
        for (Stage* s : g.members) {
          if (s == r.stage || c.holds(s) || !is_axis_of(*s, axis) || !keeps_in_all(*s, axis) ||
              !reads.reads(open[seen], s))
            continue;
          c.inside.push_back(s);
          open.push_back(s);
        }
      }
      // What others read of them is one element of a row and chunk, and they come later.
      bool small = true, passed = false;
      for (const Stage* s : g.members) {
        passed |= s == r.stage;
        for (const Stage* x : c.inside) {
          if (c.holds(s) || s == r.stage) continue;
          for (const Value& v : x->values) {
            if (!reads.reads(s, v.id)) continue;
            small &= passed && std::all_of(v.dims.begin(), v.dims.end(), [&](const NodeRef& d) {
                       return contains(g.grid, d) || d.get() == axis.get();
                     });
          }
        }
      }
      if (small && !c.inside.empty()) return c;
    }
  }
  return {};
}

// What contraction `r` reads as its rows, if that is a value as it is, along the one axis that is
// summed, in whole vectors; null if not.
const Value* rows_of(const ScheduleWriter& w, const RowContraction& r) {
  const NodeRef& a = factor(r.stage->values[0], r.c.a);
  const bool plain = a->op == Op::Read && !a->src.empty() && r.c.reduced.size() == 1 &&
                     r.terms == 0 && a->src.back().get() == r.c.reduced[0].get() &&
                     extent(r.c.reduced[0]) % w.lanes() == 0;
  return plain ? w.kernel().find_value(static_cast<int>(a->integer())).second : nullptr;
}

// Is the value of `s` for sums alone, which can walk it vector by vector?
bool is_summed_by_vectors(const ScheduleWriter& w, const Stage& s,
                          const std::vector<RowContraction>& list) {
  if (s.values.size() != 1) return false;
  const Value& v = s.values[0];
  const Reads reads(w.kernel());
  for (const Stage* reader : readers_of(w.kernel(), s)) {
    const auto is_reader = [&](const RowContraction& r) { return r.stage == reader; };
    const auto r = std::find_if(list.begin(), list.end(), is_reader);
    const auto reads_v = [&](const Reads::Read& x) { return x.value == v.id; };
    const auto& all = reads.of(reader);
    if (r == list.end() || rows_of(w, *r) != &v ||
        std::count_if(all.begin(), all.end(), reads_v) > 1)
      return false;
  }
  return v.slot < 0;
}

// Dots of a few rows of the block with a few columns, whose sums end in one register each.
void schedule_dots(ScheduleWriter& w, const RowContraction& r, int64_t rows,
                   const std::string& around) {
  constexpr int64_t kMostColumns = 4;
  const auto evenly = [](int64_t n, int64_t most) {
    const int64_t parts = (n + most - 1) / most;
    return (n + parts - 1) / parts;
  };
  // The compiler loads ahead where it has many registers, and spills where it has just enough.
  const int registers = w.target().vector_registers;
  const int64_t room = registers - (registers > 16 ? 6 : 4),
                mc = evenly(extent(r.c.v), kMostColumns), mr = evenly(rows, room / mc);
  const std::string i = w.loop(*r.stage, r.c.r), j = w.loop(*r.stage, r.c.v),
                    l = w.loop(*r.stage, r.c.reduced[0]);
  w.step(
      "split {0} {1} {1}.o {1}.i {2}; split {0} {3} {3}.o {3}.i {4}; split {0} {5} {5}.o {5}.v {6}",
      r.stage->name, i, mr, j, mc, l, w.lanes());
  w.step(
      "order {0}{1} {2}.o {3}.o {4}.o {2}.i {3}.i {4}.v; unroll {0} {2}.i {3}.i; vector {0} {4}.v",
      r.stage->name, around, i, j, l);
  w.reason(fmt::format("{}: dot products of {} by {} rows, lanes along the summed axis {}",
                       r.stage->name, mr, mc, l));
}

// Whether the columns of a contraction's tile depend on loops that are neither around its block nor
// of the tile.
bool depends_on_others(const RowContraction& r, const NodeRef& block,
                       const std::vector<NodeRef>& fixed) {
  const Value& v = r.stage->values[0];
  return std::any_of(v.dims.begin(), v.dims.end(), [&](const NodeRef& d) {
    const bool tiled = d.get() == r.c.v.get() || d.get() == r.c.r.get() || d.get() == r.c.y.get();
    return !tiled && d.get() != block.get() && !contains(fixed, d) && uses(factor(v, r.c.b), d);
  });
}

// The tile of one contraction, in its host, inside the row block.
void schedule_tile(ScheduleWriter& w, const StageGroup& g, const RowContraction& r,
                   const NodeRef& block, int64_t rows, const std::vector<NodeRef>& fixed,
                   const std::string& block_loop, const std::string& outer_loop) {
  Stage* root = g.root();
  const bool by_rows = r.c.r.get() == block.get();
  const int64_t n = by_rows ? std::min(rows, extent(r.c.r)) : extent(r.c.r);
  // Loops of the stage that are neither fixed nor of the tile.
  const auto others = [&](const Stage& s) {
    std::string t;
    for (const NodeRef& d : r.stage->values[0].dims) {
      const bool tiled = d.get() == r.c.v.get() || d.get() == r.c.r.get() || d.get() == r.c.y.get();
      // A block of one row has no loop over its rows.
      const bool around = &s == root && w.loop(s, d) == block_loop;
      if (!tiled && !around && !contains(fixed, d)) t += " " + w.loop(s, d);
    }
    return t;
  };
  const bool in_root = r.host == root;
  const std::string around = w.loops(*r.host, fixed) + (in_root ? " " + block_loop : "");
  std::string rest = others(*r.host);
  if (r.dots) return schedule_dots(w, r, n, around + rest);
  const Tile tile = tile_of(w, *r.stage, r.c, n);
  Packer packer(w, r.stage, r.c, tile);
  const int64_t columns = depth_of(r.c) * factor_size(*r.stage) * extent(r.c.v);
  const bool packs_b = packer.packs_b(columns <= w.target().l1);
  const TileLoops t = split_tile(w, r.host, r.c, tile);
  const std::string images = t.y.empty() ? "" : t.y + " ";
  // The loop outside keeps its panel of b in L1 where not all of b stays there.
  const bool rows_inside =
      !w.choose_whether("rows outside of " + r.stage->name, !packs_b && columns <= w.target().l1);
  // A panel that the other loops do not change stays in cache for all of them.
  const bool panels_outside = packs_b && rows_inside && r.host == r.stage && r.terms == 0 &&
                              columns > w.target().l1 && !depends_on_others(r, block, fixed);
  const std::string two = images + (panels_outside ? t.v + rest + " " + t.r
                                    : rows_inside  ? t.v + " " + t.r
                                                   : t.r + " " + t.v);
  if (panels_outside) rest.clear();
  const std::string innermost = rows_inside ? t.r : t.v;
  std::string ks = w.loops(*r.stage, r.c.reduced);
  if (const Value* a = rows_of(w, r); a && !a->layout.empty()) {
    w.step("split {0}{1}{1}.b{1} {2}", r.stage->name, ks, w.lanes());
    ks = ks + ".b" + ks;
  }
  if (r.host == r.stage) {
    std::string blocks;
    if (r.terms > 0) {
      const std::string k = w.loop(*r.stage, r.c.reduced[0]);
      w.step("split {0} {1} {1}.b {1} {2}", r.stage->name, k, r.terms);
      blocks = k + ".b ";
    }
    w.step("order {}{}{} {}{}{}{}", r.host->name, around, rest, blocks, two, ks, t.inner);
  } else {
    w.step("order {}{}{} {}{}", r.host->name, around, rest, two, t.inner);
    const std::string fixed_loops = w.loops(*r.stage, fixed), own_rest = others(*r.stage);
    const TileLoops u = split_tile(w, r.stage, r.c, tile);
    w.step("order {}{}{} {}{}{}", r.stage->name, fixed_loops, own_rest, two, ks, u.inner);
    w.step("at {} {} {}; scope {} reg", r.stage->name, r.host->name, innermost,
           r.stage->values[0].name);
  }
  // What this block computes, or reads alone, is packed in the block; other operands once for all
  // blocks, and once at all where they are the same around them.
  const NodeRef& b = factor(r.stage->values[0], r.c.b);
  bool local = uses(b, block.get());
  visit(b, [&](const NodeRef& n) {
    local |=
        n->op == Op::Read && g.has(w.kernel().find_value(static_cast<int>(n->integer())).first);
  });
  const bool once = !local && packs_once(w, *r.stage, r.c, fixed);
  if (packs_b) packer.pack_b({root, once ? "" : local ? block_loop : outer_loop, ""});
  if (packer.packs_a()) packer.pack_a({root, "", block_loop});
  unroll_sum(w, r.stage, r.c);
}

// Whether loops of `s` end at a bound that depends on rows which the root keeps.
bool ends_by_rows(const Stage& s, const StageGroup& g) {
  return std::any_of(g.grid.begin(), g.grid.end(), [&](const NodeRef& a) {
    return keeps_in_all(*g.root(), a) &&
           std::any_of(s.limit.begin(), s.limit.end(),
                       [&](const auto& end) { return uses(end.second, a.get()); });
  });
}

bool reads_contraction(const Kernel& kernel, const Stage& s) {
  const Reads reads(kernel);
  return std::any_of(kernel.stages.begin(), kernel.stages.end(), [&](const auto& c) {
    return reads.reads(&s, c.get()) && contraction_of(*c, {}).is;
  });
}

// An element-wise value of a block takes the place of one that it reads at the same point and that
// nobody reads later.
void keep_in_place(ScheduleWriter& w, const StageGroup& g, Stage* s, const std::string& loop) {
  const Value& v = s->values[0];  // others of the stage are sums of it
  for (size_t i = 0; i < s->values.size(); i++) {
    if ((i > 0) != s->values[i].reduces()) return;
  }
  if (v.slot >= 0 || v.scope != Scope::Scratch) return;
  const Reads reads(w.kernel());
  const auto number = [&](const Stage* x) {
    return std::find(g.members.begin(), g.members.end(), x) - g.members.begin();
  };
  // Whether a stage is computed after s, in its own place of the block or in a later one's loop.
  const auto is_later = [&](const Stage* x) {
    bool later = number(x) > number(s);
    while ((x = x->at) && x != s->at) later |= number(x) > number(s);
    return later;
  };
  for (const Reads::Read& r : reads.of(s)) {
    const auto [owner, x] = w.kernel().find_value(r.value);
    if (owner == s || !g.has(owner) || owner->at_loop.empty()) continue;
    bool same = x->slot < 0 && x->scope == Scope::Scratch && x->expr->dtype == v.expr->dtype &&
                x->dims.size() == v.dims.size() && owner->at_loop == loop;
    for (size_t d = 0; same && d < v.dims.size(); d++) {
      same = r.index[d].get() == v.dims[d].get() && x->dims[d].get() == v.dims[d].get();
    }
    const int place = x->alias >= 0 ? x->alias : x->id;
    // Everything kept in that place so far is read before s, or by s.
    for (const Stage* m : g.members) {
      for (const Value& u : m->values) {
        if (u.id != place && u.alias != place) continue;
        for (const Stage* reader : readers_of(w.kernel(), *m)) {
          bool reads_u = false;
          for (const Reads::Read& q : reads.of(reader)) reads_u |= q.value == u.id;
          if (reads_u && reader != s && (!g.has(reader) || is_later(reader))) same = false;
        }
      }
    }
    if (!same) continue;
    w.step("inplace {} {}", v.name, w.kernel().find_value(place).second->name);
    return;
  }
}

}  // namespace

// Row programs around contractions (attention): the last grid axis is walked in blocks of rows
// whose values stay in L2; contractions are tiled inside a block, row statistics and exponentials
// run over its rows.
bool schedule_row_blocks(ScheduleWriter& w, StageGroup& g) {
  if (w.lanes() == 1 || g.members.size() < 2 || g.grid.empty()) return false;
  // Where all rows of a mask lie inside one block, the tiles of a contraction end at the mask if
  // what masks is their epilogue.
  fuse_siblings(w, g, [&](const Stage& a, const Stage& b) {
    return reduces(b) && !a.limit.empty() && !ends_by_rows(a, g) &&
           reads_contraction(w.kernel(), a);
  });
  forward_values(w, g);
  Stage* root = g.root();
  // Rows are what the root keeps: an axis that it sums over lies inside a block, and so does the
  // last axis where tiles have their lanes along it.
  const std::vector<NodeRef> whole = g.grid;
  std::erase_if(g.grid, [&](const NodeRef& a) { return !keeps_in_all(*root, a); });
  std::vector<NodeRef> fixed;
  std::vector<RowContraction> list;
  for (; !g.grid.empty(); g.grid.pop_back()) {
    fixed.assign(g.grid.begin(), g.grid.end() - 1);
    lay_by_rows(w, g, fixed);
    list = find_contractions(w, g, fixed);
    if (!list.empty()) break;
  }
  if (list.empty()) {
    g.grid = whole;
    return false;
  }
  const NodeRef block = g.grid.back();
  // Inside a block the root's own axes are walked after the grid.
  const Chunks chunks = find_chunks(w, g, list);
  for (RowContraction& r : list) {
    // Computed for one chunk at a time.
    if (chunks.holds(r.stage) && r.c.y.get() == chunks.axis.get()) r.c.y = {};
  }
  const int64_t rows = choose_block(w, g, list, chunks, block);
  const std::string n = w.loop(*root, block), block_loop = rows > 1 ? n + ".b" : n;
  int64_t outside = 1;
  for (const NodeRef& a : fixed) outside *= extent(a);
  // Too few outer iterations to share out: operands are packed by a phase, and blocks run in
  // parallel.
  constexpr int64_t kShared = 8;
  const bool few =
      outside < kShared || (rows < extent(block) && !share_evenly(w.target(), outside));
  const std::string outer_loop = few ? "" : w.loop(*root, fixed.back());
  if (rows > 1) w.step("split {0} {1} {2} {1} {3}", root->name, n, block_loop, rows);
  for (RowContraction& r : list) choose_terms(w, r, block, rows);
  bool root_is_host = false;
  std::map<const Stage*, bool> tiled;
  for (const RowContraction& r : list) {
    // The block loop of the root is known by its name now; its inner part has the axis's name.
    root_is_host |= r.host == root;
    tiled[r.stage] = tiled[r.host] = true;
  }
  if (!root_is_host) {
    std::vector<NodeRef> local = ScheduleWriter::axes_without(*root, fixed);
    const std::string around = w.loops(*root, fixed) + " " + block_loop;
    std::vector<NodeRef> inner = ScheduleWriter::axes_without(*root, g.grid), chosen;
    for (const NodeRef& a : selecting_axes(*root)) {
      if (inner.size() > 1 && std::erase(inner, a) > 0) chosen.push_back(a);
    }
    const std::vector<NodeRef> among = inner.empty() ? std::vector<NodeRef>{block} : inner;
    const NodeRef v = vector_axis(w.kernel(), *root, among, static_cast<int>(w.lanes()));
    // A block of rows holds whole vectors or none.
    const int64_t unroll = v.get() != block.get()        ? 2
                           : rows % (2 * w.lanes()) == 0 ? 2
                           : rows % w.lanes() == 0       ? 1
                                                         : 0;
    std::string rest;
    for (const NodeRef& a : local) {
      const bool walked = w.loop(*root, a) == block_loop || contains(chosen, a) ||
                          (unroll > 0 && a.get() == v.get());
      if (!walked) rest += " " + w.loop(*root, a);
    }
    if (unroll == 0) {
      w.step("order {}{}{}{}", root->name, around, rest, w.loops(*root, chosen));
    } else {
      const ScheduleWriter::Split sp = w.split_vectors(*root, v, unroll);
      const std::string copies = w.loops(*root, chosen);
      w.step("order {0}{1}{2} {3}{4}{5}; {6} {0} {7}; vector {0} {8}", root->name, around, rest,
             sp.blocks, copies, sp.inner(), keeps_in_all(*root, v) ? "unroll" : "ilp", sp.unrolled,
             sp.lane);
      if (!copies.empty()) w.step("unroll {}{}", root->name, copies);
    }
  }
  std::map<const Stage*, bool> placed;
  for (Stage* s : g.members) {
    if (tiled.count(s) || chunks.holds(s) || placed.count(s)) continue;
    const TakenStage t = taken_by_vectors(w, g, s);
    if (!t.reader || t.reader == root || tiled.count(t.reader) || chunks.holds(t.reader) ||
        placed.count(t.reader) ||
        !schedule_taken(w, t, g.grid, is_summed_by_vectors(w, *t.reader, list)))
      continue;
    placed[t.reader] = placed[s] = true;
    w.step("at {} {} {}", t.reader->name, root->name, block_loop);
  }
  for (const RowContraction& r : list)
    schedule_tile(w, g, r, block, rows, fixed, block_loop, outer_loop);
  // Everything else, by rows of the block.
  for (Stage* s : g.members) {
    if (s == root || placed.count(s)) continue;
    const bool inside = chunks.holds(s);
    const Stage* host = inside ? chunks.owner : root;
    const std::string loop = inside ? w.loop(*host, chunks.axis) : block_loop;
    const bool is_host = tiled.count(s) > 0;
    if (is_host) {
      if (!s->at) w.step("at {} {} {}", s->name, host->name, loop);
      continue;
    }
    std::vector<NodeRef> around = g.grid, outer = fixed;
    if (inside) {
      around.push_back(chunks.axis);
      outer.push_back(chunks.axis);
    }
    flatten_axes(w, s, around, w.lanes() / 2);
    const std::vector<NodeRef> local = ScheduleWriter::axes_without(*s, around);
    if (local.empty()) {
      w.vectorize(s, outer, {block});
    } else {
      w.vectorize(s, around, local);
    }
    const std::vector<Stage*> readers = readers_of(w.kernel(), *s);
    Stage* only = readers.size() == 1 ? readers[0] : nullptr;
    const bool scalar = s->values.size() == 1 && s->values[0].slot < 0 &&
                        s->values[0].scope != Scope::Shared && !local.empty() &&
                        std::all_of(s->values[0].dims.begin(), s->values[0].dims.end(),
                                    [&](const NodeRef& d) { return contains(g.grid, d); });
    const bool reader_by_rows = only && only != root && g.has(only) && !tiled.count(only) &&
                                !contraction_of(*only, fixed).is &&
                                !ScheduleWriter::axes_without(*only, g.grid).empty();
    if (scalar && reader_by_rows) {
      w.step("at {} {} {}; scope {} reg", s->name, only->name, w.loop(*only, block),
             s->values[0].name);
      continue;
    }
    w.step("at {} {} {}", s->name, host->name, loop);
    keep_in_place(w, g, s, loop);
  }
  w.parallel(root);
  w.reason(fmt::format("{}: blocks of {} rows of {}", root->name, rows, n));
  return true;
}

}  // namespace lazuli
