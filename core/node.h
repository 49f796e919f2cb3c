// The one immutable node. The tensor graph and the kernels are made of it, so there is one printer,
// one walker and one matcher. Nodes are interned: equal nodes are the same object, equality is a
// pointer compare, and a memo is a map on pointers. They are counted, shared between threads, and
// freed without recursion, so a graph may be a million deep.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <variant>

#include "core/node_ref.h"
#include "core/op.h"
#include "core/scalar.h"
#include "core/shape.h"
#include "core/storage.h"

namespace lazuli {

struct Hash128 {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

/// An argument with its own meaning, compared by identity (a user's function, say).
class Attribute : public Counted {
 public:
  virtual std::string text() const = 0;
};

/// The value of a Const: bits of one element of the node's dtype.
struct ScalarBits {
  uint64_t bits = 0;
  friend bool operator==(const ScalarBits&, const ScalarBits&) = default;
};

/// What a Var is: unique by serial; values lie in [0, extent).
struct VarArg {
  int64_t serial = 0;
  int64_t extent = 1;
  std::string name;
  friend bool operator==(const VarArg& a, const VarArg& b) { return a.serial == b.serial; }
};

using Arg =
    std::variant<std::monostate, int64_t, ScalarBits, Ints, VarArg, Ref<const Attribute>>;
using Sources = SmallVector<NodeRef, 3>;

struct NodeInit;

/// {op, dtype, arg, src} and what follows from them. Made by make() alone. Graphs have millions:
/// what most nodes lack or have in common with a source stands outside.
struct Node final : Counted {
  const Op op;
  const DType dtype;
  /// Depends on a tensor whose gradient is wanted: its history outlives realize().
  const bool tracked;

 private:
  mutable std::atomic<bool> realised_{false};

 public:
  const Shape& shape;  // of the tensor; () inside kernels. That of a source, where they are equal
  const Arg& arg;
  const Sources src;
  const Hash128 hash;     // structural: op, dtype, shape, arg, sources
  /// As `hash`, but nodes that one plan may run agree: sources that had a value when this node was
  /// made count by dtype and shape, serial numbers do not count, nor values of constants, nor what
  /// a shrink cuts out of such a source. See runtime/graph_form.h.
  const uint64_t form;
  const int64_t lo, hi;   // interval of an integer value in a kernel, from its construction
  // Order of construction; of a node that is being freed, the next of those.
  mutable uint64_t serial;

  int64_t numel() const { return lazuli::numel(shape); }
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  const Ints& ints() const { return std::get<Ints>(arg); }
  int64_t integer() const { return std::get<int64_t>(arg); }

  /// The realised value, if there is one. Set once, by a device, from any thread; scheduling then
  /// treats the node as a leaf.
  Ref<Storage> storage() const;
  void set_storage(Ref<Storage> storage) const;
  /// Another value for a leaf that nothing else refers to; returns the one before. Not while another
  /// thread may come by a reference.
  Ref<Storage> exchange_storage(Ref<Storage> storage) const {
    return std::exchange(storage_, std::move(storage));
  }
  bool realised() const { return realised_.load(std::memory_order_acquire); }

  Node(NodeInit&& init, const Shape& shape, const Hash128& hash, uint64_t form);
  ~Node() override;

 private:
  void free() const override;  // and what it alone held, without recursion
  mutable Ref<Storage> storage_;
};

inline NodeRef::operator const Node*() const { return get(); }

/// What make() interns; `lo` and `hi` matter for kernel-level integers alone.
struct NodeInit {
  Op op;
  DType dtype;
  Shape shape = {};
  Arg arg = std::monostate();  // {} would fill it with zeros
  Sources src = {};
  bool tracked = false;
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  /// In place of `shape`: one that need not be copied where it is that of a source.
  const Shape* same_shape = nullptr;
};

/// The only door to a node: returns the node equal to `init` if one is alive, else a new one. No
/// checks beyond arity; core/graph.h has the checked builders. Thread-safe.
NodeRef make(NodeInit&& init);

/// What `{...}` makes too, which copies what a list of arguments here moves.
template <typename... N>
Sources sources(N&&... nodes) {
  Sources list;
  (list.push_back(std::forward<N>(nodes)), ...);
  return list;
}

/// `n` itself if `src` are its sources already, else the same op and arg over `src`.
NodeRef with_src(const NodeRef& n, Sources src);

/// The form of an array.
uint64_t array_form(DType dtype, const Shape& shape);
/// The form of `n` as its users see it now: that of an array where it has a value.
inline uint64_t present_form(const Node& n) {
  return n.op != Op::Buffer && n.realised() ? array_form(n.dtype, n.shape) : n.form;
}

/// A serial number never handed out before in this process: for Fresh, Buffer, Var and Checkpoint.
int64_t next_serial();

/// Number of nodes alive in the process: for tests of leaks.
size_t live_nodes();

struct NodeEqual {
  bool operator()(const NodeRef& a, const NodeRef& b) const { return a.get() == b.get(); }
};

}  // namespace lazuli
