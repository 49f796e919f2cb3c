#include "runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "runtime/forks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lazuli {
namespace {

constexpr int kMaxThreads = ThreadPool::kMaxThreads;

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

// That the process may use.
int cores() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

// The number of a launch and, in the low bits, how many workers it wants: those from 1 on.
struct Launch {
  uint64_t word = 0;

  uint64_t number() const { return word / kMaxThreads; }
  uint64_t wanted() const { return word % kMaxThreads; }
  Launch next(uint64_t wanted) const { return {(number() + 1) * kMaxThreads + wanted}; }
  // What the state of a worker is that has left it, or is in it; it only grows.
  uint64_t left() const { return 2 * number(); }
  uint64_t busy() const { return left() + 1; }
};

// Below a tag, which is the end of a launch's number: how many chunks of a slice are taken.
constexpr int kPlaceBits = 40;
constexpr uint64_t kMostPlaces = uint64_t{1} << kPlaceBits;
constexpr uint64_t kTags = uint64_t{1} << (64 - kPlaceBits);

// The loop of a launch.
struct ParallelLoop {
  ThreadPool::Work work = nullptr;
  void* context = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t grain = 1;
  uint64_t chunks = 0;

  // Unsigned, since a range may be longer than the largest signed number.
  void do_chunk(uint64_t chunk, int worker) const {
    const uint64_t offset = chunk * uint64_t(grain);
    const uint64_t left = uint64_t(end) - uint64_t(begin) - offset;
    const uint64_t from = uint64_t(begin) + offset;
    work(context, int64_t(from), int64_t(from + std::min(left, uint64_t(grain))), worker);
  }
};

// What is being shared out, and the number that workers watch, in one cache line.
struct alignas(64) Job {
  std::atomic<uint64_t> launch = 0;
  ParallelLoop loop;
};
static_assert(sizeof(Job) == 64);

// What a worker shares with the others, on cache lines that it has for itself most of the time.
struct Worker {
  // Chunks taken of the slice that it begins with, below the tag of the launch that they are of: a
  // launch writes to none of these.
  alignas(64) std::atomic<uint64_t> taken = 0;
  // Whether it is in a launch, and of which (see Launch).
  alignas(64) std::atomic<uint64_t> state = 0;
  std::atomic<uint32_t> woken = 0;  // counts calls to wake up
};

void run_alone(const ThreadPool* pool, const ParallelLoop& loop, int worker) {
  const ScopedPlace here(pool, worker);
  for (uint64_t chunk = 0; chunk < loop.chunks; ++chunk) loop.do_chunk(chunk, worker);
}

}  // namespace

// A launch wants as many workers as it has chunks for. A worker that is wanted may look at the job
// once its state says that it is in; the caller closes the launch to those that have not come by
// the end, and changes the job only when all who came have left: no launch waits for a sleeper.
// Each worker writes to its own lines, and the caller reads them: a counter of all would go from
// core to core.
struct ThreadPool::Team : Counted {
  explicit Team(int size)
      : spin_time(size <= cores() ? kSpinTime : kBusyTime),
        workers(static_cast<size_t>(size)),
        sleepers(static_cast<size_t>(size + 63) / 64) {}

  Job job;
  const std::chrono::microseconds spin_time;
  std::mutex turn;  // held during a launch
  std::vector<std::thread> threads;
  std::vector<Worker> workers;  // the caller is the first
  std::exception_ptr exception;
  std::atomic<bool> has_exception = false;
  std::atomic<bool> stopping = false;
  std::atomic<bool> caller_sleeps = false;
  std::vector<std::atomic<uint64_t>> sleepers;  // a bit for each worker

  void stop() {
    stopping.store(true);
    job.launch.store(Launch{job.launch.load()}.next(0).word);
    for (size_t i = 1; i <= threads.size(); ++i) wake(i);
    for (std::thread& thread : threads) thread.join();
  }

  void launch(const ParallelLoop& loop) {
    const std::lock_guard lock(turn);
    job.loop = loop;
    const Launch launch = next_launch(std::min<uint64_t>(workers.size(), loop.chunks) - 1);
    // One writes and then reads what the other reads and then writes: a worker that is not marked
    // as sleeping sees the new launch.
    job.launch.store(launch.word);
    wake_some(launch);
    do_chunks(launch, 0);
    close(launch);
    if (has_exception.load(std::memory_order_relaxed)) {
      has_exception.store(false, std::memory_order_relaxed);
      std::rethrow_exception(std::exchange(exception, nullptr));
    }
  }

  // Tags come again after some millions of launches: no place of before may then be left.
  Launch next_launch(uint64_t wanted) {
    const Launch next = Launch{job.launch.load(std::memory_order_relaxed)}.next(wanted);
    if (next.number() % kTags != 0) return next;
    for (Worker& w : workers) w.taken.store(0, std::memory_order_relaxed);
    return next.next(wanted);
  }

  // Returns when no worker is in the launch and none can come.
  void close(Launch launch) {
    for (uint64_t i = 1; i <= launch.wanted(); ++i) {
      uint64_t before = workers[i].state.load();
      if (before < launch.left()) workers[i].state.compare_exchange_strong(before, launch.left());
    }
    for (uint64_t i = 1; i <= launch.wanted(); ++i) {
      const std::atomic<uint64_t>& state = workers[i].state;
      const auto has_left = [&] { return state.load() != launch.busy(); };
      if (has_left() || spin_until(has_left, spin_time)) continue;
      // It is in a long chunk, or was put aside by the system.
      caller_sleeps.store(true);
      while (!has_left()) state.wait(launch.busy());
      caller_sleeps.store(false);
    }
  }

