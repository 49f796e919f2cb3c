// The workloads of `lazuli bench` that are more than one expression: training steps and runs of
// GPT-2.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "core/tensor.h"

namespace lazuli::cli {

struct Step {
  std::string_view name, what;
  double flops, bytes;  // of one step, as its mathematics needs them
  /// Makes the model, of random weights by the seed. What it returns does one step, captured at the
  /// first call (lz::jit), and gives the loss or the logits, realised.
  std::function<Tensor()> (*build)();
};

std::span<const Step> steps();
/// The row of this name, or null.
const Step* find_step(std::string_view name);

}  // namespace lazuli::cli
