#include "ir/program_cost.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ir/choose.h"
#include "ir/lower.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"

namespace lazuli {
namespace {

const Target kTarget = named_target("x86-64-v3");

double cycles(Kernel k) {
  choose_schedule(k, kTarget);
  return estimate_cycles(lower(k, kTarget));
}

double plain_cycles(Kernel k, const char* schedule) {
  apply_schedule(k, schedule);
  return estimate_cycles(lower(k, kTarget));
}

TEST_SUITE("ir") {
  TEST_CASE("cycles are those of the busiest unit") {
    // Two multiply-adds of 8 lanes a cycle.
    const double product = cycles(test::matmul(96, 96, 96, false, false, false));
    CHECK(product > 96.0 * 96 * 96 / 16);
    CHECK(product < 1.3 * 96 * 96 * 96 / 16);
    const double twice = cycles(test::matmul(192, 96, 96, false, false, false));
    CHECK(twice == doctest::Approx(2 * product).epsilon(0.02));
    // Rows are shared out; the iterations of all are counted.
    CHECK(cycles(test::chain(300, 64)) ==
          doctest::Approx(3 * cycles(test::chain(100, 64))).epsilon(0.05));
  }

  TEST_CASE("cycles are at least those of the longest chain") {
    const auto sum = [](const char* schedule) {
      return plain_cycles(test::total_sum(8000), schedule);
    };
    const Kernel k = test::total_sum(8000);
    const std::string stage = k.stages[0]->name, axis = k.stages[0]->loops[0].name;
    const double one = sum("");
    CHECK(one >= 4 * 8000);
    CHECK(one < 6 * 8000);
    const double four =
        sum(fmt::format("split {0} {1} {1}.o {1}.i 4; ilp {0} {1}.i", stage, axis).c_str());
    CHECK(four == doctest::Approx(one / 4).epsilon(0.1));
    const double lanes =
        sum(fmt::format("split {0} {1} {1}.o {1}.v 8; vector {0} {1}.v", stage, axis).c_str());
    CHECK(lanes == doctest::Approx(one / 8).epsilon(0.1));
  }

  TEST_CASE("seconds are of cycles or bytes, on so many cores") {
    Target t = kTarget;
    t.fma_per_second = 2 * t.lanes * 1e9;
    t.bandwidth = 1e9;
    t.l2 = 1 << 20;
    t.l3 = 16 << 20;
    CHECK(estimate_seconds(5e9, 100, t, 1) == doctest::Approx(5));
    CHECK(estimate_seconds(5e9, 100, t, 4) == doctest::Approx(1.25));
    CHECK(estimate_seconds(5, 1e9, t, 1) == doctest::Approx(1));
    CHECK(estimate_seconds(5, 1e9, t, 8) == doctest::Approx(0.5));  // cores share memory
    CHECK(estimate_seconds(5, 1e7, t, 1) < 0.9e-2);                 // which is nearer
    CHECK(estimate_seconds(5, 1e6, t, 1) < 0.5e-3);
  }
}

}  // namespace
}  // namespace lazuli
