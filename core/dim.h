// Sizes that differ from call to call of a captured function.
#pragma once

#include <cstdint>
#include <string>

namespace lazuli {

/// A size that may differ from call to call, within bounds.
struct Dim {
  std::string name;
  int64_t least = 1, most = 1;
  int64_t serial = 0;
};

}  // namespace lazuli
