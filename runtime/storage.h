// Storage over the runtime's allocator.
#pragma once

#include <memory>

#include "core/storage.h"
#include "runtime/allocator.h"

namespace lazuli {

/// Host memory of one array.
class HostStorage final : public Storage {
 public:
  HostStorage(Allocator& allocator, size_t bytes)
      : block_(allocator.allocate(bytes ? bytes : 1)), bytes_(bytes) {}
  void* data() override { return block_.data(); }
  size_t bytes() const override { return bytes_; }

 private:
  Block block_;
  size_t bytes_;
};

}  // namespace lazuli
