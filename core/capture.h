// What lz::jit needs to know of a function: which tensors from outside it reads, which of them it
// changes, and what it draws. While a capture is active on a thread, every tensor from outside that
// is touched stands there for an array that is nowhere yet. The tensors themselves do not change:
// other threads see the values that they have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/tensor.h"

namespace lazuli {

class Capture {
 public:
  /// An array that the function takes from outside.
  struct Slot {
    enum class Kind : uint8_t {
      Argument,  // a tensor given to the function
      Captured,  // one that it found elsewhere
      Gradient,  // the .grad of another slot's tensor
      Key,       // a random key, drawn anew for each call
    };
    Kind kind = Kind::Captured;
    size_t number = 0;       // of the argument; or which slot's gradient
    Ref<LazyBuffer> buffer;  // the tensor, or what the function was given in its place
    NodeRef placeholder;
    NodeRef now;     // what the tensor stands for in the capture, if it is from outside
    NodeRef after;   // what it was rebound to; null: it was not
    // Its .grad: whether that was asked for or set, what it was, is in the capture, and became
    // (null: cleared).
    bool grad_touched = false, grad_written = false, had_grad = false;
    Ref<LazyBuffer> grad_before, grad_now;
    NodeRef grad_after;
  };

  Capture();
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// The one of this thread; null if there is none.
  static Capture* current() { return current_; }

  /// What the function is given for argument `number`, an array of `shape`. The same for the same
  /// tensor.
  Tensor argument(const Tensor& t, size_t number, Shape shape);
  /// A random key of the call.
  Tensor key();

  /// Ends the capture: afterwards slots() tells what was changed. `results` are what the function
  /// returned; their nodes are the answer. UserError if it kept a tensor that it made anywhere
  /// else.
  std::vector<NodeRef> finish(std::vector<Tensor> results);
  const std::vector<Slot>& slots() const { return slots_; }

  /// Those of `nodes` that can be computed now, since they depend on no slot.
  std::vector<NodeRef> computable(std::span<const NodeRef> nodes) const;
  /// UserError: the value of a tensor is asked for.
  [[noreturn]] static void refuse_value();

  // ---- called by LazyBuffer
  void made(LazyBuffer* buffer) { inside_.insert(buffer); }
  static void gone(LazyBuffer* buffer);
  /// Whether one of this thread, which may be suspended, must be told of tensors that go.
  static bool is_watching() { return watching_ != nullptr; }
  /// The slot of a tensor, until another one is asked for; null if the function has made it.
  Slot* outside(const LazyBuffer* buffer);
  /// UserError unless the function has made it.
  void check_own(const LazyBuffer* buffer) const;
  void touch_grad(LazyBuffer* buffer);

 private:
  class Suspend;
  // constinit: else each look would first ask whether they need to be made.
  static constinit thread_local Capture* current_;
  static constinit thread_local Capture* watching_;  // also while it is suspended

  size_t slot_of(LazyBuffer* buffer);
  size_t add(Slot slot);
  bool depends(const NodeRef& node) const;
  void end();

  std::vector<Slot> slots_;
  std::unordered_map<const LazyBuffer*, size_t> slot_of_buffer_;
  std::unordered_set<const Node*> placeholders_;
  std::unordered_set<LazyBuffer*> inside_;  // made since the capture began, and alive
  bool active_ = true;
};

// Instead of the first node, where that is not null, the second is what backward() finds `buffer`
// by. Defined with the table of those.
void move_gradient_leaf(const NodeRef& from, const NodeRef& to, LazyBuffer* buffer);

}  // namespace lazuli
