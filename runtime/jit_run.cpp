#include <algorithm>
#include <cstring>
#include <typeinfo>
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

// Memory of the runtime's own: not what a user writes to, nor a part of another array. Null for
// others.
HostStorage* own_memory(Storage& storage) {
  return typeid(storage) == typeid(HostStorage) ? static_cast<HostStorage*>(&storage) : nullptr;
}

void set_origin(HostStorage& storage, const std::shared_ptr<Executable>& plan) {
  // Comparing is cheaper than counting.
  if (storage.origin.owner_before(plan) || plan.owner_before(storage.origin)) storage.origin = plan;
}

// Tensors that a call changes. What that needs is made before: nothing can fail once a plan has
// written in place.
class Changes {
 public:
  explicit Changes(std::vector<Change>& changes) : changes_(changes) {}
  ~Changes() { give_back(); }
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

  // The latest taken. Null: someone else has it, or it has no value yet.
  Change* take(LazyBuffer& buffer) {
    Change& c = changes_.emplace_back();
    c.loan = buffer.lend(c.node, c.storage);
    c.buffer = &buffer;
    if (c.loan == LazyBuffer::Loan::Lent || !c.storage) {
      changes_.pop_back();
      return nullptr;
    }
    if (c.loan == LazyBuffer::Loan::Shared) {
      c.node = placeholder(c.node->dtype, c.node->shape, c.node->tracked);
    }
    return &c;
  }
  bool has_lent(const LazyBuffer& buffer) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](const Change& c) {
      return c.buffer == &buffer && c.loan != LazyBuffer::Loan::Shared;
    });
  }
  void give_back() {
    bool any = false;
    for (Change& c : changes_) {
      if (c.loan == LazyBuffer::Loan::Shared) continue;
      if (c.loan == LazyBuffer::Loan::Given) c.node->exchange_storage(std::move(c.storage));
      c.buffer->give_back();
      any = true;
    }
    if (any) LazyBuffer::wake_waiting();
    changes_.clear();
  }

  // Number `i` of those taken has this value now. The storage before, if nothing else holds it: it
  // may be written to.
  StorageRef set_value(size_t i, StorageRef value) noexcept {
    Change& c = changes_[i];
    if (c.loan == LazyBuffer::Loan::Shared) {
      c.node->set_storage(std::move(value));
      c.buffer->rebind(c.node);
      return nullptr;
    }
    // If another thread has assigned meanwhile, that comes after this.
    std::swap(c.storage, value);
    if (c.loan == LazyBuffer::Loan::Node) {
      value = nullptr;
      value = c.node->exchange_storage(std::move(c.storage));
    }
    return value->count() == 1 ? value : nullptr;
  }

 private:
  std::vector<Change>& changes_;
};

