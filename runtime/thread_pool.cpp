#include "runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
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

// Workers spin for longer than the gap between the kernels of a plan, and than they wait for the
// last chunk of one: a core that has gone to sleep takes some 100 microseconds to wake. After the
// first moment they give way to whoever else wants the core; where there are fewer cores than
// threads, they sleep then.
constexpr auto kBusyTime = std::chrono::microseconds(60);
constexpr auto kSpinTime = std::chrono::microseconds(2000);
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

// Spins until `done()` or for so long; returns whether it was done.
template <typename Done>
bool spin_until(Done done, std::chrono::microseconds longest) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (done()) return true;
      pause();
    }
    const auto spent = std::chrono::steady_clock::now() - start;
    if (spent >= longest) return done();
    if (spent >= kBusyTime) std::this_thread::yield();
  }
}

std::atomic<unsigned> fork_count = 0;

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });
  });
}

// That the process may use.
int cores() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
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

// A loop that is being shared out.
struct Job {
  ThreadPool::Work work = nullptr;
  void* context = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t grain = 1;
  uint64_t chunks = 0;
  uint64_t slices = 1;

  // Slice `i` ends where the next one begins.
  uint64_t slice_begin(uint64_t i) const {
    return i * (chunks / slices) + std::min(i, chunks % slices);
  }

  // Unsigned, since a range may be longer than the largest signed number.
  void do_chunk(uint64_t chunk, int worker) const {
    const uint64_t offset = chunk * uint64_t(grain);
    const uint64_t left = uint64_t(end) - uint64_t(begin) - offset;
    const uint64_t from = uint64_t(begin) + offset;
    work(context, int64_t(from), int64_t(from + std::min(left, uint64_t(grain))), worker);
  }
};

// Chunks that one worker begins with, on a cache line of its own.
struct alignas(64) Slice {
  std::atomic<uint64_t> next = 0;
  uint64_t end = 0;
};

void run_alone(const ThreadPool* pool, const Job& job, int worker) {
  const ScopedPlace here(pool, worker);
  for (uint64_t chunk = 0; chunk < job.chunks; ++chunk) job.do_chunk(chunk, worker);
}

}  // namespace

// A launch has seats for as many workers as it has chunks for. A worker may look at job only once
// it has taken a seat; the caller takes the seats that are left away, and changes job only when all
// who took one have left. A worker that wakes too late finds no seat: no launch waits for a
// sleeper.
struct ThreadPool::Team : Counted {
  explicit Team(int size)
      : spin_time(size <= cores() ? kSpinTime : kBusyTime), slices(static_cast<size_t>(size)) {}

  const std::chrono::microseconds spin_time;
  std::mutex turn;  // held during a launch
  std::vector<std::thread> threads;
  Job job;
  std::exception_ptr exception;
  std::atomic<bool> has_exception = false;
  std::vector<Slice> slices;                    // one for each worker
  alignas(64) std::atomic<uint32_t> epoch = 0;  // counts launches; what idle workers watch
  std::atomic<bool> stopping = false;
  alignas(64) std::atomic<int32_t> seats = 0;
  alignas(64) std::atomic<int32_t> left = 0;  // workers that took a seat and are done
  alignas(64) std::atomic<int32_t> sleeping = 0;
  std::atomic<bool> caller_sleeps = false;

