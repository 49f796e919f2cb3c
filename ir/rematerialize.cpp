#include "ir/rematerialize.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"

namespace lazuli {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

// A step of a plan that is run, over slots of the plan and of copies.
struct Run {
  int step = 0;
  std::vector<int> arguments;
};

// What does not change between attempts: who reads and writes what.
struct Facts {
  struct Step {
    std::vector<int> reads, writes;  // slots, each once
    bool repeatable = true;
  };
  struct Slot {
    int64_t bytes = 0;      // that it takes while it is there
    int64_t own_bytes = 0;  // of the array
    bool temporary = false;
    int writer = -1;
    std::vector<int> readers;  // steps, ascending
    // Before the steps after this one it can be computed again: they write over what it follows
    // from.
    int until = kNever;
  };

  Facts(const Plan& plan, std::span<const std::vector<InPlace>> in_place, const MemoryPlan& memory);

  std::vector<Step> steps;
  std::vector<Slot> slots;
  int64_t outputs = 0;  // memory that temporaries may use until results are written
};

bool writes(const PlanStep& s, size_t argument) {
  return s.kernel ? s.kernel->arguments[argument].output : argument + 1 == s.arguments.size();
}

Facts::Facts(const Plan& plan, std::span<const std::vector<InPlace>> in_place,
             const MemoryPlan& memory)
    : steps(plan.steps.size()), slots(plan.slots.size()) {
  const bool has_rooms = plan.size_slots.empty();
  for (size_t s = 0; s < slots.size(); s++) {
    const PlanSlot& slot = plan.slots[s];
    slots[s].own_bytes = static_cast<int64_t>(bytes_of(slot.shape, slot.dtype));
    slots[s].temporary = slot.role == PlanSlot::Role::Temporary;
    if (slots[s].temporary) slots[s].bytes = arena_bytes(slots[s].own_bytes);
    if (slot.role != PlanSlot::Role::Output) continue;
    if (const int donor = memory.donors[s]; donor >= 0) {
      slots[static_cast<size_t>(donor)].until = memory.lifetimes[static_cast<size_t>(donor)].last;
    } else if (has_rooms) {
      outputs += slots[s].bytes = slots[s].own_bytes;
    }
  }
  const bool has_donors =
      std::any_of(memory.donors.begin(), memory.donors.end(), [](int donor) { return donor >= 0; });
  for (size_t k = 0; k < steps.size(); k++) {
    const PlanStep& step = plan.steps[k];
    Step& s = steps[k];
    for (size_t a = 0; a < step.arguments.size(); a++) {
      std::vector<int>& list = writes(step, a) ? s.writes : s.reads;
      const int slot = step.arguments[a];
      if (std::find(list.begin(), list.end(), slot) == list.end()) list.push_back(slot);
    }
    // A step that may find no memory must come before what writes over an operand of the plan.
    s.repeatable = step.kernel || !in_place[k].empty() || !has_donors;
    int until = s.repeatable ? kNever : -1;
    for (int r : s.reads) {
      Slot& slot = slots[static_cast<size_t>(r)];
      slot.readers.push_back(static_cast<int>(k));
      until = std::min(until, slot.until);
    }
    for (int w : s.writes) {
      Slot& slot = slots[static_cast<size_t>(w)];
      ensure(slot.writer < 0, "rematerialize: two steps write one slot");
      slot.writer = static_cast<int>(k);
      if (slot.temporary) slot.until = until;
    }
  }
}

// The steps in an order in which each that frees as much as it takes is run as soon as it can be;
// of several, the one that takes least.
std::vector<int> early_order(const Facts& facts) {
  const size_t n = facts.steps.size();
  std::vector<size_t> waits(n), unread(facts.slots.size());  // operands, readers to come
  std::vector<bool> done(n);
  std::set<int> ready;
  std::set<std::pair<int64_t, int>> freeing;  // with the bytes that they take
  const auto slot = [&](int s) -> const Facts::Slot& {
    return facts.slots[static_cast<size_t>(s)];
  };
  const auto takes = [&](int k) {
    int64_t bytes = 0;
    for (int w : facts.steps[static_cast<size_t>(k)].writes) bytes += slot(w).bytes;
    return bytes;
  };
  const auto frees = [&](int k) {
    int64_t bytes = 0;
    for (int r : facts.steps[static_cast<size_t>(k)].reads) {
      if (slot(r).temporary && unread[static_cast<size_t>(r)] == 1) bytes += slot(r).bytes;
    }
    return bytes;
  };
  const auto look = [&](int k) {
    const auto i = static_cast<size_t>(k);
    if (!done[i] && waits[i] == 0 && frees(k) >= takes(k)) freeing.insert({takes(k), k});
  };
  for (size_t s = 0; s < unread.size(); s++) unread[s] = facts.slots[s].readers.size();
  for (size_t k = 0; k < n; k++) {
    for (int r : facts.steps[k].reads) waits[k] += slot(r).writer >= 0;
    if (waits[k] == 0) ready.insert(static_cast<int>(k));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int k = freeing.empty() ? *ready.begin() : freeing.begin()->second;
    ready.erase(k);
    freeing.erase({takes(k), k});
    order.push_back(k);
    done[static_cast<size_t>(k)] = true;
    const Facts::Step& step = facts.steps[static_cast<size_t>(k)];
    for (int w : step.writes) {
      for (int reader : slot(w).readers) {
        if (--waits[static_cast<size_t>(reader)] > 0) continue;
        ready.insert(reader);
        look(reader);
      }
    }
    for (int r : step.reads) {
      if (--unread[static_cast<size_t>(r)] != 1) continue;
      for (int reader : slot(r).readers) look(reader);
    }
  }
  ensure(order.size() == n, "rematerialize: steps wait for each other");
  return order;
}

// Walks the steps with so much memory. What is there and not needed at once makes room for what is
// not, and is computed again before it is needed.
class PlanWalk {
 public:
  PlanWalk(const Plan& plan, const Facts& facts, std::span<const std::vector<InPlace>> in_place,
           std::span<const double> costs, int64_t arena, const std::vector<bool>& kept)
      : plan_(plan),
        facts_(facts),
        in_place_(in_place),
        costs_(costs),
        capacity_(arena + facts.outputs),
        kept_(kept),
        state_(facts.slots.size()),
        seen_(facts.steps.size(), -1) {}

