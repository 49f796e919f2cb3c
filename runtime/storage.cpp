#include "runtime/storage.h"

#include <mutex>

#include "core/error.h"

namespace lazuli {
namespace {

std::shared_mutex& values_mutex() {
  static auto* mutex = new std::shared_mutex;  // outlives every static tensor
  return *mutex;
}

}  // namespace

std::shared_lock<std::shared_mutex> hold_values() { return std::shared_lock(values_mutex()); }

void attach_values(std::span<const NodeRef> nodes,
                   std::span<const Ref<Storage>> values) {
  ensure(nodes.size() == values.size(), "attach: one value for each node");
  const std::lock_guard lock(values_mutex());
  for (size_t i = 0; i < nodes.size(); i++) {
    if (!nodes[i]->realised()) nodes[i]->set_storage(values[i]);
  }
}

void refuse_example() {
  user_error(
      "vmap: the function asks for values of its example, which stands for all examples at once; use operations whose "
      "shape does not depend on the data, or call the function for each example and stack the results");
}

}  // namespace lazuli
