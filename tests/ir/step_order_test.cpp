// Steps of a plan in the order in which they are run.
#include "ir/step_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/graph.h"
#include "core/ops.h"
#include "core/tensor.h"

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
    for (const int output : plan_.outputs) {
      const std::string name = name_of(output);
      const auto donor = names_.find(name.substr(0, name.size() - 1));
      const bool given = donor != names_.end() && is_donor(donor->second);
      plan_.donors.push_back(given ? donor->second : -1);
    }
  }

  // Each step by what it writes first.
  std::string ordered() {
    std::vector<std::string> before;
    for (const PlanStep& s : plan_.steps) before.push_back(written(s));
    const std::vector<int> places = order_steps(plan_, donors_);
    CHECK(plan_.steps.size() == count_);
    for (size_t k = 0; k < count_; k++) {
      CHECK(written(plan_.steps[static_cast<size_t>(places[k])]) == before[k]);
    }
    return written_order();
  }

  std::string written_order() const {
    std::string text;
    for (const PlanStep& s : plan_.steps) text += (text.empty() ? "" : " ") + written(s);
    return text;
  }

  // Elements of temporaries, and of results that are not over a donor, which takes nobody's
  // memory whom a later step reads.
  int64_t most_alive() const {
    std::map<int, std::pair<int, int>> lives;
    for (size_t k = 0; k < count_; k++) {
      for (const int slot : plan_.steps[k].arguments) {
        const int step = static_cast<int>(k);
        lives.emplace(slot, std::pair(step, step)).first->second.second = step;
      }
    }
    int64_t most = 0;
    for (size_t k = 0; k < count_; k++) {
      int64_t alive = 0;
      for (const auto& [slot, life] : lives) {
        const PlanSlot& s = plan_.slots[static_cast<size_t>(slot)];
        if (s.role == PlanSlot::Role::Input || life.first > static_cast<int>(k)) continue;
        if (s.role == PlanSlot::Role::Temporary && life.second < static_cast<int>(k)) continue;
        alive += takes_donor(slot, lives) ? 0 : s.shape[0];
      }
      most = std::max(most, alive);
    }
    return most;
  }

  // Is all that a step reads written before?
  bool is_runnable() const {
    std::set<int> there;
    for (const PlanStep& s : plan_.steps) {
      for (size_t a = 0; a < s.arguments.size(); a++) {
        const int slot = s.arguments[a];
        const bool input = plan_.slots[static_cast<size_t>(slot)].role == PlanSlot::Role::Input;
        if (s.kernel->arguments[a].output) {
          there.insert(slot);
        } else if (!input && there.count(slot) == 0) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  bool is_donor(int slot) const {
    return donors_.count(plan_.slots[static_cast<size_t>(slot)].node) > 0;
  }

  bool takes_donor(int output, const std::map<int, std::pair<int, int>>& lives) const {
    const auto at = std::find(plan_.outputs.begin(), plan_.outputs.end(), output);
    if (at == plan_.outputs.end()) return false;
    const int donor = plan_.donors[static_cast<size_t>(at - plan_.outputs.begin())];
    return donor >= 0 && lives.at(donor).second <= lives.at(output).first;
  }

  std::string name_of(int slot) const {
    for (const auto& [name, s] : names_) {
      if (s == slot) return name;
    }
    return "?";
  }

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

  std::string written(const PlanStep& s) const { return name_of(s.arguments[0]); }

  std::map<std::string, int64_t> sizes_;
  std::map<std::string, int> names_;
  Plan plan_;
  NodeSet donors_;
  size_t count_ = 0;
};

// What is no more than a few steps from the inputs waits for its reader; x is not.
constexpr const char* kStart = "d1 = i; d2 = d1; d3 = d2; d4 = d3; x = d4; ";
std::string started(const std::string& rest) {
  return "d1 d2 d3 d4 x " + rest;
}
// Three layers forward and backward; all weights are changed at the end.
const std::string kTraining =
    std::string(kStart) +
    "h0 = x w0; h1 = h0 w1; h2 = h1 w2; g2 = h2 y; g1 = g2 w2; g0 = g1 w1;"
    "w0' = g0 x w0; w1' = g1 h0 w1; w2' = g2 h1 w2";

}  // namespace

TEST_SUITE("ir") {
  TEST_CASE("a weight is changed as soon as nothing else reads it") {
    CHECK(WrittenPlan(kTraining, "w0 w1 w2").ordered() == started("h0 h1 h2 g2 g1 w2' g0 w1' w0'"));
  }

  TEST_CASE("a result that takes less than it lets go of comes soon, a larger one stays") {
    CHECK(WrittenPlan(kTraining, "").ordered() == started("h0 h1 h2 g2 g1 w2' g0 w1' w0'"));
    CHECK(WrittenPlan(kTraining, "", {{"w1'", 2000}, {"w2'", 5000}}).ordered() ==
          started("h0 h1 h2 g2 g1 g0 w0' w1' w2'"));
    // Over a donor it takes nothing.
    CHECK(WrittenPlan(kTraining, "w2", {{"w2", 5000}, {"w2'", 5000}, {"w1'", 2000}}).ordered() ==
          started("h0 h1 h2 g2 g1 w2' g0 w0' w1'"));
  }

  TEST_CASE("a donor is read by nobody behind the step that may be written over it") {
    // r moves, but not q and the step that waits, t.
    WrittenPlan p(std::string(kStart) +
                      "a = x; b = a; h = b; c = h; e = c; r = w e; q = a w b; w' = w q; o' = r h",
                  "w", {{"q", 10}, {"r", 100000}, {"a", 5000}, {"h", 9}});
    CHECK(p.ordered() == started("a b q h c e r w' o'"));
    WrittenPlan q(std::string(kStart) +
                      "a = x; b = a; t = w; h = b; c = h; e = c t; w' = a b w; "
                      "o' = e",
                  "w", {{"a", 50000}, {"b", 50000}});
    CHECK(q.ordered() == started("a b h c t w' e o'"));
  }

  TEST_CASE("what follows from inputs comes just before its first reader, or first of all") {
    const std::string backward = "h0 = x w0; h1 = h0 w1; g1 = h1 y; g0 = g1; ";
    const std::string changes = "r = rate; w0' = g0 x w0 r; w1' = g1 h0 w1 r";
    CHECK(WrittenPlan(kStart + backward + changes, "w0 w1").ordered() ==
          started("h0 h1 g1 g0 r w1' w0'"));
    CHECK(WrittenPlan(kStart + backward + changes, "w0 w1", {{"r", 17}}).ordered() ==
          started("h0 h1 g1 g0 r w1' w0'"));
    // Next to no memory is no reason to wait, and nobody has to wait for it.
    CHECK(WrittenPlan(kStart + backward + changes, "w0 w1", {{"r", 16}}).ordered() ==
          "r " + started("h0 h1 g1 w1' g0 w0'"));
    WrittenPlan s(
        "t = w0; h0 = i t; h1 = h0; h2 = h1; h3 = h2; h4 = h3 t; h5 = h4 ; o' = h2 h5; e' = h1", "",
        {{"e'", 1}});
    CHECK(s.ordered() == "t h0 h1 h2 e' h3 h4 h5 o'");
  }

  TEST_CASE("a step that lets go of no memory sooner, or would need more than any other, stays") {
    const std::string text =
        std::string(kStart) + "a = x; b = a x; c = a b; d = c; s = a; o' = s d";
    // Behind c nobody else reads a.
    CHECK(WrittenPlan(text, "", {{"a", 5000}, {"d", 3000}, {"s", 4000}}).ordered() ==
          started("a b c s d o'"));
    CHECK(WrittenPlan(text, "", {{"a", 5000}, {"d", 9000}, {"s", 6000}}).ordered() ==
          started("a b c d s o'"));
    // There is no room for s beside b and c.
    CHECK(WrittenPlan(text, "", {{"a", 5000}, {"b", 9000}, {"c", 9000}, {"s", 4000}}).ordered() ==
          started("a b c d s o'"));
  }

  TEST_CASE("chains of steps that let go of memory move together") {
    WrittenPlan p(
        std::string(kStart) + "a = x y; b = a z; c = b z; d = c z; e' = d; n = a; m = n; o' = m x",
        "", {{"n", 10}, {"m", 5}, {"o'", 1}});
    CHECK(p.ordered() == started("a b n m o' c d e'"));
  }

  // What is alive at most, results with it, in orders of random plans.
  TEST_CASE("random plans take no more memory than as they were written") {
    std::mt19937 random(11);
    const auto any = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    size_t moved = 0;
    for (int round = 0; round < 300; round++) {
      std::string text = kStart, donors;
      std::vector<std::string> arrays = {"x"};
      std::map<std::string, int64_t> sizes;
      const int steps = 4 + any(12);
      for (int k = 0; k < steps; k++) {
        const bool result = any(4) == 0, changes = result && any(2) == 0;
        const std::string name = (changes ? "w" : "v") + std::to_string(k) + (result ? "'" : "");
        std::set<std::string> reads;
        for (int r = 1 + any(3); r > 0; r--) reads.insert(arrays[random() % arrays.size()]);
        text += name + " =";
        for (const std::string& r : reads) text += " " + r;
        if (any(3) == 0) text += " in" + std::to_string(any(3));
        const int64_t size = 16 + any(4) * any(2000);
        sizes[name] = size;
        if (changes) {
          const std::string donor = "w" + std::to_string(k);
          text += " " + donor;
          donors += donor + " ";
          sizes[donor] = size;
        }
        if (!result) arrays.push_back(name);
        text += k + 1 < steps ? "; " : "";
      }
      INFO(text);
      WrittenPlan p(text, donors, sizes);
      const std::string before = p.written_order();
      const int64_t most = p.most_alive();
      moved += p.ordered() != before;
      CHECK(p.is_runnable());
      CHECK(p.most_alive() <= most);
    }
    CHECK(moved > 50);
  }
}

}  // namespace lazuli
