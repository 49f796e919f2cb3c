// Which results may lie over their operands: what the rule finds is run so, and gives the same
// bits.
#include "ir/in_place.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "core/graph.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "tests/ir/chosen.h"
#include "tests/ir/random_graph.h"

namespace lazuli {
namespace {

using test::input_array;

TEST_SUITE_BEGIN("ir");

Program chosen_program(const Kernel& kernel, const Target& target) {
  Kernel k = clone(kernel);
  choose_schedule(k, target);
  return lower(k, target);
}

Program chosen_program(const Tensor& t) {
  const NodeRef root = t.node();
  const Target target = named_target("x86-64-v3");
  const Plan plan = make_plan(std::span<const NodeRef>(&root, 1), target);
  REQUIRE(plan.steps.size() == 1);
  return chosen_program(*plan.steps[0].kernel, target);
}

size_t pairs_of(const Tensor& t) {
  return in_place_arguments(chosen_program(t)).size();
}

TEST_CASE("in place: element by element, and no other way") {
  const Tensor x = input_array({37, 101}), y = input_array({37, 101}), row = input_array({101});
  CHECK(pairs_of(x * 2.0 + 1.0) == 1);
  CHECK(pairs_of(x * y + row) == 2);
  CHECK(pairs_of(exp(x) + row) == 1);
  CHECK(pairs_of(flip(x, {1}) * 2.0) == 0);
  CHECK(pairs_of(x + flip(x, {0})) == 0);
  CHECK(pairs_of(contiguous(transpose(input_array({64, 64}), 0, 1))) == 0);
  CHECK(pairs_of(pad(narrow(x, 1, 1, 100), {0, 1})) == 0);
  CHECK(pairs_of(softmax(x, 1)) == 0);
  CHECK(pairs_of(roll(x, 1, 1)) == 0);
}

// Arrays of the arguments, those that a pair joins being one.
std::vector<std::vector<char>> run_program(const Program& p, const InPlace* pair) {
  std::vector<std::vector<char>> arrays;
  std::vector<void*> pointers;
  uint64_t random = 1;
  for (const MemoryArgument& a : p.arguments) {
    arrays.emplace_back(static_cast<size_t>(a.size * size_of(a.dtype)));
    for (size_t i = 0; i < static_cast<size_t>(a.size) && !a.output; i++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      const uint64_t bits =
          to_bits(a.dtype == DType::Bool ? Scalar(static_cast<int64_t>(random >> 63))
                                         : Scalar(static_cast<int64_t>(random >> 61)),
                  a.dtype);
      std::memcpy(arrays.back().data() + i * static_cast<size_t>(size_of(a.dtype)), &bits,
                  static_cast<size_t>(size_of(a.dtype)));
    }
  }
  for (auto& a : arrays) pointers.push_back(a.data());
  if (pair)
    pointers[static_cast<size_t>(pair->output)] = pointers[static_cast<size_t>(pair->input)];
  interpret_program(p, pointers);
  if (pair) arrays[static_cast<size_t>(pair->output)] = arrays[static_cast<size_t>(pair->input)];
  return arrays;
}

TEST_CASE("in place: kernels of random graphs give the same bits") {
  size_t pairs = 0;
  for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
    const Target target = named_target(name);
    for (uint64_t seed = 1; seed <= 60; seed++) {
      const std::vector<NodeRef> roots = test::random_graph(seed, 30);
      const Plan plan = make_plan(roots, target);
      for (const PlanStep& step : plan.steps) {
        if (!step.kernel) continue;
        const Program program = chosen_program(*step.kernel, target);
        const std::vector<InPlace> found = in_place_arguments(program);
        if (found.empty()) continue;
        const auto apart = run_program(program, nullptr);
        for (const InPlace& p : found) {
          CAPTURE(seed);
          const auto joined = run_program(program, &p);
          for (size_t a = 0; a < apart.size(); a++) {
            if (program.arguments[a].output) CHECK(joined[a] == apart[a]);
          }
          pairs++;
        }
      }
    }
  }
  CHECK(pairs > 50);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
