#include "runtime/cpu/linked_plan.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "runtime/progress.h"
#include "runtime/step_notes.h"

namespace lazuli {

NodeRef stand_in(DType dtype, const Shape& shape) {
  return make({.op = Op::Buffer, .dtype = dtype, .shape = shape, .arg = int64_t{-1}});
}

LinkedPlan link_plan(Plan plan, KernelStore& store, Runtime& runtime) {
  std::vector<LinkedPlan::Step> steps(plan.steps.size());
  std::vector<size_t> distinct;
  std::unordered_set<uint64_t> seen;
  for (size_t i = 0; i < steps.size(); i++) {
    if (!plan.steps[i].kernel) continue;
    steps[i].key = structural_hash(*plan.steps[i].kernel);
    if (seen.insert(steps[i].key.low).second) distinct.push_back(i);
  }
  const auto kernel = [&](size_t step) -> const Kernel& { return *plan.steps[step].kernel; };
  // The longest first, so that no thread begins one when the others are done.
  std::stable_sort(distinct.begin(), distinct.end(), [&](size_t a, size_t b) {
    return kernel(a).stages.size() > kernel(b).stages.size();
  });
  // Last what a thread is compiling, which may end meanwhile.
  std::stable_partition(distinct.begin(), distinct.end(),
                        [&](size_t step) { return !store.is_begun(steps[step].key); });
  Progress progress(runtime.config.progress.value_or(false), "compiling: kernels",
                    static_cast<int64_t>(distinct.size()));
  // A thread that finds no kernel left helps with the parts of one that another compiles.
  std::atomic<size_t> next = 0, done = 0;
  std::atomic<bool> failed = false;
  runtime.pool.parallel_for(0, runtime.pool.size(), 1, [&](int64_t, int64_t, int) {
    try {
      for (size_t i; !failed && (i = next++) < distinct.size();) {
        store.get(kernel(distinct[i]), steps[distinct[i]].key);
        progress.step();
        if (++done == distinct.size()) store.work().wake();
      }
    } catch (...) {
      failed = true;
      store.work().wake();
      throw;
    }
    store.work().help_until([&] { return failed || done == distinct.size(); });
  });
  for (const size_t step : distinct) store.tune(kernel(step));
  std::vector<StepNote> notes = step_notes(plan);
  for (size_t i = 0; i < steps.size(); i++) {
    if (plan.steps[i].kernel) steps[i].kernel = store.get(kernel(i), steps[i].key);
    steps[i].note = std::move(notes[i]);
  }
  return {std::move(plan), std::move(steps)};
}

}  // namespace lazuli
