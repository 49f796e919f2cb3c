#include "ir/storage.h"

#include <algorithm>

#include "core/error.h"
#include "ir/index.h"

namespace lazuli {

NodeRef Place::flat(const std::vector<NodeRef>& index) const {
  LinearForm r{offset, {}};
  for (const Component& c : components) {
    if (c.divisor <= 1 && c.modulus <= 0) {
      r.add(index[c.dim], c.stride);
      r.add(base[c.dim], -c.stride);
      continue;
    }
    NodeRef x = index_add(index[c.dim], base[c.dim], -1);
    if (c.divisor > 1) x = index_divmod(x, c.divisor).first;
    if (c.modulus > 0) x = index_divmod(x, c.modulus).second;
    r.add(x, c.stride);
  }
  return from_linear(std::move(r));
}

std::vector<NodeRef> Place::local(const std::vector<NodeRef>& index) const {
  std::vector<NodeRef> r;
  for (size_t d = 0; d < index.size(); d++) r.push_back(index_add(index[d], base[d], -1));
  return r;
}

std::vector<int> axes_of(const Stage& stage, const Value& v) {
  std::vector<int> r;
  for (const NodeRef& d : v.dims) {
    for (size_t a = 0; a < stage.axes.size(); a++) {
      if (stage.axes[a].get() == d.get()) r.push_back(static_cast<int>(a));
    }
  }
  return r;
}

void lay_out(Place& place, const Stage& stage, const Value& v, const Region& region, int lanes) {
  const std::vector<int> axes = axes_of(stage, v);
  std::vector<int64_t> extents;
  place.components.clear();
  place.padded = false;
  if (v.layout.empty()) {
    for (size_t d = 0; d < axes.size(); d++) {
      place.components.push_back({d, 1, 0, 0});
      extents.push_back(region.extent[static_cast<size_t>(axes[d])]);
    }
    if (v.slot < 0 && !extents.empty()) {
      extents.back() = (extents.back() + lanes - 1) / lanes * lanes;
      place.padded = true;
    }
  }
  for (const std::string& loop_name : v.layout) {
    const auto loop = std::find_if(stage.loops.begin(), stage.loops.end(),
                                   [&](const Loop& l) { return l.name == loop_name; });
    ensure(loop != stage.loops.end(), "a storage order names a loop that is gone");
    const auto d =
        static_cast<size_t>(std::find(axes.begin(), axes.end(), loop->axis) - axes.begin());
    // Of two loops with one stride, the inner one has one iteration.
    const bool outermost = std::none_of(stage.loops.begin(), stage.loops.end(), [&](const Loop& l) {
      return l.axis == loop->axis &&
             (l.stride > loop->stride || (l.stride == loop->stride && &l < &*loop));
    });
    const int64_t length = region.extent[static_cast<size_t>(loop->axis)];
    const int64_t n = outermost ? (length + loop->stride - 1) / loop->stride : loop->extent;
    place.components.push_back({d, loop->stride, outermost ? 0 : n, 0});
    extents.push_back(n);
    // A whole vector loop innermost: its lanes always exist.
    place.padded = loop->kind == LoopKind::Vector && !outermost;
  }
  place.size = 1;
  for (size_t c = extents.size(); c-- > 0;) {
    place.components[c].stride = place.size;
    place.size *= extents[c];
  }
}

}  // namespace lazuli
