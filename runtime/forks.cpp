#include "runtime/forks.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace lazuli {
namespace {

std::atomic<unsigned> forks = 0;

}  // namespace

unsigned fork_count() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  });
  return forks.load(std::memory_order_relaxed);
}

}  // namespace lazuli
