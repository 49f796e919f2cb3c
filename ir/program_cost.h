// How long a program should take, from its instructions: what explain sets beside the measured
// time, and what schedules are compared by before they are run.
#pragma once

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// Cycles for each lane of a Store with a step: twelve for 16, measured on Emerald Rapids.
inline constexpr double kScatterCycles = 0.75;

/// Cycles of one core for the instructions of a program, with all memory near: the busiest unit of
/// each loop (two for arithmetic, two for loads, one for stores, one for exchanges of lanes), or
/// the longest chain of results that one iteration hands to the next.
double estimate_cycles(const Program& program);
/// The same of one phase.
double estimate_cycles(const Phase& phase);

/// Seconds for so many cycles, shared out to `threads` cores, or for moving so many bytes at the
/// bandwidth of the memory that holds them, if that takes longer.
double estimate_seconds(double cycles, double bytes, const Target& target, int threads);

}  // namespace lazuli