  /// False: the memory does not do.
  bool run() {
    const auto steps = static_cast<int>(facts_.steps.size());
    for (now_ = 0; now_ < steps; now_++) {
      if (!run_step(now_)) return false;
    }
    return true;
  }

  const std::vector<Run>& runs() const { return runs_; }
  double cost() const {
    return std::accumulate(runs_.begin(), runs_.end(), 0.0, [&](double sum, const Run& r) {
      return sum + costs_[static_cast<size_t>(r.step)];
    });
  }
  /// The slot that each slot beyond those of the plan is another copy of.
  const std::vector<int>& copies() const { return copies_; }

 private:
  struct State {
    int copy = -1;  // the slot that holds the value; -1: none
    int pins = 0;   // runs that wait for others and read it
    size_t next = 0;
    bool written = false;
  };
  struct Frame {
    int step = 0;
    int wanted = -1;  // the slot that it is run for; -1: it is run for the first time
    size_t read = 0;  // how many of its operands are there and pinned
  };

  const Facts::Slot& fact(int s) const { return facts_.slots[static_cast<size_t>(s)]; }
  const Facts::Step& step(int k) const { return facts_.steps[static_cast<size_t>(k)]; }
  State& state(int s) { return state_[static_cast<size_t>(s)]; }
  const State& state(int s) const { return state_[static_cast<size_t>(s)]; }
  int next_use(int s) const {
    const std::vector<int>& readers = fact(s).readers;
    return state(s).next < readers.size() ? readers[state(s).next] : kNever;
  }
  bool lacks(int s) const { return fact(s).temporary && state(s).copy < 0; }

  // With what it needs first.
  bool run_step(int k) {
    std::vector<Frame> stack{{k}};
    while (!stack.empty()) {
      Frame& f = stack.back();
      const std::vector<int>& reads = step(f.step).reads;
      for (; f.read < reads.size() && !lacks(reads[f.read]); f.read++) state(reads[f.read]).pins++;
      if (f.read < reads.size()) {
        const int s = reads[f.read];
        stack.push_back({fact(s).writer, s});
        continue;
      }
      if (!execute(f)) return false;
      stack.pop_back();
    }
    return true;
  }

