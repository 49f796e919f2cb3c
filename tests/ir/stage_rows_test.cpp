// Rows that begin at no vector's boundary bypass the caches by way of scratch, with the values of
// the interpreted algorithm.
#include "ir/stage_rows.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "ir/choose.h"
#include "ir/index.h"
#include "ir/kernel.h"
#include "ir/lower.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

TEST_SUITE_BEGIN("ir");

// x[i, j] + b[j].
Kernel rows_with_bias(int64_t rows, int64_t columns, DType dtype) {
  Kernel k;
  k.name = "bias";
  const int x = k.add_argument("x", dtype, rows * columns, false),
            b = k.add_argument("b", dtype, columns, false),
            out = k.add_argument("out", dtype, rows * columns, true);
  const NodeRef i = axis("i", rows), j = axis("j", columns);
  const NodeRef sum =
      scalar_op(Op::Add, dtype,
                {load(x, dtype, index_add(index_mul(i, columns), j), {}), load(b, dtype, j, {})});
  k.add_value(k.add_stage("out", {i, j}), "out", sum, {i, j}, Op::Count_, out);
  return k;
}

// The program of a kernel whose results leave the last cache. Checks its values.
std::string staged(Kernel k, Target target) {
  target.l3 = 4 << 10;
  choose_schedule(k, target);
  CHECK(test::holds(k.schedule, "stream "));
  CHECK(test::difference(k, target) == "");
  return print_program(lower(k, target));
}

TEST_CASE("rows of any length bypass the caches in whole vectors, but for their ends") {
  for (const char* cpu : {"x86-64-v3", "x86-64-v4"}) {
    const Target target = named_target(cpu);
    for (int64_t n = 577; n < 577 + target.lanes; n++) {
      if (n % target.lanes == 0) continue;
      INFO(cpu, " ", n);
      const std::string text = staged(rows_with_bias(19, n, DType::F32), target);
      CHECK(test::holds(text, " streaming\n"));
      CHECK(test::holds(text, "scratch"));
    }
    // Without a ragged end, and where the row's last vectors are in no loop.
    CHECK(test::holds(
        staged(rows_with_bias(5, 24 * target.lanes + target.lanes / 2, DType::F64), target),
        " streaming\n"));
    CHECK(test::holds(staged(rows_with_bias(5, 1030, DType::I32), target), " streaming\n"));
    CHECK(test::holds(staged(test::layer_norm(11, 1003), target), " streaming\n"));
    // What is computed twice has a row of its own in scratch.
    CHECK(test::holds(staged(test::softmax(7, 1001), target), " streaming\n"));
  }
}

TEST_CASE("rows whose ends are most of them, or that L2 does not hold, stay in the caches") {
  Target target = named_target("x86-64-v4");
  const auto bypasses = [&](const Kernel& k) {
    return test::holds(staged(clone(k), target), "streaming");
  };
  CHECK(bypasses(rows_with_bias(20, 519, DType::F32)));
  CHECK(!bypasses(rows_with_bias(20, 509, DType::F32)));  // less than 2 KiB
  CHECK(!bypasses(rows_with_bias(20, 2001, DType::F16)));
  CHECK(bypasses(rows_with_bias(20, 528, DType::F32)));  // at boundaries, without scratch
  CHECK(!test::holds(staged(rows_with_bias(20, 528, DType::F32), target), "scratch"));
  Kernel long_rows = rows_with_bias(3, 5001, DType::F32);
  target.l3 = 4 << 10;
  target.l2 = 40000;
  choose_schedule(long_rows, target);
  CHECK(!test::holds(long_rows.schedule, "stream "));
  target.l2 = 41000;
  Kernel held = rows_with_bias(3, 5001, DType::F32);
  choose_schedule(held, target);
  CHECK(test::holds(held.schedule, "stream "));
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
