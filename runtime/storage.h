// Storage over the runtime's allocator, and how values come to nodes.
#pragma once

#include <algorithm>
#include <memory>
#include <shared_mutex>
#include <span>

#include "core/node.h"
#include "runtime/allocator.h"

namespace lazuli {

class Executable;

/// Host memory of one array, and of `room` bytes if those are more.
class HostStorage final : public Storage {
 public:
  HostStorage(Allocator& allocator, size_t bytes, size_t room = 1)
      : block_(allocator.allocate(std::max(bytes, room))), bytes_(bytes) {}
  void* data() override { return block_.data(); }
  size_t bytes() const override { return bytes_; }

  /// The plan that wrote it; nothing if no plan did, or it is forgotten.
  std::weak_ptr<Executable> origin;

 private:
  Block block_;
  size_t bytes_;
};

/// Memory for what a plan gives.
Ref<HostStorage> made_by(const std::shared_ptr<Executable>& plan, Allocator& memory, size_t bytes,
                         size_t touched = 1);

/// While this lock is held, no thread attaches values to nodes: what a graph's key takes for
/// computed, the plan that is made of it takes for computed too. Several threads may hold it.
std::shared_lock<std::shared_mutex> hold_values();

/// Attaches values to those of `nodes` that have none. Where another thread was first its value
/// stays, since it may be being read. Not for a thread that holds values.
void attach_values(std::span<const NodeRef> nodes, std::span<const Ref<Storage>> values);

/// Refuses to compute what depends on an array that is nowhere: the example that vmap hands to its
/// function.
[[noreturn]] void refuse_example();

}  // namespace lazuli