  bool execute(const Frame& f) {
    const bool again = f.wanted >= 0;
    const auto most_runs = 8 * facts_.steps.size() + 64;
    if (runs_.size() >= most_runs) return false;
    const Facts::Step& s = step(f.step);
    if (!again) {
      for (int r : s.reads) state(r).next++;
    }
    int64_t bytes = 0;
    for (int w : s.writes) bytes += written_bytes(w, again);
    if (!make_room(bytes - overlaid(f))) return false;
    used_ += bytes;

    std::vector<std::pair<int, int>> made;  // slots and their copies
    for (int w : s.writes) made.emplace_back(w, again || state(w).written ? new_copy(w) : w);
    Run run{f.step, {}};
    const PlanStep& planned = plan_.steps[static_cast<size_t>(f.step)];
    for (size_t a = 0; a < planned.arguments.size(); a++) {
      const int slot = planned.arguments[a];
      const auto is_it = [&](const auto& m) { return m.first == slot; };
      run.arguments.push_back(writes(planned, a)
                                  ? std::find_if(made.begin(), made.end(), is_it)->second
                              : fact(slot).temporary ? state(slot).copy
                                                     : slot);
    }
    runs_.push_back(std::move(run));

    for (int r : s.reads) {
      state(r).pins--;
      if (fact(r).temporary && state(r).pins == 0 && next_use(r) == kNever) drop(r);
    }
    for (const auto& [w, copy] : made) {
      state(w).written = true;
      const bool kept =
          !fact(w).temporary ? !again : lacks(w) && (w == f.wanted || next_use(w) != kNever);
      if (!kept) {
        used_ -= written_bytes(w, again);
      } else if (fact(w).temporary) {
        state(w).copy = copy;
        there_.push_back(w);
      }
    }
    return true;
  }

  // A result of the plan is written once; computed again, it is a value that nobody reads.
  int64_t written_bytes(int w, bool again) const {
    return !again || fact(w).temporary ? fact(w).bytes : arena_bytes(fact(w).own_bytes);
  }

  // Bytes of results that follow operands in their memory.
  int64_t overlaid(const Frame& f) const {
    const std::vector<int>& arguments = plan_.steps[static_cast<size_t>(f.step)].arguments;
    int64_t bytes = 0;
    std::vector<int> taken;
    const auto take = [&](int s) {
      if (std::find(taken.begin(), taken.end(), s) != taken.end()) return false;
      taken.push_back(s);
      return true;
    };
    for (const InPlace& p : in_place_[static_cast<size_t>(f.step)]) {
      const int a = arguments[static_cast<size_t>(p.input)];
      const int b = arguments[static_cast<size_t>(p.output)];
      if (!fact(a).temporary || fact(a).own_bytes != fact(b).own_bytes) continue;
      if (state(a).pins != 1 || next_use(a) != kNever) continue;
      if (std::count(arguments.begin(), arguments.end(), a) != 1) continue;
      if (take(a) && take(b)) bytes += fact(b).bytes;
    }
    return bytes;
  }

  int new_copy(int s) {
    copies_.push_back(s);
    return static_cast<int>(facts_.slots.size() + copies_.size()) - 1;
  }

  void drop(int s) {
    state(s).copy = -1;
    used_ -= fact(s).bytes;
    there_.erase(std::find(there_.begin(), there_.end(), s));
  }

  bool make_room(int64_t bytes) {
    while (used_ + bytes > capacity_) {
      const Candidate c = cheapest();
      if (c.step < 0) return false;
      for (int w : step(c.step).writes) {
        if (is_spare(w) && next_use(w) >= c.until) drop(w);
      }
    }
    return true;
  }

  // Results of one step that are needed from step `until` on, when it is run again.
  struct Candidate {
    int step = -1, until = 0;
    double worth = 0;  // bytes, times the steps that they would stay there
    double score = 0;  // cost for that
  };

  // Is it there, and not needed before it can be computed again?
  bool is_spare(int s) const {
    const int use = next_use(s);
    return fact(s).temporary && state(s).copy >= 0 && state(s).pins == 0 && use != kNever &&
           use <= fact(s).until;
  }

