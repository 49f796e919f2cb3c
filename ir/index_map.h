// Movement ops as substitutions on index expressions: which element of the source an index of the
// result means, and under which condition there is one. No strided view exists anywhere; integer
// algebra undoes chains of these.
#pragma once

#include <vector>

#include "core/node.h"

namespace lazuli {

/// Coordinates of one element, an I64 expression for each axis, and the condition under which they
/// are inside the array (null: always).
struct Access {
  std::vector<NodeRef> index;
  NodeRef valid;
};

/// The element of `n`'s source that element `at` of the movement node `n` is a copy of. Where the
/// result's condition is false although that of `at` is true, `n` is zero. Coordinates along axes
/// of size 1 become the constant 0.
Access source_access(const Node& n, const Access& at);

/// Row-major position of `index` in an array of `shape`.
NodeRef flat_index(std::span<const NodeRef> index, std::span<const int64_t> shape);
/// The coordinates of row-major position `flat`.
std::vector<NodeRef> coordinates(const NodeRef& flat, std::span<const int64_t> shape);

/// Both conditions; null stands for true.
NodeRef both(const NodeRef& a, const NodeRef& b);
/// 0 <= x < size; null if that always holds.
NodeRef in_range(const NodeRef& x, int64_t size);

}  // namespace lazuli
