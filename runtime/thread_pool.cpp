#include "runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lazuli {
namespace {

constexpr int kMaxThreads = 1024;

// Longer than the gap between the kernels of a plan, shorter than a time slice.
constexpr auto kSpinTime = std::chrono::microseconds(60);
constexpr int kSpinsPerLook = 32;

// The pool and worker number of the chunk that this thread is in.
struct Place {
  const ThreadPool* pool = nullptr;
  int worker = 0;
};
thread_local Place place;

class ScopedPlace {
 public:
  ScopedPlace(const ThreadPool* pool, int worker) : outer_(place) { place = {pool, worker}; }
  ~ScopedPlace() { place = outer_; }

 private:
  Place outer_;
};

// Results must not depend on which thread computes them, so all compute in the default mode: round
// to nearest, denormals kept. A library built with -ffast-math changes the mode of the thread that
// loads it.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() : outer_(_mm_getcsr()) {
    if (control(outer_) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if (control(outer_) != kDefault) _mm_setcsr(outer_);
  }

 private:
  static constexpr unsigned kDefault = 0x1f80;
  static unsigned control(unsigned mode) {
    return mode & ~0x3fu;
  }  // without the sticky flags
  unsigned outer_;
#else
  DefaultFloatMode() {}
#endif
};

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done()` or for kSpinTime; returns whether it was done.
template <typename Done>
bool spin_until(Done done) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (done()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() - start < kSpinTime);
  return done();
}

std::atomic<unsigned> fork_count = 0;

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });
  });
}

void pin_to_core(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int skip = index % std::max(CPU_COUNT(&allowed), 1);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);  // a wish: failing changes no result
    return;
  }
}

}  // namespace

struct ThreadPool::Threads {
  std::mutex turn;  // held during a launch
  std::vector<std::thread> list;
};

ThreadPool::ThreadPool(int threads, Pinning pinning)
    : size_(threads), threads_(std::make_unique<Threads>()) {
  require(threads >= 1 && threads <= kMaxThreads,
          "thread pool: {} is no number of threads; give an integer from 1 to {}", threads,
          kMaxThreads);
  watch_forks();
  fork_count_ = fork_count.load(std::memory_order_relaxed);
  // Signals are the program's business: its own threads get them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int worker = 1; worker < size_; ++worker) {
      threads_->list.emplace_back([this, worker, pinning] {
        if (pinning == Pinning::kOneCoreEach) pin_to_core(worker);
        worker_main(worker);
      });
    }
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    stop();
    device_error("thread pool: thread {} of {} cannot be started: {}; set LAZULI_THREADS lower",
                 threads_->list.size() + 2, size_, error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() {
  if (is_forked()) {
    // The threads stayed with the parent; joining or detaching them here is meaningless.
    (void)threads_.release();
  } else {
    stop();
  }
}

void ThreadPool::stop() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& thread : threads_->list) thread.join();
}

bool ThreadPool::is_forked() const {
  return fork_count.load(std::memory_order_relaxed) != fork_count_;
}

void ThreadPool::run(int64_t begin, int64_t end, int64_t grain, Work work, void* context) {
  if (begin >= end) return;
  ensure(grain >= 1, "parallel_for needs a grain of at least one step");
  const DefaultFloatMode float_mode;
  const uint64_t steps = uint64_t(end) - uint64_t(begin);
  const uint64_t chunks = steps / uint64_t(grain) + (steps % uint64_t(grain) != 0);
  const Job job = {work, context, begin, end, grain, chunks};
  if (place.pool != nullptr) return run_alone(job, place.pool == this ? place.worker : 0);
  const ScopedPlace here(this, 0);
  if (size_ == 1 || chunks == 1 || is_forked()) return run_alone(job, 0);

  const std::lock_guard turn(threads_->turn);
  job_ = job;
  next_chunk_.store(0, std::memory_order_relaxed);
  open_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  do_chunks(0);
  open_.store(false);
  if (!spin_until([&] { return active_.load() == 0; })) {
    // Some worker is in a long chunk, or was put aside by the system.
    for (int32_t active = active_.load(); active != 0; active = active_.load()) {
      active_.wait(active);
    }
  }
  if (has_exception_.load(std::memory_order_relaxed)) {
    has_exception_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(exception_, nullptr));
  }
}

// Unsigned, since a range may be longer than the largest signed number.
void ThreadPool::Job::do_chunk(uint64_t chunk, int worker) const {
  const uint64_t offset = chunk * uint64_t(grain);
  const uint64_t left = uint64_t(end) - uint64_t(begin) - offset;
  const uint64_t from = uint64_t(begin) + offset;
  work(context, int64_t(from), int64_t(from + std::min(left, uint64_t(grain))), worker);
}

void ThreadPool::run_alone(const Job& job, int worker) {
  const ScopedPlace here(this, worker);
  for (uint64_t chunk = 0; chunk < job.chunks; ++chunk) {
    job.do_chunk(chunk, worker);
  }
}

void ThreadPool::do_chunks(int worker) {
  const Job& job = job_;
  try {
    for (;;) {
      const uint64_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= job.chunks) return;
      job.do_chunk(chunk, worker);
    }
  } catch (...) {
    keep_exception();
  }
}

void ThreadPool::keep_exception() {
  if (!has_exception_.exchange(true)) exception_ = std::current_exception();
  next_chunk_.store(job_.chunks, std::memory_order_relaxed);
}

void ThreadPool::worker_main(int worker) {
  const DefaultFloatMode float_mode;
  const ScopedPlace here(this, worker);
  uint32_t seen = 0;
  while (true) {
    const auto is_new = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(is_new)) epoch_.wait(seen);
    seen = epoch_.load();
    if (stopping_.load()) return;
    active_.fetch_add(1);
    if (open_.load()) do_chunks(worker);
    if (active_.fetch_sub(1) == 1) active_.notify_all();
  }
}

}  // namespace lazuli
