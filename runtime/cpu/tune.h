// The search for a schedule around the model's choice, by measuring.
#pragma once

#include "ir/kernel.h"
#include "ir/target.h"
#include "runtime/cpu/kernel_store.h"
#include "runtime/cpu/winners.h"
#include "runtime/runtime.h"

namespace lazuli {

/// Below this predicted time of a kernel, on one core, a search is not worth what it takes.
inline constexpr double kTuneSeconds = 5e-6;

/// Measures the alternatives that the rules note next to the model's choices (Kernel::choices), on
/// zeros and on the runtime's threads, and goes on from the best until none is clearly better.
/// Only schedules that give the same bits (same_order) are tried. `model` is what the kernel is
/// without a search. DeviceError if there is no memory for its arrays.
Winner tune(const Kernel& kernel, const CompiledKernel& model, const Target& target,
            Runtime& runtime);

}  // namespace lazuli
