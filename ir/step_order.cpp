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
    take_late();
    take_soon();
    change_after_reads();
    return std::move(places_);
  }

 private:
  using Role = PlanSlot::Role;

  static bool writes(const PlanStep& s, size_t argument) {
    return s.kernel ? s.kernel->arguments[argument].output : argument + 1 == s.arguments.size();
  }
  // Calls f(slot) for what a step reads, or for what it writes.
  template <typename F>
  static void each(const PlanStep& s, bool written, F f) {
    for (size_t a = 0; a < s.arguments.size(); a++) {
      if (writes(s, a) == written) f(static_cast<size_t>(s.arguments[a]));
    }
  }
  // Calls f(slot), once each, for what `step` alone reads from there on.
  template <typename F>
  static void each_last_read(const PlanStep& s, int step, const std::vector<int>& last, F f) {
    std::vector<size_t> twice;  // a library step may read an array twice
    each(s, false, [&](size_t slot) {
      if (last[slot] != step) return;
      if (!s.kernel) {
        if (std::find(twice.begin(), twice.end(), slot) != twice.end()) return;
        twice.push_back(slot);
      }
      f(slot);
    });
  }
  bool is(size_t slot, Role role) const { return plan_.slots[slot].role == role; }
  bool is_donor(size_t slot) const { return donors_.count(plan_.slots[slot].node) > 0; }
  double bytes(size_t slot) const {
    const PlanSlot& s = plan_.slots[slot];
    return static_cast<double>(numel(s.shape)) * size_of(s.dtype);
  }

  void put_in_order(const std::vector<size_t>& order) {
    std::vector<PlanStep> steps;
    std::vector<int> place(order.size());
    for (size_t i = 0; i < order.size(); i++) {
      place[order[i]] = static_cast<int>(i);
      steps.push_back(std::move(plan_.steps[order[i]]));
    }
    plan_.steps = std::move(steps);
    for (int& k : places_) k = place[static_cast<size_t>(k)];
  }

  // Which step writes each slot; -1: none.
  std::vector<int> find_writers() const {
    std::vector<int> writer(plan_.slots.size(), -1);
    for (size_t k = 0; k < plan_.steps.size(); k++) {
      each(plan_.steps[k], true, [&](size_t slot) { writer[slot] = static_cast<int>(k); });
    }
    return writer;
  }

  // What follows from inputs in a few steps, such as transformed weights, is computed just before
  // it is read, so that it takes no memory before. What takes next to none, such as a learning
  // rate, comes first, so that no step has to wait for it.
  void take_late() {
    constexpr int kMostSteps = 4;  // deep graphs keep their order, and the recursion is bounded
    constexpr double kLittle = 64, kLittleInAll = 4096;  // bytes
    const size_t n = plan_.steps.size();
    const std::vector<int> writer = find_writers();
    std::vector<int> depth(n);  // 0: the step does not wait
    std::vector<double> taken(n);
    for (size_t k = 0; k < n; k++) {
      const PlanStep& s = plan_.steps[k];
      int longest = 0;
      each(s, true, [&](size_t slot) {
        if (!is(slot, Role::Temporary)) longest = kMostSteps;
        taken[k] += bytes(slot);
      });
      each(s, false, [&](size_t slot) {
        if (is(slot, Role::Input)) return;
        const int w = writer[slot];
        const int before = w < 0 ? 0 : depth[static_cast<size_t>(w)];
        longest = std::max(longest, before > 0 ? before : kMostSteps);
      });
      depth[k] = longest < kMostSteps ? longest + 1 : 0;
    }
    std::vector<size_t> order;
    std::vector<bool> placed(n);
    const std::function<void(size_t)> place = [&](size_t k) {
      if (placed[k]) return;
      each(plan_.steps[k], false, [&](size_t slot) {
        const int w = writer[slot];
        if (w >= 0 && depth[static_cast<size_t>(w)] > 0) place(static_cast<size_t>(w));
      });
      placed[k] = true;
      order.push_back(k);
    };
    double little = kLittleInAll;
    for (size_t k = 0; k < n; k++) {
      bool alone = plan_.steps[k].kernel && depth[k] > 0 && taken[k] <= std::min(little, kLittle);
      each(plan_.steps[k], false, [&](size_t slot) {
        const int w = writer[slot];
        alone = alone && (w < 0 || placed[static_cast<size_t>(w)]);
      });
      if (!alone) continue;
      little -= taken[k];
      place(k);
    }
    for (size_t k = 0; k < n; k++) {
      if (depth[k] == 0) place(k);
    }
    for (size_t k = 0; k < n; k++) place(k);  // what nothing reads
    put_in_order(order);
  }

  // What reads arrays for the last time, as a weight's gradient does, and lets go of more memory
  // than it takes, runs as soon as all that it reads is there: that is in the caches then, and its
  // memory is free again. At no step is more alive than there was at some step before.
  void take_soon() {
    const size_t n = plan_.steps.size();
    const std::vector<int> writer = find_writers();
    std::vector<int> last(plan_.slots.size(), -1);  // that reads a slot, or writes it
    for (size_t k = 0; k < n; k++) {
      for (const int slot : plan_.steps[k].arguments)
        last[static_cast<size_t>(slot)] = static_cast<int>(k);
    }
    std::vector<double> taken(n), live(n);  // by the step; while it runs
    double most = 0, now = 0;
    for (size_t k = 0; k < n; k++) {
      double results = 0;
      const PlanStep& s = plan_.steps[k];
      each(s, true,
           [&](size_t slot) { (is(slot, Role::Temporary) ? taken[k] : results) += bytes(slot); });
      // Results are written over donors that the step reads last.
      each_last_read(s, static_cast<int>(k), last, [&](size_t slot) {
        if (is_donor(slot)) results -= bytes(slot);
      });
      taken[k] += std::max(results, 0.0);
      live[k] = now += taken[k];
      most = std::max(most, now);
      each_last_read(s, static_cast<int>(k), last, [&](size_t slot) {
        if (is(slot, Role::Temporary)) now -= bytes(slot);
      });
      each(s, true, [&](size_t slot) {
        if (is(slot, Role::Temporary) && last[slot] == static_cast<int>(k))
          now -= bytes(slot);  // unread
      });
    }
    // Behind which step each is to run; of one that stays, itself.
    std::vector<int> behind(n);
    std::iota(behind.begin(), behind.end(), 0);
    std::vector<int> latest(plan_.slots.size(), -1);  // that reads a slot, of those seen so far
    for (size_t k = 0; k < n; k++) {
      const PlanStep& s = plan_.steps[k];
      const int step = static_cast<int>(k);
      int first = -1, all_free = -1;  // when what it needs is there, and nobody else reads it
      each(s, false, [&](size_t slot) {
        const int w = writer[slot];
        if (w >= 0) first = std::max(first, behind[static_cast<size_t>(w)]);
        // A donor's memory can be taken by its last reader alone.
        if (last[slot] == step && is_donor(slot)) first = std::max(first, latest[slot]);
      });
      each_last_read(s, step, last, [&](size_t slot) {
        if (is(slot, Role::Temporary)) all_free = std::max(all_free, latest[slot]);
      });
      for (const int at : {first, std::max(first, all_free)}) {
        if (at < 0 || at + 1 >= step) break;
        double freed = 0;
        each_last_read(s, step, last, [&](size_t slot) {
          if (is(slot, Role::Temporary) && latest[slot] <= at) freed += bytes(slot);
        });
        double& there = live[static_cast<size_t>(at)];
        if (freed <= taken[k] || there + taken[k] > most) continue;
        there += taken[k];
        behind[k] = at;
        break;
      }
      each(s, false, [&](size_t slot) { latest[slot] = std::max(latest[slot], behind[k]); });
    }
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return behind[a] < behind[b]; });
    put_in_order(order);
  }

  // The array that a step changes a part of, if that can be done where it lies; -1: none. Otherwise
  // all of it is copied.
  int changed_array(const PlanStep& s) const {
    if (s.kernel || (s.node->op != Op::Update && s.node->op != Op::Scatter)) return -1;
    const int base = s.arguments[0];
    const auto slot = static_cast<size_t>(base);
    const bool is_free = is(slot, Role::Temporary) || is_donor(slot);
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
    const auto note_places = [&](size_t from, size_t to) {
      for (size_t i = from; i < to; i++) {
        at[order[i]] = i;
        each(plan_.steps[order[i]], false, [&](size_t slot) {
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
        each(plan_.steps[s], false, [&](size_t slot) {
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
    put_in_order(order);
  }

  Plan& plan_;
  const NodeSet& donors_;
  std::vector<int> places_;  // of each step, as it stood
};

}  // namespace

std::vector<int> order_steps(Plan& plan, const NodeSet& donors) {
  return StepOrder(plan, donors).run();
}

}  // namespace lazuli
