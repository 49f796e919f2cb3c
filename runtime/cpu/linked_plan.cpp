#include "runtime/cpu/linked_plan.h"

#include <algorithm>
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
  const auto count = static_cast<int64_t>(distinct.size());
  Progress progress(runtime.config.progress.value_or(false), "compiling: kernels", count);
  runtime.pool.parallel_for(0, count, 1, [&](int64_t from, int64_t to, int) {
    for (int64_t i = from; i < to; i++) {
      const size_t step = distinct[static_cast<size_t>(i)];
      store.get(kernel(step), steps[step].key);
      progress.step();
    }
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