  void stop() {
    stopping.store(true);
    epoch.fetch_add(1);
    epoch.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void launch(const Job& next) {
    const std::lock_guard lock(turn);
    job = next;
    job.slices = std::min<uint64_t>(slices.size(), job.chunks);
    for (uint64_t i = 0; i < job.slices; ++i) {
      slices[i].next.store(job.slice_begin(i), std::memory_order_relaxed);
      slices[i].end = job.slice_begin(i + 1);
    }
    const auto wanted = static_cast<int32_t>(job.slices - 1);
    left.store(0, std::memory_order_relaxed);
    seats.store(wanted);
    epoch.fetch_add(1);
    // One writes and then reads what the other reads and then writes: a worker that is not counted
    // as sleeping sees the new epoch.
    if (static_cast<int32_t>(threads.size()) - sleeping.load() < wanted) wake_some();
    do_chunks(0);
    const int32_t taken = wanted - seats.exchange(0);
    if (!spin_until([&] { return left.load() == taken; }, spin_time)) {
      // Some worker is in a long chunk, or was put aside by the system.
      caller_sleeps.store(true);
      for (int32_t n = left.load(); n != taken; n = left.load()) left.wait(n);
      caller_sleeps.store(false);
    }
    if (has_exception.load(std::memory_order_relaxed)) {
      has_exception.store(false, std::memory_order_relaxed);
      std::rethrow_exception(std::exchange(exception, nullptr));
    }
  }

  // Each who is woken wakes others in turn: to wake all would hold up the caller.
  void wake_some() {
    constexpr int kAtOnce = 3;
    for (int i = 0; i < kAtOnce && sleeping.load() > i && seats.load() > 0; ++i) epoch.notify_one();
  }

  // First a worker's own slice, which is the same part of the arrays each time: they stay in the
  // caches of its core. Then what the others have not come to.
  void do_chunks(int worker) {
    try {
      for (uint64_t i = 0; i < job.slices; ++i) {
        Slice& slice = slices[(static_cast<uint64_t>(worker) + i) % job.slices];
        while (slice.next.load(std::memory_order_relaxed) < slice.end) {
          const uint64_t chunk = slice.next.fetch_add(1, std::memory_order_relaxed);
          if (chunk >= slice.end) break;
          job.do_chunk(chunk, worker);
        }
      }
    } catch (...) {
      if (!has_exception.exchange(true)) exception = std::current_exception();
      for (uint64_t i = 0; i < job.slices; ++i) {
        slices[i].next.store(slices[i].end, std::memory_order_relaxed);
      }
    }
  }

  bool take_seat() {
    int32_t n = seats.load();
    while (n > 0 && !seats.compare_exchange_weak(n, n - 1)) {
    }
    return n > 0;
  }

  void work_as(int worker) {
    const DefaultFloatMode float_mode;
    uint32_t seen = 0;
    while (true) {
      const auto is_new = [&] { return epoch.load(std::memory_order_acquire) != seen; };
      if (!spin_until(is_new, spin_time)) {
        sleeping.fetch_add(1);
        epoch.wait(seen);
        sleeping.fetch_sub(1);
        wake_some();
      }
      seen = epoch.load();
      if (stopping.load()) return;
      if (!take_seat()) continue;
      do_chunks(worker);
      left.fetch_add(1);
      if (caller_sleeps.load()) left.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int threads, Pinning pinning) : size_(threads) {
  require(threads >= 1 && threads <= kMaxThreads,
          "thread pool: {} is no number of threads; give an integer from 1 to {}", threads,
          kMaxThreads);
  team_ = make_ref<Team>(size_);
  watch_forks();
  fork_count_ = fork_count.load(std::memory_order_relaxed);
  // Signals are the program's business: its own threads get them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int worker = 1; worker < size_; ++worker) {
      team_->threads.emplace_back([this, team = team_.get(), worker, pinning] {
        if (pinning == Pinning::kOneCoreEach) pin_to_core(worker);
        const ScopedPlace here(this, worker);
        team->work_as(worker);
      });
    }
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    team_->stop();
    device_error("thread pool: thread {} of {} cannot be started: {}; set LAZULI_THREADS lower",
                 team_->threads.size() + 2, size_, error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() {
  if (is_forked()) {
    // The threads stayed with the parent; joining or detaching them here is meaningless.
    new Ref<Team>(team_);
  } else {
    team_->stop();
  }
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
  if (place.pool != nullptr) return run_alone(this, job, place.pool == this ? place.worker : 0);
  if (size_ == 1 || chunks == 1 || is_forked()) return run_alone(this, job, 0);
  const ScopedPlace here(this, 0);
  team_->launch(job);
}

}  // namespace lazuli
