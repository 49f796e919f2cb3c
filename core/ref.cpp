#include "core/ref.h"

#include <atomic>

namespace lazuli {

uint32_t Counted::count() const {
  return std::atomic_ref(count_).load(std::memory_order_acquire);
}

void Counted::share() const {
  std::atomic_ref(count_).fetch_add(1, std::memory_order_relaxed);
}

void Counted::release() const {
  // What every user did happens before the object is freed.
  if (std::atomic_ref(count_).fetch_sub(1, std::memory_order_acq_rel) == 1) free();
}

bool Counted::try_share() const {
  const std::atomic_ref count(count_);
  uint32_t n = count.load(std::memory_order_relaxed);
  while (n != 0 && !count.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) {
  }
  return n != 0;
}

}  // namespace lazuli
