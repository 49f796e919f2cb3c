#include "core/ref.h"

#include <atomic>

namespace lazuli {

uint32_t Counted::count() const {
  return std::atomic_ref(count_).load(std::memory_order_acquire);
}

bool Counted::try_share() const {
  const std::atomic_ref count(count_);
  uint32_t n = count.load(std::memory_order_relaxed);
  while (n != 0 && !count.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) {
  }
  return n != 0;
}

}  // namespace lazuli
