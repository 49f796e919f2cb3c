// Storage over the runtime's allocator.
#pragma once

#include <memory>

#include "core/storage.h"
#include "runtime/allocator.h"

namespace lazuli {

struct Origin;

/// Host memory of one array.
class HostStorage final : public Storage {
 public:
  HostStorage(Allocator& allocator, size_t bytes)
      : block_(allocator.allocate(bytes ? bytes : 1)), bytes_(bytes) {}
  void* data() override { return block_.data(); }
  size_t bytes() const override { return bytes_; }

  /// The plan that wrote it (runtime/origin.h); nothing if no plan did, or it is forgotten.
  std::weak_ptr<const Origin> origin;

 private:
  Block block_;
  size_t bytes_;
};

}  // namespace lazuli
