#include "core/capture.h"

#include <utility>

#include "core/error.h"
#include "core/graph.h"
#include "core/node_map.h"
#include "core/topology.h"

namespace lazuli {

constinit thread_local Capture* Capture::current_ = nullptr;
constinit thread_local Capture* Capture::watching_ = nullptr;

// Looks at tensors as they are.
class Capture::Suspend {
 public:
  Suspend() : before_(std::exchange(current_, nullptr)) {}
  ~Suspend() { current_ = before_; }
  Suspend(const Suspend&) = delete;
  Suspend& operator=(const Suspend&) = delete;

 private:
  Capture* before_;
};

namespace {

// Graphs as they are without custom gradients.
class WithoutGradients {
 public:
  NodeRef operator()(const NodeRef& root) {
    for (const NodeRef& n : topological(std::span<const NodeRef>(&root, 1), true)) {
      if (made_.count(n)) continue;
      made_.insert({n, rebuilt(n)});
    }
    return made_.at(root);
  }
  void clear() { made_.clear(); }

 private:
  NodeRef rebuilt(const NodeRef& n) const {
    if (n->realised()) return n;
    if (n->op == Op::CustomVjp) return made_.at(n->src[0]);
    Sources src;
    for (const NodeRef& s : n->src) src.push_back(made_.at(s));
    return with_src(n, std::move(src));
  }

