#include "runtime/device.h"

#include "runtime/storage.h"

namespace lazuli {

std::vector<int64_t> Executable::reach(std::span<const int64_t>) const {
  std::vector<int64_t> all;
  for (const PlanSlot& s : plan().slots) all.push_back(numel(s.shape));
  return all;
}

std::vector<Ref<Storage>> run(const Captured& code, Allocator& memory,
                              std::span<const Ref<Storage>> inputs,
                              std::span<Ref<Storage>> spares) {
  const Plan& plan = code.executable->plan();
  std::vector<Ref<Storage>> of_slot(plan.slots.size()), outputs;
  outputs.reserve(plan.outputs.size());
  for (size_t r = 0; r < spares.size(); r++) {
    Ref<Storage>& s = of_slot[static_cast<size_t>(plan.outputs[r])];
    if (!s) s = std::move(spares[r]);
  }
  size_t in = 0;
  for (size_t i = 0; i < plan.slots.size(); i++) {
    const PlanSlot& slot = plan.slots[i];
    if (slot.role == PlanSlot::Role::Input) of_slot[i] = inputs[in++];
    if (slot.role != PlanSlot::Role::Output) continue;
    if (!of_slot[i]) {
      Ref<HostStorage> made = make_ref<HostStorage>(memory, bytes_of(slot.shape, slot.dtype));
      made->origin = code.executable;
      of_slot[i] = std::move(made);
    }
    outputs.push_back(of_slot[i]);
  }
  std::vector<Ref<Storage>> values;
  values.reserve(plan.outputs.size());
  for (int slot : plan.outputs) values.push_back(of_slot[static_cast<size_t>(slot)]);
  code.executable->run(inputs, outputs);
  return values;
}

}  // namespace lazuli
