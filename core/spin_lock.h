// A lock that is held for some tens of instructions and seldom fought over: taking a free one is a
// single exchange, a third of what a mutex costs.
#pragma once

#include "core/single_threaded.h"

namespace lazuli {

/// For std::lock_guard. Who waits spins, and soon lets other threads run.
class SpinLock {
 public:
  // By the compilers' builtins, as in core/ref.h.
  void lock() {
    if (is_single_threaded()) {
      held_ = true;  // for a thread that starts meanwhile
    } else if (__atomic_exchange_n(&held_, true, __ATOMIC_ACQUIRE)) {
      wait();
    }
  }
  void unlock() { __atomic_store_n(&held_, false, __ATOMIC_RELEASE); }

 private:
  void wait();

  bool held_ = false;
};

/// std::lock_guard without <mutex>, which is much for every header of tensors.
class SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace lazuli
