#include "ir/pack_ahead.h"

#include <doctest/doctest.h>

#include <tuple>
#include <vector>

#include "core/ops.h"
#include "ir/choose.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "tests/ir/algorithms.h"

namespace lazuli {
namespace {

TEST_SUITE_BEGIN("ir");

Target far_target(const char* name, int64_t l2) {
  Target target = named_target(name);
  target.l2 = l2;
  target.far_l3 = true;
  return target;
}

bool packs_ahead(const Program& program) {
  bool any = false;
  for (const Phase& phase : program.phases) any |= phase.packs_ahead;
  return any;
}

TEST_CASE("the next panel is packed while one is multiplied, where the last cache is far") {
  int ahead = 0, cases = 0;
  for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
    for (const auto& [m, n, k] :
         {std::tuple{50, 512, 128}, {48, 480, 96}, {61, 300, 97}, {200, 130, 64}, {24, 1000, 70}}) {
      CAPTURE(m);
      CAPTURE(n);
      const Target target = far_target(name, 64 << 10);
      Kernel kernel = test::matmul(m, n, k, false, false, m % 2 == 1);
      const Program program = choose_schedule(kernel, target, {{"packed b of C", "yes"}});
      CHECK(test::difference(kernel, target) == "");  // also where the panels are shared out
      ahead += packs_ahead(program);
      cases++;
    }
  }
  CHECK(ahead >= 4);
  CHECK(ahead < cases);
}

TEST_CASE("a panel that is packed ahead may lie behind others in scratch memory") {
  // Products of one row of tiles with two matrices: in one loop, where the first panel may be left
  // alone as its matrix stays in cache, and by turns.
  const Tensor x = randn({50, 130}).realize(), y = randn({50, 40}).realize();
  const Tensor small = randn({40, 400}).realize(), a = randn({130, 400}).realize(),
               b = randn({130, 400}).realize();
  const std::vector<std::vector<Tensor>> outputs = {
      {matmul(x, a), matmul(x, b)},
      {matmul(y, small), matmul(x, b)},
      {relu(matmul(y, small)) * matmul(x, a)},
      {silu(matmul(x, a)) * matmul(x, b)},
      {matmul(x, a) * matmul(y, small) + matmul(x, b)}};
  int ahead = 0;
  for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
    const Target target = far_target(name, 128 << 10);
    for (const std::vector<Tensor>& results : outputs) {
      std::vector<NodeRef> roots;
      for (const Tensor& t : results) roots.push_back(t.node());
      for (const PlanStep& step : make_plan(roots, target).steps) {
        Kernel kernel = clone(*step.kernel);
        const Program program = choose_schedule(kernel, target);
        CAPTURE(kernel.schedule);
        CHECK(test::difference(kernel, target, *step.kernel) == "");
        ahead += packs_ahead(program);
      }
    }
  }
  CHECK(ahead >= 4);
}

TEST_CASE("panels are packed before they are multiplied where that is as well") {
  const auto ahead = [](int64_t rows, bool transposed, const Target& target) {
    Kernel kernel = test::matmul(rows, 512, 128, false, transposed, false);
    const Program program = choose_schedule(kernel, target);
    CHECK(test::difference(kernel, target) == "");
    return packs_ahead(program);
  };
  const Target far = far_target("x86-64-v3", 64 << 10);
  CHECK(ahead(50, false, far));
  Target near = far;
  near.far_l3 = false;
  CHECK(!ahead(50, false, near));
  CHECK(!ahead(50, false, far_target("x86-64-v3", 24 << 10)));   // two panels are too large
  Target half = far_target("x86-64-v3", 512 << 10);
  CHECK(ahead(50, false, half));  // the argument stays, but for what it is multiplied with
  half.threads = 2;               // of which each has half
  CHECK(!ahead(50, false, half));
  CHECK(!ahead(50, false, far_target("x86-64-v3", 1 << 20)));    // the whole argument is there
  CHECK(!ahead(6, false, far));                                  // no tiles but one
  CHECK(!ahead(50, true, far));                                  // rows are turned as well
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
