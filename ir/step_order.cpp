#include "ir/step_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace lazuli {
namespace {

class StepOrder {
 public:
  StepOrder(Plan& plan, const NodeSet& donors)
      : plan_(plan), donors_(donors), places_(plan.steps.size()) {
    std::iota(places_.begin(), places_.end(), 0);
  }

  std::vector<int> run() {
    find_writers();
    take_soon_and_late();
    change_after_reads();
    return std::move(places_);
  }

 private:
  using Role = PlanSlot::Role;

  static bool writes(const PlanStep& s, size_t argument) {
    return s.kernel ? s.kernel->arguments[argument].output : argument + 1 == s.arguments.size();
  }
  const PlanSlot& slot(int i) const { return plan_.slots[static_cast<size_t>(i)]; }
  double bytes(int i) const {
    return static_cast<double>(numel(slot(i).shape)) * size_of(slot(i).dtype);
  }

  void find_writers() {
    constexpr int kMostSteps = 4;  // deep graphs keep their order, and the recursion is bounded
    const size_t n = plan_.steps.size();
    writer_.assign(plan_.slots.size(), -1);
    depth_.assign(n, 0);
    for (size_t k = 0; k < n; k++) {
      const PlanStep& s = plan_.steps[k];
      int longest = 0;
      for (size_t a = 0; a < s.arguments.size(); a++) {
        const auto at = static_cast<size_t>(s.arguments[a]);
        const Role role = plan_.slots[at].role;
        bool waits = role == Role::Input;
        if (writes(s, a)) {
          writer_[at] = static_cast<int>(k);
          waits = role == Role::Temporary;
        } else if (!waits && writer_[at] >= 0) {
          const int before = depth_[static_cast<size_t>(writer_[at])];
          longest = std::max(longest, before);
          waits = before > 0;
        }
        if (!waits) longest = kMostSteps;
      }
      depth_[k] = longest < kMostSteps ? longest + 1 : 0;
    }
  }

  // The steps that read a slot: the last, and the last but that; -1: none.
  struct Readers {
    int last = -1, before = -1;
  };

  std::vector<Readers> find_readers() const {
    std::vector<Readers> readers(plan_.slots.size());
    for (size_t k = 0; k < plan_.steps.size(); k++) {
      const PlanStep& s = plan_.steps[k];
      for (size_t a = 0; a < s.arguments.size(); a++) {
        Readers& r = readers[static_cast<size_t>(s.arguments[a])];
        const int step = static_cast<int>(k);
        if (!writes(s, a) && r.last != step) r = {step, r.last};
      }
    }
    return readers;
  }

  // Of each step that waits for a reader, the first that does not wait and needs it; -1: none.
  std::vector<int> first_needs() const {
    std::vector<int> needs(plan_.steps.size(), -1);
    const std::function<void(const PlanStep&, int)> visit = [&](const PlanStep& s, int step) {
      for (const int i : s.arguments) {
        const int w = writer_[static_cast<size_t>(i)];
        if (w < 0 || depth_[static_cast<size_t>(w)] == 0 || needs[static_cast<size_t>(w)] >= 0)
          continue;
        needs[static_cast<size_t>(w)] = step;
        visit(plan_.steps[static_cast<size_t>(w)], step);
      }
    };
    for (size_t k = 0; k < plan_.steps.size(); k++) {
      if (depth_[k] == 0) visit(plan_.steps[k], static_cast<int>(k));
    }
    return needs;
  }

  struct Memory {
    double taken = 0, freed = 0;  // bytes, of temporaries and results
  };

  // Results are written over donors that the step reads last. What waited for this step is not
  // there before.
  Memory memory_of(int step, const std::vector<Readers>& readers,
                   const std::vector<int>& needs) const {
    Memory m;
    double results = 0, donors = 0;
    const PlanStep& s = plan_.steps[static_cast<size_t>(step)];
    for (size_t a = 0; a < s.arguments.size(); a++) {
      const int i = s.arguments[a];
      const auto here = s.arguments.begin() + static_cast<ptrdiff_t>(a);
      // A library step may read an array twice.
      if (!s.kernel && std::find(s.arguments.begin(), here, i) != here) continue;
      const bool temporary = slot(i).role == Role::Temporary;
      if (writes(s, a)) {
        (temporary ? m.taken : results) += bytes(i);
      } else if (readers[static_cast<size_t>(i)].last == step) {
        const int w = writer_[static_cast<size_t>(i)];
        if (temporary && needs[static_cast<size_t>(w)] != step) m.freed += bytes(i);
        if (donors_.count(slot(i).node)) donors += bytes(i);
      }
    }
    m.taken += std::max(results - donors, 0.0);
    return m;
  }

