#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/error.h"
#include "runtime/jit_entry.h"
#include "runtime/runtime.h"

namespace lazuli::detail {
namespace {

enum class Copy { ToRoom, FromRoom, ClearRoom };

// Between an array of true sizes and one of the upper bounds.
void copy_parts(std::span<const AxisPart> parts, std::span<const int64_t> sizes, int64_t element,
                std::byte* dense, std::byte* roomy, Copy copy) {
  // What follows the innermost part of a changing size is one block.
  int64_t block = element;
  while (!parts.empty() && parts.back().dim < 0) {
    block *= parts.back().most;
    parts = parts.first(parts.size() - 1);
  }
  int64_t count = 1, rows = 1, room = 1;
  if (!parts.empty()) {
    rows = parts.back().at(sizes);
    room = parts.back().most;
    parts = parts.first(parts.size() - 1);
  }
  for (const AxisPart& p : parts) count *= p.at(sizes);
  if (count == 0 || rows == 0 || block == 0) return;
  std::vector<int64_t> at(parts.size(), 0);
  for (int64_t i = 0; i < count; i++) {
    int64_t place = 0;
    for (size_t q = 0; q < parts.size(); q++) place = place * parts[q].most + at[q];
    std::byte* const r = roomy + place * room * block;
    const auto bytes = static_cast<size_t>(rows * block);
    if (copy == Copy::ToRoom) std::memcpy(r, dense + i * rows * block, bytes);
    if (copy == Copy::FromRoom) std::memcpy(dense + i * rows * block, r, bytes);
    if (copy == Copy::ClearRoom) std::memset(r, 0, bytes);
    for (size_t q = parts.size(); q-- > 0;) {
      if (++at[q] < parts[q].at(sizes)) break;
      at[q] = 0;
    }
  }
}

// Tensors whose memory a call writes to; afterwards they have it again.
class Loans {
 public:
  Loans() = default;
  ~Loans() {
    for (LazyBuffer* b : lent_) b->give_back();
  }
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  LazyBuffer::Loan take(LazyBuffer& buffer, StorageRef& storage) {
    lent_.push_back(&buffer);
    const LazyBuffer::Loan loan = buffer.lend(storage);
    if (loan != LazyBuffer::Loan::Given) lent_.pop_back();
    return loan;
  }

