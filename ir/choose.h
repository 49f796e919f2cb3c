// The default schedule: named rules about a kernel's structure and a model of the target, never
// about a kernel's name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// What is to be taken, by Choice::what.
using Settled = std::map<std::string, std::string>;

/// Writes a schedule for any legal algorithm: applies steps to `kernel`, whose text is
/// kernel.schedule, and notes in kernel.reasons which rule chose them and why, and in
/// kernel.choices what else it could have taken. A function of the algorithm, the target and what
/// is settled beforehand. Returns what it lowers to (ir/lower.h). UserError, and `kernel` stays as it
/// is, if it cannot be as settled.
Program choose_schedule(Kernel& kernel, const Target& target, const Settled& settled = {});

/// For each phase of the kernel which rule scheduled it, and what the next one that applies would
/// cost, by the cycles of the instructions alone (ir/program_cost.h).
std::vector<Choice> other_rules(const Kernel& kernel, const Target& target);

}  // namespace lazuli
