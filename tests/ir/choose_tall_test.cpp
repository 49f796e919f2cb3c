// Columns of large matrices that are walked several times.
#include <doctest/doctest.h>

#include <string>

#include "core/ops.h"
#include "ir/choose.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;

// L2 of 64 KiB: what takes more than twice that is large.
Target small() {
  Target t = named_target("x86-64-v3");
  t.l1 = 16 << 10;
  t.l2 = 64 << 10;
  t.l3 = 1 << 20;
  t.far_l3 = false;
  return t;
}

// The phases of a schedule: stages at no other.
int phases(const std::string& schedule) {
  int n = 0;
  for (size_t at = 0; (at = schedule.find("\nparallel ", at)) != std::string::npos; at++) n++;
  return n;
}

TEST_SUITE("ir") {
  TEST_CASE("tall columns are walked together each time, row by row") {
    const Tensor x = array({640, 300});
    const auto schedule = [&](const Tensor& t) { return test::checked_schedule(t, small()); };
    // Sums in chunks, what follows from each, and the result.
    const std::string spread = schedule((x - mean(x, 0)) / (std(x, 0) + 1.0));
    CHECK_MESSAGE(phases(spread) == 5, spread);
    CHECK_MESSAGE(test::holds(spread, "rfactor sum_2 i sum_2.chunks "), spread);
    const std::string most = schedule(logsumexp(x, 0));
    CHECK_MESSAGE(phases(most) == 3, most);
    CHECK_MESSAGE(test::holds(most, "order max j.b i.o j.o i.i j.u j.v\n"), most);
    CHECK(phases(schedule(x - amax(x, 0, true))) == 2);
    // Results of several matrices, none of them large, that the last cache holds.
    const Tensor several = array({8, 64, 256});
    CHECK(phases(schedule(several - amax(several, 1, true))) == 2);
    const Tensor many = array({20, 64, 256});
    CHECK(phases(schedule(many - amax(many, 1, true))) == 1);
    CHECK(phases(schedule(var(array({4, 160, 300}), 1))) >= 2);
  }

  TEST_CASE(
      "columns are walked in blocks where caches hold them, or what is made of them is large") {
    const auto schedule = [&](const Tensor& t) { return test::checked_schedule(t, small()); };
    CHECK(phases(schedule(logsumexp(array({70, 300}), 0))) == 1);   // 84 KB
    CHECK(phases(schedule(logsumexp(array({8, 64, 256}), 1))) == 1);  // each of several
    CHECK(phases(schedule(logsumexp(array({800, 60}), 0))) == 1);   // narrow
    CHECK(phases(schedule(softmax(array({640, 300}), 0))) == 1);    // of the exponentials, all
    CHECK(phases(schedule(logsumexp(array({640, 300}), 1))) == 1);  // rows
  }
}

}  // namespace
}  // namespace lazuli