  void wake(size_t worker) {
    workers[worker].woken.fetch_add(1);
    workers[worker].woken.notify_one();
  }

  // Some of those that are wanted and sleep. Each who is woken wakes others in turn: to wake all
  // would hold up the caller.
  void wake_some(Launch launch) {
    constexpr int kAtOnce = 3;
    int left = kAtOnce;
    for (uint64_t word = 0, last = launch.wanted() / 64; word <= last; ++word) {
      uint64_t asleep = sleepers[word].load();
      if (word == last) asleep &= ~uint64_t{0} >> (63 - launch.wanted() % 64);
      for (; asleep != 0 && left > 0; asleep &= asleep - 1) {
        const uint64_t bit = asleep & -asleep;
        if ((sleepers[word].fetch_and(~bit) & bit) == 0) continue;  // another wakes it
        wake(64 * word + static_cast<uint64_t>(std::countr_zero(bit)));
        left--;
      }
    }
  }

  // Until it is woken, unless there is another launch than `seen`.
  void sleep(size_t worker, Launch seen) {
    const uint64_t bit = uint64_t{1} << (worker % 64);
    const uint32_t calls = workers[worker].woken.load();
    sleepers[worker / 64].fetch_or(bit);
    if (job.launch.load() == seen.word) workers[worker].woken.wait(calls);
    sleepers[worker / 64].fetch_and(~bit);
    // Its own state says whether a launch that wants it is over, where others may go on sleeping.
    const Launch launch{job.launch.load()};
    const bool wanted = launch.word != seen.word && worker <= launch.wanted();
    if (wanted && workers[worker].state.load() < launch.left()) wake_some(launch);
  }

  // Takes a chunk of a slice of so many; false if there is none left.
  bool take(Launch launch, uint64_t slice, uint64_t length, uint64_t* place) {
    const uint64_t tag = launch.number() % kTags;
    std::atomic<uint64_t>& taken = workers[slice].taken;
    uint64_t before = taken.load(std::memory_order_relaxed);
    while (before >> kPlaceBits != tag) {  // of another launch: none is taken
      const uint64_t first = tag << kPlaceBits | 1;
      if (!taken.compare_exchange_weak(before, first, std::memory_order_relaxed)) continue;
      *place = 0;
      return true;
    }
    if (before % kMostPlaces >= length) return false;
    *place = taken.fetch_add(1, std::memory_order_relaxed) % kMostPlaces;
    return *place < length;
  }

  // First a worker's own slice, which is the same part of the arrays each time: they stay in the
  // caches of its core. Then what the others have not come to.
  void do_chunks(Launch launch, int worker) {
    const uint64_t slices = launch.wanted() + 1, chunks = job.loop.chunks;
    const auto begin = [&](uint64_t slice) {
      return slice * (chunks / slices) + std::min(slice, chunks % slices);
    };
    try {
      for (uint64_t i = 0; i < slices; ++i) {
        const uint64_t slice = (static_cast<uint64_t>(worker) + i) % slices;
        const uint64_t first = begin(slice), length = begin(slice + 1) - first;
        for (uint64_t place; take(launch, slice, length, &place);) {
          job.loop.do_chunk(first + place, worker);
        }
      }
    } catch (...) {
      if (!has_exception.exchange(true)) exception = std::current_exception();
      const uint64_t rest = (launch.number() % kTags) << kPlaceBits | kMostPlaces / 2;
      for (uint64_t i = 0; i < slices; ++i) workers[i].taken.store(rest, std::memory_order_relaxed);
    }
  }

  void work_as(int worker) {
    const DefaultFloatMode float_mode;
    const auto index = static_cast<size_t>(worker);
    std::atomic<uint64_t>& state = workers[index].state;
    Launch seen;
    while (true) {
      const auto is_new = [&] { return job.launch.load(std::memory_order_acquire) != seen.word; };
      if (!spin_until(is_new, spin_time)) sleep(index, seen);
      seen.word = job.launch.load();
      if (stopping.load()) return;
      if (index > seen.wanted()) continue;
      uint64_t before = state.load(std::memory_order_relaxed);
      // The caller may have closed this launch, and later ones.
      if (before >= seen.left() || !state.compare_exchange_strong(before, seen.busy())) continue;
      do_chunks(seen, worker);
      state.store(seen.left());
      if (caller_sleeps.load()) state.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : size_(threads) {
  require(threads >= 1 && threads <= kMaxThreads,
          "thread pool: {} is no number of threads; give an integer from 1 to {}", threads,
          kMaxThreads);
  team_ = make_ref<Team>(size_);
  fork_count_ = fork_count();
  // Signals are the program's business: its own threads get them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int worker = 1; worker < size_; ++worker) {
      team_->threads.emplace_back([this, team = team_.get(), worker] {
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
  return fork_count() != fork_count_;
}

void ThreadPool::run(int64_t begin, int64_t end, int64_t grain, Work work, void* context) {
  if (begin >= end) return;
  ensure(grain >= 1, "parallel_for needs a grain of at least one step");
  const DefaultFloatMode float_mode;
  const uint64_t steps = uint64_t(end) - uint64_t(begin);
  const uint64_t chunks = steps / uint64_t(grain) + (steps % uint64_t(grain) != 0);
  const ParallelLoop loop = {work, context, begin, end, grain, chunks};
  if (place.pool != nullptr) return run_alone(this, loop, place.pool == this ? place.worker : 0);
  if (size_ == 1 || chunks == 1 || is_forked()) return run_alone(this, loop, 0);
  ensure(chunks < kMostPlaces / 2, "parallel_for needs a grain that leaves fewer chunks");
  const ScopedPlace here(this, 0);
  team_->launch(loop);
}

}  // namespace lazuli
