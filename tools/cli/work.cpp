#include "tools/cli/work.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/graph.h"
#include "ir/kernel_cost.h"

namespace lazuli::cli {
namespace {

double flops_of(const Node& n) {
  if (is_reduce(n.op) || n.op == Op::Scan) return static_cast<double>(n.src[0]->numel());
  const bool computes = is_elementwise(n.op) && n.op != Op::Cast && n.op != Op::Bitcast;
  const bool on_floats = computes && is_float(n.src.back()->dtype);
  if (!on_floats) return 0;
  return static_cast<double>(n.numel()) * (n.op == Op::Fma ? 2 : 1);
}

}  // namespace

double count_flops(std::span<const NodeRef> roots) {
  double total = 0;
  for (const NodeRef& n : topological(roots, true)) {
    if (!n->realised()) total += flops_of(*n);
  }
  return total;
}

Replay::Replay(Device& device, std::span<const Tensor> results) {
  std::vector<NodeRef> roots;
  for (const Tensor& t : results) roots.push_back(t.node());
  executable_ = device.prepare(make_plan(roots, device.target()));
  const Plan& plan = executable_->plan();
  input_of_slot_.assign(plan.slots.size(), -1);
  output_of_slot_.assign(plan.slots.size(), -1);
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const PlanSlot& slot = plan.slots[i];
    if (slot.role == PlanSlot::Role::Input) {
      input_of_slot_[i] = static_cast<int>(inputs_.size());
      inputs_.push_back(slot.node->storage());
      ensure(inputs_.back() != nullptr, "an input slot of a plan holds no value");
    } else if (slot.role == PlanSlot::Role::Output) {
      output_of_slot_[i] = static_cast<int>(outputs_.size());
      outputs_.push_back(make_storage(bytes_of(slot.shape, slot.dtype)));
    }
  }
}

int Replay::kernels() const {
  const auto& steps = plan().steps;
  return static_cast<int>(std::count_if(
      steps.begin(), steps.end(), [](const PlanStep& step) { return step.kernel != nullptr; }));
}

double Replay::share_within_masks() const {
  double within = 0, all = 0;
  for (const PlanStep& step : plan().steps) {
    if (step.kernel == nullptr) continue;
    within += count_flops(*step.kernel);
    all += count_flops_behind_masks_too(*step.kernel);
  }
  return all > 0 ? within / all : 1;
}

double Replay::bytes() const {
  double total = 0;
  for (size_t i = 0; i < input_of_slot_.size(); ++i) {
    if (input_of_slot_[i] >= 0) total += bytes_read(plan(), static_cast<int>(i));
  }
  for (const auto& storage : outputs_) total += static_cast<double>(storage->bytes());
  return total;
}

Ref<Storage> Replay::input(const NodeRef& node) const {
  for (size_t i = 0; i < plan().slots.size(); ++i) {
    if (input_of_slot_[i] >= 0 && plan().slots[i].node.get() == node.get()) {
      return inputs_[static_cast<size_t>(input_of_slot_[i])];
    }
  }
  return nullptr;
}

Tensor Replay::result(size_t i) const {
  const auto slot = static_cast<size_t>(plan().outputs.at(i));
  const PlanSlot& info = plan().slots[slot];
  const auto& storage = output_of_slot_[slot] >= 0
                            ? outputs_[static_cast<size_t>(output_of_slot_[slot])]
                            : inputs_[static_cast<size_t>(input_of_slot_[slot])];
  return Tensor::from_storage(storage, info.shape, info.dtype);
}

Timing measure(const std::function<void()>& run, double seconds) {
  return measure({&run, 1}, seconds)[0];
}

std::vector<Timing> measure(std::span<const std::function<void()>> runs, double seconds) {
  constexpr double kShortest =
      20e-6;  // a batch takes at least this long, so that the clock's own cost does not show
  struct Timed {
    int64_t batch = 1;
    std::vector<double> times;
  };
  std::vector<Timed> all(runs.size());
  const auto seconds_of_batch = [&](size_t r) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < all[r].batch; ++i) runs[r]();
    return seconds_since(start);
  };
  size_t fewest = 1;
  for (size_t r = 0; r < runs.size(); ++r) {
    runs[r]();
    while (seconds_of_batch(r) < kShortest && all[r].batch < 4096) all[r].batch *= 2;
    if (all[r].batch > 1) fewest = kFewestRuns;
  }
  const auto begin = Clock::now();
  do {
    for (size_t r = 0; r < runs.size(); ++r) {
      all[r].times.push_back(seconds_of_batch(r) / static_cast<double>(all[r].batch));
    }
  } while (seconds_since(begin) < seconds * static_cast<double>(runs.size()) ||
           all[0].times.size() < fewest);
  std::vector<Timing> timings;
  for (Timed& t : all) {
    std::sort(t.times.begin(), t.times.end());
    const size_t n = t.times.size();
    timings.push_back({t.times[0], t.times[n / 2], t.times[n / 4], t.times[n * 3 / 4],
                       static_cast<int64_t>(n) * t.batch});
  }
  return timings;
}

}  // namespace lazuli::cli
