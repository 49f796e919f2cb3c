// Runs what is realised in its scope on the reference device.
#pragma once

#include "nn/lazuli.h"

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
