// How the phases of a kernel are cut and run: every iteration once, phases that wait after all
// before them, others at the same time.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "codegen/llvm.h"
#include "runtime/cpu/kernel_store.h"
#include "runtime/thread_pool.h"

using namespace lazuli;

namespace {

// What the functions of a kernel see of a run; phase i is given `Phase` i.
struct Phase {
  int64_t count;
  std::unique_ptr<std::atomic<int>[]> done;  // runs of each iteration, the ragged one behind them
  std::atomic<int64_t> calls = 0, left = 0;
  std::vector<Phase*> before;
  std::atomic<bool> early = false;
  std::atomic<bool> misplaced = false;  // a run began with another stack than a kernel counts on
};

// A kernel's functions know their phase by a position in the program alone.
template <int I>
void run_part(void** arguments, int64_t begin, int64_t end, bool stack_is_aligned) {
  Phase& p = *static_cast<Phase*>(arguments[I]);
  if (!stack_is_aligned) p.misplaced = true;
  for (const Phase* b : p.before) {
    if (b->left != 0) p.early = true;
  }
  for (int64_t i = begin; i < end; i++) p.done[static_cast<size_t>(i)]++;
  p.left -= end - begin;
  p.calls++;
}
// Of the function that it stands in: the frame lies below the address to return to.
#if defined(__x86_64__)
#define STACK_IS_ALIGNED \
  ((reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) + 16) % kStackAlignment == 0)
#else
#define STACK_IS_ALIGNED true
#endif

template <int I>
void body(void** arguments, void*, void*, int64_t begin, int64_t end) {
  run_part<I>(arguments, begin, end, STACK_IS_ALIGNED);
}
template <int I>
void tail(void** arguments, void*, void*, int64_t, int64_t) {
  const int64_t last = static_cast<Phase*>(arguments[I])->count;
  run_part<I>(arguments, last, last + 1, STACK_IS_ALIGNED);
}

struct Made {
  CompiledKernel kernel;
  std::vector<std::unique_ptr<Phase>> phases;
  std::vector<void*> arguments;

  Made() { kernel.predicted_seconds = 1; }  // worth every thread

  template <int I>
  void add(int64_t count, bool has_tail, bool waits, double cycles) {
    const int64_t steps = count + has_tail;
    auto p = std::make_unique<Phase>();
    p->count = count;
    p->done = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(steps));
    p->left = steps;
    if (waits) {
      for (const auto& b : phases) p->before.push_back(b.get());
    } else {
      p->before = phases.back()->before;
    }
    arguments.push_back(p.get());
    phases.push_back(std::move(p));
    CompiledKernel::PhaseFunctions f;
    f.body = body<I>;
    f.tail = has_tail ? tail<I> : nullptr;
    f.count = count;
    f.waits = waits;
    f.cycles = cycles;
    kernel.phases.push_back(f);
  }

  void run(int threads) {
    ThreadPool pool(threads);
    run_kernel(kernel, arguments.data(), {nullptr, 0, nullptr}, pool);
    for (size_t i = 0; i < phases.size(); i++) {
      const Phase& p = *phases[i];
      CAPTURE(i);
      int wrong = 0;
      const int64_t steps = p.count + (kernel.phases[i].tail ? 1 : 0);
      for (int64_t s = 0; s < steps; s++) wrong += p.done[static_cast<size_t>(s)] != 1;
      CHECK(wrong == 0);
      CHECK(!p.early);
      CHECK(!p.misplaced);
    }
  }

  int64_t calls() const {
    int64_t n = 0;
    for (const auto& p : phases) n += p->calls;
    return n;
  }
};

