// Rows that begin at no vector's boundary bypass the caches by way of scratch, with the values of
// the interpreted algorithm.
#include "ir/stage_rows.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/choose.h"
#include "ir/in_place.h"
#include "ir/index.h"
#include "ir/kernel.h"
#include "ir/lower.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

TEST_SUITE_BEGIN("ir");

// a[i] + b[j], or another `op` of them, which can be written over neither; and over x if that is
// added too. `both`: also a[i] - b[j], in an array of its own.
Kernel outer_sum(int64_t rows, int64_t columns, DType dtype, bool with_x = false, bool both = false,
                 Op op = Op::Add) {
  Kernel k;
  k.name = "outer";
  const int a = k.add_argument("a", dtype, rows, false),
            b = k.add_argument("b", dtype, columns, false),
            x = with_x ? k.add_argument("x", dtype, rows * columns, false) : -1,
            out = k.add_argument("out", dtype, rows * columns, true),
            other = both ? k.add_argument("other", dtype, rows * columns, true) : -1;
  const NodeRef i = axis("i", rows), j = axis("j", columns);
  const NodeRef p = load(a, dtype, i, {}), q = load(b, dtype, j, {});
  NodeRef sum = scalar_op(op, dtype, {p, q});
  if (with_x) {
    const NodeRef element = load(x, dtype, index_add(index_mul(i, columns), j), {});
    sum = scalar_op(Op::Add, dtype, {element, sum});
  }
  Stage* const s = k.add_stage("out", {i, j});
  k.add_value(s, "out", sum, {i, j}, Op::Count_, out);
  if (both) k.add_value(s, "other", scalar_op(Op::Sub, dtype, {p, q}), {i, j}, Op::Count_, other);
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

void note_streamed(const std::vector<Instruction>& block, std::set<int>& memories) {
  for (const Instruction& i : block) {
    if (i.code == Code::Store && i.flag) memories.insert(i.memory);
    note_streamed(i.body, memories);
  }
}

// The arguments that a kernel stores past the caches. Checks its values.
std::set<int> streamed_in(Kernel k, Target target) {
  target.l3 = 4 << 10;
  choose_schedule(k, target);
  CHECK(test::difference(k, target) == "");
  std::set<int> memories;
  for (const Phase& p : lower(k, target).phases) note_streamed(p.body, memories);
  return memories;
}

TEST_CASE("rows of any length bypass the caches in whole vectors, but for their ends") {
  for (const char* cpu : {"x86-64-v3", "x86-64-v4"}) {
    const Target target = named_target(cpu);
    for (int64_t n = 577; n < 577 + target.lanes; n++) {
      if (n % target.lanes == 0) continue;
      INFO(cpu, " ", n);
      const std::string text = staged(outer_sum(19, n, DType::F32), target);
      CHECK(test::holds(text, " streaming\n"));
      CHECK(test::holds(text, "scratch"));
    }
    // Without a ragged end, and where the row's last vectors are in no loop.
    CHECK(
        test::holds(staged(outer_sum(5, 24 * target.lanes + target.lanes / 2, DType::F64), target),
                    " streaming\n"));
    CHECK(test::holds(staged(outer_sum(5, 1030, DType::I32), target), " streaming\n"));
    CHECK(test::holds(staged(test::layer_norm(11, 1003), target), " streaming\n"));
    CHECK(test::holds(staged(test::softmax(7, 1001), target), " streaming\n"));
    // Two results, each by a row of its own in scratch.
    CHECK(streamed_in(outer_sum(5, 777, DType::F32, false, true), target) == std::set<int>{2, 3});
  }
}

TEST_CASE("rows that may be written over an operand or are divided are stored through the caches") {
  const Target target = named_target("x86-64-v4");
  Kernel sum = outer_sum(20, 1001, DType::F32, true);
  CHECK(!test::holds(staged(clone(sum), target), "streaming"));
  CHECK(in_place_arguments(lower(sum, target)).size() == 1);
  Kernel quotients = outer_sum(7, 1001, DType::F32, false, false, Op::Div);
  CHECK(!test::holds(staged(std::move(quotients), target), "streaming"));
}

TEST_CASE("rows whose ends are most of them, or that L2 does not hold, stay in the caches") {
  Target target = named_target("x86-64-v4");
  const auto bypasses = [&](Kernel k) {
    target.l3 = 4 << 10;
    choose_schedule(k, target);
    const bool streams = test::holds(k.schedule, "stream ");
    CHECK(test::difference(k, target) == "");
    CHECK(test::holds(print_program(lower(k, target)), "streaming") == streams);
    return streams;
  };
  CHECK(bypasses(outer_sum(20, 519, DType::F32)));
  CHECK(!bypasses(outer_sum(20, 509, DType::F32)));  // less than 2 KiB
  CHECK(!bypasses(outer_sum(20, 2001, DType::F16)));
  CHECK(bypasses(outer_sum(20, 528, DType::F32)));  // at boundaries, without scratch
  CHECK(!test::holds(staged(outer_sum(20, 528, DType::F32), target), "scratch"));
  target.l2 = 80000;
  CHECK(!bypasses(outer_sum(3, 5001, DType::F32)));
  target.l2 = 81000;
  CHECK(bypasses(outer_sum(3, 5001, DType::F32)));
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
