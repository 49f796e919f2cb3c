// Quotients of a softmax by the parts of its sum's reciprocal.
#include "ir/divide_by_sums.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/ops.h"
#include "ir/choose.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "tests/ir/chosen.h"
#include "tests/ir/run_plan.h"

namespace lazuli {
namespace {

// Divisions of vectors in the programs of what `tensors` are computed by.
size_t vector_divisions(const std::vector<Tensor>& tensors, const char* level = "x86-64-v3") {
  std::vector<NodeRef> roots;
  for (const Tensor& t : tensors) roots.push_back(t.node());
  const Target target = named_target(level);
  const std::string vector = "x" + std::to_string(target.lanes) + " = div ";
  size_t found = 0;
  for (const PlanStep& step : make_plan(roots, target).steps) {
    if (!step.kernel) continue;
    Kernel kernel = clone(*step.kernel);
    choose_schedule(kernel, target);
    found += test::count_of(print_program(lower(kernel, target)), vector);
  }
  return found;
}

TEST_SUITE_BEGIN("ir");

TEST_CASE("a softmax divides once a row") {
  const Tensor x = test::array({8, 100}), y = test::array({8, 100});
  CHECK(vector_divisions({softmax(x, -1)}) == 0);
  CHECK(vector_divisions({softmax(x * y, -1)}) == 0);
  CHECK(vector_divisions({softmax(test::array({8, 100}, DType::F64), -1)}) == 0);
  // Along the rows the reciprocals are a vector, once for all of them.
  CHECK(vector_divisions({softmax(test::array({100, 8}), 0)}) == 1);
  CHECK(vector_divisions({softmax(x, -1)}, "x86-64-v2") > 0);  // without FMAs
}

TEST_CASE("what is no share of its own sum is divided as it stands") {
  const Tensor x = test::array({8, 104}), y = test::array({8, 104});
  const Tensor m = amax(x, {1}, true), e = exp(x - m);
  CHECK(vector_divisions({e / sum(e, {1}, true)}) == 0);
  CHECK(vector_divisions({exp(x) / sum(exp(x), {1}, true)}) > 0);  // may be 0 or infinite
  CHECK(vector_divisions({e / sum(exp(y - m), {1}, true)}) > 0);   // of others
  CHECK(vector_divisions({y / sum(e, {1}, true)}) > 0);            // may be infinite
  CHECK(vector_divisions({e / sum(e, {0}, true)}) > 0);            // of columns
  const Tensor k = exp(x - amax(x, {0}, true));
  CHECK(vector_divisions({k / sum(k, {1}, true)}) > 0);  // none need be 1
  CHECK(vector_divisions({exp(x - amax(y, {1}, true)) / sum(e, {1}, true)}) > 0);
  CHECK(vector_divisions({softmax(test::array({64, 64}), -1)}) == 0);
  CHECK(vector_divisions({softmax(test::array({64, 56}), -1)}) > 0);  // few share a sum
}

TEST_CASE("the quotients are the nearest numbers, or seldom the next") {
  std::mt19937 random(5);
  for (const DType dtype : {DType::F32, DType::F64}) {
    std::vector<float> numbers(24 * 500);
    for (float& v : numbers) v = static_cast<float>(random() % 100'000) / 5000;
    const Tensor x = to(Tensor::from(numbers, {24, 500}), dtype).realize();
    const Tensor e = exp(x - amax(x, {1}, true)), s = sum(e, {1}, true), y = e / s;
    const std::vector<NodeRef> roots{e.node(), s.node(), y.node()};
    const Target target = named_target("x86-64-v3");
    const Plan plan = make_plan(roots, target);
    REQUIRE(plan.steps.size() == 1);
    Kernel kernel = clone(*plan.steps[0].kernel);
    choose_schedule(kernel, target);
    const std::string before = print_algorithm(kernel);
    divide_by_sums(kernel);
    CHECK(print_algorithm(kernel) != before);
    std::vector<test::Elements> arguments;
    for (const KernelArgument& a : kernel.arguments) {
      arguments.push_back(a.output ? test::Elements(static_cast<size_t>(a.size))
                                   : test::elements(*x.node()));
    }
    test::run_kernel(kernel, arguments);
    const auto result = [&](size_t root) {
      const std::vector<int>& slots = plan.steps[0].arguments;
      const auto at = std::find(slots.begin(), slots.end(), plan.outputs[root]);
      return arguments[static_cast<size_t>(at - slots.begin())];
    };
    const test::Elements terms = result(0), sums = result(1), shares = result(2);
    int others = 0, far = 0;
    for (size_t n = 0; n < shares.size(); n++) {
      const double a = from_bits(terms[n], dtype).as_double(),
                   b = from_bits(sums[n / 500], dtype).as_double();
      const uint64_t want = to_bits(Scalar(a / b), dtype);
      const uint64_t off = shares[n] > want ? shares[n] - want : want - shares[n];
      others += off > 0;
      far += off > 1;
    }
    CHECK(others <= 1);
    CHECK(far == 0);
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
