// Rewrites a value's expression so that dialects have few cases: 16-bit floats are computed in f32
// and rounded after every op, integer division and shifts are guarded as core/graph.h defines them,
// logic on bools is and/or/xor/not.
#pragma once

#include "core/node.h"
#include "ir/kernel.h"

namespace lazuli {

/// Legalizes every value of the kernel; with `permutes`, elementary functions may permute vectors.
void legalize(Kernel& kernel, bool permutes);

}  // namespace lazuli
