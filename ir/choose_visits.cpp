// Products of few rows with a large matrix whose rows lie along the columns.
#include <algorithm>

#include "ir/choose_terms.h"
#include "ir/choose_tiles.h"

namespace lazuli {
namespace {

// Rows of a tile, which is two vectors wide. A tile of few rows loads and stores its sums while the
// products of its neighbours go on; all rows are one tile where the registers have room for them.
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
  // More rows are worth packing a panel. The caches ask ahead for rows of the matrix that are a
  // page apart; up to kFewRows are as well products of vectors where these are shorter
  // (schedule_few_rows_of_columns).
  constexpr int64_t kFewestRows = 9, kFewRows = 12, kSomeRows = 24, kMostRows = 64, kPage = 4096;
  // Sums are loaded and stored in each visit, and panels of few terms stay near.
  constexpr int64_t kLeastTerms = 384, kTermsOfRow = 16;
  if (w.lanes() == 1 || !w.kernel().sizes.empty()) return false;
  if (s.values.size() != 1 || s.is_triangular() || !s.bound.empty()) return false;
  const Contraction c = contraction_of(s, {});
  const Value& v = s.values[0];
  const DType dtype = v.expr->dtype;
  const bool plain = c.is && c.op == Op::Mul && c.r && !c.y && v.dims.size() == 2 &&
                     v.dims.back().get() == c.v.get() && c.reduced.size() == 1 &&
                     (dtype == DType::F32 || dtype == DType::F64);
  if (!plain) return false;
  const int64_t rows = extent(c.r), terms = extent(c.reduced[0]),
                line = extent(c.v) * size_of(dtype);  // bytes of a row of the matrix
  const NodeRef &a = factor(v, c.a), &b = factor(v, c.b);
  if ((a->op != Op::Read && !is_loaded_as(a, dtype)) || !is_loaded_as(b, dtype)) return false;
  // Neither by threads nor by what else is in the kernel: chunks of terms would have other bits.
  return loads_along(w, b, c.v) && rows >= kFewestRows && rows <= kMostRows &&
         terms >= std::max(kLeastTerms, kTermsOfRow * rows) && terms * line > w.target().l2 &&
         line >= (rows > kFewRows && rows <= kSomeRows ? kPage / 2 : kPage);
}

bool schedule_visits(ScheduleWriter& w, std::vector<Stage*> sums, Stage* root) {
  constexpr int64_t kTerms = 24, kLeastColumns = 128;
  for (const Stage* s : sums) {
    const Value& v = s->values[0];
    const bool is_seen = v.slot >= 0 || v.scope == Scope::Shared;
    if (!is_visited_sum(w, *s) || (root != s && is_seen)) return false;
  }
  const Contraction of_root = contraction_of(*sums[0], {});
  if (root == sums[0]) {
    w.step("cache {0} {0}.sums", root->name);
    sums[0] = w.kernel().find_stage(root->name + ".sums");
  }
  const int64_t rows = extent(of_root.r), columns = extent(of_root.v),
                threads = std::max(w.target().threads, 1);
  const Tile tile{rows_of_visit(w.target(), rows), 1, 2};
  const int64_t width = tile.nv * w.lanes();
  // The sums of a block of columns stay in L2, and each thread has as many blocks.
  const int64_t column_bytes = rows * factor_size(*sums[0]) * static_cast<int64_t>(sums.size()),
                most = std::max(w.target().l2 / 2 / column_bytes, width),
                each = std::clamp(columns / threads, kLeastColumns, columns),
                blocks = (each + most - 1) / most * (columns / each),
                block = ((columns + blocks - 1) / blocks + width - 1) / width * width;
  const std::string column = w.loop(*root, of_root.v) + ".b";
  w.step("split {0} {1} {2} {1} {3}", root->name, w.loop(*root, of_root.v), column, block);
  const ScheduleWriter::Split own = w.split_vectors(*root, of_root.v, 2);
  w.step("order {0} {1} {2}{3}; unroll {0} {4}; vector {0} {5}", root->name, column,
         w.loop(*root, of_root.r), own.all(), own.unrolled, own.lane);
  for (Stage* s : sums) {
    const Contraction c = contraction_of(*s, {});
    const int64_t terms =
        w.choose_number("terms a visit of " + s->name, kTerms, {kTerms * 2 / 3, kTerms * 4 / 3});
    const std::string k = w.loop(*s, c.reduced[0]);
    w.step("split {0} {1} {2} {1} {3}", s->name, w.loop(*s, c.v), column, block);
    const TileLoops t = split_tile(w, s, c, tile);
    w.step("split {0} {1} {1}.b {1} {2}", s->name, k, terms);
    w.step("order {0} {1} {2}.b {3} {4} {2}{5}", s->name, column, k, t.v, t.r, t.inner);
    w.step("at {} {} {}", s->name, root->name, column);
    // Rows of sums would be a page apart as well, in the same sets of L1.
    w.step("store {} {} {} {}{}", s->values[0].name, column, t.v, t.r, t.inner);
    Packer(w, s, c, tile).pack_a({s, "", k + ".b", false, true});
    unroll_sum(w, s, c);
    w.reason(
        fmt::format("{}: few rows of a large operand that is read once, {} terms a visit; tile "
                    "of {} rows and {} vectors; a is packed",
                    s->name, terms, tile.mr, tile.nv));
  }
  w.parallel(root);
  return true;
}

}  // namespace lazuli
