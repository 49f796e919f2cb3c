// Work that threads share when they happen to have nothing else to do: unlike the pool's, whose
// loops are run by one team at a time, several may be under way.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <type_traits>

#include "runtime/forks.h"

namespace lazuli {

class SharedWork {
 public:
  /// Calls `task(i)` for i in [0, count), on this thread and on those that help, and returns when
  /// all are done. The first exception that one throws is thrown here; tasks not yet begun are then
  /// left out. A task may not wait for another. Allocates nothing. In a forked child, where the
  /// others are not, this thread does all.
  template <typename F>
  void run(size_t count, F&& task) {
    using Function = std::remove_reference_t<F>;
    Batch batch = {.task = [](void* context, size_t i) { (*static_cast<Function*>(context))(i); },
                   .context = const_cast<void*>(static_cast<const void*>(&task)),
                   .count = count};
    run(batch);
  }

  /// Does tasks of others until `done()`, which is asked again after each wake(). In a forked child
  /// returns at once.
  template <typename F>
  void help_until(F&& done) {
    if (is_forked()) return;
    std::unique_lock lock(mutex_);
    while (!done()) {
      if (Batch* const batch = waiting()) {
        do_next(*batch, lock);
      } else {
        changed_.wait(lock);
      }
    }
  }

  /// Is this a forked child of the process that made it?
  bool is_forked() const { return fork_count() != fork_count_; }

  /// To be called when what somebody waits for in help_until() may have come true.
  void wake();

 private:
  struct Batch {
    void (*task)(void* context, size_t i);
    void* context;
    size_t count;
    size_t begun = 0, running = 0;
    std::exception_ptr error = nullptr;
    Batch* next = nullptr;
  };

  void run(Batch& batch);
  // One that has a task which is not begun, the oldest first; or null.
  Batch* waiting() const;
  // Begins and ends a task of it; `lock` is free meanwhile.
  void do_next(Batch& batch, std::unique_lock<std::mutex>& lock);

  const unsigned fork_count_ = fork_count();
  std::mutex mutex_;
  std::condition_variable changed_;
  Batch* first_ = nullptr;
};

}  // namespace lazuli
