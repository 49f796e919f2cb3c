// Threads that share out the steps of a loop. The caller takes part, so a pool of one has no thread
// of its own. Waiting workers spin for some time, since kernels follow each other within
// microseconds, and then sleep; a launch wakes as many as it has chunks for.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/ref.h"

namespace lazuli {

class ThreadPool {
 public:
  /// One chunk [begin, end) of a loop, done by `worker`, from 0 (the caller) to size() - 1.
  using Work = void (*)(void* context, int64_t begin, int64_t end, int worker);

  static constexpr int kMaxThreads = 1024;

  /// A pool of `threads` threads, the caller among them, from 1 to kMaxThreads. DeviceError if a
  /// thread cannot be started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  /// Calls `fn(chunk_begin, chunk_end, worker)` for consecutive chunks of `grain` steps that cover
  /// [begin, end), and returns when all are done. Which worker does which chunk varies from run to
  /// run; the chunks do not. No two calls that run at once have the same worker number, so scratch
  /// can be kept by it.
  ///
  /// The first exception that a chunk throws is thrown here; chunks not yet begun are then left
  /// out. A call from inside a chunk, and any call in a forked child, runs on the calling thread
  /// alone. Calls from several threads take turns.
  template <typename F>
  void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& fn) {
    using Function = std::remove_reference_t<F>;
    const Work work = [](void* context, int64_t from, int64_t to, int worker) {
      (*static_cast<Function*>(context))(from, to, worker);
    };
    run(begin, end, grain, work, const_cast<void*>(static_cast<const void*>(&fn)));
  }

  /// The same for a plain function, without allocation.
  void run(int64_t begin, int64_t end, int64_t grain, Work work, void* context);

 private:
  struct Team;  // the threads and what they share

  int size_;
  unsigned fork_count_;  // of the process when the pool was made
  Ref<Team> team_;

  bool is_forked() const;
};

}  // namespace lazuli
