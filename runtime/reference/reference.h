// The reference device: evaluates the tensor graph itself, one node at a time, one element at a time, with no fusion and no lowering. It is
// the meaning of the graph: every other device must agree with it within stated ULPs.
#pragma once

#include <span>

#include "core/node.h"

namespace lazuli {

/// Computes `roots` and attaches their storage. Interior values are freed as soon as their last reader is done.
void realize_reference(std::span<const NodeRef> roots);

}  // namespace lazuli
