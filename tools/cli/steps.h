// The workloads of `lazuli bench` that are more than one expression: training steps, runs of GPT-2,
// what the host does about kernels that take no time themselves, and sizes that change.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace lazuli::cli {

struct Step {
  std::string_view name, what;
  double flops = 0, bytes = 0;  // of one step, as its mathematics needs them
  /// Makes the model, of random weights by the seed. What it returns does one step and gives a
  /// value of it, realised.
  std::function<std::function<Tensor()>()> build;
  std::string_view group = "steps";  // of --group
  std::string_view how = "captured and replayed";
  /// How many nodes or kernels a step has, where it is their number that the time goes by.
  double parts = 0;
  std::string_view part = "";
  /// The same captured for its sizes alone, which is timed in turn with it; or null.
  std::function<std::function<Tensor()>()> beside = nullptr;
};

const std::vector<Step>& steps();
/// The row of this name, or null.
const Step* find_step(std::string_view name);

}  // namespace lazuli::cli