  NodeRefMap<NodeRef> made_;
};

}  // namespace

Capture::Capture() {
  ensure(current_ == nullptr, "a capture begins within another");
  current_ = watching_ = this;
}

Capture::~Capture() {
  if (active_) end();
  watching_ = nullptr;
}

void Capture::gone(LazyBuffer* buffer) {
  watching_->inside_.erase(buffer);
}

size_t Capture::add(Slot slot) {
  placeholders_.insert(slot.placeholder.get());
  if (slot.buffer) slot_of_buffer_[slot.buffer.get()] = slots_.size();
  slots_.push_back(std::move(slot));
  return slots_.size() - 1;
}

size_t Capture::slot_of(LazyBuffer* buffer) {
  if (const auto it = slot_of_buffer_.find(buffer); it != slot_of_buffer_.end()) return it->second;
  const Suspend suspend;
  const NodeRef n = buffer->node();
  require(!n->tracked || buffer->requires_grad(),
          "jit: the function uses a tensor of shape {} that was computed outside of it from one "
          "that requires a gradient; compute it in the function, or detach it",
          to_string(n->shape));
  Slot slot;
  slot.buffer = buffer;
  slot.now = slot.placeholder = placeholder(n->dtype, n->shape, n->tracked);
  const size_t number = add(std::move(slot));
  if (buffer->requires_grad()) move_gradient_leaf({}, slots_[number].now, buffer);
  return number;
}

Capture::Slot* Capture::outside(const LazyBuffer* buffer) {
  auto* const b = const_cast<LazyBuffer*>(buffer);
  return inside_.count(b) ? nullptr : &slots_[slot_of(b)];
}

void Capture::check_own(const LazyBuffer* buffer) const {
  require(inside_.count(const_cast<LazyBuffer*>(buffer)) > 0,
          "jit: the function calls requires_grad_ on a tensor from outside; call it before");
}

void Capture::touch_grad(LazyBuffer* buffer) {
  if (inside_.count(buffer) && !slot_of_buffer_.count(buffer)) return;
  const size_t number = slot_of(buffer);
  if (slots_[number].grad_touched) return;
  slots_[number].grad_touched = true;
  Ref<LazyBuffer> grad;
  {
    const Suspend suspend;
    grad = buffer->grad();
  }
  slots_[number].grad_before = slots_[number].grad_now = grad;
  slots_[number].had_grad = grad != nullptr;
  if (!grad || slot_of_buffer_.count(grad.get())) return;
  Slot& slot = slots_[slot_of(grad.get())];
  slot.kind = Slot::Kind::Gradient;
  slot.number = number;
}

Tensor Capture::argument(const Tensor& t, size_t number, Shape shape) {
  NodeRef n;
  std::optional<Tensor> grad;
  {
    const Suspend suspend;
    n = t.node();
    grad = t.grad();
  }
  require(
      !n->tracked || t.requires_grad(),
      "jit: argument {} of shape {} was computed from a tensor that requires a gradient; compute "
      "it in the function, or detach it",
      number, to_string(n->shape));
  Slot slot;
  slot.kind = Slot::Kind::Argument;
  slot.number = number;
  slot.placeholder = placeholder(n->dtype, shape, n->tracked);
  Tensor stand_in(slot.placeholder);
  slot.buffer = stand_in.buffer();
  const Suspend suspend;
  if (t.requires_grad()) slot.buffer->set_requires_grad(true);
  if (grad) slot.buffer->set_grad(grad->buffer());
  add(std::move(slot));
  return stand_in;
}

Tensor Capture::key() {
  Slot slot;
  slot.kind = Slot::Kind::Key;
  slot.placeholder = placeholder(DType::U32, {2});
  return Tensor(slots_[add(std::move(slot))].placeholder);
}

bool Capture::depends(const NodeRef& node) const {
  for (const NodeRef& n : topological(std::span<const NodeRef>(&node, 1), true)) {
    if (placeholders_.count(n.get())) return true;
  }
  return false;
}

std::vector<NodeRef> Capture::computable(std::span<const NodeRef> nodes) const {
  std::vector<NodeRef> out;
  for (const NodeRef& n : nodes) {
    if (!depends(n)) out.push_back(n);
  }
  return out;
}

void Capture::refuse_value() {
  user_error(
      "jit: the function asks for the value of a tensor while it is captured, when there is none "
      "yet; return the tensor and read it from the result, and let neither shapes nor branches "
      "depend on values");
}

std::vector<NodeRef> Capture::finish(std::vector<Tensor> results) {
  std::vector<NodeRef> nodes;
  for (const Tensor& t : results) nodes.push_back(t.node());
  for (size_t i = 0; i < slots_.size(); i++) {
    if (slots_[i].kind == Slot::Kind::Key) continue;
    const NodeRef n = slots_[i].buffer->node();
    if (n != slots_[i].placeholder) slots_[i].after = n;
    if (!slots_[i].grad_touched) continue;
    const Ref<LazyBuffer> grad = slots_[i].buffer->grad();
    slots_[i].grad_written = grad != slots_[i].grad_before;
    if (slots_[i].grad_written && grad) slots_[i].grad_after = grad->node();
  }
  end();

  // Gradients have been taken: what custom ones keep tensors for is let go, so that a tensor which
  // is still there is one that the function has kept.
  WithoutGradients without;
  for (NodeRef& n : nodes) n = without(n);
  for (Slot& s : slots_) {
    if (s.after) s.after = without(s.after);
    if (s.grad_after) s.grad_after = without(s.grad_after);
  }
  without.clear();
  results.clear();
  std::unordered_set<const LazyBuffer*> stand_ins;
  for (const Slot& s : slots_) stand_ins.insert(s.buffer.get());
  for (const LazyBuffer* b : inside_) {
    if (stand_ins.count(b)) continue;
    const NodeRef n = b->node();
    require(
        !depends(n),
        "jit: the function keeps a tensor of shape {} that it made; return it, or write it into "
        "a tensor from outside with assign_, since = only makes a variable name another tensor",
        to_string(n->shape));
  }
  return nodes;
}

void Capture::end() {
  active_ = false;
  current_ = nullptr;
  for (Slot& s : slots_) {
    if (s.kind == Slot::Kind::Argument) {
      // The stand-in lets go of what it was made to be.
      s.buffer->rebind(s.placeholder);
      s.buffer->set_grad(nullptr);
    }
    if (s.now && s.buffer->requires_grad()) move_gradient_leaf(s.now, {}, s.buffer.get());
    s.now = {};
    s.grad_before = s.grad_now = {};
  }
}

}  // namespace lazuli
