// What a kernel's mathematics takes: counted once for the axes that it depends on, and as far as
// masks let loops run.
#include "ir/kernel_cost.h"

#include <doctest/doctest.h>

#include "core/ops.h"
#include "ir/plan.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;

double flops_of(const Tensor& t) {
  const std::vector<NodeRef> roots{t.node()};
  double sum = 0;
  for (const PlanStep& step : make_plan(roots, named_target("x86-64-v3")).steps) {
    if (step.kernel) sum += count_flops(*step.kernel);
  }
  return sum;
}

TEST_SUITE("ir") {
  TEST_CASE("operations are those of the mathematics: no addresses, nothing twice") {
    const Tensor a = array({8, 16}), b = array({16, 32});
    CHECK(flops_of(matmul(a, b)) == 2 * 8 * 16 * 32);
    CHECK(flops_of(matmul(a * 0.5, b)) == 2 * 8 * 16 * 32 + 8 * 16);
    CHECK(flops_of(transpose(a, 0, 1) + 1.0) == 8 * 16);
    CHECK(flops_of(sum(exp(a), {1})) == 2 * 8 * 16);
  }

  TEST_CASE("of a table are counted the rows that are looked up, and of other inputs all") {
    const auto read = [](const Tensor& t) {
      const NodeRef root = t.node();
      const Plan plan = make_plan({&root, 1}, named_target("x86-64-v3"));
      double bytes = 0, inputs = 0;
      for (const PlanStep& step : plan.steps) bytes += count_bytes(*step.kernel);
      for (size_t s = 0; s < plan.slots.size(); s++) {
        if (plan.slots[s].role == PlanSlot::Role::Input)
          inputs += bytes_read(plan, static_cast<int>(s));
      }
      CHECK(bytes == inputs + static_cast<double>(t.nbytes()));
      return inputs;
    };
    const Tensor table = array({500, 12}), few = array({8}, DType::I64),
                 many = array({700}, DType::I64);
    CHECK(read(index_select(table, 0, few)) == 8 * 12 * 4 + 8 * 8);
    CHECK(read(index_select(table, 0, many)) == 500 * 12 * 4 + 700 * 8);
    CHECK(read(index_select(table, 0, few) + narrow(table, 0, 0, 8)) == 500 * 12 * 4 + 8 * 8);
    CHECK(read(array({30, 40}) + array({40})) == 30 * 40 * 4 + 40 * 4);
  }

  TEST_CASE("operations behind a mask that ends loops are not counted") {
    const auto attention = [](bool causal) {
      const Tensor q = array({2, 64, 16}), k = array({2, 64, 16}), v = array({2, 64, 16});
      return flops_of(scaled_dot_product_attention(q, k, v, {}, 0.0, causal));
    };
    const double all = attention(false), masked = attention(true);
    // Comparing and choosing are two more operations a score, of some 70.
    CHECK(masked > 0.5 * all);
    CHECK(masked < 0.55 * all);
    // Every row of keys is scaled, for some query needs it.
    const auto scaled = [](double by) {
      const Tensor q = array({2, 64, 16}), k = array({2, 64, 16}), v = array({2, 64, 16});
      const Tensor scaled = by == 1 ? k : k * by;
      return flops_of(scaled_dot_product_attention(q, scaled, v, {}, 0.0, true));
    };
    CHECK(scaled(0.3) - scaled(1) == 2 * 64 * 16);
  }
}

}  // namespace
}  // namespace lazuli
