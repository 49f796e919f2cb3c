// Whether two schedules of one algorithm give the same bits (ir/schedule.h).
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "ir/schedule.h"

namespace lazuli {
namespace {

// A loop that takes terms, by its axis, which may have been made by a step of the schedule, its
// stride and its iterations. Without a name: a visit, at whose end a partial result is stored.
using TermLoop = std::tuple<std::string, int64_t, int64_t, int64_t, LoopKind>;

// How many axes that v sums over come before this one.
int reduced_before(const Stage& s, const Value& v, int axis) {
  int n = 0;
  for (int a = 0; a < axis; a++) n += !s.keeps(v, a);
  return n;
}

// The loops by which value v takes its terms, outermost first, in a form that does not depend on
// how often an axis is split for a walk in order.
std::vector<TermLoop> order_of_terms(const Stage& s, const Value& v) {
  const auto is_part = [](const Loop& l) {
    return l.kind == LoopKind::Ilp || l.kind == LoopKind::Vector;
  };
  // What several accumulators hold, or one that is wider than what is stored, is brought together
  // at each visit.
  bool combines = v.expr->dtype == DType::F16 || v.expr->dtype == DType::BF16;
  for (const Loop& l : s.loops) combines |= is_part(l) && !s.keeps(v, l.axis);
  std::vector<TermLoop> order;
  for (const Loop& l : s.loops) {
    if (s.keeps(v, l.axis)) {
      const bool visits = combines && !order.empty() && !l.is_unrolled();
      if (visits && !std::get<0>(order.back()).empty()) order.push_back({});
      continue;
    }
    const Node& axis = *s.axes[static_cast<size_t>(l.axis)];
    const std::string name =
        fmt::format("{} {}", std::get<VarArg>(axis.arg).name, reduced_before(s, v, l.axis));
    const LoopKind kind = is_part(l) ? l.kind : LoopKind::Serial;
    int64_t count = l.extent;
    if (!order.empty() && kind == LoopKind::Serial) {
      const auto [before, size, stride, times, kind_before] = order.back();
      if (before == name && kind_before == kind && stride == l.stride * l.extent) {
        count = std::min(times * l.extent, (axis.hi + l.stride) / l.stride);
        order.pop_back();
      }
    }
    order.emplace_back(name, axis.hi, l.stride, count, kind);
  }
  if (!order.empty() && std::get<0>(order.back()).empty()) order.pop_back();
  return order;
}

// The loops that decide where one over a masked axis ends.
std::vector<std::pair<std::string, int64_t>> loops_around(const Stage& s) {
  std::vector<std::pair<std::string, int64_t>> around;
  for (const Stage* at = &s; at; at = at->at) {
    for (const Loop& l : at->loops) around.emplace_back(l.name, l.stride);
    around.emplace_back(at->at_loop, 0);
  }
  return around;
}

std::pair<const Stage*, const Value*> find(const Kernel& kernel, int id) {
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      if (v.id == id) return {s.get(), &v};
    }
  }
  return {};
}

}  // namespace

bool same_order(const Kernel& a, const Kernel& b) {
  for (const auto& s : a.stages) {
    for (const Value& v : s->values) {
      const auto [t, u] = find(b, v.id);
      const bool limited = s->is_triangular() || (t && t->is_triangular());
      if (!v.reduces() && !limited) continue;
      if (!t || s->is_triangular() != t->is_triangular()) return false;
      if (v.reduces() && order_of_terms(*s, v) != order_of_terms(*t, *u)) return false;
      if (limited && loops_around(*s) != loops_around(*t)) return false;
    }
  }
  return true;
}

}  // namespace lazuli
