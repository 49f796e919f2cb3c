// Runs a test on every device that this build has.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "runtime/runtime.h"

namespace lazuli {

/// Calls `test` with a runtime of its own for each of the devices cpu and reference.
template <typename F>
void on_devices(F test) {
  for (const char* device : {"cpu", "reference"}) {
    if (!LAZULI_LLVM && std::string(device) == "cpu") continue;
    Config config;
    config.device = device;
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    INFO("device ", std::string(device));
    test();
  }
}

}  // namespace lazuli
