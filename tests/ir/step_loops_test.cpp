// Which kernels can be cut into slices, which steps are run slice by slice, and what memory they
// take then.
#include "ir/step_loops.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/graph.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/memory_plan.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::input_array;

TEST_SUITE_BEGIN("ir");

constexpr SliceUse kWhole = SliceUse::Whole, kMoves = SliceUse::Moves, kApart = SliceUse::Apart;

Plan plan_of(std::initializer_list<Tensor> roots, const Target& target) {
  std::vector<NodeRef> nodes;
  for (const Tensor& t : roots) nodes.push_back(t.node());
  return make_plan(nodes, target);
}

std::vector<Slices> slices_of_step(const PlanStep& step, const Target& target) {
  if (!step.kernel) return {};
  Kernel k = clone(*step.kernel);
  const Program program = choose_schedule(k, target);
  return slices_of(k, program);
}

// Of the kernel of `t`, along the axis of so many indices.
Slices slices_along(const Tensor& t, int64_t count) {
  const Target target = named_target("x86-64-v3");
  const Plan plan = plan_of({t}, target);
  REQUIRE(plan.steps.size() == 1);
  for (const Slices& s : slices_of_step(plan.steps[0], target)) {
    if (s.count == count) return s;
  }
  return {};
}

struct Loops {
  Plan plan;
  std::vector<StepLoop> found;
  MemoryPlan memory;
};

Loops loops_of(std::initializer_list<Tensor> roots, int64_t cache, int threads = 1) {
  Target target = named_target("x86-64-v3");
  Loops out{plan_of(roots, target), {}, {}};
  std::vector<std::vector<Slices>> slices;
  for (const PlanStep& s : out.plan.steps) slices.push_back(slices_of_step(s, target));
  std::vector<const std::vector<Slices>*> lists;
  for (size_t i = 0; i < slices.size(); i++) {
    lists.push_back(out.plan.steps[i].kernel ? &slices[i] : nullptr);
  }
  target.l3 = cache;
  target.threads = threads;
  out.found = find_step_loops(out.plan, lists, target);
  const std::vector<std::vector<InPlace>> pairs(out.plan.steps.size());
  out.memory = plan_memory(out.plan, pairs, out.found);
  return out;
}

TEST_CASE("slices: an axis that a parallel loop walks index by index") {
  const Slices s = slices_along(flip(input_array({6, 40, 48}), {1}) * 2.0, 6);
  CHECK(s.count == 6);
  CHECK(s.outer == 1);
  CHECK(s.arguments == std::vector{kApart, kApart});
  const GridPart part = part_of(s, 2, 3);
  CHECK(part.begin == 2 * s.inner);
  CHECK(part.steps() == 3 * s.inner);
}

TEST_CASE("slices: an argument is apart if each slice touches its own part alone") {
  const Tensor x = input_array({6, 40, 48}), row = input_array({48});
  CHECK(slices_along(flip(x, {1}) + row, 6).arguments == std::vector{kApart, kWhole, kApart});
  CHECK(slices_along(flip(x, {1}) * 2.0, 6).arguments == std::vector{kApart, kApart});
  CHECK(slices_along(flip(x, {0}) * 2.0, 6).arguments == std::vector{kMoves, kApart});
  // Where there is no row above, or no slice before, some element is read that nobody asks for.
  CHECK(slices_along(flip(pad(x, {0, 0, 1, 0}), {1}) * 2.0, 6).arguments ==
        std::vector{kMoves, kApart});
  CHECK(slices_along(flip(x, {1}) + pad(narrow(x, 0, 1, 5), {0, 0, 0, 0, 0, 1}), 6).arguments ==
        std::vector{kMoves, kApart});
}

// A kernel of its own, whose three axes stay apart.
Tensor stored(const Tensor& x) {
  return contiguous(flip(exp(x), {1}));
}

