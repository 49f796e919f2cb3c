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
  for (int64_t i = 0; i < count; i++) {
    int64_t place = 0, row = i, scale = 1;
    for (size_t q = parts.size(); q-- > 0; scale *= parts[q].most, row /= parts[q].at(sizes)) {
      place += row % parts[q].at(sizes) * scale;
    }
    std::byte* const r = roomy + place * room * block;
    const auto bytes = static_cast<size_t>(rows * block);
    if (copy == Copy::ToRoom) std::memcpy(r, dense + i * rows * block, bytes);
    if (copy == Copy::FromRoom) std::memcpy(dense + i * rows * block, r, bytes);
    if (copy == Copy::ClearRoom) std::memset(r, 0, bytes);
  }
}

std::byte* bytes(const StorageRef& s) {
  return static_cast<std::byte*>(s->data());
}

// Memory for what the function gives.
StorageRef made_by(const Entry& e, Allocator& memory, size_t bytes, size_t touched = 1) {
  const auto made = make_ref<HostStorage>(memory, bytes, touched);
  made->origin = e.code.executable;
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

// Tensors that a call changes. What that needs is made before: nothing can fail once a plan has
// written in place.
class Changes {
 public:
  Changes() = default;
  ~Changes() { give_back(); }
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

  void reserve(size_t count) { changes_.reserve(count); }
  LazyBuffer::Loan take(LazyBuffer& buffer, StorageRef& storage) {
    Change& c = changes_.emplace_back();
    const LazyBuffer::Loan loan = buffer.lend(c.node, storage);
    if (loan == LazyBuffer::Loan::Lent) {
      changes_.pop_back();
      return loan;
    }
    c.buffer = &buffer;
    c.lent = loan != LazyBuffer::Loan::Shared;
    if (!c.lent) c.node = placeholder(c.node->dtype, c.node->shape, c.node->tracked);
    return loan;
  }
  bool holds(const LazyBuffer& buffer) const {
    return std::any_of(changes_.begin(), changes_.end(),
                       [&](const Change& c) { return c.buffer == &buffer; });
  }
  void give_back() {
    for (const Change& c : changes_) {
      if (c.lent) c.buffer->give_back();
    }
    changes_.clear();
  }

  // Number `i` of those taken has this value now. The storage before, if nothing else holds it: it
  // may be written to.
  StorageRef set_value(size_t i, StorageRef value) noexcept {
    const Change& c = changes_[i];
    if (c.lent) {
      // If another thread has assigned meanwhile, that comes after this.
      StorageRef before = c.node->exchange_storage(std::move(value));
      return before->count() == 1 ? before : nullptr;
    }
    c.node->set_storage(std::move(value));
    c.buffer->rebind(c.node);
    return nullptr;
  }

 private:
  struct Change {
    LazyBuffer* buffer = nullptr;
    NodeRef node;  // which has the value from then on
    bool lent = false;
  };
  std::vector<Change> changes_;
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

namespace {

// Values of the roots; `changes` takes what the effects change, in their order.
std::vector<StorageRef> run_plan(Entry& e, const std::vector<Ref<LazyBuffer>>& buffers,
                                 const std::vector<int64_t>& sizes, const Sized* sized,
                                 Changes& changes) {
  Allocator& memory = Runtime::current().memory;
  std::vector<StorageRef> inputs(e.inputs.size());
  // First what stays as it is: that it is read here keeps its memory from being lent.
  for (size_t i = 0; i < inputs.size(); i++) {
    const Entry::Input& in = e.inputs[i];
    if (in.root >= 0) continue;
    inputs[i] = in.slot >= 0    ? value_of(buffers[static_cast<size_t>(in.slot)])
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
  const std::vector<Traced::Effect>& effects = e.function.effects;
  changes.reserve(effects.size());
  for (bool again = true; std::exchange(again, false);) {
    for (size_t k = 0; k < effects.size() && !again; k++) {
      if (effects[k].on_grad) continue;
      const Ref<LazyBuffer>& target = buffers[effects[k].slot];
      // Where the value goes that may be changed in place, and whose memory then takes the root.
      StorageRef unused[2];
      StorageRef *value = &unused[0], *output = &unused[1];
      if (e.lender[k] >= 0) {
        const auto lender = static_cast<size_t>(e.lender[k]);
        value = &inputs[lender];
        output = &outputs[static_cast<size_t>(e.inputs[lender].root)];
        *value = nullptr;
        *output = nullptr;
      }
      const LazyBuffer::Loan loan = changes.take(*target, *value);
      if (loan == LazyBuffer::Loan::Lent && changes.holds(*target)) {
        user_error(
            "jit: the function writes to a tensor of shape {} that it finds in two places, such as "
            "a variable and a gradient; let it find it in one",
            to_string(e.function.slots[effects[k].slot].placeholder->shape));
      }
      if (loan == LazyBuffer::Loan::Lent || !*value) {
        // Whoever waits has lent nothing, so that no two wait for each other.
        changes.give_back();
        value_of(target);
        again = true;
      } else if (loan == LazyBuffer::Loan::Given && own_memory(*value)) {
        *output = *value;
      }
    }
  }
  std::vector<StorageRef> values(e.code_root.size());
  std::vector<std::vector<AxisPart>> copied(sized ? values.size() : 0);  // out of rooms
  for (size_t r = 0; r < copied.size(); r++) {
    const size_t c = e.code_root[r];
    if (!sized->bytes[c] || !sized->out_room[c]) continue;
    values[r] = made_by(e, memory, sized->bytes[c]->first);
    copied[r] = parts_of(e.symbolic->root_axes(r));
  }

  const std::vector<StorageRef> made = lazuli::run(e.code, memory, inputs, outputs);
  // From here on nothing fails.
  for (size_t i = 0; i < inputs.size(); i++) {
    const int root = e.inputs[i].root;
    if (root < 0 || made[static_cast<size_t>(root)] != inputs[i]) continue;
    static_cast<HostStorage&>(*inputs[i]).origin = e.code.executable;
  }
  for (size_t r = 0; r < values.size(); r++) {
    const size_t c = e.code_root[r];
    if (!values[r]) {
      values[r] = made[c];
      continue;
    }
    copy_parts(copied[r], sizes, size_of(e.slot_of_code(c).dtype), bytes(values[r]), bytes(made[c]),
               Copy::FromRoom);
  }
  return values;
}

}  // namespace

void run_captured(Entry& e, const std::vector<Ref<LazyBuffer>>& buffers,
                  const std::vector<Tensor>& results, const std::vector<int64_t>& sizes,
                  const Sized* sized) {
  std::vector<Tensor> gradients;
  for (const Traced::Effect& f : e.function.effects) {
    if (!f.on_grad || f.root < 0) continue;
    gradients.push_back(e.value_to_come(static_cast<size_t>(f.root), sized));
  }
  Changes changes;
  std::vector<StorageRef> values;
  if (e.code.executable) values = run_plan(e, buffers, sizes, sized, changes);

  // Only now does anything change, and nothing fails.
  for (size_t r = 0; r < results.size(); r++) results[r].node()->set_storage(values[r]);
  size_t gradient = 0, change = 0;
  for (const Traced::Effect& f : e.function.effects) {
    LazyBuffer& target = *buffers[f.slot];
    if (f.root < 0) {
      target.set_grad(nullptr);
      continue;
    }
    const auto root = static_cast<size_t>(f.root);
    if (f.on_grad) {
      const Tensor& made = gradients[gradient++];
      made.node()->set_storage(values[root]);
      target.set_grad(made.buffer());
      continue;
    }
    StorageRef before = changes.set_value(change++, values[root]);
    if (!before || !e.is_output(root)) continue;
    if (e.symbolic && follows(e.symbolic->root_axes(root))) continue;
    // Of the runtime's own memory: what is written to next time.
    HostStorage* const own = own_memory(before);
    if (!own) continue;
    own->origin = e.code.executable;
    e.spare[e.code_root[root]] = std::move(before);
  }
}

}  // namespace lazuli::detail
