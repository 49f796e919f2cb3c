// Into which slices of its arrays the parallel loop of a kernel falls, so that several kernels can
// be run one slice after the other (ir/step_loops.h).
#pragma once

#include <cstdint>
#include <vector>

#include "ir/kernel.h"
#include "ir/program.h"

namespace lazuli {

/// How the iterations of one slice touch an argument: in any way; at places that move with the
/// slice; or, of `count` slices, slice i touches nothing but the i-th of as many equal parts. The
/// least of several uses is that of all.
enum class SliceUse : uint8_t { Whole, Moves, Apart };

/// An axis that a parallel loop of a kernel walks index by index. The kernel's iterations are
/// counted by one number: outer * count * inner, this axis in the middle.
struct Slices {
  int64_t outer = 1, count = 1, inner = 1;
  std::vector<SliceUse> arguments = {};
};

/// Iterations of a parallel loop: [begin, begin + size), and as many again each `period`
/// iterations, `times` in all.
struct GridPart {
  int64_t begin = 0, size = 0, period = 0, times = 1;

  int64_t steps() const { return size * times; }
};

/// Those of slices [first, first + n).
GridPart part_of(const Slices& s, int64_t first, int64_t n);

/// The axes of a scheduled kernel, and of the program that it lowers to, that can be cut so: none
/// unless it has one phase, of a fixed number of iterations.
std::vector<Slices> slices_of(const Kernel& kernel, const Program& program);

}  // namespace lazuli