TEST_CASE("step loops: a chain of kernels that touches more than the cache holds") {
  const Tensor x = input_array({16, 32, 64});  // 128 KiB
  const Tensor a = stored(x), b = contiguous(flip(a, {1}) + 1.0), c = flip(b, {1}) * a;
  const Loops loops = loops_of({c}, 4 * (64 << 10));
  REQUIRE(loops.plan.steps.size() == 3);
  REQUIRE(loops.found.size() == 1);
  const StepLoop& loop = loops.found[0];
  CHECK(loop.first == 0);
  CHECK(loop.last == 2);
  CHECK(loop.count == 16);
  CHECK(loop.at_once == 2);  // of 4 arrays of 8 KiB a slice
  CHECK(loop.kept.size() == 2);
  CHECK(loop.whole_bytes == 256 << 10);
  CHECK(loop.kept_bytes == 32 << 10);
  CHECK(loops.memory.arena == 32 << 10);
  CHECK(told_of(loop) ==
        "kernels 0 to 2 run one after the other for 2 of 16 slices at a time: 32 KiB between them "
        "in place of 256 KiB");
  SUBCASE("no more than it holds") {
    CHECK(loops_of({c}, 4 * (512 << 10)).found.empty());
  }
  SUBCASE("threads have chunks enough in each part") {
    const Loops shared = loops_of({c}, 4 * (64 << 10), 2);
    REQUIRE(shared.found.size() == 1);
    for (const Slices& s : shared.found[0].slices) {
      CHECK(part_of(s, 0, shared.found[0].at_once).steps() >= 8);
    }
  }
}

TEST_CASE("step loops: the steps of a Winograd convolution, image by image") {
  for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
    Target target = named_target(name);
    const Plan plan = plan_of(
        {conv2d(input_array({8, 64, 56, 56}), input_array({64, 64, 3, 3}), {}, 1, 1)}, target);
    CHECK(!plan.exact);
    std::vector<std::vector<Slices>> slices;
    for (const PlanStep& s : plan.steps) slices.push_back(slices_of_step(s, target));
    std::vector<const std::vector<Slices>*> lists;
    for (const std::vector<Slices>& s : slices) lists.push_back(&s);
    target.l3 = 32 << 20;
    const std::vector<StepLoop> found = find_step_loops(plan, lists, target);
    INFO(name);
    REQUIRE(found.size() == 1);
    CHECK(found[0].last - found[0].first == 2);
    CHECK(found[0].count == 8);
    CHECK(found[0].at_once == 1);
  }
}

TEST_CASE("step loops: what ends a chain") {
  const Tensor x = input_array({16, 32, 64});
  const Tensor a = stored(x);
  constexpr int64_t kCache = 4 * (16 << 10);
  CHECK(loops_of({flip(a, {1}) * a}, kCache).found.size() == 1);
  // The next step reads other slices, all of them, or nothing of what was stored.
  CHECK(loops_of({flip(a, {0}) * a}, kCache).found.empty());
  CHECK(loops_of({sum(a, {0}) * 2.0}, kCache).found.empty());
  CHECK(loops_of({a, stored(input_array({16, 64, 32}))}, kCache).found.empty());
  // A result is stored whole; only what lies between steps is kept in parts.
  CHECK(loops_of({a, flip(a, {1}) * a}, kCache).found.empty());
  // Each part would read the large matrix anew.
  const Tensor w = input_array({64, 4096});
  CHECK(loops_of({flip(matmul(a, w), {1})}, kCache).found.empty());
}

TEST_CASE("step loops: what else they touch lives from their first step to their last") {
  const Tensor x = input_array({16, 32, 64}), y = input_array({16, 32, 64});
  // The second step is the last to read s, whose memory the third must not take: s is read again.
  const Tensor s = contiguous(sum(y, {0}) * 2.0);
  const Tensor a = stored(x), b = contiguous(flip(a, {1}) + s), c = contiguous(flip(b, {1}) * a),
               d = sum(c, {0});
  const Loops loops = loops_of({d}, 4 * (32 << 10));
  REQUIRE(loops.found.size() == 1);
  const StepLoop& loop = loops.found[0];
  for (int k = loop.first; k <= loop.last; k++) {
    for (int slot : loops.plan.steps[static_cast<size_t>(k)].arguments) {
      const Lifetime& l = loops.memory.lifetimes[static_cast<size_t>(slot)];
      if (loop.keeps(slot)) {
        CHECK(l.bytes == 8192 * loop.at_once);
      } else {
        CHECK(l.first <= loop.first);
        CHECK(l.last >= loop.last);
      }
    }
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
