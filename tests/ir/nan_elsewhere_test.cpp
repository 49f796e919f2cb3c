// Extremes of which a NaN need not be seen.
#include "ir/nan_elsewhere.h"

#include <doctest/doctest.h>

#include <vector>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/plan.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

struct Extremes {
  int all = 0, found = 0;
  bool operator==(const Extremes&) const = default;
};

Extremes extremes_of(const std::vector<Tensor>& tensors) {
  std::vector<NodeRef> roots;
  for (const Tensor& t : tensors) roots.push_back(t.node());
  Extremes e;
  for (const PlanStep& step : make_plan(roots, named_target("x86-64-v4")).steps) {
    if (!step.kernel) continue;
    for (const auto& s : step.kernel->stages) {
      for (const Value& v : s->values) e.all += is_extreme(v);
    }
    e.found += static_cast<int>(nan_elsewhere(*step.kernel).size());
  }
  return e;
}

TEST_SUITE_BEGIN("ir");

TEST_CASE("the sum of a softmax is NaN where one of its elements is") {
  const Tensor x = test::array({8, 100}), y = test::array({8, 100});
  const Tensor m = amax(x, {1}, true), e = exp(x - m), s = sum(e, {1}, true);
  const Extremes one{1, 1};
  CHECK(extremes_of({softmax(x, -1)}) == one);
  CHECK(extremes_of({log_softmax(x, -1)}) == one);
  CHECK(extremes_of({logsumexp(x, {1})}) == one);
  CHECK(extremes_of({softmax(x * y, -1)}) == one);
  CHECK(extremes_of({m / s}) == one);
  CHECK(extremes_of({s / select(s, 0, 0)}) == one);  // each sum is NaN for itself
  CHECK(extremes_of({matmul(e, test::array({100, 24})) / s}) == one);
  CHECK(extremes_of(grad(sum(softmax(x, -1) * y), std::vector<Tensor>{x})) == one);
  const auto attention = [](int64_t keys, bool causal) {
    const Tensor q = test::array({2, keys, 16}), k = test::array({2, keys, 16});
    return scaled_dot_product_attention(q, k, k, std::nullopt, 0.0, causal);
  };
  CHECK(extremes_of({attention(64, false)}) == one);
  CHECK(extremes_of({attention(64, true)}) == one);
  // Of each chunk of a long row, and of all of these.
  CHECK(extremes_of({attention(4096, false)}) == Extremes{2, 2});
}

TEST_CASE("a NaN that nothing else would show is kept in the extreme") {
  const Tensor x = test::array({8, 100}), y = test::array({8, 100});
  const Tensor m = amax(x, {1}, true), e = exp(x - m), s = sum(e, {1}, true);
  const Extremes none{1, 0};
  CHECK(extremes_of({m}) == none);
  CHECK(extremes_of({x - m}) == none);
  CHECK(extremes_of({e}) == none);
  CHECK(extremes_of({sum(e * y, {1}), m}) == none);
  CHECK(extremes_of({e / s, e}) == none);
  CHECK(extremes_of({where(s > 1.0, e, 0.0)}) == none);  // comparisons hide it
  CHECK(extremes_of({sum(exp(y - m), {1})}) == none);    // not of the extreme's elements
  // Sums of a part of a row, and of other rows.
  CHECK(extremes_of({e / sum(narrow(e, 1, 0, 50), {1}, true)}) == none);
  CHECK(extremes_of({e / flip(s, {0})}) == none);
  CHECK(extremes_of({e / select(s, 0, 0)}) == none);
}

TEST_CASE("of a sum that is NaN only in some rows, others say nothing") {
  const Tensor x = test::array({8, 5, 100}), m = amax(x, {2}, true), e = exp(x - m);
  const Tensor s = sum(e, {2}, true);
  // All of them together are.
  CHECK(extremes_of({e / sum(s, {1}, true)}) == Extremes{1, 1});
  CHECK(extremes_of({sum(e, {1}) / sum(s, {1, 2}, false).unsqueeze(1)}) == Extremes{1, 1});
  // What is summed over all rows, divided by the sum of one.
  CHECK(extremes_of({sum(e, {1}, true) / s}) == Extremes{1, 0});
}

}  // namespace
}  // namespace lazuli
