#include "ir/fuse.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "core/gradient.h"
#include "core/graph.h"
#include "core/ops.h"
#include "ir/simplify.h"
#include "runtime/reference/reference.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/run_plan.h"

namespace lazuli {
namespace {

using test::ew;

Target small_target(uint64_t seed) {
  Target t = named_target("x86-64-v3");
  constexpr int64_t kSizes[] = {512 << 10, 4096, 512};
  t.l2 = kSizes[seed % 3];
  t.l3 = 64 * t.l2;
  if (seed % 3 == 2) {  // values are computed again wherever that is possible
    t.l3 = 256;
    t.fma_per_second = 1e18;
  }
  return t;
}

NodeRef eighths(Shape shape) {
  test::Elements v;
  for (int64_t i = 0; i < numel(shape); i++) {
    v.push_back(to_bits(Scalar(static_cast<double>(i * 7 % 11) / 8 - 0.5), DType::F32));
  }
  return test::buffer_of(DType::F32, std::move(shape), v);
}

NodeRef node_matmul(const NodeRef& a, const NodeRef& b) {
  const int64_t m = a->shape[0], k = a->shape[1], n = b->shape[1];
  const NodeRef x = expand(reshape(a, {m, 1, k}), {m, n, k});
  const NodeRef y = expand(reshape(permute(b, {1, 0}), {1, n, k}), {m, n, k});
  return reduce(Op::ReduceAdd, ew(Op::Mul, {x, y}), {2});
}

std::set<std::string> fuse_reasons(const std::vector<NodeRef>& roots, const Target& target) {
  std::set<std::string> out;
  for (const Decision& d : make_plan(roots, target).decisions) out.insert(d.text);
  return out;
}
bool has_reason(const std::set<std::string>& all, const std::string& part) {
  for (const std::string& r : all) {
    if (r.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST_SUITE_BEGIN("ir");

TEST_CASE("plans of random graphs compute what the graphs mean, on targets of any size") {
  for (uint64_t seed = 0; seed < 600; seed++) {
    CAPTURE(seed);
    const std::vector<NodeRef> roots = test::random_graph(seed, seed % 5 == 0 ? 40 : 14);
    const Plan plan = make_plan(roots, small_target(seed));
    const auto got = test::run_plan(plan);
    realize_reference(roots);
    for (size_t i = 0; i < roots.size(); i++) {
      const double tolerance = roots[i]->dtype == DType::F16 ? 2e-2 : 1e-4;
      CHECK(test::difference(roots[i]->dtype, got[i], test::elements(*roots[i])) <= tolerance);
    }
  }
}

TEST_CASE("every value is computed after its sources, and stored if another kernel reads it") {
  for (uint64_t seed = 0; seed < 300; seed++) {
    CAPTURE(seed);
    const Partition p = partition(simplify(test::random_graph(seed, 40)), small_target(seed));
    for (const FusedNode& n : p.nodes) {
      if (n.role == Role::Member) CHECK(n.group >= 0);
    }
    for (size_t g = 0; g < p.groups.size(); g++) {
      const int group = static_cast<int>(g);
      for (int n : p.groups[g].members()) {
        for (const NodeRef& s : p.node(n).src) {
          const FusedNode& source = p[p.graph.find(s)];
          if (source.role == Role::Member && source.group != group) CHECK(source.group < group);
        }
      }
    }
  }
}

TEST_CASE("what is made of much smaller values is made again by its readers") {
  const auto array = [](Shape shape) { return contiguous(randn(shape)); };
  const Tensor x = array({2, 3, 12, 12}), w = array({4, 3, 3, 3}), g = array({2, 4, 4, 4});
  const Tensor loss = sum(conv2d(max_pool2d(relu(x), 2), w) * g);
  const NodeRef roots[] = {loss.node(), grad(loss, x).node()};
  const Plan plan = make_plan(roots, named_target("x86-64-v3"));
  for (const PlanSlot& s : plan.slots) {
    // Of the windows' four conditions each, only the number of the one that holds is kept.
    CHECK(!(s.role == PlanSlot::Role::Temporary && s.dtype == DType::Bool && numel(s.shape) > 216));
  }
}

TEST_CASE("updates share a launch, but for long texts of many elements") {
  const Target target = named_target("x86-64-v3");
  const auto kernels = [&](int64_t rows, int steps) {
    std::vector<NodeRef> roots;
    for (int i = 0; i < 3; i++) {
      Tensor p(eighths({rows, 64}));
      const Tensor g(eighths({rows, 64}));
      for (int s = 0; s < steps; s++) p = p * 0.9 - g * (0.1 + s) / (p * p + 1.0);
      roots.push_back(p.node());
    }
    return make_plan(roots, target).steps.size();
  };
  CHECK(kernels(100, 1) == 1);
  CHECK(kernels(2000, 1) == 1);
  CHECK(kernels(2, 12) == 1);
  CHECK(kernels(2000, 12) == 3);
}

TEST_CASE("a result that would be stored across the rows of a kernel is transposed by another") {
  const Target target = named_target("x86-64-v3");
  const auto kernels = [&](const Tensor& result) {
    const NodeRef roots[] = {result.node()};
    return make_plan(roots, target).steps.size();
  };
  const Tensor x(eighths({256, 200})), y(eighths({256, 200})), z(eighths({200, 256}));
  CHECK(kernels(softmax(x, -1)) == 1);
  CHECK(kernels(softmax(x, -1).mT()) == 2);
  CHECK(kernels(softmax(x + y, -1).mT()) == 2);
  CHECK(kernels((softmax(x, -1) * y).mT()) == 2);
  CHECK(has_reason(fuse_reasons({softmax(x, -1).mT().node()}, target),
                   "it would be stored across the rows that an iteration of %"));
  // Rows that lie along the grid, or of which something else does.
  CHECK(kernels(softmax(z.mT(), -1).mT()) == 1);
  CHECK(kernels(softmax(x + z.mT(), -1).mT()) == 1);
  CHECK(kernels(softmax(x, -1).mT() + z) == 1);
  // Scalars of rows, small results, short rows, sums.
  CHECK(kernels(sum(softmax(x, -1) * y, -1)) == 1);
  CHECK(kernels(softmax(Tensor(eighths({64, 64})), -1).mT()) == 1);
  CHECK(kernels(softmax(Tensor(eighths({8192, 4})), -1).mT()) == 1);
  CHECK(kernels(sum(softmax(x, -1), 0)) == 1);
}

TEST_CASE("decisions give their reasons with numbers") {
  const Target target = named_target("x86-64-v3");
  const NodeRef x = eighths({64, 96}), w = eighths({96, 80});
  const NodeRef y = ew(Op::Tanh, {node_matmul(x, w)});
  CHECK(has_reason(fuse_reasons({y}, target), "shares 64x80 iterations"));
  CHECK(has_reason(fuse_reasons({reduce(Op::ReduceAdd, ew(Op::Exp, {x}), {0})}, target),
                   "starts a kernel"));
  const NodeRef e = ew(Op::Exp, {x});
  CHECK(has_reason(fuse_reasons({e, reduce(Op::ReduceAdd, e, {0})}, target), "sum over the grid"));
  const NodeRef scalar = reduce(Op::ReduceMax, e, {0, 1});
  CHECK(has_reason(
      fuse_reasons({ew(Op::Sub, {e, expand(reshape(scalar, {1, 1}), {64, 96})})}, target),
      "needs a barrier"));
  Target tiny = target;
  tiny.l2 = 4096;
  const NodeRef second = node_matmul(ew(Op::Tanh, {node_matmul(x, w)}), eighths({80, 40}));
  CHECK(has_reason(fuse_reasons({second}, tiny), "would walk"));
  tiny.l2 = 50 << 10;  // half of which w has not room in, 30 KiB
  CHECK(has_reason(fuse_reasons({second}, tiny), "would walk 30 KiB per iteration"));
  tiny.l2 = 64 << 10;
  CHECK(!has_reason(fuse_reasons({second}, tiny), "would walk"));
}

TEST_CASE("what a contraction has its columns from is stored, not computed column by column") {
  const Target target = named_target("x86-64-v3");
  const NodeRef a = eighths({64, 96}), b = eighths({96, 80}), c = eighths({80, 96});
  const auto kernels = [&](const NodeRef& n) {
    return make_plan(std::vector{n}, target).steps.size();
  };
  const char* why = "would share out its 80 columns, along which tiles lie";
  CHECK(has_reason(fuse_reasons({node_matmul(a, ew(Op::Tanh, {b}))}, target), why));
  CHECK(
      has_reason(fuse_reasons({node_matmul(a, permute(ew(Op::Tanh, {c}), {1, 0}))}, target), why));
  CHECK(kernels(node_matmul(a, ew(Op::Tanh, {b}))) == 2);
  // Rows, one row, and little work share a kernel.
  CHECK(kernels(node_matmul(ew(Op::Tanh, {a}), b)) == 1);
  CHECK(kernels(node_matmul(eighths({1, 96}), ew(Op::Tanh, {b}))) == 1);
  CHECK(kernels(node_matmul(eighths({8, 16}), ew(Op::Tanh, {eighths({16, 16})}))) == 1);
  // Stored the other way round, the columns are rows.
  const NodeRef turned = contiguous(permute(node_matmul(a, ew(Op::Tanh, {b})), {1, 0}));
  CHECK(!has_reason(fuse_reasons({turned}, target), "share out"));
}

TEST_CASE(
    "a chain of pointwise nodes becomes kernels of at most 256 nodes, equal where they do the "
    "same") {
  const NodeRef x = eighths({64});
  NodeRef y = x;
  for (int i = 0; i < 20000; i++)
    y = i % 4 == 0 ? ew(Op::Tanh, {y}) : ew(i % 2 ? Op::Add : Op::Mul, {y, x});
  const Plan plan = make_plan({&y, 1}, named_target("x86-64-v3"));
  CHECK(plan.steps.size() >= 20000 / 256);
  CHECK(plan.steps.size() <= 20000 / 200);
  std::set<std::string> texts;
  for (const PlanStep& s : plan.steps) texts.insert(print_algorithm(*s.kernel));
  CHECK(texts.size() <= 3);
}

TEST_CASE("a vector is stored before a matrix is multiplied with it, not before it is summed") {
  const auto steps = [](const Tensor& y) {
    const NodeRef root = y.node();
    return make_plan({&root, 1}, named_target("x86-64-v3")).steps.size();
  };
  const auto array = [](const Shape& s) { return Tensor(eighths(s)); };
  const Tensor h = gelu(matmul(array({1, 96}), array({96, 512})), "tanh");
  CHECK(steps(matmul(h, array({512, 128}))) == 2);
  CHECK(steps(sum(h * array({1, 512}), 1)) == 1);
  const Tensor rows = softmax(array({512, 128}), 1);
  CHECK(steps(sum(rows * array({512, 128}), 0)) == 1);
}

TEST_CASE("long chains of movement are cut before they grow too deep to evaluate") {
  NodeRef y = eighths({8, 8});
  for (int i = 0; i < 5000; i++)
    y = i % 2 ? permute(y, {1, 0}) : reshape(flip(reshape(y, {64}), {0}), {8, 8});
  const Plan plan = make_plan({&y, 1}, named_target("x86-64-v3"));
  const auto got = test::run_plan(plan);
  realize_reference({&y, 1});
  CHECK(got[0] == test::elements(*y));
}

TEST_CASE("a value read at shifted indices is computed once") {
  NodeRef y = ew(Op::Exp, {eighths({64, 32})});
  const NodeRef shifted = pad(shrink(y, {1, 64, 0, 32}), {0, 1, 0, 0});
  const NodeRef root = ew(Op::Add, {y, shifted});
  const Plan plan = make_plan({&root, 1}, named_target("x86-64-v3"));
  const auto got = test::run_plan(plan);
  realize_reference({&root, 1});
  CHECK(got[0] == test::elements(*root));
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