// More phases at the same time than one group holds.
template <int... I>
void add_many(Made& m, std::integer_sequence<int, I...>) {
  (m.add<I>(I % 5 + 1, I % 3 == 0, I == 0, 1e5), ...);
}

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("every iteration of every phase runs once, after the phases that it waits for") {
    for (const int threads : {1, 2, 3, 7}) {
      for (const int64_t count : {1, 2, 63, 1000}) {
        for (const bool has_tail : {false, true}) {
          for (const double cycles : {0.0, 1.0, 5e3, 1e9}) {
            CAPTURE(threads);
            CAPTURE(count);
            CAPTURE(has_tail);
            CAPTURE(cycles);
            Made m;
            m.add<0>(count, has_tail, true, cycles);
            m.add<1>(17, !has_tail, false, 2e4);
            m.add<2>(count, false, true, cycles);
            m.add<3>(1, true, true, 1e6);
            m.add<4>(count, has_tail, false, 1e6);
            m.run(threads);
          }
        }
      }
    }
  }

  TEST_CASE("each worker runs its own phases before its first step of a later one") {
    // Scratch of a worker counts the steps that it has done of each such phase.
    struct Seen {
      std::atomic<int> wrong = 0, runs = 0, chunks = 0;
    };
    constexpr int64_t kSteps = 5;
    const KernelFunction fill = [](void**, void* scratch, void*, int64_t begin, int64_t end) {
      static_cast<int64_t*>(scratch)[0] += end - begin;
    };
    const KernelFunction last = [](void** arguments, void* scratch, void*, int64_t, int64_t) {
      auto* const done = static_cast<int64_t*>(scratch);
      Seen& seen = *static_cast<Seen*>(arguments[0]);
      if (done[0] != kSteps) seen.wrong++;  // it comes behind the other steps, and the other phase
      done[1]++;
      seen.runs++;
    };
    const KernelFunction before = [](void** arguments, void* scratch, void*, int64_t, int64_t) {
      if (static_cast<int64_t*>(scratch)[0] != 0) static_cast<Seen*>(arguments[0])->wrong++;
    };
    const KernelFunction between = [](void** arguments, void* scratch, void*, int64_t, int64_t) {
      const auto* const done = static_cast<int64_t*>(scratch);
      if (done[0] != kSteps || done[1] != 0) static_cast<Seen*>(arguments[0])->wrong++;
    };
    const KernelFunction after = [](void** arguments, void* scratch, void*, int64_t, int64_t) {
      const auto* const done = static_cast<int64_t*>(scratch);
      Seen& seen = *static_cast<Seen*>(arguments[0]);
      if (done[0] != kSteps || done[1] != 1) seen.wrong++;
      seen.chunks++;
    };
    for (const int threads : {1, 2, 3, 7}) {
      CAPTURE(threads);
      CompiledKernel kernel;
      kernel.predicted_seconds = 1;
      const auto add = [&](KernelFunction body, KernelFunction tail, int64_t count, bool each) {
        CompiledKernel::PhaseFunctions f;
        f.body = body;
        f.tail = tail;
        f.count = count;
        f.each = each;
        f.cycles = 1e6;
        kernel.phases.push_back(f);
      };
      add(before, nullptr, 100, false);
      add(fill, nullptr, kSteps, true);
      add(between, nullptr, 100, false);
      add(after, last, 0, true);  // of a ragged step alone
      add(after, nullptr, 1000, false);
      add(after, nullptr, 3, false);
      Seen seen;
      void* arguments[] = {&seen};
      std::vector<int64_t> scratch(static_cast<size_t>(8 * threads));
      ThreadPool pool(threads);
      const WorkMemory memory{reinterpret_cast<std::byte*>(scratch.data()), 64, nullptr};
      run_kernel(kernel, arguments, memory, pool);
      CHECK(seen.wrong == 0);
      CHECK(seen.chunks > 0);
      int ran = 0;
      for (int w = 0; w < threads; w++) ran += scratch[static_cast<size_t>(8 * w + 1)] == 1;
      CHECK(seen.runs == ran);
    }
  }

  TEST_CASE("any number of phases may run at the same time") {
    for (const int threads : {1, 2, 3}) {
      Made m;
      add_many(m, std::make_integer_sequence<int, 150>());
      m.run(threads);
    }
  }

  TEST_CASE("phases that run at the same time are cut by their cycles, not by their number") {
    Made m;
    m.add<0>(960, false, true, 3e6);
    m.add<1>(960, false, false, 1e6);
    m.run(2);
    CHECK(m.calls() == 32);  // 16 chunks for each thread, of 125,000 cycles
    CHECK(m.phases[0]->calls == 24);

    Made shorter;
    shorter.add<0>(960, false, true, 240'000);
    shorter.run(2);
    CHECK(shorter.calls() == 12);  // of 20,000 cycles, which are long enough

    Made shortest;
    shortest.add<0>(960, false, true, 80'000);
    shortest.run(2);
    CHECK(shortest.calls() == 8);  // 4 for each thread at least

    Made ahead;  // which is cut in few, long ranges
    ahead.add<0>(960, false, true, 3e6);
    ahead.kernel.phases[0].packs_ahead = true;
    ahead.run(2);
    CHECK(ahead.calls() == 4);

    Made small;  // not worth another thread
    small.add<0>(1000, false, true, 2999);
    small.run(2);
    CHECK(small.calls() == 1);
  }
}
