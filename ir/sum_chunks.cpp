// Long sums, in chunks of terms.
#include <algorithm>

#include "ir/choose_rules.h"
#include "ir/choose_tiles.h"
#include "ir/index.h"

namespace lazuli {
namespace {

// The rows that a stage adds up, each times a factor or none, if they lie in memory as they are
// walked: one after the other, without gaps.
struct MatrixRows {
  NodeRef row;  // the summed axis; null: the stage is no such sum
  int64_t columns = 1;
  int64_t bytes = 0;        // of the matrix
  bool is_product = false;  // with a factor
  bool weighted = false;    // of its own for each row
};

MatrixRows rows_of_matrix(const ScheduleWriter& w, const Stage& s) {
  const Value& v = s.values[0];
  const bool plain =
      s.values.size() == 1 && v.reduce == Op::ReduceAdd && !s.is_triangular() && s.bound.empty();
  if (!plain || v.dims.empty() || v.dims.size() + 1 != s.axes.size()) return {};
  if (accumulator(v.expr->dtype) != v.expr->dtype) return {};
  const auto row = std::find_if(s.axes.begin(), s.axes.end(),
                                [&](const NodeRef& a) { return !contains(v.dims, a.get()); });
  for (size_t d = 1; d < v.dims.size(); d++) {
    if (!can_flatten(s, v.dims[d - 1], v.dims[d])) return {};
  }
  const auto keeps = [&](const NodeRef& f) {
    return std::count_if(v.dims.begin(), v.dims.end(),
                         [&](const NodeRef& d) { return uses(f, d); });
  };
  NodeRef matrix = v.expr, factor;
  if (v.expr->op == Op::Mul) {
    const NodeRef &f0 = v.expr->src[0], &f1 = v.expr->src[1];
    if (keeps(f0) == 0) {
      matrix = f1;
      factor = f0;
    } else if (keeps(f1) == 0) {
      matrix = f0;
      factor = f1;
    }
  }
  if (keeps(matrix) != static_cast<ptrdiff_t>(v.dims.size())) return {};
  MatrixRows rows;
  // Numbers of each column, as its mean, may come from other stages.
  bool computed = false;
  int of_columns = 0;
  visit(matrix, [&](const NodeRef& n) {
    const bool of_rows = uses(n, row->get());
    computed |= n->op == Op::Read && of_rows;
    of_columns += n->op == Op::Read && uses(n, v.dims.back().get());
    if (n->op == Op::Load && of_rows) rows.bytes += size_of(n->dtype);
  });
  rows.is_product = factor.get() != nullptr;
  rows.weighted = rows.is_product && uses(factor, row->get());
  // Where memory is far, or sums are more bytes than a row, rows alone are not the best to walk.
  if (computed || (!rows.is_product && (!loads_no_less(v) || w.target().far_l3))) return {};
  for (const NodeRef& d : v.dims) rows.columns *= extent(d);
  const Strides along = strides_along(w.kernel(), matrix, v.dims.back()),
                across = strides_along(w.kernel(), matrix, *row);
  if (along.unit != 1 + of_columns || along.other != 0 || across.largest != rows.columns) return {};
  rows.bytes *= rows.columns * extent(*row);
  // A walk of its own only where those of the others are, too (cut_at_tall_columns).
  if (of_columns > 0 && rows.bytes <= 2 * w.target().l2) return {};
  rows.row = *row;
  return rows;
}

// A sum of products of two matrices in memory, neither of which is a few vectors.
struct LongSum {
  NodeRef terms;  // the summed axis; null: the stage is no such sum
  int64_t bytes_of_term = 0, bytes_of_sums = 0;
  int64_t bytes_in_panel = 0;  // of a term: in what is read again for each tile of rows
};

LongSum long_sum(const ScheduleWriter& w, const Stage& s) {
  constexpr int64_t kFew = 8, kVectors = 4;
  const Value& v = s.values[0];
  if (s.values.size() != 1 || s.is_triangular() || !s.bound.empty()) return {};
  const Contraction c = contraction_of(s, {});
  const bool plain = c.is && c.op == Op::Mul && c.r && !c.y && c.reduced.size() == 1 &&
                     v.dims.size() == 2 && accumulator(v.expr->dtype) == v.expr->dtype;
  if (!plain) return {};
  if (extent(c.r) <= kFew || extent(c.v) <= kFew) return {};
  // Rows of a that lie along the sum are read in the order of memory once for each panel of b: two
  // vectors or less of that come from the last cache as fast as they are multiplied.
  const NodeRef& a = factor(v, c.a);
  const bool in_order = strides_along(w.kernel(), a, c.reduced[0]).unit > 0;
  if (in_order && extent(c.v) <= 2 * w.lanes()) return {};
  // Columns that lie along the sum are turned around, which takes longer by a few terms of many of
  // them than by all of some. Where a stays near, or they are far more than its rows, nothing makes
  // up for that.
  constexpr int64_t kManyColumns = 16;  // for each row
  const NodeRef& b = factor(v, c.b);
  const bool apart = strides_along(w.kernel(), b, c.v).other > 0;
  const bool near = extent(c.reduced[0]) * extent(c.r) * factor_size(s) <= w.target().l2 / 2;
  if (apart && (near || extent(c.v) >= kManyColumns * extent(c.r))) return {};
  LongSum l;
  bool computed = false;
  for (const auto& [side, kept] : {std::pair{c.a, c.r}, std::pair{c.b, c.v}}) {
    visit(factor(v, side), [&](const NodeRef& n) {
      computed |= n->op == Op::Read;
      if (n->op == Op::Load) l.bytes_of_term += size_of(n->dtype) * extent(kept);
    });
  }
  if (computed) return {};
  // Tile registers have so many rows that little is read again.
  const bool narrow = l.bytes_of_term < size_of(DType::F32) * (extent(c.r) + extent(c.v));
  if (narrow && w.target().has_tiles && extent(c.r) <= 2 * TileShape::kMostRows) return {};
  l.bytes_in_panel = factor_size(s) * std::min(extent(c.v), kVectors * w.lanes());
  l.bytes_of_sums = size_of(v.expr->dtype) * extent(c.r) * extent(c.v);
  l.terms = c.reduced[0];
  return l;
}

// As many chunks as can be, up to `most`, of equally many of n indices; 0: no number is enough.
int64_t equal_chunks(int64_t n, int64_t most) {
  int64_t chunks = std::min(n, most);
  while (chunks >= kEnoughChunks && n % chunks != 0) chunks--;
  return chunks >= kEnoughChunks ? chunks : 0;
}

// Whether a stage adds up rows, element by element, that lie in memory.
bool adds_columns(const ScheduleWriter& w, const Stage& s) {
  const Value& v = s.values[0];
  const bool plain = s.values.size() == 1 && v.reduce == Op::ReduceAdd && !v.dims.empty() &&
                     v.dims.size() < s.axes.size() && !s.is_triangular() && s.bound.empty() &&
                     is_float(v.expr->dtype) && accumulator(v.expr->dtype) == v.expr->dtype;
  if (!plain || contraction_of(s, {}).is) return false;
  bool any = false, all = true;
  visit(v.expr, [&](const NodeRef& n) {
    all &= n->op != Op::Read;
    if (n->op != Op::Load || !uses(n, v.dims.back().get())) return;
    const Strides along = strides_along(w.kernel(), n, v.dims.back());
    any = true;
    all &= along.unit > 0 && along.other == 0;
    for (const NodeRef& a : s.axes) {
      all &= contains(v.dims, a.get()) || strides_along(w.kernel(), n, a).unit == 0;
    }
  });
  return any && all;
}

// The axis along which a stage adds up very many rows; null if it does not.
NodeRef many_rows(const ScheduleWriter& w, const Stage& s) {
  const Value& v = s.values[0];
  if (v.dims.size() + 1 != s.axes.size() || !adds_columns(w, s)) return {};
  const NodeRef row = *std::find_if(s.axes.begin(), s.axes.end(),
                                    [&](const NodeRef& a) { return !contains(v.dims, a.get()); });
  return extent(row) > kTallest ? row : NodeRef();
}

// Whether both factors of contraction `s` lie along the innermost of several summed axes, and a
// panel of its columns is too long for the cache.
bool has_long_stretches(const ScheduleWriter& w, const Stage& s, const Contraction& c) {
  constexpr int64_t kVectors = 4;
  const Sources& factors = s.values[0].expr->src;
  return !c.y && loads_along(w, factors[0], c.reduced.back()) &&
         loads_along(w, factors[1], c.reduced.back()) &&
         depth_of(c) * kVectors * w.lanes() * factor_size(s) > w.target().l2 / 2;
}

// A contraction that chunks along its outermost summed axis are made of.
struct FewSums {
  NodeRef along;      // null: it is none
  int64_t least = 2;  // indices in a chunk
  int64_t most = 16;  // chunks
};

// Few sums; or more of them, up to kSomeSums or as many as there are where the factors lie in long
// stretches, if they are fewer bytes than the factors. Both factors have the axis, and are larger
// than the cache that they are read from for each of the loops over the sums.
FewSums outermost_of_few(const ScheduleWriter& w, const Stage& s) {
  constexpr int64_t kFewSums = 256, kSomeSums = 2048;
  const Value& v = s.values[0];
  if (s.values.size() != 1 || s.is_triangular() || !s.bound.empty()) return {};
  const Contraction c = contraction_of(s, {});
  if (!c.is || c.op != Op::Mul || c.reduced.size() < 2) return {};
  int64_t sums = 1;
  for (const NodeRef& d : v.dims) sums *= extent(d);
  const int64_t bytes = bytes_of_arrays(w.kernel(), v.expr);
  if (accumulator(v.expr->dtype) != v.expr->dtype || bytes <= w.target().l2 / 2) return {};
  FewSums few;
  if (sums > kFewSums) {
    if (sums > kSomeSums && !has_long_stretches(w, s, c)) return {};
    few.least = 1;
    // What chunks give is written and read once more.
    few.most = std::min(few.most, bytes / (4 * sums * size_of(v.expr->dtype)));
  }
  const auto distance = [&](const NodeRef& axis) {
    return std::min(strides_along(w.kernel(), factor(v, 0), axis.get()).largest,
                    strides_along(w.kernel(), factor(v, 1), axis.get()).largest);
  };
  const NodeRef outermost = *std::max_element(
      c.reduced.begin(), c.reduced.end(),
      [&](const NodeRef& a, const NodeRef& b) { return distance(a) < distance(b); });
  if (distance(outermost) > 0) few.along = outermost;
  return few;
}

}  // namespace

std::vector<Stage*> stages_of(const ScheduleWriter& w) {
  std::vector<Stage*> stages;
  for (const auto& s : w.kernel().stages) stages.push_back(s.get());
  return stages;
}

void chunk_few_sums(ScheduleWriter& w) {
  for (Stage* s : stages_of(w)) {
    const FewSums few = outermost_of_few(w, *s);
    const NodeRef& along = few.along;
    if (!along) continue;
    const int64_t chunks =
        equal_chunks(extent(along), std::min(few.most, extent(along) / few.least));
    if (chunks == 0) continue;
    const std::string loop = w.loop(*s, along);
    w.step("rfactor {0} {1} {0}.chunks {2}", s->name, loop, chunks);
    w.reason(fmt::format("{}: few sums of many terms, by {} chunks of {} along {}", s->name, chunks,
                         extent(along) / chunks, loop));
  }
}

void chunk_narrow_columns(ScheduleWriter& w) {
  constexpr int64_t kMost = 16, kLeastTerms = 2048, kLeastRows = 16;
  for (Stage* s : stages_of(w)) {
    const Value& v = s->values[0];
    if (s->values.size() != 1 || s->is_triangular() || !s->bound.empty()) continue;
    const Contraction c = contraction_of(*s, {});
    if (!c.is || c.op != Op::Mul || accumulator(v.expr->dtype) != v.expr->dtype) continue;
    if (2 * extent(c.v) > w.lanes() || depth_of(c) < kLeastTerms) continue;
    NodeRef lanes;  // the longest axis of the other factor
    int64_t rows = 1, sums = 1;
    bool plain = true;
    for (const NodeRef& d : v.dims) {
      const bool in_a = uses(factor(v, c.a), d), in_b = uses(factor(v, c.b), d);
      if (in_a && !in_b && (!lanes || extent(d) > extent(lanes))) lanes = d;
      plain &= in_a != in_b;
      rows *= in_b ? extent(d) : 1;
      sums *= extent(d);
    }
    const NodeRef& a = factor(v, c.a);
    const int64_t bytes = sums * size_of(v.expr->dtype),
                  bytes_of_a = bytes_of_arrays(w.kernel(), a);
    // Dot products fill their lanes with terms, but read a again for every few rows of b.
    const auto lies_along = [&](const NodeRef& factor) {
      const Strides along = strides_along(w.kernel(), factor, c.reduced.back());
      return along.unit > 0 && along.other == 0;
    };
    const bool dots = lies_along(factor(v, 0)) && lies_along(factor(v, 1));
    if (dots && bytes_of_a <= w.target().l3) continue;
    if (!plain || !lanes || extent(lanes) < w.lanes() || rows < kLeastRows ||
        bytes > w.target().l2 / 8 || bytes_of_a <= w.target().l2 / 2)
      continue;
    NodeRef along;  // the outermost that has enough of them
    int64_t chunks = 0;
    for (const NodeRef& k : in_order_of_memory(w, a, c.reduced)) {
      along = k;
      chunks = equal_chunks(extent(k), kMost);
      if (chunks > 0) break;
    }
    if (chunks == 0) continue;
    const std::string name = s->name + ".chunks";
    const std::string loop = w.loop(*s, along);
    std::string order;
    size_t place = 0;
    for (size_t d = 0; d < v.dims.size(); d++) {
      if (v.dims[d].get() == lanes.get()) {
        place = d + 1;  // behind the chunks
      } else {
        order += fmt::format(" {}", d + 1);
      }
    }
    w.step("rfactor {} {} {} {}", s->name, loop, name, chunks);
    w.step("dims {} 0{} {}", name, order, place);
    w.reason(fmt::format(
        "{}: few columns, so that rows lie along the lanes, by {} chunks of {} along {}", s->name,
        chunks, extent(along) / chunks, loop));
  }
}

void chunk_few_columns(ScheduleWriter& w) {
  constexpr int64_t kMostColumns = 128, kLeastWork = 200'000, kLeastRows = 64, kMost = 16;
  for (Stage* s : stages_of(w)) {
    const Value& v = s->values[0];
    if (!adds_columns(w, *s) || v.dims.size() > 1) continue;
    int64_t rows = 1;
    for (const NodeRef& a : s->axes) rows *= contains(v.dims, a.get()) ? 1 : extent(a);
    const int64_t columns = extent(v.dims[0]);
    if (columns > kMostColumns || rows * columns * (1 + expression_cost(*s)) < kLeastWork) continue;
    for (const NodeRef& along : s->axes) {  // the outermost that has enough of them
      if (contains(v.dims, along.get())) continue;
      const int64_t chunks = equal_chunks(extent(along), std::min(kMost, rows / kLeastRows));
      if (chunks == 0) continue;
      w.step("rfactor {0} {1} {0}.chunks {2}", s->name, w.loop(*s, along), chunks);
      w.reason(
          fmt::format("{}: few columns, by {} chunks of {} rows", s->name, chunks, rows / chunks));
      break;
    }
  }
}

void chunk_columns(ScheduleWriter& w) {
  constexpr int64_t kShortest = 256;
  for (Stage* s : stages_of(w)) {
    const NodeRef row = many_rows(w, *s);
    if (!row) continue;
    int64_t chunks = extent(row) / kShortest;
    while (chunks * kTallest >= extent(row) && extent(row) % chunks != 0) chunks--;
    if (chunks * kTallest < extent(row)) continue;
    w.step("rfactor {0} {1} {0}.chunks {2}", s->name, w.loop(*s, row), chunks);
    w.reason(fmt::format("{}: very many terms, by {} chunks of {}", s->name, chunks,
                         extent(row) / chunks));
  }
}

void chunk_rows(ScheduleWriter& w) {
  constexpr int64_t kMost = 16, kTallestPlain = 512;
  for (Stage* s : stages_of(w)) {
    const MatrixRows m = rows_of_matrix(w, *s);
    if (!m.row || m.columns < kWideRow) continue;
    if (m.bytes <= (m.is_product ? 1 : 2) * w.target().l2) continue;
    // Equal terms are rounded to one side, and add up to what is ever further off.
    const int64_t tallest = m.weighted ? kTallest : kTallestPlain;
    const int64_t chunks =
        equal_chunks(extent(m.row),
                     std::min(std::max(kMost, extent(m.row) / tallest), extent(m.row) / kLongSum));
    if (chunks == 0 || (!m.is_product && 2 * chunks * tallest < extent(m.row))) continue;
    const std::string name = s->name + ".chunks";
    w.step("rfactor {} {} {} {}", s->name, w.loop(*s, m.row), name, chunks);
    Stage* const p = w.kernel().find_stage(name);
    flatten_axes(w, p, {p->axes.front()});
    w.reason(fmt::format("{}: a large operand is read once, in order, by {} chunks of {} rows",
                         s->name, chunks, extent(m.row) / chunks));
  }
}

void chunk_terms(ScheduleWriter& w) {
  constexpr int64_t kMost = 32;
  for (Stage* s : stages_of(w)) {
    const LongSum l = long_sum(w, *s);
    if (!l.terms || is_visited_sum(w, *s)) continue;
    const int64_t terms = extent(l.terms), bytes = terms * l.bytes_of_term;
    // Where the last cache is far, what comes from there once for each panel takes longer than what
    // chunks give, written and read again; a quarter of L2 is still there from what made it.
    const bool near = terms * l.bytes_in_panel <= w.target().l2 / 2 || bytes <= 2 * w.target().l2;
    if (near && (!w.target().far_l3 || bytes <= w.target().l2 / 4)) continue;
    // What the chunks give is written and read once more.
    const auto fits = [&](int64_t chunks) {
      return terms % chunks == 0 && terms / chunks >= kLongSum &&
             4 * chunks * l.bytes_of_sums <= bytes;
    };
    int64_t chunks = std::clamp(2 * bytes / w.target().l2, kEnoughChunks, kMost);
    while (chunks >= kEnoughChunks && !fits(chunks)) chunks--;
    if (chunks < kEnoughChunks) continue;
    w.step("rfactor {0} {1} {0}.chunks {2}", s->name, w.loop(*s, l.terms), chunks);
    w.reason(fmt::format("{}: few sums of many terms, by {} chunks of {} terms", s->name, chunks,
                         terms / chunks));
  }
}

}  // namespace lazuli