  // As many results of the step as are worth most.
  Candidate candidate(int k) const {
    Candidate best{k};
    for (int first : step(k).writes) {
      if (!is_spare(first)) continue;
      const int until = next_use(first);
      int64_t bytes = 0;
      for (int w : step(k).writes) {
        if (is_spare(w) && next_use(w) >= until) bytes += fact(w).bytes;
      }
      const double worth = static_cast<double>(bytes) * (until - now_ + 1);
      if (worth > best.worth) {
        best.worth = worth;
        best.until = until;
      }
    }
    best.score = costs_[static_cast<size_t>(k)] / best.worth;
    return best;
  }

  // What costs least to compute again.
  Candidate cheapest() {
    constexpr size_t kMostLooked = 1024, kMostCompared = 32;
    candidates_.clear();
    stamp_++;
    const size_t stride = (there_.size() + kMostLooked - 1) / kMostLooked;
    for (size_t i = stride > 1 ? runs_.size() % stride : 0; i < there_.size(); i += stride) {
      const int k = fact(there_[i]).writer;
      if (kept_[static_cast<size_t>(k)]) continue;
      if (std::exchange(seen_[static_cast<size_t>(k)], stamp_) == stamp_) continue;
      const Candidate c = candidate(k);
      if (c.worth > 0) candidates_.push_back(c);
    }
    const auto less = [](const Candidate& a, const Candidate& b) {
      return std::pair(a.score, a.step) < std::pair(b.score, b.step);
    };
    if (candidates_.size() > kMostCompared) {
      std::nth_element(candidates_.begin(), candidates_.begin() + kMostCompared, candidates_.end(),
                       less);
      candidates_.resize(kMostCompared);
    }
    std::sort(candidates_.begin(), candidates_.end(), less);
    Candidate best;
    for (Candidate& c : candidates_) {
      if (best.step >= 0 && c.score >= best.score) break;
      c.score = cost_with_neighbours(c.step) / c.worth;
      if (best.step < 0 || c.score < best.score) best = c;
    }
    return best;
  }

  // Of its step, of the steps that must be run before, and of those that wait for it.
  double cost_with_neighbours(int of) {
    constexpr size_t kMost = 64;
    stamp_++;
    double cost = 0;
    std::vector<int>& queue = queue_;
    queue.clear();
    const auto visit = [&](int k) {
      if (std::exchange(seen_[static_cast<size_t>(k)], stamp_) == stamp_) return;
      cost += costs_[static_cast<size_t>(k)];
      queue.push_back(k);
    };
    visit(of);
    for (size_t i = 0; i < queue.size() && queue.size() < kMost; i++) {
      for (int r : step(queue[i]).reads) {
        if (lacks(r)) visit(fact(r).writer);
      }
    }
    std::vector<int> waiting = step(of).writes;
    for (size_t i = 0; i < waiting.size() && queue.size() < kMost; i++) {
      for (int k : fact(waiting[i]).readers) {
        if (k >= now_ || queue.size() >= kMost) break;
        for (int w : step(k).writes) {
          if (!lacks(w) || !state(w).written || next_use(w) == kNever) continue;
          visit(k);
          if (waiting.size() < kMost) waiting.push_back(w);
        }
      }
    }
    return cost;
  }