 private:
  std::vector<LazyBuffer*> lent_;
};

// The value that a tensor has now; other threads may assign to it.
StorageRef value_of(const Ref<LazyBuffer>& buffer) {
  return Tensor(buffer).storage();
}

}  // namespace

bool follows(const SymbolicAxes& axes) {
  return std::any_of(axes.begin(), axes.end(), [](const SymbolicAxis& a) { return !a.fixed(); });
}

HostStorage* own_memory(const StorageRef& storage) {
  return dynamic_cast<HostStorage*>(storage.get());
}

std::vector<StorageRef> run_plan(Entry& e, const std::vector<Ref<LazyBuffer>>& buffers) {
  const auto buffer = [&](const Entry::Input& in) -> const Ref<LazyBuffer>& {
    return buffers[static_cast<size_t>(in.slot)];
  };
  std::vector<StorageRef> inputs(e.inputs.size());
  // First what stays as it is: that it is read here keeps its memory from being lent.
  for (size_t i = 0; i < inputs.size(); i++) {
    const Entry::Input& in = e.inputs[i];
    if (in.root < 0) inputs[i] = in.slot < 0 ? in.constant : value_of(buffer(in));
  }
  std::vector<StorageRef> outputs(e.spare.size());
  std::swap(outputs, e.spare);
  std::optional<Loans> loans;
  for (bool again = true; std::exchange(again, false);) {
    loans.emplace();
    for (size_t i = 0; i < inputs.size() && !again; i++) {
      const Entry::Input& in = e.inputs[i];
      if (in.root < 0) continue;
      const LazyBuffer::Loan loan = loans->take(*buffer(in), inputs[i]);
      StorageRef& output = outputs[static_cast<size_t>(in.root)];
      output = nullptr;
      if (loan == LazyBuffer::Loan::Lent || !inputs[i]) {
        // Whoever waits has lent nothing, so that no two wait for each other.
        loans.reset();
        value_of(buffer(in));
        again = true;
      } else if (HostStorage* const own = own_memory(inputs[i]);
                 own && loan == LazyBuffer::Loan::Given) {
        own->origin = e.code.origin;
        output = inputs[i];
      }
    }
  }
  const std::vector<StorageRef> made =
      lazuli::run(e.code, Runtime::current().memory, inputs, outputs);
  std::vector<StorageRef> values;
  for (size_t c : e.code_root) values.push_back(made[c]);
  return values;
}

std::vector<StorageRef> run_sized(Entry& e, const std::vector<Ref<LazyBuffer>>& buffers,
                                  const std::vector<int64_t>& sizes, const Sized& sized) {
  Allocator& memory = Runtime::current().memory;
  const Plan& plan = e.code.executable->plan();
  // Arrays that are smaller than the upper bounds are copied to where there is room for those.
  const bool full = sizes == e.symbolic->upper_sizes();
  const auto roomy = [&](StorageRef& room, const PlanSlot& s) {
    if (room) return;
    room = make_ref<HostStorage>(memory, bytes_of(s.shape, s.dtype));
    std::memset(room->data(), 0, room->bytes());
  };
  const auto bytes = [](const StorageRef& s) { return static_cast<std::byte*>(s->data()); };
  std::vector<StorageRef> inputs;
  size_t input = 0;
  for (size_t i = 0; i < plan.slots.size(); i++) {
    const PlanSlot& s = plan.slots[i];
    if (s.role != PlanSlot::Role::Input) continue;
    const Entry::Input& in = e.inputs[input];
    StorageRef value = in.slot >= 0    ? value_of(buffers[static_cast<size_t>(in.slot)])
                       : in.extra >= 0 ? sized.extras[static_cast<size_t>(in.extra)]
                                       : in.constant;
    if (!full && !sized.in_place[i] && (in.slot >= 0 || in.extra >= 0)) {
      const SymbolicAxes& axes = in.slot >= 0
                                     ? e.slot_axes[static_cast<size_t>(in.slot)]
                                     : e.symbolic->extras()[static_cast<size_t>(in.extra)].axes;
      if (follows(axes)) {
        StorageRef& room = e.room_in[input];
        roomy(room, s);
        // All that lies beyond is zero.
        const std::vector<AxisPart> parts = parts_of(axes);
        std::vector<int64_t>& before = e.room_sizes[input];
        if (!before.empty() && before != sizes) {
          copy_parts(parts, before, size_of(s.dtype), nullptr, bytes(room), Copy::ClearRoom);
        }
        before = sizes;
        copy_parts(parts, sizes, size_of(s.dtype), bytes(value), bytes(room), Copy::ToRoom);
        value = room;
      }
    }
    inputs.push_back(std::move(value));
    input++;
  }
  std::vector<StorageRef> spares = e.spare;
  const auto slot_of = [&](size_t r) { return static_cast<size_t>(plan.outputs[e.code_root[r]]); };
  const auto own_size = [&](size_t r) {
    const PlanSlot& s = e.plan_slot(r);
    const auto made =
        make_ref<HostStorage>(memory, bytes_of(shape_at(e.symbolic->root_axes(r), sizes), s.dtype));
    made->origin = e.code.origin;
    return made;
  };
  std::vector<bool> keeps_spare(spares.size());
  for (size_t r = 0; r < e.code_root.size() && !full; r++) {
    const size_t c = e.code_root[r];
    if (!follows(e.symbolic->root_axes(r))) continue;
    keeps_spare[c] = true;
    if (e.plan_slot(r).role != PlanSlot::Role::Output) continue;
    if (sized.in_place[slot_of(r)]) {
      spares[c] = own_size(r);
    } else {
      roomy(e.room_out[c], e.plan_slot(r));
      spares[c] = e.room_out[c];
    }
  }
  for (size_t c = 0; c < spares.size(); c++) {
    if (!keeps_spare[c]) e.spare[c] = nullptr;
  }
  const std::vector<StorageRef> made = lazuli::run(e.code, memory, inputs, spares);
  std::vector<StorageRef> values;
  for (size_t r = 0; r < e.code_root.size(); r++) {
    StorageRef value = made[e.code_root[r]];
    if (!full && follows(e.symbolic->root_axes(r)) && !sized.in_place[slot_of(r)]) {
      const StorageRef own = own_size(r);
      copy_parts(parts_of(e.symbolic->root_axes(r)), sizes, size_of(e.plan_slot(r).dtype),
                 bytes(own), bytes(value), Copy::FromRoom);
      value = own;
    }
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace lazuli::detail
