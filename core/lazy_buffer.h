// The handle between what a user holds and the graph: which node a tensor stands for right now, and what autograd keeps
// beside it. Copies of a Tensor share one LazyBuffer, so an in-place operation is seen by all of them.
#pragma once

#include <span>

#include "core/dtype.h"
#include "core/node_ref.h"
#include "core/spin_lock.h"
#include "core/storage.h"

namespace lazuli {

class LazyBuffer final : public Counted {
 public:
  explicit LazyBuffer(NodeRef node);
  ~LazyBuffer() override;
  LazyBuffer(const LazyBuffer&) = delete;
  LazyBuffer& operator=(const LazyBuffer&) = delete;
  // From cells (core/cell_pool.h): most live as short as an expression.
  static void* operator new(size_t bytes);
  static void operator delete(void* cell);

  /// The node that makes the value; a leaf once realised, unless a gradient may still be asked through it.
  NodeRef node() const;
  /// That of all its nodes.
  DType dtype() const { return dtype_; }
  /// Rebinds to another node of the same shape and dtype: in-place operations and realisation. With
  /// `from`, only if that is what it stands for still. Cannot fail outside of a capture.
  void rebind(NodeRef node, const Node* from = nullptr);

  /// Whether the value is computed, and that value or null; not of a tensor that a capture changes.
  bool realised() const;
  Ref<Storage> value() const;

  /// Lends node and storage of the value for a change, until give_back(); meanwhile node() waits.
  enum class Loan : uint8_t {
    Given,   // both are this tensor's alone: what is written there is its value. The node is lent
             // without its storage, and needs one again before it is given back
    Node,    // something else holds the storage, which stays as it is; the node may get another
    Shared,  // something else holds the node, or there is no value: nothing is lent
    Lent,    // to someone else
  };
  Loan lend(NodeRef& node, Ref<Storage>& storage);
  /// Afterwards wake_waiting(), once for all that are given back together.
  void give_back();
  static void wake_waiting();

  bool requires_grad() const { return requires_grad_; }
  /// Registers the present node, and those it is rebound to, as leaves that backward() finds.
  void set_requires_grad(bool on);
  Ref<LazyBuffer> grad() const;
  void set_grad(Ref<LazyBuffer> grad);

 private:
  void wait_for_return() const;

  NodeRef node_;
  Ref<LazyBuffer> grad_;
  mutable SpinLock lock_;  // of all above
  const DType dtype_;
  bool requires_grad_ = false;
  bool lent_ = false;
};

/// The buffer that requires a gradient and stands for this very node, if it is alive.
Ref<LazyBuffer> gradient_leaf(const NodeRef& node);

/// Computes the values of these nodes and attaches their storage. Registered by the runtime, because the graph does not
/// know how it is run.
using Realizer = void (*)(std::span<const NodeRef> nodes);
void set_realizer(Realizer realizer);
/// Calls it; UserError if no runtime is linked in.
void realize_nodes(std::span<const NodeRef> nodes);

/// Storage of `bytes` on the host, 64-byte aligned, from the same registered runtime (or the heap without one).
using StorageMaker = Ref<Storage> (*)(size_t bytes);
void set_storage_maker(StorageMaker maker);
Ref<Storage> make_storage(size_t bytes);

}  // namespace lazuli
