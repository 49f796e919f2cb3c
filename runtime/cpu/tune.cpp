#include "runtime/cpu/tune.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "core/error.h"
#include "ir/schedule.h"

namespace lazuli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBudget = std::chrono::seconds(3);  // for one kernel
constexpr double kShortest = 1e-4;                 // seconds of one measurement
constexpr double kHopeless = 1.25;                 // times the best: not measured again
constexpr double kMargin = 0.96;                   // of the time of what it replaces
constexpr int kTrialRounds = 5, kSteps = 4;

// The value that this part of all do not exceed.
double part(std::vector<double> v, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(v.size()));
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(at), v.end());
  return v[at];
}

struct Candidate {
  Settled settled;
  Kernel kernel;  // scheduled so
  Program program;
  std::shared_ptr<const CompiledKernel> code;
  double best = 1e300;  // seconds
};

// Arrays for the arguments of one kernel, and its worker memory.
class Bench {
 public:
  Bench(const Kernel& kernel, Runtime& runtime) : runtime_(runtime) {
    for (const KernelArgument& a : kernel.arguments) {
      const auto bytes = static_cast<size_t>(a.size) * static_cast<size_t>(size_of(a.dtype));
      blocks_.push_back(runtime.memory.allocate(bytes));
      std::memset(blocks_.back().data(), 0, bytes);
      arguments_.push_back(blocks_.back().data());
    }
    for (const KernelSize& s : kernel.sizes) {
      *static_cast<int64_t*>(arguments_[static_cast<size_t>(s.slot)]) = s.least + s.variable->hi;
    }
  }

  /// Seconds of one run.
  double operator()(const CompiledKernel& code) {
    const int64_t stride = scratch_stride(code.scratch_bytes);
    grow(scratch_, code.scratch_bytes > 0 ? stride * runtime_.pool.size() : 0);
    grow(shared_, code.shared_bytes);
    const auto start = Clock::now();
    for (int64_t i = 0; i < runs_; i++) {
      run_kernel(code, arguments_.data(), {scratch_.data(), stride, shared_.data()}, runtime_.pool);
    }
    return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(runs_);
  }

  void set_runs(int64_t runs) { runs_ = runs; }

 private:
  void grow(Block& block, int64_t bytes) {
    if (block.size() < static_cast<size_t>(bytes)) {
      block = runtime_.memory.allocate_apart(static_cast<size_t>(bytes));
    }
  }

  Runtime& runtime_;
  std::vector<Block> blocks_;
  std::vector<void*> arguments_;
  Block scratch_, shared_;
  int64_t runs_ = 1;
};

class Search {
 public:
  Search(const Kernel& kernel, const CompiledKernel& model, const Target& target, Runtime& runtime)
      : kernel_(kernel), target_(target), runtime_(runtime), bench_(kernel, runtime) {
    model_.kernel = clone(kernel);
    choose_schedule(model_.kernel, target);
    model_.code = std::shared_ptr<const CompiledKernel>(std::shared_ptr<void>(), &model);
    seen_.insert(model_.kernel.schedule);
  }

  Winner run() {
    bench_(*model_.code);
    const double once = bench_(*model_.code);
    const bool slow = once > 0.02;
    finalists_ = slow ? 2 : 4;
    final_rounds_ = slow ? 5 : 11;
    bench_.set_runs(std::clamp(static_cast<int64_t>(kShortest / once), int64_t{1}, int64_t{64}));
    Candidate* best = &model_;
    std::vector<std::vector<Candidate>> steps;
    for (int step = 0; step < kSteps && Clock::now() < deadline_; step++) {
      steps.push_back(neighbours(*best));
      Candidate* const better = best_of(steps.back(), *best);
      if (!better) break;
      best = better;
    }
    Winner w;
    w.tried = static_cast<int>(seen_.size());
    w.seconds = w.model_seconds = once;
    if (best == &model_) return w;
    // Steps may each have been luck.
    const double ratio = compare(model_, {best})[0];
    w.seconds = w.model_seconds = base_seconds_;
    if (ratio >= kMargin) return w;
    w.seconds *= ratio;
    w.settled = best->settled;
    return w;
  }

