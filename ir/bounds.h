// Loops of kernels that serve several sizes: which of the iterations that a kernel has at the upper
// bounds matter at smaller sizes.
#pragma once

#include <span>
#include <vector>

#include "core/symbolic.h"
#include "ir/plan.h"

namespace lazuli {

/// Bounds axes of the stages of all kernels of `plan` by the sizes of dimensions: elements beyond
/// them are neither needed by a root, of which root_axes tells the true sizes, nor by a sum or a
/// maximum that masks them. Kernels get the sizes that they need as arguments.
void bound_stages(Plan& plan, const SymbolicGraph& graph);

}  // namespace lazuli
