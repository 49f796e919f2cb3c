// Steps of a plan in the order in which they are run.
#include "ir/step_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/graph.h"
#include "core/tensor.h"
#include "ir/memory_plan.h"

namespace lazuli {
namespace {

// A plan written as "h = x w; g = h": what each step writes and reads. A slot is an input unless a
// step writes it; names with ' are outputs.
class WrittenPlan {
 public:
  // Sizes are numbers of f32, 1000 if not given.
  WrittenPlan(const std::string& text, const std::string& donors,
              std::map<std::string, int64_t> sizes = {})
      : sizes_(std::move(sizes)) {
    std::string word;
    PlanStep step;
    bool writes = true;
    const auto end_step = [&] {
      plan_.steps.push_back(std::move(step));
      step = {};
      writes = true;
    };
    for (const char c : text + ";") {
      if (c != ' ' && c != ';' && c != '=') {
        word += c;
        continue;
      }
      if (!word.empty()) {
        if (!step.kernel) step.kernel = std::make_shared<Kernel>();
        step.kernel->arguments.emplace_back().output = writes;
        step.arguments.push_back(slot(word, writes));
        word.clear();
      }
      if (c == '=') writes = false;
      if (c == ';') end_step();
    }
    for (const char c : donors + " ") {
      if (c != ' ') {
        word += c;
      } else if (!word.empty()) {
        donors_.insert(plan_.slots[static_cast<size_t>(names_.at(word))].node);
        word.clear();
      }
    }
    count_ = plan_.steps.size();
  }

  // Each step by what it writes first.
  std::string ordered() {
    std::vector<std::string> before;
    for (const PlanStep& s : plan_.steps) before.push_back(written(s));
    const std::vector<int> places = order_steps(plan_, donors_);
    CHECK(plan_.steps.size() == count_);
    std::string text;
    for (const PlanStep& s : plan_.steps) text += (text.empty() ? "" : " ") + written(s);
    for (size_t k = 0; k < count_; k++) {
      CHECK(written(plan_.steps[static_cast<size_t>(places[k])]) == before[k]);
    }
    return text;
  }

  int64_t arena() const {
    return plan_memory(plan_, std::vector<std::vector<InPlace>>(count_)).arena;
  }

 private:
  int slot(const std::string& name, bool written) {
    const auto [it, is_new] = names_.emplace(name, static_cast<int>(plan_.slots.size()));
    if (is_new) {
      const auto size = sizes_.find(name);
      const Shape shape = {size == sizes_.end() ? 1000 : size->second};
      const auto role = !written              ? PlanSlot::Role::Input
                        : name.back() == '\'' ? PlanSlot::Role::Output
                                              : PlanSlot::Role::Temporary;
      plan_.slots.push_back({role, DType::F32, shape, zeros(shape).realize().node()});
      if (role == PlanSlot::Role::Output) plan_.outputs.push_back(it->second);
    }
    return it->second;
  }

  std::string written(const PlanStep& s) const {
    for (const auto& [name, slot] : names_) {
      if (slot == s.arguments[0]) return name;
    }
    return "?";
  }

  std::map<std::string, int64_t> sizes_;
  std::map<std::string, int> names_;
  Plan plan_;
  NodeSet donors_;
  size_t count_ = 0;
};

// What is no more than a few steps from the inputs waits for its reader; x is not.
constexpr const char* kStart = "d1 = i; d2 = d1; d3 = d2; d4 = d3; x = d4; ";
std::string started(const char* rest) {
  return std::string("d1 d2 d3 d4 x ") + rest;
}
// Three layers forward and backward; all weights are changed at the end.
const std::string kTraining =
    std::string(kStart) +
    "h0 = x w0; h1 = h0 w1; h2 = h1 w2; g2 = h2 y; g1 = g2 w2; g0 = g1 w1;"
    "w0' = g0 x w0; w1' = g1 h0 w1; w2' = g2 h1 w2";

}  // namespace

TEST_SUITE("ir") {
  TEST_CASE("a weight is changed as soon as nothing else reads it") {
    WrittenPlan p(kTraining, "w0 w1 w2");
    const int64_t before = p.arena();
    CHECK(p.ordered() == started("h0 h1 h2 g2 g1 w2' g0 w1' w0'"));
    CHECK(p.arena() <= before);
  }

  TEST_CASE("a result that takes less than it lets go of comes soon, a larger one stays") {
    const std::string last = started("h0 h1 h2 g2 g1 g0 w0' w1' w2'");
    CHECK(WrittenPlan(kTraining, "").ordered() == started("h0 h1 h2 g2 w2' g1 w1' g0 w0'"));
    CHECK(WrittenPlan(kTraining, "", {{"w1'", 2000}, {"w2'", 5000}}).ordered() == last);
    // Over a donor it takes nothing.
    CHECK(WrittenPlan(kTraining, "w2", {{"w2", 5000}, {"w2'", 5000}, {"w1'", 2000}}).ordered() ==
          started("h0 h1 h2 g2 g1 w2' g0 w0' w1'"));
  }

  TEST_CASE("what waits for a reader comes before the first, wherever that goes") {
    const std::string backward = "h0 = x w0; h1 = h0 w1; g1 = h1 y; g0 = g1; ";
    WrittenPlan p(kStart + backward + "r = rate; w0' = g0 x w0 r; w1' = g1 h0 w1 r", "w0 w1");
    CHECK(p.ordered() == started("h0 h1 g1 r w1' g0 w0'"));
    // Nor is it let go of: it would not be there without the step.
    WrittenPlan q(kStart + backward + "w0' = g0 x w0; t = w1; a' = t g1", "w0 w1");
    CHECK(q.ordered() == started("h0 h1 g1 g0 w0' t a'"));
    // A step that reads only what waits stays behind the one for which that is there.
    WrittenPlan s(
        "t = w0; h0 = i t; h1 = h0; h2 = h1; h3 = h2; h4 = h3 t; h5 = h4 ; o' = h2 h5; "
        "e' = h1",
        "", {{"e'", 1}});
    CHECK(s.ordered() == "t h0 h1 h2 h3 e' h4 h5 o'");
  }

  TEST_CASE("a step that would need more memory than any other stays") {
    // When s could come, b and what it is made of are there: the most there is. Later there is
    // room.
    const std::string text =
        std::string(kStart) + "a = x; b = a x; c = a b; d = c; s = a; o' = s d";
    CHECK(WrittenPlan(text, "", {{"a", 5000}, {"b", 9000}, {"s", 4000}}).ordered() ==
          started("a s b c d o'"));
    CHECK(WrittenPlan(text, "", {{"x", 9000}, {"a", 5000}, {"s", 4000}}).ordered() ==
          started("a b c d s o'"));
  }

  TEST_CASE("chains of steps that let go of memory move together") {
    WrittenPlan p(
        std::string(kStart) + "a = x y; b = a z; c = b z; d = c z; e' = d; n = a; m = n; o' = m x",
        "", {{"n", 10}, {"m", 5}, {"o'", 1}});
    CHECK(p.ordered() == started("a n m o' b c d e'"));
  }
}

}  // namespace lazuli
