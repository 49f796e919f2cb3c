// The thread pool: every step once, stable worker numbers, exceptions, nesting, several callers and
// pools, fork.
#include "runtime/thread_pool.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"

// g++ tells of the sanitizer by a macro, clang by a feature.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__
#endif
#endif

using namespace lazuli;

TEST_SUITE("runtime") {
  TEST_CASE("every step is done once, in chunks that start at multiples of the grain") {
    for (int threads : {1, 2, 4, 7}) {
      ThreadPool pool(threads);
      CHECK(pool.size() == threads);
      for (int64_t count : {0, 1, 2, 63, 64, 65, 1000}) {
        for (int64_t grain : {1, 7, 64, 5000}) {
          std::vector<int> done(count);
          std::atomic<int> misplaced = 0;
          pool.parallel_for(10, 10 + count, grain, [&](int64_t begin, int64_t end, int worker) {
            misplaced += (begin - 10) % grain != 0 || end - begin > grain || end <= begin;
            misplaced += worker < 0 || worker >= threads;
            for (int64_t i = begin; i < end; ++i) ++done[i - 10];
          });
          CHECK(done == std::vector<int>(count, 1));
          CHECK(misplaced == 0);
        }
      }
    }
  }

  TEST_CASE("ranges at the ends of the integers do not overflow") {
    ThreadPool pool(3);
    constexpr int64_t lowest = std::numeric_limits<int64_t>::min();
    constexpr int64_t highest = std::numeric_limits<int64_t>::max();
    std::atomic<int> chunks = 0;
    std::atomic<uint64_t> steps = 0;
    pool.parallel_for(lowest, highest, highest, [&](int64_t begin, int64_t end, int) {
      ++chunks;
      steps += uint64_t(end) - uint64_t(begin);
    });
    CHECK(chunks == 3);
    CHECK(steps == std::numeric_limits<uint64_t>::max());
    pool.parallel_for(highest - 10, highest, 3, [&](int64_t, int64_t, int) { ++chunks; });
    CHECK(chunks == 7);
    pool.parallel_for(5, 3, 1, [&](int64_t, int64_t, int) { ++chunks; });
    CHECK(chunks == 7);
  }

  TEST_CASE("scratch kept by worker number is never shared by two chunks at once") {
    ThreadPool pool(4);
    std::vector<std::atomic<int>> inside(4);
    std::vector<std::thread::id> owner(4);
    std::atomic<int> clashes = 0;
    for (int round = 0; round < 200; ++round) {
      pool.parallel_for(0, 40, 1, [&](int64_t, int64_t, int worker) {
        clashes += inside[worker].fetch_add(1) != 0;
        if (owner[worker] == std::thread::id()) owner[worker] = std::this_thread::get_id();
        clashes += owner[worker] != std::this_thread::get_id();
        inside[worker].fetch_sub(1);
      });
    }
    CHECK(clashes == 0);
    CHECK(owner[0] == std::this_thread::get_id());
  }

  TEST_CASE("each thread begins with a part of its own, and takes what others have not come to") {
    constexpr int kThreads = 3;
    ThreadPool pool(kThreads);
    for (int round = 0; round < 20; ++round) {
      // Nobody has a second chunk before all have their first.
      std::vector<int> first(kThreads, -1), owner(8, -1);
      std::atomic<int> arrived = 0;
      pool.parallel_for(0, 8, 1, [&](int64_t begin, int64_t, int worker) {
        owner[begin] = worker;
        if (first[worker] >= 0) return;
        first[worker] = int(begin);
        ++arrived;
        while (arrived < kThreads) std::this_thread::yield();
      });
      CHECK(first == std::vector<int>{0, 3, 6});  // 8 chunks are 3, 3 and 2
      CHECK(std::count(owner.begin(), owner.end(), -1) == 0);
    }
    // One that waits for the others leaves them its part.
    std::atomic<int> done = 0;
    std::atomic<bool> waited_in_vain = false;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    pool.parallel_for(0, 9, 1, [&](int64_t begin, int64_t, int worker) {
      while (begin == 0 && worker == 0 && done < 8 && !waited_in_vain) {
        waited_in_vain = std::chrono::steady_clock::now() > end;
        std::this_thread::yield();
      }
      ++done;
    });
    CHECK(done == 9);
    CHECK(!waited_in_vain);
  }

  TEST_CASE("results of chunks are visible to the caller and to the next launch") {
    ThreadPool pool(4);
    std::vector<int64_t> values(256, 1);
    for (int round = 0; round < 300; ++round) {
      pool.parallel_for(0, 256, 16, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) values[i] += round % 3;
      });
      std::rotate(values.begin(), values.begin() + 16, values.end());
    }
    CHECK(std::accumulate(values.begin(), values.end(), int64_t{0}) == 256 * 301);
  }

  TEST_CASE("an exception of a chunk reaches the caller and the pool stays usable") {
    ThreadPool pool(4);
    for (int round = 0; round < 50; ++round) {
      for (int64_t bad : {0, 57, 99}) {
        CHECK_THROWS_WITH_AS(pool.parallel_for(0, 100, 1,
                                               [&](int64_t begin, int64_t, int) {
                                                 if (begin == bad) throw UserError("chunk failed");
                                               }),
                             "chunk failed", UserError);
      }
      std::atomic<int> count = 0;
      pool.parallel_for(0, 100, 1, [&](int64_t, int64_t, int) { ++count; });
      CHECK(count == 100);
    }
  }

  TEST_CASE("a call from inside a chunk runs on the same thread under the same worker number") {
    ThreadPool pool(4);
    ThreadPool other(2);
    std::atomic<int> wrong = 0;
    std::atomic<int> inner_steps = 0;
    pool.parallel_for(0, 32, 1, [&](int64_t, int64_t, int worker) {
      const auto thread = std::this_thread::get_id();
      pool.parallel_for(0, 10, 2, [&](int64_t begin, int64_t end, int inner) {
        wrong += inner != worker || thread != std::this_thread::get_id();
        inner_steps += int(end - begin);
      });
      other.parallel_for(0, 10, 2, [&](int64_t, int64_t, int inner) {
        wrong += inner != 0 || thread != std::this_thread::get_id();
      });
    });
    CHECK(wrong == 0);
    CHECK(inner_steps == 320);
  }

  TEST_CASE("several threads may call one pool, and two pools work side by side") {
    ThreadPool pool(3);
    ThreadPool other(2);
    std::atomic<int64_t> sum = 0;
    std::vector<std::thread> callers;
    for (int c = 0; c < 4; ++c) {
      callers.emplace_back([&, c] {
        ThreadPool& mine = c % 2 == 0 ? pool : other;
        for (int round = 0; round < 100; ++round) {
          mine.parallel_for(0, 50, 3, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(sum == 4 * 100 * 50);
  }

  TEST_CASE("workers that fell asleep come back") {
    for (const int threads : {4, 23}) {
      ThreadPool pool(threads);
      for (int round = 0; round < 5; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::atomic<int> together = 0;
        // Each chunk waits for the others, so it ends only if all threads take part.
        pool.parallel_for(0, threads, 1, [&](int64_t, int64_t, int) {
          ++together;
          while (together < threads) std::this_thread::yield();
        });
        CHECK(together == threads);
      }
    }
  }

  TEST_CASE("threads that nothing is asked of sleep, where there are more of them than cores too") {
    for (const int threads : {2, 8, 40}) {
      ThreadPool pool(threads);
      pool.parallel_for(0, threads, 1, [](int64_t, int64_t, int) {});
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::clock_t before = std::clock();  // of the process
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const double seconds = double(std::clock() - before) / CLOCKS_PER_SEC;
      CHECK_MESSAGE(seconds < 0.05, threads);
    }
  }

  TEST_CASE("no more threads come than there are chunks, and others come to the next launch") {
    constexpr int kThreads = 8;
    ThreadPool pool(kThreads);
    for (int round = 0; round < 200; ++round) {
      if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      const int chunks = 2 + round % (kThreads - 1);
      std::vector<int> worker_of(size_t(chunks), -1);
      std::atomic<int> arrived = 0;
      pool.parallel_for(0, chunks, 1, [&](int64_t begin, int64_t, int worker) {
        worker_of[size_t(begin)] = worker;
        ++arrived;
        while (arrived < chunks) std::this_thread::yield();
      });
      std::sort(worker_of.begin(), worker_of.end());
      CHECK(worker_of.front() == 0);  // the caller is one of them
      CHECK(std::adjacent_find(worker_of.begin(), worker_of.end()) == worker_of.end());
    }
  }

  TEST_CASE("a thread that comes late does not enter a launch that is over") {
    constexpr int kThreads = 3;
    ThreadPool pool(kThreads);
    int64_t wrong = 0;
    for (int64_t round = 0; round < 100'000; ++round) {
      const int64_t chunks = 2 + round % kThreads, first = 1000 * round;
      std::atomic<int64_t> sum = 0;
      pool.parallel_for(first, first + chunks, 1, [&](int64_t begin, int64_t, int) {
        for (std::atomic<int> i = 0; i < 50 * (round % 2); ++i) {
        }
        sum += begin - first;
      });
      wrong += sum != chunks * (chunks - 1) / 2;
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("all threads compute in the default float mode, and the caller's mode comes back") {
    ThreadPool pool(4);
    std::fesetround(FE_UPWARD);
    std::atomic<int> wrong = 0;
    pool.parallel_for(0, 64, 1, [&](int64_t, int64_t, int) {
      volatile float one = 1.0f;
      wrong += one + 1e-9f != 1.0f;
    });
    const int mode = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(wrong == 0);
    CHECK(mode == FE_UPWARD);
  }

  TEST_CASE("a number of threads out of range is refused") {
    CHECK_THROWS_WITH_AS(ThreadPool(0),
                         "thread pool: 0 is no number of threads; give an integer from 1 to 1024",
                         UserError);
    CHECK_THROWS_AS(ThreadPool(1025), UserError);
  }

#if !defined(__SANITIZE_THREAD__)  // which does not let a forked child start threads
  TEST_CASE("a forked child computes on its one thread, or with a pool of its own") {
    ThreadPool pool(4);
    std::atomic<int> before = 0;
    pool.parallel_for(0, 100, 1, [&](int64_t, int64_t, int) { ++before; });
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int count = 0;
      pool.parallel_for(0, 100, 1, [&](int64_t, int64_t, int worker) { count += worker == 0; });
      std::atomic<int> own_count = 0;
      {
        ThreadPool own(3);
        own.parallel_for(0, 100, 1, [&](int64_t, int64_t, int) { ++own_count; });
      }
      pool.~ThreadPool();
      _exit(count == 100 && own_count == 100 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    pool.parallel_for(0, 100, 1, [&](int64_t, int64_t, int) { ++before; });
    CHECK(before == 200);
  }
#endif
}
