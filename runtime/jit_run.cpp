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

std::byte* bytes(const StorageRef& s) {
  return static_cast<std::byte*>(s->data());
}

// Memory for what the function gives.
StorageRef made_by(const Entry& e, Allocator& memory, size_t bytes, size_t touched = 1) {
  const auto made = make_ref<HostStorage>(memory, bytes, touched);
  made->origin = e.code.origin;
  return made;
}

const StorageRef& roomy(StorageRef& room, Allocator& memory, const PlanSlot& s) {
  if (room) return room;
  room = make_ref<HostStorage>(memory, bytes_of(s.shape, s.dtype));
  std::memset(room->data(), 0, room->bytes());
  return room;
}

const StorageRef& in_room(Entry& e, size_t input, Allocator& memory,
                          const std::vector<int64_t>& sizes, StorageRef value) {
  const PlanSlot& s = e.code.executable->plan().slots[e.inputs[input].in_plan];
  const StorageRef& room = roomy(e.room_in[input], memory, s);
  const std::vector<AxisPart> parts = parts_of(e.axes(e.inputs[input]));
  std::vector<int64_t>& before = e.room_sizes[input];
  if (!before.empty() && before != sizes) {
    copy_parts(parts, before, size_of(s.dtype), nullptr, bytes(room), Copy::ClearRoom);
  }
  before = sizes;
  copy_parts(parts, sizes, size_of(s.dtype), bytes(value), bytes(room), Copy::ToRoom);
  return room;
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

bool is_shape_at(const Shape& shape, const SymbolicAxes& axes, std::span<const int64_t> sizes) {
  bool is = shape.size() == axes.size();
  for (size_t a = 0; is && a < axes.size(); a++) is = shape[a] == axes[a].at(sizes);
  return is;
}

bool follows(const SymbolicAxes& axes) {
  return std::any_of(axes.begin(), axes.end(), [](const SymbolicAxis& a) { return !a.fixed(); });
}

HostStorage* own_memory(const StorageRef& storage) {
  return dynamic_cast<HostStorage*>(storage.get());
}

std::vector<StorageRef> run_plan(Entry& e, const std::vector<Ref<LazyBuffer>>& buffers,
                                 const std::vector<int64_t>& sizes, const Sized* sized) {
  Allocator& memory = Runtime::current().memory;
  const auto buffer = [&](const Entry::Input& in) -> const Ref<LazyBuffer>& {
    return buffers[static_cast<size_t>(in.slot)];
  };
  std::vector<StorageRef> inputs(e.inputs.size());
  // First what stays as it is: that it is read here keeps its memory from being lent.
  for (size_t i = 0; i < inputs.size(); i++) {
    const Entry::Input& in = e.inputs[i];
    if (in.root >= 0) continue;
    inputs[i] = in.slot >= 0    ? value_of(buffer(in))
                : in.extra >= 0 ? sized->extras[static_cast<size_t>(in.extra)]
                : in.pitch >= 0 ? sized->pitches[static_cast<size_t>(in.pitch)]
                                : in.constant;
    if (sized && sized->in_room[i]) inputs[i] = in_room(e, i, memory, sizes, inputs[i]);
  }
  std::vector<StorageRef> outputs(e.spare.size());
  std::swap(outputs, e.spare);
  for (size_t c = 0; sized && c < outputs.size(); c++) {
    const PlanSlot& s = e.slot_of_code(c);
    if (!sized->bytes[c] || s.role != PlanSlot::Role::Output) continue;
    outputs[c] = sized->out_room[c]
                     ? roomy(e.room_out[c], memory, s)
                     : made_by(e, memory, sized->bytes[c]->first, sized->bytes[c]->second);
  }
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
  const std::vector<StorageRef> made = lazuli::run(e.code, memory, inputs, outputs);
  std::vector<StorageRef> values;
  for (size_t r = 0; r < e.code_root.size(); r++) {
    const size_t c = e.code_root[r];
    values.push_back(made[c]);
    if (!sized || !sized->bytes[c] || !sized->out_room[c]) continue;
    values[r] = made_by(e, memory, sized->bytes[c]->first);
    copy_parts(parts_of(e.symbolic->root_axes(r)), sizes, size_of(e.slot_of_code(c).dtype),
               bytes(values[r]), bytes(made[c]), Copy::FromRoom);
  }
  return values;
}

}  // namespace lazuli::detail
