// The rule for one contraction, with what follows from it element by element.
#include <algorithm>

#include "ir/choose_tiles.h"
#include "ir/index.h"

namespace lazuli {
namespace {

std::string batch_loops(const ScheduleWriter& w, const Stage& s, const Stage& contraction,
                        const Contraction& c) {
  std::string r;
  for (const NodeRef& d : contraction.values[0].dims) {
    if (d.get() != c.v.get() && d.get() != c.r.get() && d.get() != c.y.get())
      r += " " + w.loop(s, d);
  }
  return r;
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

}  // namespace lazuli