// The value that a tensor has now; other threads may assign to it.
StorageRef value_of(LazyBuffer& buffer) {
  if (StorageRef value = buffer.value()) return value;
  return Tensor(Ref<LazyBuffer>(&buffer)).storage();
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

namespace {

// What a call reads that stays as it is: that it is held keeps its memory from being lent.
void read_inputs(Entry& e, const std::vector<int64_t>& sizes, const Sized* sized) {
  Entry::Call& now = e.now;
  now.inputs.resize(e.inputs.size());
  now.given.resize(e.inputs.size());
  for (size_t i = 0; i < e.inputs.size(); i++) {
    const Entry::Input& in = e.inputs[i];
    if (in.output >= 0) continue;
    now.given[i] = in.slot >= 0    ? value_of(*now.buffers[static_cast<size_t>(in.slot)])
                   : in.extra >= 0 ? sized->extras[static_cast<size_t>(in.extra)]
                   : in.pitch >= 0 ? sized->pitches[static_cast<size_t>(in.pitch)]
                                   : in.constant;
    if (sized && sized->in_room[i]) {
      now.given[i] = in_room(e, i, Runtime::current().memory, sizes, now.given[i]);
    }
    now.inputs[i] = now.given[i].get();
  }
}

// What a call changes, and the memory of what it changes in place.
void take_changes(Entry& e, Changes& changes) {
  Entry::Call& now = e.now;
  const std::vector<Traced::Effect>& effects = e.function.effects;
  now.changes.reserve(effects.size());
  for (bool again = true; std::exchange(again, false);) {
    for (size_t k = 0; k < effects.size() && !again; k++) {
      if (effects[k].on_grad) continue;
      LazyBuffer& target = *now.buffers[effects[k].slot];
      const Change* const change = changes.take(target);
      if (!change) {
        if (changes.has_lent(target)) {
          user_error(
              "jit: the function writes to a tensor of shape {} that it finds in two places, such "
              "as a variable and a gradient; let it find it in one",
              to_string(e.function.slots[effects[k].slot].placeholder->shape));
        }
        // Whoever waits has lent nothing, so that no two wait for each other.
        changes.give_back();
        value_of(target);
        again = true;
      } else if (e.lender[k] >= 0) {
        const auto lender = static_cast<size_t>(e.lender[k]);
        Storage* const value = change->storage.get();
        const bool in_place = change->loan == LazyBuffer::Loan::Given && own_memory(*value);
        now.inputs[lender] = value;
        now.outputs[static_cast<size_t>(e.inputs[lender].output)] = in_place ? value : nullptr;
      }
    }
  }
}

// Memory for what a call gives and does not change in place.
void make_outputs(Entry& e, const Sized* sized) {
  Entry::Call& now = e.now;
  Allocator& memory = Runtime::current().memory;
  for (size_t c = 0; c < e.places.size(); c++) {
    const auto [is_output, o] = e.places[c];
    if (!is_output) continue;
    StorageRef& made = now.made[o];
    if (now.outputs[o]) {
      if (!made) e.spare[o] = nullptr;
      continue;
    }
    const PlanSlot& s = e.slot_of_code(c);
    if (sized && sized->bytes[c]) {
      made = sized->out_room[c] ? roomy(e.room_out[c], memory, s)
                                : made_by(e.code.executable, memory, sized->bytes[c]->first,
                                          sized->bytes[c]->second);
    } else {
      made = std::move(e.spare[o]);
      if (!made) made = made_by(e.code.executable, memory, bytes_of(s.shape, s.dtype));
    }
    now.outputs[o] = made.get();
  }
}

// A root's present array, which may be a room, as an input or a result has it.
const StorageRef& array_of(const Entry& e, size_t root) {
  const auto [is_output, number] = e.places[e.code_root[root]];
  if (!is_output) return e.now.given[number];
  if (const StorageRef& made = e.now.made[number]) return made;
  const auto has = [&](const Change& c) { return c.storage.get() == e.now.outputs[number]; };
  const auto change = std::find_if(e.now.changes.begin(), e.now.changes.end(), has);
  ensure(change != e.now.changes.end(), "jit: an output has neither memory nor a donor");
  return change->storage;
}

// A root of a function with dimensions that is copied out of a room.
struct OutOfRoom {
  StorageRef to;  // null: it is not
  std::vector<AxisPart> parts;
};

std::vector<OutOfRoom> copies(const Entry& e, const Sized& sized) {
  std::vector<OutOfRoom> out(e.code_root.size());
  for (size_t r = 0; r < out.size(); r++) {
    const size_t c = e.code_root[r];
    if (!sized.bytes[c] || !sized.out_room[c]) continue;
    out[r].to = made_by(e.code.executable, Runtime::current().memory, sized.bytes[c]->first);
    out[r].parts = parts_of(e.symbolic->root_axes(r));
  }
  return out;
}

}  // namespace

void run_captured(Entry& e, const std::vector<Tensor>& results, const std::vector<int64_t>& sizes,
                  const Sized* sized) {
  Entry::Call& now = e.now;
  std::vector<Tensor> gradients;
  for (const Traced::Effect& f : e.function.effects) {
    if (!f.on_grad || f.root < 0) continue;
    gradients.push_back(e.value_to_come(static_cast<size_t>(f.root), sized));
  }
  Changes changes(now.changes);
  std::vector<OutOfRoom> copied;
  if (e.code.executable) {
    now.outputs.assign(e.spare.size(), nullptr);
    now.made.resize(e.spare.size());
    read_inputs(e, sizes, sized);
    take_changes(e, changes);
    make_outputs(e, sized);
    if (sized) copied = copies(e, *sized);
    e.code.executable->run(now.inputs, now.outputs);
    // From here on nothing fails.
    for (size_t r = 0; r < copied.size(); r++) {
      if (!copied[r].to) continue;
      copy_parts(copied[r].parts, sizes, size_of(e.types[r].first), bytes(copied[r].to),
                 bytes(array_of(e, r)), Copy::FromRoom);
    }
  }
  const auto value = [&](size_t root) -> const StorageRef& {
    return copied.empty() || !copied[root].to ? array_of(e, root) : copied[root].to;
  };

  // Only now does anything change.
  for (size_t r = 0; r < results.size(); r++) results[r].node()->set_storage(value(r));
  size_t gradient = 0, change = 0;
  const std::vector<Traced::Effect>& effects = e.function.effects;
  for (size_t k = 0; k < effects.size(); k++) {
    const Traced::Effect& f = effects[k];
    LazyBuffer& target = *now.buffers[f.slot];
    if (f.root < 0) {
      target.set_grad(nullptr);
      continue;
    }
    const auto root = static_cast<size_t>(f.root);
    if (f.on_grad) {
      const Tensor& made = gradients[gradient++];
      made.node()->set_storage(value(root));
      target.set_grad(made.buffer());
      continue;
    }
    const size_t i = change++;
    const auto [is_output, o] = e.places[e.code_root[root]];
    if (is_output && now.outputs[o] == now.changes[i].storage.get()) {
      set_origin(static_cast<HostStorage&>(*now.outputs[o]), e.code.executable);
      continue;  // in place
    }
    StorageRef before = changes.set_value(i, value(root));
    if (!before || !is_output) continue;
    if (e.symbolic && follows(e.symbolic->root_axes(root))) continue;
    // Of the runtime's own memory: what is written to next time.
    HostStorage* const own = own_memory(*before);
    if (!own) continue;
    set_origin(*own, e.code.executable);
    e.spare[o] = std::move(before);
  }
}

}  // namespace lazuli::detail
