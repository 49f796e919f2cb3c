// The measured roofline: of the right size, since a wrong probe makes every percentage wrong.
#include "runtime/probe.h"

#include <doctest/doctest.h>

#include "runtime/host.h"

using namespace lazuli;

// The thread sanitizer looks at every load of the probe.
#if defined(__SANITIZE_THREAD__)
constexpr double kSlower = 25;
#else
constexpr double kSlower = 1;
#endif

TEST_SUITE("runtime") {
  TEST_CASE("the roofline is within what CPUs can do") {
    ThreadPool pool(1);
    const Roofline one = measure_roofline(pool);
    CHECK(one.threads == 1);
    // One operation a cycle and lane at 1 GHz is less than any vector unit does; two multiply-adds
    // in each cycle at 8 GHz more.
    CHECK(one.peak_gflops > host().lanes * 0.5 / kSlower);
    CHECK(one.peak_gflops < host().lanes * 4 * 8.0);
    CHECK(one.fed_gflops > host().lanes * 0.5 / kSlower);
    CHECK(one.fed_gflops < host().lanes * 4 * 8.0);
    CHECK(one.bandwidth_gbps > 0.5 / kSlower);
    CHECK(one.bandwidth_gbps < 1000);
  }

  TEST_CASE("of two measurements of a machine, the higher one of each limit counts") {
    const Roofline r = highest({2, 100, 80, 20}, {2, 90, 85, 25});
    CHECK(r.threads == 2);
    CHECK(r.peak_gflops == 100);
    CHECK(r.fed_gflops == 85);
    CHECK(r.bandwidth_gbps == 25);
  }

  TEST_CASE("a chunk may ask for the roofline of its own thread") {
    ThreadPool pool(2);
    pool.parallel_for(0, 2, 1, [](int64_t begin, int64_t, int) {
      ThreadPool own(1);
      if (begin == 0) CHECK(measure_roofline(own).peak_gflops > 0);
    });
  }
}
