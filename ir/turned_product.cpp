#include "ir/turned_product.h"

#include "ir/factor_axes.h"
#include "ir/fuse.h"
#include "ir/simplify_rules.h"

namespace lazuli {
namespace {

// Does w lie in memory, with an axis that is summed innermost?
bool lies_by_rows(const Node& sum, const NodeRef& w) {
  const std::optional<AxesBelow> memory = axes_below(w);
  if (!memory || !memory->below->realised()) return false;
  bool innermost = false;
  for (const int64_t l : memory->labels) {
    if (l >= 0) innermost = reduces_axis(sum, static_cast<size_t>(l));
  }
  return innermost;
}

// With `w` as one factor and `x` as the other.
std::optional<TurnedProduct> product_of(const Node& sum, const NodeRef& x, const NodeRef& w) {
  TurnedProduct p;
  p.dtype = sum.dtype;
  const auto in_x = varying_axes(*x), in_w = varying_axes(*w);
  bool last_in_w = false;
  for (size_t a = 0; a < x->shape.size(); a++) {
    const int64_t length = x->shape[a];
    if (length == 1) continue;
    const bool is_summed = reduces_axis(sum, a);
    if (is_summed != (in_x[a] && in_w[a])) return {};
    if (!is_summed && !in_x[a] && !in_w[a]) return {};
    if (!is_summed) last_in_w = in_w[a];
    if (!is_summed && in_x[a]) p.rows.push_back(static_cast<int64_t>(a));
    (is_summed ? p.k : in_x[a] ? p.m : p.n) *= length;
  }
  if (!last_in_w || p.rows.empty() || p.k == 1 || !lies_by_rows(sum, w)) return {};
  return p;
}

int64_t lanes_of(const TurnedProduct& p, const Target& target) {
  return p.dtype == DType::F64 ? target.lanes / 2 : target.lanes;
}

double cycle_of(const Target& target) {
  return target.fma_units * target.lanes / target.fma_per_second;
}

// Cycles at the peak with so many rows.
double cycles(const TurnedProduct& p, int64_t rows, const Target& target) {
  return static_cast<double>(rows) * static_cast<double>(p.n) * static_cast<double>(p.k) /
         static_cast<double>(lanes_of(p, target) * target.fma_units);
}

}  // namespace

// The constants are measured, on Emerald Rapids and, of packing, on Zen 5.
double TurnedProduct::direct_seconds(const Target& target) const {
  constexpr double kDirect = 0.95, kTurned = 5;  // of the peak; cycles for a vector of w
  const double elements = static_cast<double>(n) * static_cast<double>(k),
               turned = kTurned * elements / static_cast<double>(lanes_of(*this, target));
  return (cycles(*this, m, target) / kDirect + turned) * cycle_of(target);
}

double TurnedProduct::turned_seconds(const Target& target) const {
  constexpr double kTurned = 0.9, kCopied = 16, kStarts = 6e-6;  // of the peak; bytes for a cycle
  const int64_t lanes = lanes_of(*this, target), rows = (m + lanes - 1) / lanes * lanes,
                bytes = 2 * m * n * size_of(dtype);
  const double rate = bytes <= target.l2 ? kCopied / cycle_of(target) : target.bandwidth;
  return kStarts + cycles(*this, rows, target) / kTurned * cycle_of(target) +
         static_cast<double>(bytes) / rate;
}

std::optional<TurnedProduct> turned_product_of(const NodeRef& n) {
  const bool floats = n->dtype == DType::F32 || n->dtype == DType::F64;
  if (!floats || !is_op(n, Op::ReduceAdd) || !is_op(n->src[0], Op::Mul)) return {};
  const Sources& factors = n->src[0]->src;
  for (size_t side = 0; side < 2; side++) {
    if (auto p = product_of(*n, factors[side], factors[1 - side])) return p;
  }
  return {};
}

SumForm turned_form(const TurnedProduct& p, const Node& sum) {
  return with_axes_last(sum, p.rows);
}

}  // namespace lazuli
