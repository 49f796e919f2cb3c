// What a realised value is to the graph: counted bytes. Devices derive their own kind from it.
#pragma once

#include <cstddef>

#include "core/ref.h"

namespace lazuli {

/// Owner of the memory of one realised array, row-major and dense. Freed when the last node or tensor lets go.
class Storage : public Counted {
 public:
  /// Where the host may read and write the elements; never null unless bytes() is 0.
  virtual void* data() = 0;
  virtual size_t bytes() const = 0;
};

}  // namespace lazuli
