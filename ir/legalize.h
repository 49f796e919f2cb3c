// Rewrites a value's expression so that dialects have few cases: 16-bit floats are computed in f32
// and rounded after every op, integer division and shifts are guarded as core/graph.h defines them,
// logic on bools is and/or/xor/not.
#pragma once

#include "core/node.h"
#include "ir/kernel.h"
#include "ir/math.h"

namespace lazuli {

/// Legalizes every value of the kernel; elementary functions may use `ops`.
void legalize(Kernel& kernel, const MathOps& ops);

}  // namespace lazuli
