#include "runtime/jit.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <optional>

#include "core/capture.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/node_map.h"
#include "core/ops_random.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "runtime/storage.h"

namespace lazuli::detail {
namespace {

using Slot = Capture::Slot;
using StorageRef = Ref<Storage>;

// A captured function for arguments of one kind: what it runs, what that reads and what it changes.
struct Entry {
  const void* signature;
  std::string plain;
  uint64_t runtime;  // its serial number
  Device* device;
  std::vector<size_t> same_as;  // for each argument, the first that is the same tensor
  std::vector<Slot> slots;
  std::vector<bool> written;  // for each slot

  Captured code;
  struct Input {
    int slot = -1;        // number of one, or
    StorageRef constant;  // an array that the function made when it was captured
    int root = -1;        // which may take its memory, if nothing else holds that; -1: none
  };
  std::vector<Input> inputs;
  std::vector<size_t> results;  // which root each is
  struct Effect {
    size_t slot;
    bool on_grad;
    int root;  // -1: the gradient is cleared
  };
  std::vector<Effect> effects;
  Ref<Counted> kept;              // what the function returned when it was captured
  std::vector<StorageRef> spare;  // for each root: memory for its next value, or null
  // Of each root: roots that differ in shape alone share an array.
  std::vector<std::pair<DType, Shape>> types;

  PlanSlot::Role role(size_t root) const {
    const Plan& plan = code.executable->plan();
    return plan.slots[static_cast<size_t>(plan.outputs[root])].role;
  }
};

}  // namespace

class JitState final : public Counted {
 public:
  Ref<Counted> run(JitCall& call, const JitCall::Trace& trace);
  JitCount total() const { return {captures_, calls_}; }

 private:
  static constexpr size_t kMaxEntries = 64;

  bool matches(const Entry& e, const JitCall& call) const;
  Entry capture(const JitCall& call, const JitCall::Trace& trace);
  void replay(Entry& e, JitCall& call);
  void find_donors(Entry& e) const;

