// Products of few rows with a large matrix whose rows lie along the columns.
#include <algorithm>

#include "ir/choose_terms.h"
#include "ir/choose_tiles.h"

namespace lazuli {
namespace {

// Rows of a tile, which is two vectors wide: few of them, so that the loads of a visit overlap with
// the products of the one before, and no register is left over for few rows in one tile.
int64_t rows_of_visit(const Target& target, int64_t rows) {
  constexpr int64_t kMost = 9;
  const int64_t most = std::min<int64_t>((target.vector_registers - 4) / 2, kMost),
                all = (target.vector_registers - 8) / 2;
  if (rows <= all) return rows;
  const int64_t tiles = (rows + most - 1) / most;
  return (rows + tiles - 1) / tiles;
}

}  // namespace

bool is_visited_sum(const ScheduleWriter& w, const Stage& s) {
  // Fewer rows are products of vectors (schedule_few_rows_of_columns); for more, a panel is worth
  // packing. The caches ask ahead for rows that are a page apart; of shorter ones there is less to
  // be had. Of few terms the sums are much of what is moved.
  constexpr int64_t kFewestRows = 9, kSomeRows = 24, kMostRows = 64, kPage = 4096, kTerms = 256;
  if (w.lanes() == 1 || !w.kernel().sizes.empty()) return false;
  if (s.values.size() != 1 || s.is_triangular() || !s.bound.empty()) return false;
  const Contraction c = contraction_of(s, {});
  const Value& v = s.values[0];
  const DType dtype = v.expr->dtype;
  const bool plain = c.is && c.op == Op::Mul && c.r && !c.y && v.dims.size() == 2 &&
                     v.dims.back().get() == c.v.get() && c.reduced.size() == 1 &&
                     (dtype == DType::F32 || dtype == DType::F64);
  if (!plain || extent(c.r) < kFewestRows || extent(c.r) > kMostRows) return false;
  const NodeRef &a = factor(v, c.a), &b = factor(v, c.b);
  if ((a->op != Op::Read && !is_loaded_as(a, dtype)) || !is_loaded_as(b, dtype)) return false;
  // Neither by threads nor by what else is in the kernel: chunks of terms would have other bits.
  const int64_t terms = extent(c.reduced[0]), row = extent(c.v) * size_of(dtype);
  return loads_along(w, b, c.v) && terms >= kTerms &&
         row >= (extent(c.r) > kSomeRows ? kPage : kPage / 2) && terms * row > w.target().l2 / 2;
}

bool schedule_visits(ScheduleWriter& w, Stage* s, Stage* root) {
  constexpr int64_t kTerms = 24, kLeastColumns = 128;
  const Value& sums = s->values[0];
  const bool is_seen = sums.slot >= 0 || sums.scope == Scope::Shared;
  if (!is_visited_sum(w, *s) || (root != s && is_seen)) return false;
  const Contraction of_root = contraction_of(*s, {});
  if (root == s) {
    w.step("cache {0} {0}.sums", s->name);
    s = w.kernel().find_stage(s->name + ".sums");
  }
  const Contraction c = contraction_of(*s, {});
  const int64_t rows = extent(c.r), threads = std::max(w.target().threads, 1);
  const Tile tile{rows_of_visit(w.target(), rows), 1, 2};
  const int64_t width = tile.nv * w.lanes();
  const int64_t terms =
      w.choose_number("terms a visit of " + s->name, kTerms, {kTerms * 2 / 3, kTerms * 4 / 3});
  // The sums stay in L2. Each thread has a block of columns.
  const int64_t most = w.target().l2 / 2 / (rows * factor_size(*s)),
                each = std::max((extent(c.v) + threads - 1) / threads, kLeastColumns);
  const int64_t block = std::max(std::min(most, each + width - 1) / width, int64_t{1}) * width;
  const std::string k = w.loop(*s, c.reduced[0]), column = w.loop(*s, c.v) + ".b";
  w.step("split {0} {1} {2} {1} {3}", s->name, w.loop(*s, c.v), column, block);
  const TileLoops t = split_tile(w, s, c, tile);
  w.step("split {0} {1} {1}.b {1} {2}", s->name, k, terms);
  w.step("order {0} {1} {2}.b {3} {4} {2}{5}", s->name, column, k, t.v, t.r, t.inner);
  w.step("split {0} {1} {2} {1} {3}", root->name, w.loop(*root, of_root.v), column, block);
  const ScheduleWriter::Split own = w.split_vectors(*root, of_root.v, 2);
  w.step("order {0} {1} {2}{3}; unroll {0} {4}; vector {0} {5}", root->name, column,
         w.loop(*root, of_root.r), own.all(), own.unrolled, own.lane);
  w.step("at {} {} {}", s->name, root->name, column);
  // Rows of sums would be a page apart as well, in the same sets of L1.
  w.step("store {} {} {} {}{}", s->values[0].name, column, t.v, t.r, t.inner);
  Packer(w, s, c, tile).pack_a({s, "", k + ".b", false, true});
  unroll_sum(w, s, c);
  w.parallel(root);
  w.reason(
      fmt::format("{}: few rows of a large operand that is read once, {} terms a visit; tile "
                  "of {} rows and {} vectors; a is packed",
                  s->name, terms, tile.mr, tile.nv));
  return true;
}

}  // namespace lazuli
