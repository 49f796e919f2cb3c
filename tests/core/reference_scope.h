// Runs what is realised in its scope on the reference device.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "nn/lazuli.h"

using Floats = std::vector<float>;
using Ints64 = std::vector<int64_t>;
constexpr double kInf = std::numeric_limits<double>::infinity();

class ReferenceScope {
 public:
  ReferenceScope() : runtime_(config()), use_(runtime_) {}

 private:
  static lazuli::Config config() {
    lazuli::Config config;
    config.device = "reference";
    return config;
  }

  lazuli::Runtime runtime_;
  lazuli::Runtime::Use use_;
};