  std::mutex mutex_;
  std::list<Entry> entries_;  // the latest used first
  std::atomic<int64_t> captures_ = 0, calls_ = 0;
};

namespace {

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

// The tensor that a slot stands for in this call; null for a key, and where there is no gradient.
Ref<LazyBuffer> buffer_of(const Entry& e, size_t slot, std::span<const Tensor> arguments) {
  const Slot& s = e.slots[slot];
  switch (s.kind) {
    case Slot::Kind::Argument:
      return arguments[s.number].buffer();
    case Slot::Kind::Captured:
      return s.buffer;
    case Slot::Kind::Gradient:
      return buffer_of(e, s.number, arguments)->grad();
    case Slot::Kind::Key:
      break;
  }
  return nullptr;
}

// Memory of the runtime's own: not what a user writes to, nor a part of another array.
HostStorage* own_memory(const StorageRef& storage) {
  return dynamic_cast<HostStorage*>(storage.get());
}

// Values of the roots. Tensors that get theirs in place, where nobody holds the one before, are
// lent meanwhile.
std::vector<StorageRef> run_plan(Entry& e, const std::vector<Ref<LazyBuffer>>& buffers) {
  const auto buffer = [&](const Entry::Input& in) -> LazyBuffer& {
    return *buffers[static_cast<size_t>(in.slot)];
  };
  std::vector<StorageRef> inputs(e.inputs.size());
  // First what stays as it is: that it is read here keeps its memory from being lent.
  for (size_t i = 0; i < inputs.size(); i++) {
    const Entry::Input& in = e.inputs[i];
    if (in.root < 0) inputs[i] = in.slot < 0 ? in.constant : buffer(in).node()->storage();
  }
  std::vector<StorageRef> outputs(e.spare.size());
  std::swap(outputs, e.spare);
  std::optional<Loans> loans;
  for (LazyBuffer* busy = nullptr;; busy->wait_for_return()) {
    // Whoever waits has lent nothing, so that no two wait for each other.
    loans.emplace();
    busy = nullptr;
    for (size_t i = 0; i < inputs.size() && !busy; i++) {
      const Entry::Input& in = e.inputs[i];
      if (in.root < 0) continue;
      inputs[i] = nullptr;
      if (loans->take(buffer(in), inputs[i]) == LazyBuffer::Loan::Lent) busy = &buffer(in);
    }
    if (!busy) break;
    loans.reset();
  }
  for (size_t i = 0; i < inputs.size(); i++) {
    const Entry::Input& in = e.inputs[i];
    if (in.root < 0) continue;
    if (!inputs[i]) {
      inputs[i] = buffer(in).node()->storage();
    } else if (HostStorage* const own = own_memory(inputs[i])) {
      own->origin = e.code.origin;
      outputs[static_cast<size_t>(in.root)] = inputs[i];
    }
  }
  return lazuli::run(e.code, Runtime::current().memory, inputs, outputs);
}

std::vector<size_t> first_of_same(std::span<const Tensor> tensors) {
  std::vector<std::pair<const LazyBuffer*, size_t>> order;
  for (size_t i = 0; i < tensors.size(); i++) order.push_back({tensors[i].buffer().get(), i});
  std::sort(order.begin(), order.end());
  std::vector<size_t> same_as(tensors.size());
  for (size_t k = 0; k < order.size(); k++) {
    const bool same = k > 0 && order[k].first == order[k - 1].first;
    same_as[order[k].second] = same ? same_as[order[k - 1].second] : order[k].second;
  }
  return same_as;
}

// The function has two stand-ins for an argument that it also finds elsewhere: what it writes to
// one does not show in the other.
void check_apart(const Entry& e, std::span<const Tensor> arguments) {
  for (size_t a = 0; a < e.slots.size(); a++) {
    if (e.slots[a].kind != Slot::Kind::Argument) continue;
    const size_t number = e.slots[a].number;
    for (size_t c = 0; c < e.slots.size(); c++) {
      if (e.slots[c].kind != Slot::Kind::Captured || !(e.written[a] || e.written[c])) continue;
      require(e.slots[c].buffer != arguments[number].buffer(),
              "jit: argument {} is a tensor that the function also finds outside, and writes to; "
              "either give it or let it be found",
              number);
    }
  }
}

}  // namespace

bool JitState::matches(const Entry& e, const JitCall& call) const {
  if (e.signature != call.signature_ || e.plain != call.plain_) return false;
  Runtime& runtime = Runtime::current();
  if (e.runtime != runtime.serial || e.device != &runtime.device()) return false;
  if (e.same_as != first_of_same(call.tensors_)) return false;
  for (size_t i = 0; i < e.slots.size(); i++) {
    const Slot& s = e.slots[i];
    if (s.kind == Slot::Kind::Key) continue;
    // A tensor that nothing else knows any more was replaced by another.
    if (s.kind == Slot::Kind::Captured && s.buffer->count() == 1) return false;
    const Ref<LazyBuffer> buffer = buffer_of(e, i, call.tensors_);
    if (!buffer) return false;
    const NodeRef n = buffer->node();
    if (n->dtype != s.placeholder->dtype || n->shape != s.placeholder->shape) return false;
    if (buffer->requires_grad() != s.placeholder->tracked) return false;
    if (s.grad_touched && (buffer->grad() != nullptr) != s.had_grad) return false;
  }
  return true;
}

Entry JitState::capture(const JitCall& call, const JitCall::Trace& trace) {
  captures_++;
  Entry e;
  e.signature = call.signature_;
  e.plain = call.plain_;
  e.runtime = Runtime::current().serial;
  e.device = &Runtime::current().device();
  e.same_as = first_of_same(call.tensors_);

  std::vector<NodeRef> roots;
  const auto root = [&](const NodeRef& n) {
    const auto i = static_cast<size_t>(std::find(roots.begin(), roots.end(), n) - roots.begin());
    if (i == roots.size()) roots.push_back(n);
    return i;
  };
  {
    Capture capture;
    std::vector<Tensor> stand_ins, made;
    for (size_t i = 0; i < call.tensors_.size(); i++) {
      const size_t same = e.same_as[i];
      stand_ins.push_back(same == i ? capture.argument(call.tensors_[i], i) : stand_ins[same]);
    }
    const Span span(Runtime::current().trace, "graph", "build a graph");
    e.kept = trace(stand_ins, made);
    for (const NodeRef& n : capture.finish(std::move(made))) e.results.push_back(root(n));
    e.slots = capture.slots();
  }
  for (size_t i = 0; i < e.slots.size(); i++) {
    Slot& s = e.slots[i];
    if (s.after) e.effects.push_back({i, false, static_cast<int>(root(s.after))});
    if (s.grad_written) {
      e.effects.push_back({i, true, s.grad_after ? static_cast<int>(root(s.grad_after)) : -1});
    }
    e.written.push_back(s.after || s.grad_written);
    // Neither graphs nor values are kept.
    s.after = s.grad_after = {};
    if (s.kind != Slot::Kind::Captured) s.buffer = nullptr;
  }
  check_apart(e, call.tensors_);

  if (roots.empty()) return e;
  // What a tensor was before is needed no more when it has its new value.
  std::vector<NodeRef> donors(roots.size());
  for (const Entry::Effect& f : e.effects) {
    const Slot& s = e.slots[f.slot];
    const bool owns = s.kind == Slot::Kind::Captured || s.kind == Slot::Kind::Argument;
    if (!f.on_grad && owns) donors[static_cast<size_t>(f.root)] = s.placeholder;
  }
  e.code = e.device->capture(roots, donors);
  e.spare.resize(roots.size());
  for (const NodeRef& n : roots) e.types.push_back({n->dtype, n->shape});
  NodeMap<int> slot_of;
  for (size_t i = 0; i < e.slots.size(); i++) slot_of[e.slots[i].placeholder] = static_cast<int>(i);
  for (const NodeRef& n : std::exchange(e.code.inputs, {})) {
    const auto it = slot_of.find(n);
    if (it == slot_of.end() && !n->realised()) refuse_example();
    e.inputs.push_back(it == slot_of.end() ? Entry::Input{-1, n->storage()}
                                           : Entry::Input{it->second, nullptr});
  }
  find_donors(e);
  return e;
}

void JitState::find_donors(Entry& e) const {
  const Executable& executable = *e.code.executable;
  const Plan& plan = executable.plan();
  std::vector<size_t> input_of(plan.slots.size());
  size_t inputs = 0;
  for (size_t s = 0; s < plan.slots.size(); s++) {
    if (plan.slots[s].role == PlanSlot::Role::Input) input_of[s] = inputs++;
  }
  for (size_t r = 0; r < plan.outputs.size(); r++) {
    const int donor = executable.memory().donors[static_cast<size_t>(plan.outputs[r])];
    if (donor < 0) continue;
    Entry::Input& in = e.inputs[input_of[static_cast<size_t>(donor)]];
    if (in.slot >= 0) in.root = static_cast<int>(r);
  }
}

void JitState::replay(Entry& e, JitCall& call) {
  check_apart(e, call.tensors_);
  // The present value of each slot.
  std::vector<Ref<LazyBuffer>> buffers;
  std::vector<Tensor> waiting;
  KeyDraws keys;
  for (size_t i = 0; i < e.slots.size(); i++) {
    const bool key = e.slots[i].kind == Slot::Kind::Key;
    buffers.push_back(key ? keys.next().buffer() : buffer_of(e, i, call.tensors_));
    if (!buffers[i]->node()->realised()) waiting.emplace_back(buffers[i]);
  }
  if (!waiting.empty()) realize(waiting);
  std::vector<StorageRef> values;
  if (e.code.executable) values = run_plan(e, buffers);

  // Only now does anything change.
  keys.keep();
  const auto leaf = [&](size_t root) {
    const auto& [dtype, shape] = e.types[root];
    return buffer(dtype, shape, values[root]);
  };
  for (size_t root : e.results) call.results_.emplace_back(leaf(root));
  for (const Entry::Effect& f : e.effects) {
    LazyBuffer& target = *buffers[f.slot];
    if (f.on_grad) {
      target.set_grad(f.root < 0 ? nullptr : Tensor(leaf(static_cast<size_t>(f.root))).buffer());
      continue;
    }
    const auto root = static_cast<size_t>(f.root);
    StorageRef before = target.set_value(values[root]);
    if (!before || e.role(root) != PlanSlot::Role::Output) continue;
    // Of the runtime's own memory: what is written to next time.
    HostStorage* const own = own_memory(before);
    if (!own) continue;
    own->origin = e.code.origin;
    e.spare[root] = std::move(before);
  }
}

Ref<Counted> JitState::run(JitCall& call, const JitCall::Trace& trace) {
  const std::lock_guard lock(mutex_);
  calls_++;
  auto it = std::find_if(entries_.begin(), entries_.end(),
                         [&](const Entry& e) { return matches(e, call); });
  if (it == entries_.end()) {
    entries_.push_front(capture(call, trace));
    if (entries_.size() > kMaxEntries) entries_.pop_back();
  } else if (it != entries_.begin()) {
    entries_.splice(entries_.begin(), entries_, it);
  }
  replay(entries_.front(), call);
  return entries_.front().kept;
}

JitCall::JitCall(Ref<JitState> state, const void* signature)
    : state_(std::move(state)), signature_(signature) {}

void JitCall::add_plain(std::string_view bytes) {
  const size_t size = bytes.size();
  plain_.append(reinterpret_cast<const char*>(&size), sizeof size);
  plain_ += bytes;
}

Ref<Counted> JitCall::run(const Trace& trace) {
  return state_->run(*this, trace);
}

Ref<JitState> make_jit_state() {
  return make_ref<JitState>();
}

bool is_capturing() {
  return Capture::current() != nullptr;
}

JitCount count(const Ref<JitState>& state) {
  return state->total();
}

}  // namespace lazuli::detail
