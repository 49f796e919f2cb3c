#include "runtime/device.h"

#include "runtime/storage.h"

namespace lazuli {

std::vector<int64_t> Executable::reach(std::span<const int64_t>) const {
  std::vector<int64_t> all;
  for (const PlanSlot& s : plan().slots) all.push_back(numel(s.shape));
  return all;
}

std::vector<Storage*> pointers(std::span<const Ref<Storage>> storages) {
  std::vector<Storage*> out;
  out.reserve(storages.size());
  for (const Ref<Storage>& s : storages) out.push_back(s.get());
  return out;
}

std::vector<Ref<Storage>> run(const Captured& code, Allocator& memory,
                              std::span<const Ref<Storage>> inputs) {
  const Plan& plan = code.executable->plan();
  std::vector<Ref<Storage>> of_slot(plan.slots.size());
  std::vector<Storage*> given = pointers(inputs), made;
  made.reserve(plan.outputs.size());
  size_t in = 0;
  for (size_t i = 0; i < plan.slots.size(); i++) {
    const PlanSlot& slot = plan.slots[i];
    if (slot.role == PlanSlot::Role::Input) of_slot[i] = inputs[in++];
    if (slot.role != PlanSlot::Role::Output) continue;
    of_slot[i] = made_by(code.executable, memory, bytes_of(slot.shape, slot.dtype));
    made.push_back(of_slot[i].get());
  }
  std::vector<Ref<Storage>> values;
  values.reserve(plan.outputs.size());
  for (int slot : plan.outputs) values.push_back(of_slot[static_cast<size_t>(slot)]);
  code.executable->run(given, made);
  return values;
}

Ref<HostStorage> made_by(const std::shared_ptr<Executable>& plan, Allocator& memory, size_t bytes,
                         size_t touched) {
  const Ref<HostStorage> made = make_ref<HostStorage>(memory, bytes, touched);
  made->origin = plan;
  return made;
}

}  // namespace lazuli
