// From a kernel, algorithm and schedule, to a loop program.
#pragma once

#include "ir/kernel.h"
#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// Lowers a scheduled kernel. Throws UserError where the schedule is not legal: tiles of a value in
/// registers differ from its reader's, a value is private to a phase but read by another, ...
/// (ir/schedule.h).
Program lower(const Kernel& kernel, const Target& target);

/// Lanes of a vector of this kernel on this target: target.lanes, or half as many where its widest
/// elements have 8 bytes.
int vector_lanes(const Kernel& kernel, const Target& target);

}  // namespace lazuli
