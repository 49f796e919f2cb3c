// What an expression costs by its mathematics, and its result ready to be replayed and measured.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "runtime/device.h"

namespace lazuli::cli {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Floating-point operations that the graph above realised leaves states, masks or not: one for each
/// element of an elementwise op on floats, one for each element that a reduction or a scan reads.
double count_flops(std::span<const NodeRef> roots);

/// A compiled plan with storage for its inputs and results.
class Replay {
 public:
  Replay(Device& device, std::span<const Tensor> results);

  void run() { executable_->run(pointers(inputs_), pointers(outputs_)); }
  /// Seconds of each step of the plan, the median of `repeats` runs.
  std::vector<double> time_steps(int repeats) {
    return executable_->time_steps(pointers(inputs_), pointers(outputs_), repeats);
  }
  const Plan& plan() const { return executable_->plan(); }
  const Executable& executable() const { return *executable_; }

  int kernels() const;
  int launches() const { return static_cast<int>(plan().steps.size()); }
  /// How much of what its kernels would compute without masks lies within them (ir/limits.h).
  double share_within_masks() const;
  /// Bytes of all that is read of inputs, and of results, each counted once.
  double bytes() const;
  /// The storage of the input slot that holds `node`, or null.
  Ref<Storage> input(const NodeRef& node) const;
  /// The i-th result as an array of its own dtype and shape.
  Tensor result(size_t i) const;

 private:
  std::unique_ptr<Executable> executable_;
  std::vector<Ref<Storage>> inputs_, outputs_;
  std::vector<int> output_of_slot_, input_of_slot_;
};

/// The quartiles of fewer say nothing of how much they vary.
constexpr int64_t kFewestRuns = 3;

struct Timing {
  double min = 0, median = 0;
  double low = 0, high = 0;  // the quartiles
  int64_t count = 0;
};

/// Repeats `run` for `seconds` and takes the time of each; runs too short for the clock are timed
/// in batches, at least kFewestRuns of them.
Timing measure(const std::function<void()>& run, double seconds);
/// The same of several in turn, so that what else the machine does meets all of them.
std::vector<Timing> measure(std::span<const std::function<void()>> runs, double seconds);

}  // namespace lazuli::cli