  const Plan& plan_;
  const Facts& facts_;
  std::span<const std::vector<InPlace>> in_place_;
  std::span<const double> costs_;
  const int64_t capacity_;
  const std::vector<bool>& kept_;  // steps whose results stay
  std::vector<State> state_;
  std::vector<int> there_;  // temporaries that have a copy
  std::vector<Run> runs_;
  std::vector<int> copies_;
  std::vector<Candidate> candidates_;
  std::vector<int> queue_, seen_;
  int stamp_ = 0;
  int64_t used_ = 0;
  int now_ = 0;
};

// Which steps' results may be asked to stay: none; or, of what is alive while most is, a step's for
// each so many bytes, at several distances. What lies between two of them is then computed again
// at once (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
std::vector<std::vector<bool>> checkpoints(const MemoryPlan& memory, const Facts& facts) {
  const size_t n = facts.steps.size();
  std::vector<int64_t> change(n + 1);
  for (size_t s = 0; s < facts.slots.size(); s++) {
    const Lifetime& l = memory.lifetimes[s];
    if (!facts.slots[s].temporary || l.last < 0) continue;
    change[static_cast<size_t>(l.first)] += facts.slots[s].bytes;
    change[static_cast<size_t>(l.last) + 1] -= facts.slots[s].bytes;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  const auto peak =
      static_cast<int>(std::max_element(change.begin(), change.end()) - change.begin());
  const int64_t most = change[static_cast<size_t>(peak)];
  std::vector<std::vector<bool>> out{std::vector<bool>(n)};
  for (const int parts : {2, 3, 4, 6, 8, 12, 16, 24}) {
    std::vector<bool> kept(n);
    int64_t bytes = 0;
    for (int k = 0; k < peak; k++) {
      int64_t own = 0;
      for (int w : facts.steps[static_cast<size_t>(k)].writes) {
        if (facts.slots[static_cast<size_t>(w)].temporary &&
            memory.lifetimes[static_cast<size_t>(w)].last > peak) {
          own += facts.slots[static_cast<size_t>(w)].bytes;
        }
      }
      bytes += own;
      if (own == 0 || bytes < most / parts) continue;
      kept[static_cast<size_t>(k)] = true;
      bytes = 0;
    }
    if (kept != out.back()) out.push_back(std::move(kept));
  }
  return out;
}

// The plan of these runs, without those whose results nobody reads, since they are computed again
// before that.
Rematerialized made_of(const Plan& plan, const std::vector<Run>& runs,
                       const std::vector<int>& copies,
                       std::span<const std::vector<InPlace>> in_place,
                       std::span<const double> costs) {
  Rematerialized out;
  Plan& p = out.plan;
  p = plan;
  for (int s : copies) {
    p.slots.push_back(p.slots[static_cast<size_t>(s)]);
    p.slots.back().role = PlanSlot::Role::Temporary;
  }
  std::vector<bool> is_read(p.slots.size()), is_needed(runs.size());
  for (size_t i = runs.size(); i-- > 0;) {
    const PlanStep& step = plan.steps[static_cast<size_t>(runs[i].step)];
    for (size_t a = 0; a < step.arguments.size(); a++) {
      const auto s = static_cast<size_t>(runs[i].arguments[a]);
      if (!writes(step, a)) continue;
      if (is_read[s] || p.slots[s].role == PlanSlot::Role::Output) is_needed[i] = true;
    }
    if (!is_needed[i]) continue;
    for (size_t a = 0; a < step.arguments.size(); a++) {
      if (!writes(step, a)) is_read[static_cast<size_t>(runs[i].arguments[a])] = true;
    }
  }
  p.steps.clear();
  std::vector<int> place(plan.steps.size(), -1), last_use(plan.slots.size(), -1);
  const auto slot_of = [&](int s) {
    const auto own = static_cast<int>(plan.slots.size());
    return static_cast<size_t>(s < own ? s : copies[static_cast<size_t>(s - own)]);
  };
  std::vector<Decision> decisions;
  double once = 0, all = 0;
  for (size_t i = 0; i < runs.size(); i++) {
    if (!is_needed[i]) continue;
    const auto k = static_cast<size_t>(runs[i].step);
    const auto at = static_cast<int>(p.steps.size());
    PlanStep step = plan.steps[k];
    step.arguments = runs[i].arguments;
    all += costs[k];
    if (place[k] < 0) {
      once += costs[k];
      place[k] = at;
    } else {
      out.memory.repeated++;
      for (size_t a = 0; a < step.arguments.size(); a++) {
        const auto s = static_cast<size_t>(step.arguments[a]);
        if (!writes(step, a) || !is_read[s]) continue;
        const PlanSlot& slot = p.slots[s];
        const NodeRef& n = slot.node;
        decisions.push_back(
            {-1, at,
             fmt::format("is computed again, so that {} need not be kept since step {}",
                         bytes_text(static_cast<uint64_t>(bytes_of(slot.shape, slot.dtype))),
                         last_use[slot_of(step.arguments[a])]),
             n ? n->op : Op::Count_});
      }
    }
    for (int s : step.arguments) last_use[slot_of(s)] = at;
    out.step_of.push_back(static_cast<int>(k));
    p.steps.push_back(std::move(step));
  }
  for (Decision& d : p.decisions) {
    if (d.step >= 0) d.step = place[static_cast<size_t>(d.step)];
  }
  p.decisions.insert(p.decisions.end(), decisions.begin(), decisions.end());
  std::vector<std::vector<InPlace>> pairs;
  for (int k : out.step_of) pairs.push_back(in_place[static_cast<size_t>(k)]);
  const int repeated = out.memory.repeated;
  out.memory = plan_memory(p, pairs);
  out.memory.repeated = repeated;
  out.memory.repeated_share = once > 0 ? all / once - 1 : 0;
  return out;
}

}  // namespace

Rematerialized rematerialize(Plan plan, std::span<const std::vector<InPlace>> in_place,
                             std::span<const double> costs,
                             const std::function<int64_t(const MemoryPlan&)>& excess) {
  constexpr int kAttempts = 6, kHalvings = 12;
  constexpr double kCheap = 1.1;  // times the cost of all steps: no better way is looked for
  const double once = std::accumulate(costs.begin(), costs.end(), 0.0);
  Rematerialized best;
  best.memory = plan_memory(plan, in_place);
  best.step_of.resize(plan.steps.size());
  best.plan = std::move(plan);
  std::iota(best.step_of.begin(), best.step_of.end(), 0);
  int64_t best_excess = excess(best.memory);
  if (best_excess <= 0 || best.memory.arena == 0) return best;
  const int64_t whole = best.memory.arena + best.memory.outputs;
  const auto is_better = [&](Rematerialized& made) {
    const int64_t e = excess(made.memory);
    if (e > best_excess) return false;
    best_excess = e;
    made.memory.saved = whole - made.memory.arena - made.memory.outputs;
    return true;
  };
  {
    const Facts facts(best.plan, in_place, best.memory);
    std::vector<Run> runs;
    for (int k : early_order(facts)) {
      runs.push_back({k, best.plan.steps[static_cast<size_t>(k)].arguments});
    }
    Rematerialized made = made_of(best.plan, runs, {}, in_place, costs);
    if (is_better(made)) best = std::move(made);
    if (best_excess <= 0) return best;
  }
  const Rematerialized base = best;
  std::vector<std::vector<InPlace>> base_pairs;
  std::vector<double> base_costs;
  for (int k : base.step_of) {
    base_pairs.push_back(in_place[static_cast<size_t>(k)]);
    base_costs.push_back(costs[static_cast<size_t>(k)]);
  }
  const Facts facts(base.plan, base_pairs, base.memory);
  const std::vector<std::vector<bool>> choices = checkpoints(base.memory, facts);
  // The cheapest walk in so much memory; null: there is none.
  const auto walk_in = [&](int64_t arena) {
    std::unique_ptr<PlanWalk> best_walk;
    for (const std::vector<bool>& kept : choices) {
      auto walk = std::make_unique<PlanWalk>(base.plan, facts, base_pairs, base_costs, arena, kept);
      if (walk->run() && (!best_walk || walk->cost() < best_walk->cost())) {
        best_walk = std::move(walk);
      }
      if (best_walk && best_walk->cost() <= kCheap * once) break;
    }
    return best_walk;
  };
  const auto take = [&](const PlanWalk& walk) {
    Rematerialized made = made_of(base.plan, walk.runs(), walk.copies(), base_pairs, base_costs);
    for (int& k : made.step_of) k = base.step_of[static_cast<size_t>(k)];
    const int64_t e = excess(made.memory);
    if (is_better(made)) best = std::move(made);
    return e;
  };
  // Arrays do not lie without gaps; what they lack is asked for the next time.
  int64_t low = base.memory.arena - best_excess, high = base.memory.arena;
  for (int i = 0; i < kAttempts && low >= 0; i++) {
    const std::unique_ptr<PlanWalk> walk = walk_in(low);
    if (!walk) break;
    high = low;
    const int64_t e = take(*walk);
    if (e <= 0) return best;
    low -= e;
  }
  // The least that does at all.
  low = std::max<int64_t>(low, 0);
  std::unique_ptr<PlanWalk> least;
  for (int i = 0; i < kHalvings; i++) {
    const int64_t middle = low + (high - low) / 2;
    if (std::unique_ptr<PlanWalk> walk = walk_in(middle)) {
      high = middle;
      least = std::move(walk);
    } else {
      low = middle;
    }
  }
  if (least) take(*least);
  return best;
}

}  // namespace lazuli
