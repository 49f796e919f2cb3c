#include "ir/choose_terms.h"

#include <algorithm>

#include "ir/index.h"

namespace lazuli {

void schedule_deep(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile,
                   const TileLoops& t) {
  const int64_t step = is_in_tiles(*s) ? TileShape::kStep : 1;
  const auto whole = [&](int64_t terms) {
    return std::max((terms + step - 1) / step, int64_t{1}) * step;
  };
  const int64_t most = w.target().l2 / 8 / (tile.nv * w.lanes() * factor_size(*s));
  const int64_t half = (extent(c.reduced[0]) + 1) / 2, model = whole(std::min(most, half));
  const int64_t kc = w.choose_number("terms at a time of " + s->name, model,
                                     {whole(model / 2), whole(std::min(2 * model, half))});
  const std::string k = w.loop(*s, c.reduced[0]), r = w.loop(*s, c.r);
  const std::string rows = r.substr(0, r.size() - 2);
  const int64_t few = std::clamp<int64_t>(extent(c.r) / tile.mr / 16 + 1, 8, 64);
  const int64_t blocks =
      w.choose_number("row tiles at a time of " + s->name, few, {few / 2, 2 * few});
  w.step("split {0} {1} {1}.b {1} {2}; split {0} {3} {4}.b {3} {5}", s->name, k, kc, t.r, rows,
         blocks);
  w.step("order {0} {1}.b {2}.b {3} {4} {2}{5}", s->name, rows, k, t.v, t.r, t.inner);
  w.parallel(s);
  Packer packer(w, s, c, tile);
  packer.pack_b({s, "", ""});
  if (packer.packs_a()) packer.pack_a({s, "", k + ".b"});
  unroll_sum(w, s, c);
}

bool schedule_long_panels(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile) {
  const Value& v = s->values[0];
  std::vector<NodeRef> batch;
  for (const NodeRef& d : v.dims) {
    if (d.get() == c.v.get() || d.get() == c.r.get()) continue;
    if (uses(factor(v, c.b), d)) return false;
    batch.push_back(d);
  }
  const int64_t room = w.target().l2 / 4;
  int64_t bytes = tile.nv * w.lanes() * factor_size(*s);
  if (batch.empty() || depth_of(c) * bytes <= w.target().l3 / 4) return false;
  std::vector<NodeRef> outer = c.reduced, inner;
  while (!outer.empty() && (inner.empty() || extent(outer.back()) * bytes <= room)) {
    bytes *= extent(outer.back());
    inner.insert(inner.begin(), outer.back());
    outer.pop_back();
  }
  if (outer.empty() || bytes > room) return false;
  const std::string first = w.loop(*s, batch[0]),
                    others = w.loops(*s, {batch.begin() + 1, batch.end()}),
                    far = w.loops(*s, outer), near = w.loops(*s, inner);
  const TileLoops t = split_tile(w, s, c, tile);
  w.step("order {} {}{} {}{} {}{}{}", s->name, first, far, t.v, others, t.r, near, t.inner);
  Packer(w, s, c, tile).pack_b({s, t.v, ""});
  unroll_sum(w, s, c);
  w.parallel(s);
  w.reason(fmt::format("{}: tile of {} rows and {} vectors; panels of b are packed for{} at a time",
                       s->name, tile.mr, tile.nv, near));
  return true;
}

bool schedule_long_sums(ScheduleWriter& w, Stage* s, const Contraction& c, const Tile& tile,
                        const std::string& batch, Packer& packer, bool packs_a, bool packs_b) {
  constexpr int64_t kLeast = 128;
  const int64_t cache = w.target().l2, terms = extent(c.reduced[0]);
  const int64_t sums = extent(c.r) * extent(c.v) * size_of(s->values[0].expr->dtype);  // bytes
  // Of a term: a panel of b is read again for each tile of rows, and a for each panel.
  const int64_t panel = tile.nv * w.lanes() * factor_size(*s);
  int64_t term = panel;
  if (packer.column_tiles() > 1) term += extent(c.r) * factor_size(*s);
  if (cache / 2 / term < kLeast) term = panel;
  const bool again = extent(c.r) > 2 * tile.mr;
  const DType dtype = s->values[0].expr->dtype;
  if (!again || accumulator(dtype) != dtype || terms * term <= cache || sums > cache / 2)
    return false;
  const int64_t blocks = 2 * terms * term / cache + 1;
  const std::string k = w.loop(*s, c.reduced[0]);
  const TileLoops t = split_tile(w, s, c, tile);
  w.step("split {0} {1} {1}.b {1} {2}", s->name, k, (terms + blocks - 1) / blocks);
  w.step("order {0}{1} {2}.b {3} {4} {2}{5}", s->name, batch, k, t.v, t.r, t.inner);
  if (packs_b) packer.pack_b({s, k + ".b", ""});
  if (packs_a) packer.pack_a({s, "", k + ".b"});
  unroll_sum(w, s, c);
  w.parallel(s);
  w.reason(fmt::format("{}: tile of {} rows and {} vectors; {} terms at a time stay in cache",
                       s->name, tile.mr, tile.nv, (terms + blocks - 1) / blocks));
  return true;
}

int64_t shared_steps(const Target& target, int64_t steps, int64_t times) {
  const int64_t threads = std::max(target.threads, 1);
  if (times >= kEnoughChunks && (threads == 1 || uneven_share(target, 1, times, 1) <= 1.25)) {
    return steps;
  }
  if (threads == 1) return steps;
  for (const int64_t chunks : {2, 3, 4, 1}) {  // for each thread
    const int64_t part =
        std::max((times * steps + chunks * threads - 1) / (chunks * threads), int64_t{1});
    const int64_t parts = times * ((steps + part - 1) / part),
                  rounds = (parts + threads - 1) / threads;
    if (4 * rounds * part * threads <= 5 * times * steps) return part;
  }
  return times >= kEnoughChunks ? steps : 0;
}

bool schedule_tall(ScheduleWriter& w, Stage* s, Stage* root, const Contraction& c, const Tile& tile,
                   const std::string& batch, Packer& packer) {
  constexpr int64_t kLeast = 512, kLeastRows = 48;          // terms; of sums
  constexpr int64_t kLeastStretch = 256, kLeastTime = 128;  // terms; at a time, where they are long
  constexpr int64_t kVectors = 3;                           // of most tiles
  const Value& v = s->values[0];
  const DType dtype = v.expr->dtype;
  const auto lies_along = [&](int place, const NodeRef& axis) {
    return loads_along(w, factor(v, place), axis);
  };
  const NodeRef& k = c.reduced.back();
  const std::vector<NodeRef> outer_terms(c.reduced.begin(), c.reduced.end() - 1);
  const int64_t terms = depth_of(c), unit = factor_size(*s), rows = extent(c.r),
                columns = extent(c.v), width = tile.nv * w.lanes();
  const int64_t panel = kVectors * w.lanes() * unit;  // of any tile, for these differ by threads
  // At a time: a cache line of a for each row, and a panel of b; or the panel, and all of a if
  // there are others.
  const bool several = !batch.empty() || !outer_terms.empty();
  const int64_t most = several ? w.target().l2 / 4 / (panel + (columns > width ? rows * unit : 0))
                               : w.target().l1 * 2 / 3 / (kCacheLine + panel);
  const bool along_sums = !several && lies_along(c.a, c.r) && lies_along(c.b, c.v),
             along_terms = several && lies_along(c.a, k) && lies_along(c.b, k) &&
                           extent(k) >= kLeastStretch && most >= kLeastTime &&
                           terms * width * unit > w.target().l2 / 4;
  const bool fits = c.op == Op::Mul && accumulator(dtype) == dtype && rows >= kLeastRows &&
                    terms >= kLeast && (along_sums || along_terms) &&
                    rows * columns * size_of(dtype) < w.target().l2 / (along_terms ? 2 : 8) &&
                    terms * (rows + columns) * unit > w.target().l2 / 2;
  const bool by_rows = rows >= columns;
  const int64_t step = by_rows ? tile.mr : width,
                steps = ((by_rows ? rows : columns) + step - 1) / step;
  if (!fits) return false;
  const int64_t part = shared_steps(w.target(), steps, batch_of(*s, c));
  if (part == 0 || !w.choose_whether("few rows at a time of " + s->name, true)) return false;
  const int64_t blocks = (extent(k) + most - 1) / most, kc = (extent(k) + blocks - 1) / blocks;
  const NodeRef& shared = by_rows ? c.r : c.v;
  const std::string outer = w.loop(*s, shared) + ".b", ks = w.loop(*s, k);
  const auto split_shared = [&](const Stage* stage) {
    w.step("split {0} {1} {2} {1} {3}", stage->name, w.loop(*stage, shared), outer, part * step);
  };
  split_shared(s);
  const TileLoops t = split_tile(w, s, c, tile);
  w.step("split {0} {1} {1}.b {1} {2}", s->name, ks, kc);
  w.step("order {0}{1} {2}{3} {4}.b {5} {6} {4}{7}", s->name, batch, outer,
         w.loops(*s, outer_terms), ks, t.v, t.r, t.inner);
  packer.pack_b({s, t.v, ""});
  if (root != s) {
    split_shared(root);
    const ScheduleWriter::Split own = w.split_vectors(*root, c.v, 1);
    w.step("order {0}{1} {2} {3}{4}; unroll {0} {5}; vector {0} {6}", root->name, batch, outer,
           w.loop(*root, c.r), own.all(), own.unrolled, own.lane);
    w.step("at {} {} {}", s->name, root->name, outer);
  }
  Contraction innermost = c;
  innermost.reduced = {k};
  unroll_sum(w, s, innermost);
  w.parallel(root);
  w.reason(fmt::format("{}: tile of {} rows and {} vectors; {} terms at a time stay in {}", s->name,
                       tile.mr, tile.nv, kc, along_sums ? "L1" : "L2"));
  return true;
}

}  // namespace lazuli
