// The workloads of `lazuli bench --group symbolic`: programs captured once for all sizes up to a
// bound, each timed at several sizes beside a capture for that size alone.
#pragma once

#include <span>

#include "tools/cli/steps.h"

namespace lazuli::cli {

/// Rows of each program at each size, in that order.
std::span<const Step> symbolic_steps();

}  // namespace lazuli::cli
