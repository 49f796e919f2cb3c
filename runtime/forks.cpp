#include "runtime/forks.h"

#include <pthread.h>

#include <atomic>

namespace lazuli {
namespace {

std::atomic<unsigned> forks = 0;

}  // namespace

unsigned fork_count() {
  // Not call_once, which takes some time at every launch of a kernel.
  [[maybe_unused]] static const int watched =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return forks.load(std::memory_order_relaxed);
}

}  // namespace lazuli