  // Behind which step each is to run; of one that stays, itself. What reads arrays for the last
  // time, as a weight's gradient does, and lets go of more memory than it takes, runs as soon as
  // all that it reads is there: that is in the caches then, and its memory is free again.
  std::vector<int> soonest() const {
    const size_t n = plan_.steps.size();
    const std::vector<Readers> readers = find_readers();
    const std::vector<int> needs = first_needs();
    std::vector<Memory> memory;
    std::vector<double> live(n);  // bytes while each step runs, as they stand
    double most = 0, now = 0;
    for (size_t k = 0; k < n; k++) {
      memory.push_back(memory_of(static_cast<int>(k), readers, needs));
      live[k] = now += memory[k].taken;
      most = std::max(most, now);
      now -= memory[k].freed;
    }
    std::vector<int> behind(n);
    std::iota(behind.begin(), behind.end(), 0);
    for (size_t k = 0; k < n; k++) {
      const auto [taken, freed] = memory[k];
      if (depth_[k] > 0 || freed <= taken) continue;
      const int step = static_cast<int>(k);
      const PlanStep& s = plan_.steps[k];
      int first = -1, first_of_all = -1;
      double pulled = 0;  // what waits, and would be there sooner
      const auto wait = [&](int& at, int other) {
        if (other >= 0) at = std::max(at, behind[static_cast<size_t>(other)]);
      };
      for (size_t a = 0; a < s.arguments.size(); a++) {
        const auto at = static_cast<size_t>(s.arguments[a]);
        if (writes(s, a)) continue;
        const int w = writer_[at];
        if (w >= 0 && depth_[static_cast<size_t>(w)] > 0) {
          const int needing = needs[static_cast<size_t>(w)];
          if (needing == step) continue;
          wait(first_of_all, needing);
          pulled += bytes(s.arguments[a]);
        } else {
          wait(first, w);
        }
        // A donor's memory can be taken by its last reader alone.
        const Readers& r = readers[at];
        if (r.last == step && donors_.count(plan_.slots[at].node)) wait(first, r.before);
      }
      if (first < 0 || freed <= taken + pulled) first = std::max(first, first_of_all);
      if (first < 0 || first + 1 == step || live[static_cast<size_t>(first)] + taken > most)
        continue;
      behind[k] = first;
      live[static_cast<size_t>(first)] += taken;
    }
    return behind;
  }

