// The default schedule: named rules about a kernel's structure and a model of the target, never
// about a kernel's name.
#pragma once

#include "ir/kernel.h"
#include "ir/target.h"

namespace lazuli {

/// Writes a schedule for any legal algorithm: applies steps to `kernel`, whose text is
/// kernel.schedule, and notes in kernel.reasons which rule chose them and why. A function of the
/// algorithm and the target alone.
void choose_schedule(Kernel& kernel, const Target& target);

}  // namespace lazuli
