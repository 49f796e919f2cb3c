// Threads that share out the steps of a loop. The caller takes part, so a pool of one has no thread
// of its own. Waiting workers spin for a moment, since kernels follow each other within
// microseconds, and then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>

namespace lazuli {

class ThreadPool {
 public:
  /// One chunk [begin, end) of a loop, done by `worker`, from 0 (the caller) to size() - 1.
  using Work = void (*)(void* context, int64_t begin, int64_t end, int worker);

  enum class Pinning { kNone, kOneCoreEach };

  /// A pool of `threads` threads, the caller among them, from 1 to 1024. With `kOneCoreEach` its
  /// own threads are bound to the cores after the first of those that the process may use.
  /// DeviceError if a thread cannot be started.
  explicit ThreadPool(int threads, Pinning pinning = Pinning::kNone);
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
    run(begin, end, grain, work, const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
  }

  /// The same for a plain function, without allocation.
  void run(int64_t begin, int64_t end, int64_t grain, Work work, void* context);

 private:
  struct Job {
    Work work = nullptr;
    void* context = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t grain = 1;
    uint64_t chunks = 0;

    void do_chunk(uint64_t chunk, int worker) const;
  };
  struct Threads;

  bool is_forked() const;
  void run_alone(const Job& job, int worker);
  void do_chunks(int worker);
  void keep_exception();
  void worker_main(int worker);
  void stop();

  int size_;
  unsigned fork_count_;  // of the process when the pool was made
  std::unique_ptr<Threads> threads_;

  // A worker may look at job_ only while it is counted in active_ and has seen open_ set; the
  // caller changes job_ only while open_ is clear and active_ is zero. Both sides write one and
  // read the other, hence sequential consistency. A worker that wakes too late finds the job
  // closed: no launch waits for a sleeper.
  Job job_;
  std::exception_ptr exception_;
  std::atomic<bool> has_exception_ = false;
  alignas(64) std::atomic<uint64_t> next_chunk_ = 0;
  alignas(64) std::atomic<uint32_t> epoch_ = 0;  // counts launches; what idle workers watch
  std::atomic<bool> open_ = false;
  std::atomic<bool> stopping_ = false;
  alignas(64) std::atomic<int32_t> active_ = 0;
};

}  // namespace lazuli