 private:
  // Schedules that differ from this one in one choice.
  std::vector<Candidate> neighbours(const Candidate& from) {
    std::vector<Candidate> list;
    for (const Choice& c : from.kernel.choices) {
      for (const Choice::Option& o : c.others) {
        Candidate n;
        n.settled = from.settled;
        n.settled[c.what] = o.text;
        n.kernel = clone(kernel_);
        try {
          n.program = choose_schedule(n.kernel, target_, n.settled);
        } catch (const UserError&) {
          continue;  // the rules cannot have it so
        }
        if (same_order(model_.kernel, n.kernel) && seen_.insert(n.kernel.schedule).second)
          list.push_back(std::move(n));
      }
    }
    runtime_.pool.parallel_for(
        0, static_cast<int64_t>(list.size()), 1, [&](int64_t from_, int64_t to, int) {
          for (int64_t i = from_; i < to; i++) {
            Candidate& n = list[static_cast<size_t>(i)];
            SharedWork alone;
            n.code =
                compile_kernel(n.kernel, n.program, target_, model_.code->predicted_seconds, alone);
          }
        });
    return list;
  }

  // The one that is clearly faster than `best`, or null.
  Candidate* best_of(std::vector<Candidate>& list, Candidate& best) {
    best.best = 1e300;
    for (int round = 0; round < kTrialRounds; round++) {
      best.best = std::min(best.best, bench_(*best.code));
      for (Candidate& n : list) {
        if (n.best < 1e300 && n.best > kHopeless * best.best) continue;
        if (Clock::now() > deadline_) break;
        if (round == 0) bench_(*n.code);  // its code and memory are cold
        n.best = std::min(n.best, bench_(*n.code));
      }
    }
    std::vector<Candidate*> finalists;
    for (Candidate& n : list) {
      if (n.best < best.best) finalists.push_back(&n);
    }
    std::sort(finalists.begin(), finalists.end(),
              [](const Candidate* a, const Candidate* b) { return a->best < b->best; });
    if (finalists.size() > finalists_) finalists.resize(finalists_);
    const std::vector<double> ratios = compare(best, finalists);
    const auto least = std::min_element(ratios.begin(), ratios.end());
    const bool clear = least != ratios.end() && *least < kMargin;
    return clear ? finalists[static_cast<size_t>(least - ratios.begin())] : nullptr;
  }

  // Medians of the times of `list` over those of `base` in the same round, since whatever else the
  // machine does hits both; at least 1 unless it is faster in three rounds of four.
  std::vector<double> compare(const Candidate& base, const std::vector<Candidate*>& list) {
    std::vector<std::vector<double>> ratios(list.size());
    std::vector<double> seconds;
    for (int round = 0; round < final_rounds_ && !list.empty(); round++) {
      seconds.push_back(bench_(*base.code));
      for (size_t i = 0; i < list.size(); i++) {
        ratios[i].push_back(bench_(*list[i]->code) / seconds.back());
      }
    }
    std::vector<double> out;
    for (std::vector<double>& r : ratios) {
      const double most = part(r, 0.75), half = part(r, 0.5);
      out.push_back(most < 1 ? half : std::max(half, 1.0));
    }
    if (!seconds.empty()) base_seconds_ = part(seconds, 0.5);
    return out;
  }

  const Kernel& kernel_;
  const Target& target_;
  Runtime& runtime_;
  Bench bench_;
  const Clock::time_point deadline_ = Clock::now() + kBudget;
  double base_seconds_ = 0;  // in the last comparison
  size_t finalists_ = 0;
  int final_rounds_ = 0;
  Candidate model_;
  std::set<std::string> seen_;  // schedules
};

}  // namespace

Winner tune(const Kernel& kernel, const CompiledKernel& model, const Target& target,
            Runtime& runtime) {
  return Search(kernel, model, target, runtime).run();
}

}  // namespace lazuli
