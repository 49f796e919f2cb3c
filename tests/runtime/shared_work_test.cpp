// Tasks that threads share when they wait for one another.
#include "runtime/shared_work.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace lazuli;

TEST_SUITE("runtime") {
  TEST_CASE("shared work is done once each, with and without helpers") {
    for (const int helpers : {0, 1, 3}) {
      SharedWork work;
      std::atomic<bool> over = false;
      std::vector<std::thread> threads;
      for (int t = 0; t < helpers; t++) {
        threads.emplace_back([&] { work.help_until([&] { return over.load(); }); });
      }
      for (int round = 0; round < 200; round++) {
        std::vector<int> times(17);
        work.run(times.size(), [&](size_t i) { times[i]++; });
        CHECK(times == std::vector<int>(17, 1));
      }
      work.run(0, [](size_t) { CHECK(false); });
      over = true;
      work.wake();
      for (std::thread& t : threads) t.join();
    }
  }

  TEST_CASE("shared work of several owners is done at once") {
    SharedWork work;
    std::atomic<int64_t> sum = 0;
    std::atomic<int> left = 4;
    std::vector<std::thread> owners;
    for (int t = 0; t < 4; t++) {
      owners.emplace_back([&] {
        for (int round = 0; round < 50; round++) {
          int64_t own[9] = {};
          work.run(9, [&](size_t i) { own[i] = static_cast<int64_t>(i) + 1; });
          sum += std::accumulate(own, own + 9, int64_t{0});
        }
        left--;
        work.wake();
        work.help_until([&] { return left == 0; });
      });
    }
    for (std::thread& t : owners) t.join();
    CHECK(sum == 4 * 50 * 45);
  }

  TEST_CASE("a helper takes a task of an owner that is busy with another") {
    SharedWork work;
    std::atomic<bool> over = false;
    std::thread helper([&] { work.help_until([&] { return over.load(); }); });
    std::atomic<int> begun = 0;
    std::thread::id ids[2];
    work.run(2, [&](size_t i) {
      ids[i] = std::this_thread::get_id();
      begun++;
      while (begun < 2) std::this_thread::yield();  // neither ends before both have begun
    });
    CHECK(ids[0] != ids[1]);
    over = true;
    work.wake();
    helper.join();
  }

  TEST_CASE("the first error of shared work is its owner's, and the rest is left out") {
    SharedWork work;
    int done = 0;
    const auto fail = [&](size_t i) {
      if (i == 2) throw std::runtime_error("the third");
      done++;
    };
    CHECK_THROWS_WITH(work.run(5, fail), "the third");
    CHECK(done == 2);
    work.run(3, [&](size_t) { done++; });
    CHECK(done == 5);
  }

#if !defined(__SANITIZE_THREAD__)  // whose locks a child of several threads may wait for
  TEST_CASE("a forked child does shared work alone") {
    SharedWork work;
    std::atomic<bool> over = false;
    std::thread helper([&] { work.help_until([&] { return over.load(); }); });
    const pid_t child = fork();
    if (child == 0) {
      int done = 0;
      work.run(4, [&](size_t) { done++; });
      work.wake();
      work.help_until([] { return false; });
      _exit(done == 4 ? 7 : 8);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
    over = true;
    work.wake();
    helper.join();
  }
#endif
}
