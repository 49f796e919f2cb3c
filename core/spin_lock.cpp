#include "core/spin_lock.h"

#include <thread>

namespace lazuli {

void SpinLock::wait() {
  constexpr int kSpins = 64;  // about what a holder that runs needs
  do {
    for (int i = 0; i < kSpins && __atomic_load_n(&held_, __ATOMIC_RELAXED); i++) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    if (__atomic_load_n(&held_, __ATOMIC_RELAXED)) std::this_thread::yield();
  } while (__atomic_exchange_n(&held_, true, __ATOMIC_ACQUIRE));
}

}  // namespace lazuli
