#include "ir/slices.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "ir/choose_groups.h"
#include "ir/index.h"
#include "ir/schedule.h"

namespace lazuli {
namespace {

// Of a load of element `flat`.
SliceUse use_of_load(const NodeRef& flat, const NodeRef& axis, int64_t slice) {
  if (!uses(flat, axis.get())) return SliceUse::Whole;
  if (linear_form(flat).coefficient(axis.get()) != slice) return SliceUse::Moves;
  const NodeRef rest = index_add(flat, axis, -slice);
  const bool inside = !uses(rest, axis.get()) && rest->lo >= 0 && rest->hi < slice;
  return inside ? SliceUse::Apart : SliceUse::Moves;
}

// Of a value that is stored row-major over its dims.
SliceUse use_of_store(const Value& v, const NodeRef& axis) {
  for (const NodeRef& d : v.dims) {
    if (d == axis) return SliceUse::Apart;
    if (d->hi > 0) break;
  }
  return contains(v.dims, axis.get()) ? SliceUse::Moves : SliceUse::Whole;
}

std::vector<SliceUse> uses_along(const Kernel& kernel, const Program& program,
                                 const NodeRef& axis) {
  std::vector<SliceUse> found;
  for (const MemoryArgument& a : program.arguments) {
    found.push_back(a.strays ? SliceUse::Moves : SliceUse::Apart);
  }
  const auto meet = [&](int64_t slot, SliceUse use) {
    SliceUse& all = found[static_cast<size_t>(slot)];
    all = std::min(all, use);
  };
  const auto slice = [&](int64_t slot) {
    const int64_t size = kernel.arguments[static_cast<size_t>(slot)].size;
    return size % (axis->hi + 1) == 0 ? size / (axis->hi + 1) : 0;
  };
  const auto look = [&](const NodeRef& expr) {
    visit(expr, [&](const NodeRef& n) {
      if (n->op != Op::Load) return;
      const int64_t slot = n->integer();
      meet(slot, use_of_load(n->src[0], axis, slice(slot)));
    });
  };
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      look(v.expr);
      // What bypasses the caches is not found there by who reads it next.
      if (v.slot >= 0) meet(v.slot, v.stream ? SliceUse::Whole : use_of_store(v, axis));
    }
    for (const auto& [a, limit] : s->limit) look(limit);
    for (const auto& [a, begin] : s->begin) look(begin);
  }
  return found;
}

// Is `s` computed inside a loop of the root that stands before loop q, which has not begun then?
bool is_outside(const Stage& s, const Stage& root, size_t q) {
  const Stage* at = &s;
  while (at->at && at->at != &root) at = at->at;
  for (size_t i = 0; at->at && i < q; i++) {
    if (root.loops[i].name == at->at_loop) return true;
  }
  return false;
}

// Do all stages that have the axis of the root's loop q compute what one iteration of that needs,
// and no more?
bool is_common(const Kernel& kernel, const Stage& root, size_t q) {
  const NodeRef& axis = root.axes[static_cast<size_t>(root.loops[q].axis)];
  bool common = true;
  const auto look = [&](const NodeRef& expr) {
    visit(expr, [&](const NodeRef& n) {
      if (n->op != Op::Read) return;
      const std::vector<NodeRef>& dims =
          kernel.find_value(static_cast<int>(n->integer())).second->dims;
      for (size_t d = 0; d < dims.size(); d++) common &= dims[d] != axis || n->src[d] == axis;
    });
  };
  for (const auto& s : kernel.stages) {
    common &= !contains(s->axes, axis.get()) ||
              (keeps_in_all(*s, axis.get()) && !is_outside(*s, root, q));
    for (const Value& v : s->values) look(v.expr);
    for (const auto& [a, limit] : s->limit) look(limit);
    for (const auto& [a, begin] : s->begin) look(begin);
  }
  return common;
}

}  // namespace

GridPart part_of(const Slices& s, int64_t first, int64_t n) {
  return {first * s.inner, n * s.inner, s.count * s.inner, s.outer};
}

std::vector<Slices> slices_of(const Kernel& kernel, const Program& program) {
  const std::vector<PhaseRoot> roots = phases(kernel);
  // What is packed ahead is the next slice's.
  if (roots.size() != 1 || !kernel.sizes.empty() || program.phases[0].packs_ahead) return {};
  const Stage& root = *roots[0].stage;
  struct GridLoop {
    NodeRef axis;  // null: only a part of one
    int64_t extent;
  };
  std::vector<GridLoop> grid;
  std::vector<int64_t> remaining;
  for (const NodeRef& a : root.axes) remaining.push_back(a->hi + 1);
  for (const Loop& l : root.loops) {
    if (l.kind != LoopKind::Parallel) break;
    const auto a = static_cast<size_t>(l.axis);
    const bool whole = l.stride == 1 && remaining[a] == root.axes[a]->hi + 1;
    grid.push_back({whole ? root.axes[a] : NodeRef(), (remaining[a] - 1) / l.stride + 1});
    remaining[a] = l.stride;
  }
  int64_t all = 1;
  for (const GridLoop& l : grid) all *= l.extent;
  std::vector<Slices> found;
  int64_t outer = 1;
  for (size_t q = 0; q < grid.size(); q++) {
    const GridLoop& l = grid[q];
    if (l.axis && l.extent > 1 && is_common(kernel, root, q)) {
      ensure(all == program.phases[0].count,
             fmt::format("kernel {}: its slices are not those of its loop", kernel.name));
      found.push_back(
          {outer, l.extent, all / (outer * l.extent), uses_along(kernel, program, l.axis)});
    }
    outer *= l.extent;
  }
  return found;
}

}  // namespace lazuli