  // What follows from inputs in a few steps, such as transformed weights, is computed just before
  // it is read, so that it takes no memory before.
  void take_soon_and_late() {
    const size_t n = plan_.steps.size();
    const std::vector<int> behind = soonest();
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return behind[a] < behind[b]; });
    std::vector<int> place(n, -1);
    std::vector<PlanStep> steps;
    const std::function<void(size_t)> run = [&](size_t k) {
      if (place[k] >= 0) return;
      for (int slot : plan_.steps[k].arguments) {
        const int w = writer_[static_cast<size_t>(slot)];
        if (w >= 0 && w != static_cast<int>(k) && depth_[static_cast<size_t>(w)] > 0) {
          run(static_cast<size_t>(w));
        }
      }
      place[k] = static_cast<int>(steps.size());
      steps.push_back(std::move(plan_.steps[k]));
    };
    for (const size_t k : order) {
      if (depth_[k] == 0) run(k);
    }
    for (size_t k = 0; k < n; k++) run(k);  // what nothing reads
    plan_.steps = std::move(steps);
    for (int& k : places_) k = place[static_cast<size_t>(k)];
  }

  // The array that a step changes a part of, if that can be done where it lies; -1: none. Otherwise
  // all of it is copied.
  int changed_array(const PlanStep& s) const {
    if (s.kernel || (s.node->op != Op::Update && s.node->op != Op::Scatter)) return -1;
    const int base = s.arguments[0];
    const PlanSlot& slot = plan_.slots[static_cast<size_t>(base)];
    const bool is_free = slot.role == Role::Temporary || donors_.count(slot.node) > 0;
    return is_free && std::count(s.arguments.begin(), s.arguments.end(), base) == 1 ? base : -1;
  }

  // A step that changes a part of an array comes after those that read the array as it was, where
  // these do not wait for that step: then it can be done where the array lies. What is done so is
  // decided by lifetimes (ir/memory_plan.cpp): a step that still comes before a reader copies.
  void change_after_reads() {
    const auto changes = [&](const PlanStep& s) { return changed_array(s) >= 0; };
    if (std::none_of(plan_.steps.begin(), plan_.steps.end(), changes)) return;
    const size_t n = plan_.steps.size();
    int64_t left = 64 * static_cast<int64_t>(n) + 4096;  // steps to look at
    std::vector<size_t> order(n), at(n);                 // steps, and where each is
    std::iota(order.begin(), order.end(), 0);
    at = order;
    std::vector<size_t> last_read(plan_.slots.size());
    // The step that changes a slot, and is to come after all its readers.
    std::vector<int> changed_by(plan_.slots.size(), -1);
    const auto each_read = [&](size_t step, auto f) {
      const PlanStep& s = plan_.steps[step];
      for (size_t a = 0; a < s.arguments.size(); a++) {
        if (!writes(s, a)) f(static_cast<size_t>(s.arguments[a]));
      }
    };
    const auto note_places = [&](size_t from, size_t to) {
      for (size_t i = from; i < to; i++) {
        at[order[i]] = i;
        each_read(order[i], [&](size_t slot) {
          if (last_read[slot] < to) last_read[slot] = i;
        });
      }
    };
    note_places(0, n);
    // For the sake of which step a slot is written late, and a step comes late.
    std::vector<size_t> written_late(last_read.size(), n), late(n, n);
    for (size_t step = 0; step < n; step++) {
      const int base = changed_array(plan_.steps[step]);
      if (base < 0 || changed_by[static_cast<size_t>(base)] >= 0) continue;
      const size_t from = at[step], to = last_read[static_cast<size_t>(base)] + 1;
      if ((left -= static_cast<int64_t>(to - from)) < 0) break;
      // Behind the last reader: this step, what waits for it, and what must stay behind those.
      std::vector<size_t> before, after;
      late[step] = step;
      bool fits = true;
      for (size_t i = from; i < to && fits; i++) {
        const size_t s = order[i];
        bool reads_base = false;
        each_read(s, [&](size_t slot) {
          if (written_late[slot] == step) late[s] = step;
          reads_base = reads_base || slot == static_cast<size_t>(base);
        });
        (late[s] == step ? after : before).push_back(s);
        if (late[s] != step) continue;
        fits = s == step || !reads_base;
        for (size_t a = 0; a < plan_.steps[s].arguments.size(); a++) {
          const auto slot = static_cast<size_t>(plan_.steps[s].arguments[a]);
          if (writes(plan_.steps[s], a)) {
            written_late[slot] = step;
          } else if (changed_by[slot] >= 0) {
            late[static_cast<size_t>(changed_by[slot])] = step;
          }
        }
      }
      if (!fits) continue;
      changed_by[static_cast<size_t>(base)] = static_cast<int>(step);
      std::copy(before.begin(), before.end(), order.begin() + static_cast<ptrdiff_t>(from));
      std::copy(after.begin(), after.end(),
                order.begin() + static_cast<ptrdiff_t>(to - after.size()));
      note_places(from, to);
    }
    std::vector<PlanStep> steps;
    for (size_t s : order) steps.push_back(std::move(plan_.steps[s]));
    plan_.steps = std::move(steps);
    for (int& k : places_) k = static_cast<int>(at[static_cast<size_t>(k)]);
  }

  Plan& plan_;
  const NodeSet& donors_;
  std::vector<int> places_;  // of each step, as it stood
  std::vector<int> writer_;  // of each slot; -1: none
  // How many steps lie between the inputs and what this one computes, counted with it, of those
  // that can wait for a reader; 0: it does not wait.
  std::vector<int> depth_;
};

}  // namespace

std::vector<int> order_steps(Plan& plan, const NodeSet& donors) {
  return StepOrder(plan, donors).run();
}

}  // namespace lazuli
