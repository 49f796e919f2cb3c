// Products of few rows with a matrix that lies in memory row by row.
#include <algorithm>
#include <cmath>
#include <set>

#include "ir/choose_rules.h"
#include "ir/choose_tiles.h"

namespace lazuli {
namespace {

// Does all that follows from the sum do so element by element? Rows that are reduced in the same
// kernel would be so in another order, and whether they are in it is a matter of threads.
bool has_only_epilogues(const ScheduleWriter& w, const Stage& s) {
  const Reads reads(w.kernel());
  std::set<const Stage*> after{&s};
  for (const auto& m : w.kernel().stages) {
    const bool follows = std::any_of(after.begin(), after.end(),
                                     [&](const Stage* from) { return reads.reads(m.get(), from); });
    if (!follows) continue;
    if (reduces(*m) || (reads.reads(m.get(), &s) && !is_epilogue(w.kernel(), *m, s))) return false;
    after.insert(m.get());
  }
  return true;
}

// Cycles of one core, and for each thread more those that it waits between phases, for m rows of x
// and n of the matrix, of k elements, each factor being turned around to be packed. The constants
// are measured on Emerald Rapids and, of packing, on Zen 5.
struct FewRows {
  static constexpr double kPacked = 5;  // of a vector

  double m, n, k, lanes, fmas;  // a cycle, of vectors
  double bytes;                 // of the sums
  double threads;

  double along_columns() const {
    constexpr double kPeak = 0.95;
    return (m / (fmas * kPeak) + kPacked) * n * k / lanes;
  }
  // `beyond_l2`: cycles for a byte of sums that do not stay there.
  double along_rows(double l2, double beyond_l2) const {
    constexpr double kPeak = 0.9, kBytes = 16, kCopy = 4000, kPhases = 30'000;
    const double vectors = std::ceil(m / lanes);
    return kCopy + kPhases * (threads - 1) + vectors * n * k / (fmas * kPeak) +
           kPacked * vectors * k + 2 * bytes * (2 * bytes <= l2 ? 1 / kBytes : beyond_l2);
  }
};

}  // namespace

void turn_sums(ScheduleWriter& w) {
  constexpr double kMargin = 1.05;
  const Target& target = w.target();
  // What is known of sizes that vary is only the largest.
  if (w.lanes() == 1 || !w.kernel().sizes.empty()) return;
  for (Stage* s : stages_of(w)) {
    const Value& v = s->values[0];
    const DType dtype = v.expr->dtype;
    if (s->values.size() != 1 || s->is_triangular() || !s->bound.empty()) continue;
    const Contraction c = contraction_of(*s, {});
    const bool plain = c.is && c.op == Op::Mul && c.r && !c.y && v.dims.size() == 2 &&
                       v.dims.back().get() == c.v.get() &&
                       (dtype == DType::F32 || dtype == DType::F64);
    // What else may be dot products, whose bits differ, is left alone: the model knows of threads.
    if (!plain || extent(c.r) <= most_rows_of_dots(target) || extent(c.v) < w.lanes()) continue;
    const NodeRef& matrix = factor(v, c.b);
    if (!is_loaded_as(matrix, dtype)) continue;
    const bool by_rows = std::any_of(c.reduced.begin(), c.reduced.end(),
                                     [&](const NodeRef& k) { return loads_along(w, matrix, k); });
    if (!by_rows || !has_only_epilogues(w, *s)) continue;
    const double m = static_cast<double>(extent(c.r)), n = static_cast<double>(extent(c.v));
    const FewRows sums{m,
                       n,
                       static_cast<double>(depth_of(c)),
                       static_cast<double>(w.lanes()),
                       static_cast<double>(target.fma_units),
                       m * n * static_cast<double>(size_of(dtype)),
                       static_cast<double>(target.threads)};
    const double frequency = target.fma_per_second / (target.fma_units * target.lanes);
    const bool model =
        sums.along_rows(static_cast<double>(target.l2), frequency / target.bandwidth) * kMargin <
        sums.along_columns();
    if (!w.choose_whether("lanes of " + s->name + " along its rows", model)) continue;
    w.step("cache {0} {0}.by_rows; dims {0}.by_rows 1 0", s->name);
    w.reason(
        fmt::format("{}: few rows, along which the lanes lie, so that {} rows of the other "
                    "factor are read where they lie",
                    s->name, extent(c.v)));
  }
}

}  // namespace lazuli
