#include "ir/step_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"

namespace lazuli {
namespace {

// Steps of one loop: planning stays linear in the steps of a plan.
constexpr int kMostSteps = 16;
// Of the last cache, which all cores share, so much stays from one kernel to the next.
constexpr int64_t kShareOfCache = 4;
// The arrays between the kernels are such a part of all that the loop touches, or more: they are
// what it keeps from memory.
constexpr int64_t kPartBetween = 4;
// Chunks of a part for each thread, so that none waits long for the last.
constexpr int64_t kChunks = 4;

class LoopFinder {
 public:
  LoopFinder(const Plan& plan, std::span<const std::vector<Slices>* const> slices,
             const Target& target)
      : plan_(plan), slices_(slices), target_(target), touched_(plan.slots.size(), {-1, -1}) {
    for (size_t k = 0; k < plan.steps.size(); k++) {
      for (int s : plan.steps[k].arguments) {
        Touched& t = touched_[static_cast<size_t>(s)];
        if (t.first < 0) t.first = static_cast<int>(k);
        t.last = static_cast<int>(k);
      }
    }
  }

  std::vector<StepLoop> run() {
    std::vector<StepLoop> found;
    const auto steps = static_cast<int>(plan_.steps.size());
    for (int first = 0; first < steps; first++) {
      std::optional<StepLoop> loop = from(first);
      if (!loop) continue;
      first = loop->last;
      found.push_back(std::move(*loop));
    }
    return found;
  }

 private:
  struct Touched {
    int first, last;
  };

  const std::vector<Slices>& slices(int step) const { return *slices_[static_cast<size_t>(step)]; }
  const PlanStep& step(int k) const { return plan_.steps[static_cast<size_t>(k)]; }
  const PlanSlot& slot(int s) const { return plan_.slots[static_cast<size_t>(s)]; }
  int64_t bytes(int s) const {
    return static_cast<int64_t>(bytes_of(slot(s).shape, slot(s).dtype));
  }

  std::optional<StepLoop> from(int first) const {
    if (!slices_[static_cast<size_t>(first)]) return {};
    std::optional<StepLoop> best;
    for (const Slices& s : slices(first)) {
      const std::vector<Slices> chain = chain_of(first, s);
      // The longest that is worth it.
      for (size_t n = chain.size(); n >= 2; n--) {
        std::optional<StepLoop> loop = loop_over(first, std::span(chain).first(n));
        if (!loop) continue;
        if (!best || best->whole_bytes < loop->whole_bytes) best = std::move(loop);
        break;
      }
    }
    return best;
  }

  // Is all that `with` touches of slot s apart from what other slices touch?
  bool is_apart(int k, int s, const Slices& with) const {
    const std::vector<int>& arguments = step(k).arguments;
    for (size_t a = 0; a < arguments.size(); a++) {
      if (arguments[a] == s && with.arguments[a] != SliceUse::Apart) return false;
    }
    return true;
  }

  // How steps from `first` on are cut as `cut` cuts that one: each reads what one before it wrote,
  // and of that only the same slice.
  std::vector<Slices> chain_of(int first, const Slices& cut) const {
    std::vector<Slices> chain = {cut};
    const auto steps = static_cast<int>(plan_.steps.size());
    for (int k = first + 1; k < steps && k - first < kMostSteps; k++) {
      if (!slices_[static_cast<size_t>(k)]) break;
      const auto fits = [&](const Slices& s) {
        if (s.count != cut.count) return false;
        bool follows = false;
        for (int a : step(k).arguments) {
          const int writer = touched_[static_cast<size_t>(a)].first;
          if (slot(a).role == PlanSlot::Role::Input || writer < first || writer == k) continue;
          follows = true;
          if (!is_apart(k, a, s)) return false;
          if (!is_apart(writer, a, chain[static_cast<size_t>(writer - first)])) return false;
        }
        return follows;
      };
      const auto it = std::find_if(slices(k).begin(), slices(k).end(), fits);
      if (it == slices(k).end()) break;
      chain.push_back(*it);
    }
    return chain;
  }

  std::optional<StepLoop> loop_over(int first, std::span<const Slices> chain) const {
    StepLoop loop{first, first + static_cast<int>(chain.size()) - 1, chain[0].count};
    std::map<int, SliceUse> used;
    for (int k = loop.first; k <= loop.last; k++) {
      const std::vector<int>& arguments = step(k).arguments;
      for (size_t a = 0; a < arguments.size(); a++) {
        const SliceUse use = chain[static_cast<size_t>(k - first)].arguments[a];
        const auto [it, fresh] = used.try_emplace(arguments[a], use);
        it->second = std::min(it->second, use);
      }
    }
    // Of all slices: what lies between the steps, what else moves along, and what does not.
    int64_t between = 0, moving = 0, fixed = 0;
    for (const auto& [s, use] : used) {
      const Touched& t = touched_[static_cast<size_t>(s)];
      const bool inside = slot(s).role == PlanSlot::Role::Temporary && loop.has(t.first) &&
                          loop.has(t.last) && t.first < t.last && use == SliceUse::Apart;
      if (inside) loop.kept.push_back(s);
      (inside ? between : use == SliceUse::Whole ? fixed : moving) += bytes(s);
    }
    const int64_t cache = target_.l3 / kShareOfCache;
    if (between * kPartBetween < between + moving + fixed) return {};
    const int64_t slice = std::max<int64_t>((between + moving) / loop.count, 1);
    int64_t at_once = std::max<int64_t>((cache - fixed) / slice, 1);
    for (const Slices& s : chain) {
      const int64_t iterations = s.outer * s.inner;
      if (target_.threads > 1)
        at_once = std::max(at_once, (kChunks * target_.threads - 1) / iterations + 1);
    }
    const int64_t parts = (loop.count - 1) / at_once + 1;
    if (parts < 2 || fixed * (parts - 1) > between) return {};
    loop.at_once = (loop.count - 1) / parts + 1;
    loop.slices.assign(chain.begin(), chain.end());
    loop.whole_bytes = between;
    loop.kept_bytes = between / loop.count * loop.at_once;
    return loop;
  }

  const Plan& plan_;
  std::span<const std::vector<Slices>* const> slices_;
  const Target& target_;
  std::vector<Touched> touched_;
};

}  // namespace

bool StepLoop::keeps(int slot) const {
  return std::binary_search(kept.begin(), kept.end(), slot);
}

int64_t StepLoop::slice_bytes(const PlanSlot& slot) const {
  return static_cast<int64_t>(bytes_of(slot.shape, slot.dtype)) / count;
}

std::vector<StepLoop> find_step_loops(const Plan& plan,
                                      std::span<const std::vector<Slices>* const> slices,
                                      const Target& target) {
  ensure(slices.size() == plan.steps.size(), "find_step_loops: one list for each step");
  if (!plan.size_slots.empty()) return {};
  return LoopFinder(plan, slices, target).run();
}

std::string told_of(const StepLoop& loop) {
  return fmt::format(
      "kernels {} to {} run one after the other for {} of {} slices at a time: {} between them in "
      "place of {}",
      loop.first, loop.last, loop.at_once, loop.count,
      bytes_text(static_cast<uint64_t>(loop.kept_bytes)),
      bytes_text(static_cast<uint64_t>(loop.whole_bytes)));
}

}  // namespace lazuli
