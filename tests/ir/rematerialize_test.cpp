// Which steps of a plan are run again: against the least memory that any order of steps needs, over
// small graphs; that every step finds what it reads; and how long it takes to find.
#include "ir/rematerialize.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <random>
#include <vector>

namespace lazuli {
namespace {

// Steps over temporaries of so many blocks of 64 bytes; the last one writes the result, a block.
struct PlannedGraph {
  std::vector<int64_t> blocks;
  std::vector<std::vector<int>> reads;  // of each step, earlier ones

  Plan plan() const {
    Plan p;
    const auto n = static_cast<int>(reads.size());
    for (int k = 0; k < n; k++) {
      const auto i = static_cast<size_t>(k);
      PlanSlot slot;
      slot.role = k + 1 == n ? PlanSlot::Role::Output : PlanSlot::Role::Temporary;
      slot.shape = {16 * blocks[i]};
      p.slots.push_back(slot);
      PlanStep step;
      step.arguments = reads[i];
      step.arguments.push_back(k);
      p.steps.push_back(step);
    }
    p.outputs = {n - 1};
    return p;
  }

  // The least arena with which the last step can be run, in any order and as often as one likes.
  int64_t least() const {
    const size_t n = reads.size();
    std::map<uint32_t, int64_t> best{{0, 0}};
    using Entry = std::pair<int64_t, uint32_t>;  // the most so far, what is there
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    queue.push({0, 0});
    while (!queue.empty()) {
      const auto [most, there] = queue.top();
      queue.pop();
      if (best.at(there) < most) continue;
      if (there >> (n - 1) & 1) return most;
      const auto reach = [&](uint32_t next, int64_t peak) {
        const auto it = best.find(next);
        if (it != best.end() && it->second <= peak) return;
        best[next] = peak;
        queue.push({peak, next});
      };
      for (size_t k = 0; k < n; k++) {
        if (there >> k & 1) {
          reach(there & ~(1u << k), most);
          continue;
        }
        uint32_t needed = 0;
        for (int r : reads[k]) needed |= 1u << r;
        if ((there & needed) != needed) continue;
        const uint32_t next = there | 1u << k;
        int64_t bytes = 0;
        for (size_t i = 0; i + 1 < n; i++) bytes += next >> i & 1 ? 64 * blocks[i] : 0;
        reach(next, std::max(most, bytes));
      }
    }
    return -1;
  }
};

std::vector<std::vector<InPlace>> no_pairs(const Plan& p) {
  return std::vector<std::vector<InPlace>>(p.steps.size());
}

// Every step reads what was computed from what it read in the given plan, and arrays that are alive
// together do not overlap.
void check_right(const Plan& given, const Rematerialized& r) {
  std::vector<int> value(r.plan.slots.size(), -1);  // the slot of the given plan that it is
  REQUIRE(r.step_of.size() == r.plan.steps.size());
  for (size_t i = 0; i < r.plan.steps.size(); i++) {
    const std::vector<int>& now = r.plan.steps[i].arguments;
    const std::vector<int>& want = given.steps[static_cast<size_t>(r.step_of[i])].arguments;
    REQUIRE(now.size() == want.size());
    for (size_t a = 0; a + 1 < now.size(); a++)
      CHECK(value[static_cast<size_t>(now[a])] == want[a]);
    CHECK(value[static_cast<size_t>(now.back())] == -1);
    value[static_cast<size_t>(now.back())] = want.back();
  }
  for (int out : given.outputs) CHECK(value[static_cast<size_t>(out)] == out);
  for (size_t a = 0; a < r.plan.slots.size(); a++) {
    for (size_t b = 0; b < a; b++) {
      const Lifetime &x = r.memory.lifetimes[a], &y = r.memory.lifetimes[b];
      const MemoryPlan::Place &p = r.memory.places[a], &q = r.memory.places[b];
      if (r.plan.slots[a].role != PlanSlot::Role::Temporary) continue;
      if (r.plan.slots[b].role != PlanSlot::Role::Temporary) continue;
      if (x.last < y.first || y.last < x.first || p.slot != q.slot) continue;
      CHECK((p.offset + x.bytes <= q.offset || q.offset + y.bytes <= p.offset));
    }
  }
}

Rematerialized in_arena(const Plan& plan, int64_t arena) {
  const std::vector<double> costs(plan.steps.size(), 1);
  return rematerialize(plan, no_pairs(plan), costs,
                       [&](const MemoryPlan& m) { return m.arena - arena; });
}

// Forward through `n` layers and backward, as gradients of a chain are.
PlannedGraph planned_chain(int n) {
  PlannedGraph g;
  for (int i = 0; i < n; i++) {
    g.blocks.push_back(16);
    g.reads.push_back(i == 0 ? std::vector<int>{} : std::vector<int>{i - 1});
  }
  for (int i = n; i-- > 0;) {
    g.blocks.push_back(16);
    const int last = static_cast<int>(g.reads.size()) - 1;
    g.reads.push_back(last == i ? std::vector<int>{i} : std::vector<int>{i, last});
  }
  g.blocks.back() = 1;
  return g;
}

TEST_SUITE("ir") {
  TEST_CASE("rematerialize: small graphs take little more than in the best order of steps") {
    std::mt19937 random(3);
    const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    double sum = 0, best_sum = 0;
    int64_t fits = 0;
    for (int i = 0; i < 200; i++) {
      PlannedGraph g;
      const int n = 4 + draw(7);
      for (int k = 0; k < n; k++) {
        g.blocks.push_back(k + 1 == n ? 1 : 4 + draw(12));
        std::vector<int> reads;
        for (int r = 0; r < k; r++) {
          if (draw(k) < 2 || r == k - 1) reads.push_back(r);
        }
        g.reads.push_back(reads);
      }
      const Plan plan = g.plan();
      const Rematerialized r = in_arena(plan, 0);
      check_right(plan, r);
      const int64_t best = g.least();
      CAPTURE(i);
      CHECK(r.memory.arena + 64 >= best);
      sum += static_cast<double>(r.memory.arena);
      best_sum += static_cast<double>(best);
      fits += r.memory.arena <= best;
    }
    CHECK(sum <= 1.02 * best_sum);
    CHECK(fits >= 170);
  }

  TEST_CASE("rematerialize: a chain of n layers fits into a few times the root of n") {
    for (const int n : {16, 64, 256}) {
      const Plan plan = planned_chain(n).plan();
      const double root = std::sqrt(n);
      const auto arena = static_cast<int64_t>(1024 * (2 * root + 4));
      const Rematerialized r = in_arena(plan, arena);
      CAPTURE(n);
      CHECK(r.memory.arena <= arena);
      check_right(plan, r);
      CHECK(r.memory.repeated <= n);
    }
  }

  TEST_CASE("rematerialize: nothing is run again where all fits") {
    const Plan plan = planned_chain(16).plan();
    const int64_t whole = plan_memory(plan, no_pairs(plan)).arena;
    const Rematerialized r = in_arena(plan, whole);
    CHECK(r.memory.repeated == 0);
    CHECK(r.memory.saved == 0);
    CHECK(r.plan.steps.size() == plan.steps.size());
    CHECK(in_arena(plan, whole / 2).memory.repeated > 0);
  }

  TEST_CASE("rematerialize: equal arguments give equal plans") {
    const Plan plan = planned_chain(64).plan();
    CHECK(in_arena(plan, 24 << 10).step_of == in_arena(plan, 24 << 10).step_of);
  }

  TEST_CASE("rematerialize: an operand that the plan writes over is not read after that") {
    // x, then its value plus what follows from it, in its memory.
    Plan plan = planned_chain(8).plan();
    const auto x = static_cast<int>(plan.slots.size());
    PlanSlot in, out;
    in.role = PlanSlot::Role::Input;
    out.role = PlanSlot::Role::Output;
    in.shape = out.shape = {256};
    plan.slots.push_back(in);
    plan.slots.push_back(out);
    plan.steps[0].arguments = {x, 0};
    PlanStep update;
    update.arguments = {x, 3, x + 1};
    plan.steps.insert(plan.steps.begin() + 5, update);
    plan.outputs.push_back(x + 1);
    plan.donors = {-1, x};
    std::vector<std::vector<InPlace>> pairs(plan.steps.size(), {{0, 1}});
    pairs[5] = {{0, 2}};
    for (size_t k = 0; k < pairs.size(); k++) {
      if (k != 5) pairs[k].clear();
    }
    const std::vector<double> costs(plan.steps.size(), 1);
    for (int64_t arena = 8 << 10; arena > 0; arena -= 512) {
      const Rematerialized r = rematerialize(
          plan, pairs, costs, [&](const MemoryPlan& m) { return m.arena + m.outputs - arena; });
      if (r.memory.donors[static_cast<size_t>(x) + 1] < 0) continue;
      int written = -1, read = -1;
      for (size_t i = 0; i < r.step_of.size(); i++) {
        for (int s : r.plan.steps[i].arguments) {
          if (s == x) read = static_cast<int>(i);
          if (s == x + 1 && written < 0) written = static_cast<int>(i);
        }
      }
      CHECK(read <= written);
    }
  }

  TEST_CASE("rematerialize: of a thousand steps few plans are made") {
    const Plan plan = planned_chain(500).plan();
    const std::vector<double> costs(plan.steps.size(), 1);
    int plans = 0;
    const Rematerialized r = rematerialize(plan, no_pairs(plan), costs, [&](const MemoryPlan& m) {
      plans++;
      return m.arena - (250 << 10);
    });
    CHECK(r.memory.arena <= 250 << 10);
    CHECK(plans <= 6);  // 4, and no search by halves
  }
}

}  // namespace
}  // namespace lazuli
