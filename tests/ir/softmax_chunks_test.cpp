#include "ir/softmax_chunks.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/graph.h"
#include "core/ops.h"
#include "core/ops_attention.h"
#include "core/topology.h"
#include "ir/plan.h"
#include "ir/simplify.h"
#include "runtime/reference/reference.h"
#include "tests/ir/run_plan.h"

namespace lazuli {
namespace {

constexpr double kMasked = std::numeric_limits<double>::infinity();

Tensor normal(const Shape& shape, DType dtype = DType::F32) {
  static std::mt19937 random(11);
  std::normal_distribution<float> d;
  std::vector<float> v(static_cast<size_t>(numel(shape)));
  for (float& x : v) x = d(random);
  return to(Tensor::from(v, shape), dtype).realize();
}

// Whether rewriting changes the simplified graph.
bool splits(const Tensor& t) {
  const std::vector<NodeRef> roots = simplify(std::vector<NodeRef>{t.node()});
  return split_softmax(roots)[0].get() != roots[0].get();
}

// The plan's kernels, and its distance from the graph evaluated op by op.
size_t kernels_of(const Tensor& t, double tolerance) {
  const std::vector<NodeRef> roots{t.node()};
  const Plan plan = make_plan(roots, {});
  const test::Elements got = test::run_plan(plan)[0];
  realize_reference(roots);
  CHECK(test::difference(t.dtype(), got, test::elements(*t.node())) <= tolerance);
  return plan.steps.size();
}

// Scores of `keys` keys, as what `change` makes of them, and the softmax of them over values.
template <typename F>
Tensor attention_of_chunks(int64_t queries, int64_t keys, F change, DType dtype = DType::F32) {
  const Tensor q = normal({2, queries, 3}, dtype), k = normal({2, keys, 3}, dtype),
               v = normal({2, keys, 5}, dtype);
  return matmul(softmax(change(matmul(q, transpose(k, -1, -2))), -1), v);
}

constexpr auto kSame = [](const Tensor& s) { return s; };

TEST_SUITE_BEGIN("ir");

TEST_CASE("softmax over long rows that a product reads is computed in chunks, in one kernel") {
  CHECK(kernels_of(attention_of_chunks(6, 2048, kSame), 1e-5) == 1);
  CHECK(kernels_of(attention_of_chunks(5, 2070, kSame), 1e-5) == 1);  // chunks of 230 or 345
  CHECK(kernels_of(attention_of_chunks(6, 2048, kSame, DType::F64), 1e-13) == 1);
  const auto scaled = [](const Tensor& s) { return add(mul(s, 40.0), normal({2, 1, 2048})); };
  CHECK(kernels_of(attention_of_chunks(6, 2048, scaled), 1e-5) == 1);
  const Tensor q = normal({1, 4, 3, 4}), k = normal({1, 2, 2048, 4}), v = normal({1, 2, 2048, 4});
  CHECK(kernels_of(scaled_dot_product_attention(q, k, v, {}, 0.0, true, {}, true), 1e-5) == 1);
}

TEST_CASE("chunks of nothing but -inf count for nothing, and NaN and infinity spread as they did") {
  const Tensor at = reshape(arange(2048), {1, 1, 2048});
  const auto scores = [&](const Tensor& bias) {
    return attention_of_chunks(3, 2048, [&](const Tensor& s) { return add(s, bias); });
  };
  const auto where_far = [&](double inside, double outside) {
    return where(lt(at, 700), full({}, Scalar(inside)), full({}, Scalar(outside))).realize();
  };
  CHECK(splits(scores(where_far(0, -kMasked))));
  kernels_of(scores(where_far(0, -kMasked)), 1e-5);
  kernels_of(scores(where_far(-kMasked, 0)), 1e-5);
  kernels_of(scores(where_far(-kMasked, -kMasked)), 1e-5);  // NaN everywhere
  kernels_of(scores(where_far(0, kMasked)), 1e-5);
  kernels_of(scores(where_far(0, std::nan(""))), 1e-5);
  // Loops that end at a mask, before some chunks begin.
  const Tensor row = reshape(arange(3), {3, 1});
  const auto masked = [&](const Tensor& s) {
    return where(le(at, mul(row, 900)), s, full({}, Scalar(-kMasked)));
  };
  kernels_of(attention_of_chunks(3, 2048, masked), 1e-5);
}

TEST_CASE("attention over the output of attention is split twice") {
  const Tensor x = normal({2048, 4});
  const auto layer = [](const Tensor& y) {
    return matmul(softmax(matmul(y, transpose(y, -1, -2)), -1), y);
  };
  const std::vector<NodeRef> roots = simplify(std::vector<NodeRef>{layer(layer(x)).node()});
  const std::vector<NodeRef> split = split_softmax(roots);
  int maxima = 0;
  for (const NodeRef& n : Topology(split, true).nodes) maxima += n->op == Op::ReduceMax;
  CHECK(maxima == 4);
}

TEST_CASE("rows stay whole where they are short, prime, rounded, or read by others") {
  CHECK(splits(attention_of_chunks(3, kLongRow, kSame)));
  CHECK(!splits(attention_of_chunks(3, kLongRow - 8, kSame)));
  CHECK(!splits(attention_of_chunks(3, 2053, kSame)));
  CHECK(!splits(attention_of_chunks(3, kLongRow, kSame, DType::F16)));
  CHECK(!splits(softmax(normal({3, kLongRow}), -1)));  // no product reads it
  const auto deep = [](Tensor s) {
    for (int i = 0; i < 100; i++) s = sin(s);
    return s;
  };
  CHECK(!splits(attention_of_chunks(3, kLongRow, deep)));
  const Tensor p = softmax(normal({3, kLongRow}), -1);
  CHECK(!splits(add(matmul(p, normal({kLongRow, 4})), sum(mul(p, p)))));
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
