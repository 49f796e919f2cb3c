#include "ir/index_map.h"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

#include "core/graph.h"
#include "ir/index.h"
#include "ir/kernel.h"
#include "runtime/reference/reference.h"
#include "tests/ir/run_plan.h"

namespace lazuli {
namespace {

using test::Elements;

Elements counted(int64_t n) {
  Elements v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 1);  // no element is 0, which stands for "outside"
  return v;
}

// The elements of a movement node by its index map, at every index of the result.
Elements through_map(const NodeRef& n) {
  std::vector<NodeRef> axes;
  for (int64_t s : n->shape) axes.push_back(axis("i", s));
  const Access at = source_access(*n, {axes, {}});
  Kernel kernel;
  const int in = kernel.add_argument("in", DType::I64, n->src[0]->numel(), false);
  const int out = kernel.add_argument("out", DType::I64, n->numel(), true);
  Stage* s = kernel.add_stage("out", axes);
  const NodeRef flat = flat_index(at.index, n->src[0]->shape);
  kernel.add_value(s, "out", load(in, DType::I64, flat, at.valid), axes, Op::Count_, out);
  verify_algorithm(kernel);
  std::vector<Elements> arguments{test::elements(*n->src[0]),
                                  Elements(static_cast<size_t>(n->numel()))};
  test::run_kernel(kernel, arguments);
  return arguments[1];
}

Elements by_reference(const NodeRef& n) {
  const NodeRef root = n;
  realize_reference({&root, 1});
  return test::elements(*root);
}

NodeRef source(Shape shape) {
  const int64_t n = numel(shape);
  return test::buffer_of(DType::I64, std::move(shape), counted(n));
}

TEST_SUITE_BEGIN("ir");

TEST_CASE("the index map of every movement op says what the reference device says") {
  const NodeRef x = source({2, 3, 4}), w = source({3, 5, 2});
  const std::vector<NodeRef> moved{
      reshape(x, {4, 6}),
      reshape(x, {1, 24, 1}),
      reshape(x, {2, 2, 3, 2}),
      permute(x, {2, 0, 1}),
      expand(source({2, 1, 4}), {2, 5, 4}),
      pad(x, {1, 0, 0, 2, 3, 1}),
      shrink(x, {1, 2, 0, 2, 1, 4}),
      flip(x, {0, 2}),
      window(x, 2, 2, 1, 2),
      window(x, 1, 2, 1, 1),
      unwindow(w, 1, 6, 1, 1),
      unwindow(w, 0, 7, 2, 3),
      unwindow(w, 1, 3, 1, 1),
  };
  for (const NodeRef& n : moved) {
    CAPTURE(std::string(name(n->op)));
    CAPTURE(arg_text(*n));
    CHECK(through_map(n) == by_reference(n));
  }
}

TEST_CASE("a reshape keeps the indices of the axes it leaves alone") {
  const NodeRef x = source({8, 6, 5});
  const NodeRef i = axis("i", 8), j = axis("j", 30);
  const Access at = source_access(*reshape(x, {8, 30}), {{i, j}, {}});
  CHECK(at.index[0].get() == i.get());
  CHECK(index_text(at.index[1]) == "((j) // 5)");
}

TEST_CASE("a reshape and its inverse cancel") {
  const NodeRef x = source({8, 6, 5});
  const NodeRef flat = reshape(contiguous(permute(x, {1, 0, 2})), {240});
  const std::vector<NodeRef> axes{axis("i", 6), axis("j", 8), axis("k", 5)};
  const NodeRef back =
      make({.op = Op::Reshape, .dtype = x->dtype, .shape = {6, 8, 5}, .src = {flat}});
  const Access once = source_access(*back, {axes, {}});
  const Access twice = source_access(*flat, once);
  for (size_t a = 0; a < axes.size(); a++) CHECK(twice.index[a].get() == axes[a].get());
}

TEST_CASE("padding that the index cannot reach needs no condition") {
  const NodeRef x = source({4});
  const NodeRef i = axis("i", 4);
  const Access inside = source_access(*pad(x, {2, 2}), {{index_add(i, index_const(2))}, {}});
  CHECK(!inside.valid);
  const Access all = source_access(*pad(x, {2, 2}), {{axis("j", 8)}, {}});
  CHECK(all.valid);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
