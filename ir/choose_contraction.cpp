// Rules for contractions: register tiles, packed operands, epilogues, and row programs around
// contractions.
#include <algorithm>
#include <map>

#include "ir/choose_rules.h"
#include "ir/index.h"

namespace lazuli {
namespace {

bool contains(const std::vector<NodeRef>& list, const Node* n) {
  return std::any_of(list.begin(), list.end(), [&](const NodeRef& x) { return x.get() == n; });
}

// The loops of a register tile: names of the loops that the splits left outside, and the text of
// those inside.
struct TileLoops {
  std::string v, r, y;  // outside; y is empty if there is no such axis
  std::string inner;
};

// Splits the axes of the tile in stage `s`, which may be the contraction or the stage that its
// epilogue runs in.
TileLoops split_tile(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile) {
  TileLoops t;
  const std::string v = w.loop(*s, c.v), r = w.loop(*s, c.r);
  const ScheduleWriter::Split sp = w.split_vectors(*s, c.v, tile.nv);
  w.step("split {0} {1} {1}.o {1}.i {2}", s->name, r, tile.mr);
  t.v = sp.blocks;
  t.r = r + ".o";
  std::string unrolled = r + ".i " + sp.unrolled;
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

struct Factor {
  bool stored = false;  // reads a value of another stage
  bool plain = true;    // one load or read, perhaps converted
  Strides along_v, along_k;
};

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

// Where the panels of a contraction are made.
struct PackPlace {
  Stage* host = nullptr;
  std::string b_loop, a_loop;  // loop of host that makes a panel; empty: a phase of its own
};

// One packed factor: a stage over the axes it uses, stored in the order in which the tile walks it.
class Packer {
 public:
  Packer(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile)
      : w_(w), s_(s), c_(c), tile_(tile) {
    const NodeRef& product = s->values[0].expr;
    b_ = look_at(w.kernel(), product->src[static_cast<size_t>(c.b)], c.v, c.reduced.back());
    a_ = look_at(w.kernel(), product->src[static_cast<size_t>(c.a)], c.r, c.reduced.back());
    for (const NodeRef& k : c.reduced) depth_ *= extent(k);
  }

  int64_t row_tiles() const { return extent(c_.r) / tile_.mr; }
  int64_t column_tiles() const {
    return extent(c_.v) / (tile_.nv * w_.lanes()) * (c_.y ? extent(c_.y) / tile_.ny : 1);
  }
  // A panel is worth its copy if the lanes are not neighbours, or its rows lie far apart and many
  // tiles read it again.
  bool packs_b() const {
    const bool scattered = b_.along_v.other > 0;
    const int64_t step = b_.along_k.largest * size_of(s_->values[0].expr->dtype);
    if (b_.stored && !scattered) return false;
    if (!b_.plain) return row_tiles() >= 2;
    return scattered || (step >= 1024 && row_tiles() >= 8);
  }
  bool packs_a() const {
    if (a_.stored) return false;
    if (!a_.plain) return column_tiles() >= 2;
    return depth_ > 64 && column_tiles() >= 4;
  }

  void pack_b(const PackPlace& place) {
    const std::string p = s_->name + ".b";
    w_.step("pack {} {} {}", s_->name, c_.b, p);
    Stage* stage = w_.kernel().find_stage(p);
    const NodeRef v = twin(*stage, c_.v);
    const std::string ks = depth(*stage), batch = rest(*stage, c_.v);
    const ScheduleWriter::Split sp = w_.split_vectors(*stage, v, tile_.nv);
    w_.step("order {0}{1} {2}{3}{4}; unroll {0} {5}; vector {0} {6}", p, batch, sp.blocks, ks,
            sp.inner(), sp.unrolled, sp.lane);
    w_.step("store {0}{1} {2}{3}{4}", p, batch, sp.blocks, ks, sp.inner());
    finish(p, place.host, place.b_loop);
  }
  void pack_a(const PackPlace& place) {
    const std::string p = s_->name + ".a";
    w_.step("pack {} {} {}", s_->name, c_.a, p);
    Stage* stage = w_.kernel().find_stage(p);
    const NodeRef r = twin(*stage, c_.r);
    const std::string ks = depth(*stage), batch = rest(*stage, c_.r), n = w_.loop(*stage, r);
    w_.step("split {0} {1} {1}.o {1}.i {2}", p, n, tile_.mr);
    w_.step("order {0}{1} {2}.o{3} {2}.i; unroll {0} {2}.i", p, batch, n, ks);
    w_.step("store {0}{1} {2}.o{3} {2}.i", p, batch, n, ks);
    finish(p, place.host, place.a_loop);
  }

 private:
  // The axis of the packed stage that stands for `axis`: packing keeps names and order.
  NodeRef twin(const Stage& stage, const NodeRef& axis) const {
    size_t i = 0;
    const Value& packed = stage.values[0];
    const NodeRef& product = s_->values[0].expr;
    for (const NodeRef& f : product->src) {
      if (f->op != Op::Read || f->integer() != packed.id) continue;
      for (; i < f->src.size(); i++) {
        if (f->src[i].get() == axis.get()) return packed.dims[i];
      }
    }
    return {};
  }
  std::string depth(const Stage& stage) const {
    std::string r;
    for (const NodeRef& k : c_.reduced) {
      if (const NodeRef t = twin(stage, k)) r += " " + w_.loop(stage, t);
    }
    return r;
  }
  std::string rest(const Stage& stage, const NodeRef& tiled) const {
    std::string r;
    for (const NodeRef& d : s_->values[0].dims) {
      if (d.get() == tiled.get()) continue;
      if (const NodeRef t = twin(stage, d)) r += " " + w_.loop(stage, t);
    }
    return r;
  }
  void finish(const std::string& p, const Stage* host, const std::string& loop_name) {
    if (loop_name.empty()) {
      w_.step("scope {} shared", p);
      w_.parallel(w_.kernel().find_stage(p));
    } else {
      w_.step("at {} {} {}", p, host->name, loop_name);
    }
  }

  ScheduleWriter& w_;
  Stage* s_;
  const Contraction& c_;
  const Tile& tile_;
  Factor a_, b_;
  int64_t depth_ = 1;
};

std::string batch_loops(const ScheduleWriter& w, const Stage& s, const Stage& contraction,
                        const Contraction& c) {
  std::string r;
  for (const NodeRef& d : contraction.values[0].dims) {
    if (d.get() != c.v.get() && d.get() != c.r.get() && d.get() != c.y.get())
      r += " " + w.loop(s, d);
  }
  return r;
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

// K in blocks, once a panel no longer fits an eighth of L2: partial sums in the output, row blocks
// keep A in the last cache.
void schedule_deep(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile,
                   const TileLoops& t, int64_t kc) {
  const std::string k = w.loop(*s, c.reduced[0]), r = w.loop(*s, c.r);
  const std::string rows = r.substr(0, r.size() - 2);
  const int64_t blocks = std::clamp<int64_t>(extent(c.r) / tile.mr / 16 + 1, 8, 64);
  w.step("split {0} {1} {1}.b {1} {2}; split {0} {3} {4}.b {3} {5}", s->name, k, kc, t.r, rows,
         blocks);
  w.step("order {0} {1}.b {2}.b {3} {4} {2}{5}", s->name, rows, k, t.v, t.r, t.inner);
  w.parallel(s);
  Packer packer(w, s, c, tile);
  if (packer.packs_b()) packer.pack_b({s, "", ""});
  if (packer.packs_a()) packer.pack_a({s, "", k + ".b"});
}

}  // namespace

bool schedule_contraction(ScheduleWriter& w, StageGroup& g) {
  if (w.lanes() == 1) return false;
  Stage* s = nullptr;
  Contraction c;
  for (Stage* m : g.members) {
    const Contraction found = contraction_of(*m, {});
    if (!found.is) continue;
    if (s) return false;
    s = m;
    c = found;
  }
  if (!s || !s->limit.empty()) return false;
  // Later members over the same axes are merged into one epilogue.
  std::vector<Stage*> epilogue;
  for (Stage* m : g.members) {
    if (m == s) continue;
    if (!is_epilogue(w.kernel(), *m, *s)) return false;
    epilogue.push_back(m);
  }
  while (epilogue.size() > 1) {
    Stage *a = epilogue[0], *b = epilogue[1];
    if (!std::equal(a->axes.begin(), a->axes.end(), b->axes.begin(), b->axes.end(), NodeEqual()))
      return false;
    w.step("fuse {} {}", a->name, b->name);
    epilogue.erase(epilogue.begin() + 1);
  }
  Stage* root = epilogue.empty() ? s : epilogue[0];
  // Summed axes in the order of b's memory, so that consecutive steps find neighbouring lines.
  const NodeRef& b = s->values[0].expr->src[static_cast<size_t>(c.b)];
  std::stable_sort(c.reduced.begin(), c.reduced.end(), [&](const NodeRef& x, const NodeRef& y) {
    return strides_along(w.kernel(), b, x).largest > strides_along(w.kernel(), b, y).largest;
  });
  const Tile tile = choose_tile(w.target(), static_cast<int>(w.lanes()), extent(c.r),
                                c.y ? extent(c.y) : 1, extent(c.v), false);
  Packer packer(w, s, c, tile);
  const bool packs_b = packer.packs_b(), packs_a = packer.packs_a();
  const TileLoops t = split_tile(w, root, c, tile);
  const int64_t kc = w.target().l2 / 8 / (tile.nv * w.lanes() * size_of(s->values[0].expr->dtype));
  const std::string batch = batch_loops(w, *root, *s, c);
  if (root == s && c.reduced.size() == 1 && batch.empty() && !c.y &&
      extent(c.reduced[0]) >= 2 * kc) {
    schedule_deep(w, s, c, tile, t, kc);
    return true;
  }
  // The loop outside keeps its panel in L1. Where it has few iterations to share out, row tiles go
  // outside, and panels are a phase of their own.
  const std::string images = t.y.empty() ? "" : " " + t.y;
  int64_t leading = (extent(c.v) + tile.nv * w.lanes() - 1) / (tile.nv * w.lanes());
  if (c.y) leading = (extent(c.y) + tile.ny - 1) / tile.ny;
  for (const NodeRef& d : s->values[0].dims) {
    const bool tiled = d.get() == c.v.get() || d.get() == c.r.get() || d.get() == c.y.get();
    if (!tiled) leading = std::max(leading, extent(d));
  }
  const bool rows_first = leading < 8 && packer.row_tiles() >= 16;
  const std::string outer =
      rows_first ? batch + " " + t.r + images + " " + t.v : batch + images + " " + t.v + " " + t.r;
  const std::string innermost = rows_first ? t.v : t.r;
  const std::string ks = w.loops(*s, c.reduced);
  if (root == s) {
    w.step("order {}{}{}{}", s->name, outer, ks, t.inner);
  } else {
    w.step("order {}{}{}", root->name, outer, t.inner);
    const TileLoops u = split_tile(w, s, c, tile);
    w.step("order {}{}{}{}", s->name, outer, ks, u.inner);
    w.step("at {} {} {}", s->name, root->name, innermost);
    const bool seen = s->values[0].slot >= 0 || s->values[0].scope == Scope::Shared;
    if (!seen) w.step("scope {} reg", s->values[0].name);
  }
  if (packs_b) packer.pack_b({root, rows_first ? "" : t.v, ""});
  if (packs_a) packer.pack_a({root, "", ""});
  w.parallel(root);
  w.reason(fmt::format("{}: tile of {} rows, {} images and {} vectors; {}{}", s->name, tile.mr,
                       tile.ny, tile.nv,
                       packs_b ? "panels of b are packed" : "b is read where it lies",
                       packs_a ? "; a is packed" : ""));
  return true;
}

namespace {

// One contraction of a row program: where its tile runs, and in which stage.
struct RowContraction {
  Stage* stage;
  Contraction c;
  Stage* host;  // the stage that its tile loops are in: its one pointwise reader, or itself
};

// The largest number of rows whose local values stay in a third of L2, with the cheapest tiles.
int64_t choose_block(const ScheduleWriter& w, const StageGroup& g,
                     const std::vector<RowContraction>& list, const NodeRef& block) {
  int64_t bytes = 4;
  for (const Stage* s : g.members) {
    for (const Value& v : s->values) {
      int64_t row = size_of(v.expr->dtype);
      for (const NodeRef& d : v.dims) {
        if (!contains(g.grid, d)) row *= extent(d);
      }
      if (v.slot < 0) bytes = std::max(bytes, row);
    }
  }
  int64_t outside = 1;
  for (const NodeRef& a : g.grid) outside *= a.get() == block.get() ? 1 : extent(a);
  const int64_t n = extent(block);
  int64_t most = std::clamp<int64_t>(w.target().l2 / 3 / bytes, 8, 128);
  most = std::min({most, n, std::max<int64_t>(8, n * outside / 16)});
  double best = 1e300;
  int64_t chosen = std::min<int64_t>(most, n);
  for (int64_t q = (most + 1) / 2; q <= most; q++) {
    double cycles = 0;
    for (const RowContraction& r : list) {
      const bool rows = r.c.r.get() == block.get();
      const int64_t columns = extent(r.c.v);
      const Tile t = choose_tile(w.target(), static_cast<int>(w.lanes()), rows ? q : extent(r.c.r),
                                 1, columns, true);
      cycles += t.cycles / static_cast<double>(rows ? q : 1);
    }
    if (n % q) cycles *= 1.06;  // a ragged block is a second copy of the whole body
    if (cycles <= best * 1.0001) {
      best = cycles;
      chosen = q;
    }
  }
  return chosen;
}

std::vector<RowContraction> find_contractions(const ScheduleWriter& w, const StageGroup& g,
                                              const std::vector<NodeRef>& fixed) {
  std::vector<RowContraction> list;
  std::map<const Stage*, int> hosted;
  for (Stage* s : g.members) {
    const Contraction c = contraction_of(*s, fixed);
    // Lanes along the rows of a block do not form tiles.
    if (!c.is || c.v.get() == g.grid.back().get()) continue;
    RowContraction r{s, c, s};
    const std::vector<Stage*> readers = readers_of(w.kernel(), *s);
    const bool private_value = s->values[0].slot < 0 && s->values[0].scope != Scope::Shared;
    if (private_value && readers.size() == 1 && g.has(readers[0]) &&
        is_epilogue(w.kernel(), *readers[0], *s) && !contraction_of(*readers[0], fixed).is &&
        hosted[readers[0]]++ == 0) {
      r.host = readers[0];
    }
    list.push_back(r);
  }
  return list;
}

// The tile of one contraction, in its host, inside the row block.
void schedule_tile(ScheduleWriter& w, const StageGroup& g, const RowContraction& r,
                   const NodeRef& block, int64_t rows, const std::vector<NodeRef>& fixed,
                   const std::string& block_loop, const std::string& outer_loop) {
  Stage* root = g.root();
  const bool by_rows = r.c.r.get() == block.get();
  const int64_t n = by_rows ? std::min(rows, extent(r.c.r)) : extent(r.c.r);
  const Tile tile = choose_tile(w.target(), static_cast<int>(w.lanes()), n, 1, extent(r.c.v), true);
  Packer packer(w, r.stage, r.c, tile);
  const bool packs_b = packer.packs_b();
  // Loops of the stage that are neither fixed nor of the tile.
  const auto others = [&](const Stage& s) {
    std::string t;
    for (const NodeRef& d : r.stage->values[0].dims) {
      const bool tiled = d.get() == r.c.v.get() || d.get() == r.c.r.get();
      if (!tiled && !contains(fixed, d)) t += " " + w.loop(s, d);
    }
    return t;
  };
  const bool in_root = r.host == root;
  const std::string around = w.loops(*r.host, fixed) + (in_root ? " " + block_loop : "");
  const std::string rest = others(*r.host);
  Contraction c = r.c;
  c.y = {};
  const TileLoops t = split_tile(w, r.host, c, tile);
  const std::string two = packs_b ? t.v + " " + t.r : t.r + " " + t.v;
  const std::string innermost = packs_b ? t.r : t.v;
  if (r.host == r.stage) {
    w.step("order {}{}{} {}{}{}", r.host->name, around, rest, two, w.loops(*r.stage, r.c.reduced),
           t.inner);
  } else {
    w.step("order {}{}{} {}{}", r.host->name, around, rest, two, t.inner);
    const std::string fixed_loops = w.loops(*r.stage, fixed), own_rest = others(*r.stage);
    const TileLoops u = split_tile(w, r.stage, c, tile);
    w.step("order {}{}{} {}{}{}", r.stage->name, fixed_loops, own_rest, two,
           w.loops(*r.stage, r.c.reduced), u.inner);
    w.step("at {} {} {}; scope {} reg", r.stage->name, r.host->name, innermost,
           r.stage->values[0].name);
  }
  // What this block computes is packed in the block; other operands once for all blocks.
  bool local = false;
  const NodeRef& factor = r.stage->values[0].expr->src[static_cast<size_t>(r.c.b)];
  visit(factor, [&](const NodeRef& n) {
    local |=
        n->op == Op::Read && g.has(w.kernel().find_value(static_cast<int>(n->integer())).first);
  });
  if (packs_b) packer.pack_b({root, local ? block_loop : outer_loop, ""});
  if (packer.packs_a()) packer.pack_a({root, "", block_loop});
}

// An element-wise value of a block takes the place of one that it reads at the same point and that
// nobody reads later.
void keep_in_place(ScheduleWriter& w, const StageGroup& g, Stage* s,
                   const std::string& block_loop) {
  const Value& v = s->values[0];
  if (v.slot >= 0 || v.reduces() || v.scope != Scope::Scratch) return;
  const Reads reads(w.kernel());
  const auto number = [&](const Stage* x) {
    return std::find(g.members.begin(), g.members.end(), x) - g.members.begin();
  };
  for (const Reads::Read& r : reads.of(s)) {
    const auto [owner, x] = w.kernel().find_value(r.value);
    if (owner == s || !g.has(owner) || owner->at_loop.empty()) continue;
    bool same = x->slot < 0 && x->scope == Scope::Scratch && x->expr->dtype == v.expr->dtype &&
                x->dims.size() == v.dims.size() && owner->at_loop == block_loop;
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
          if (reads_u && reader != s && (!g.has(reader) || number(reader) > number(s)))
            same = false;
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
  fuse_siblings(w, g);
  forward_values(w, g);
  const NodeRef block = g.grid.back();
  const std::vector<NodeRef> fixed(g.grid.begin(), g.grid.end() - 1);
  std::vector<RowContraction> list = find_contractions(w, g, fixed);
  if (list.empty()) return false;
  Stage* root = g.root();
  // Inside a block the root's own axes are walked after the grid.
  const int64_t rows = choose_block(w, g, list, block);
  const std::string n = w.loop(*root, block), block_loop = n + ".b";
  int64_t outside = 1;
  for (const NodeRef& a : fixed) outside *= extent(a);
  // Too few outer iterations to share out: operands are packed by a phase, and blocks run in
  // parallel.
  const std::string outer_loop = outside < 8 ? "" : w.loop(*root, fixed.back());
  w.step("split {0} {1} {2} {1} {3}", root->name, n, block_loop, rows);
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
    std::vector<NodeRef> inner = ScheduleWriter::axes_without(*root, g.grid);
    const std::vector<NodeRef> among = inner.empty() ? std::vector<NodeRef>{block} : inner;
    const NodeRef v = vector_axis(w.kernel(), *root, among, static_cast<int>(w.lanes()));
    // A block of rows holds whole vectors or none.
    const int64_t unroll = v.get() != block.get()        ? 2
                           : rows % (2 * w.lanes()) == 0 ? 2
                           : rows % w.lanes() == 0       ? 1
                                                         : 0;
    std::string rest;
    for (const NodeRef& a : local) {
      if (unroll == 0 || a.get() != v.get()) rest += " " + w.loop(*root, a);
    }
    if (unroll == 0) {
      w.step("order {}{}{}", root->name, around, rest);
    } else {
      const ScheduleWriter::Split sp = w.split_vectors(*root, v, unroll);
      w.step("order {0}{1}{2}{3}; {4} {0} {5}; vector {0} {6}", root->name, around, rest, sp.all(),
             keeps_in_all(*root, v) ? "unroll" : "ilp", sp.unrolled, sp.lane);
    }
  }
  for (const RowContraction& r : list)
    schedule_tile(w, g, r, block, rows, fixed, block_loop, outer_loop);
  // Everything else, by rows of the block.
  for (Stage* s : g.members) {
    if (s == root) continue;
    const bool is_host = tiled.count(s) > 0;
    if (is_host) {
      if (!s->at) w.step("at {} {} {}", s->name, root->name, block_loop);
      continue;
    }
    std::vector<NodeRef> local = ScheduleWriter::axes_without(*s, g.grid);
    if (local.empty()) {
      w.vectorize(s, fixed, {block});
    } else {
      w.vectorize(s, g.grid, local);
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
    w.step("at {} {} {}", s->name, root->name, block_loop);
    keep_in_place(w, g, s, block_loop);
  }
  w.parallel(root);
  w.reason(fmt::format("{}: blocks of {} rows of {}", root->name, rows, n));
  return true;
}

}  // namespace lazuli
