// One graph for all sizes of its dynamic axes. A function is traced at the upper bounds of its
// dimensions and at other sizes; the graphs are compared node by node, which tells which axes
// follow a dimension and which constants differ. What is made of them is a graph with the shapes of
// the upper bounds whose elements inside the true sizes are right at every size: reductions mask
// what lies beyond, and what differs is an array of one element that each call is given. Nothing
// beyond the true sizes is ever meant to be read.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/dim.h"
#include "core/node.h"

namespace lazuli {

/// A part of an axis: axes that were merged keep their parts, outermost first.
struct AxisPart {
  int64_t most = 1;  // its size at the upper bounds
  int dim = -1;      // which dimension it follows; -1: it is fixed
  int64_t add = 0;   // its size is that of the dimension plus this

  int64_t at(std::span<const int64_t> sizes) const {
    return dim < 0 ? most : sizes[static_cast<size_t>(dim)] + add;
  }
  friend bool operator==(const AxisPart&, const AxisPart&) = default;
};

/// What elements are that lie beyond the true size of an axis, and within those of all others.
enum class Beyond : uint8_t {
  Unknown,
  Zero,           // since arrays that are given are so
  MaskedZero,     // by a condition, from which kernels learn where they need not go
  MinusInfinity,  // likewise
};

struct SymbolicAxis {
  std::vector<AxisPart> parts;
  bool uniform = false;  // values do not differ along it
  Beyond beyond = Beyond::Unknown;

  bool fixed() const;
  int64_t at(std::span<const int64_t> sizes) const;
};
using SymbolicAxes = std::vector<SymbolicAxis>;

/// The shape for these sizes of the dimensions.
Shape shape_at(const SymbolicAxes& axes, std::span<const int64_t> sizes);
/// All parts, outermost first.
std::vector<AxisPart> parts_of(const SymbolicAxes& axes);

/// Does an array of true sizes begin as one of the upper bounds does, and only end earlier?
bool ends_with_size(const SymbolicAxes& axes);

/// A function's graph at some sizes. Slot i of one trace is slot i of another.
struct SymbolicTrace {
  std::vector<int64_t> sizes;
  std::vector<NodeRef> roots, slots;
};

class SymbolicGraph {
 public:
  /// `upper` is traced at the upper bounds. `slots` tells the axes of each slot. UserError where
  /// the two graphs differ in a way that is not understood.
  SymbolicGraph(std::vector<Dim> dims, std::vector<SymbolicAxes> slots, SymbolicTrace upper,
                SymbolicTrace other);

  /// The graph, over the slots of the upper trace and over extras().
  const std::vector<NodeRef>& roots() const { return roots_; }
  const SymbolicAxes& root_axes(size_t root) const;

  /// Leaves that each size gives values to: the sizes themselves, in the order of dims(), then
  /// constants and arrays that the function makes.
  struct Extra {
    NodeRef leaf;
    SymbolicAxes axes;
  };
  const std::vector<Extra>& extras() const { return extras_; }
  /// Values of the extras, realised, from a trace at these sizes, after a check that it is of this
  /// graph; UserError if it is not.
  std::vector<NodeRef> values(const SymbolicTrace& trace) const;

  const std::vector<int64_t>& upper_sizes() const { return upper_.sizes; }
  const std::vector<Dim>& dims() const { return dims_; }
  /// Which slot this leaf is; -1: none.
  int slot_of(const NodeRef& leaf) const;
  const SymbolicAxes& slot_axes(size_t slot) const { return slot_axes_[slot]; }

 private:
  // A pair of nodes that correspond.
  struct Pair {
    Op op = Op::Count_;    // of both, or of the one that has an op where the other has none
    NodeRef upper, other;  // equal to a source where an op does nothing at that size
    std::vector<int> src;
    SymbolicAxes axes;
    NodeRef made;
    int slot = -1;
    int extra = -1;                // of a constant or an array
    std::map<size_t, int> shifts;  // axis -> extra that says where it begins
    bool places = false;           // its first two sources are pads by the same amounts
  };

  static bool may_do_nothing(Op op);
  /// Number `i` of the argument of movement `n`, or what it is where that does nothing to `axis`.
  static int64_t argument(const NodeRef& n, Op op, size_t i, size_t axis);
  int pair(const NodeRef& upper, const NodeRef& other);
  Pair begin(const NodeRef& upper, const NodeRef& other) const;
  void make_leaf(Pair& p);
  void make(Pair& p);
  static bool same_places(const NodeRef& a, const NodeRef& b);
  bool places(Pair& p);
  void elementwise(Pair& p);
  Beyond beyond(const Pair& p, size_t axis) const;
  bool reduces(int x, Op op, int of) const;
  bool is_constant(int x, uint64_t bits) const;
  void reshape(Pair& p);
  void expand(Pair& p);
  void pad(Pair& p);
  void shrink(Pair& p);
  void reduce(Pair& p);
  void gather(Pair& p);
  void scatter(Pair& p);
  void ordered(Pair& p);
  const Pair& source(const Pair& p, size_t i) const;
  SymbolicAxis axis_from_sizes(const Pair& p, int64_t upper, int64_t other) const;
  int add_extra(NodeRef leaf, SymbolicAxes axes = {});
  NodeRef bound(const AxisPart& part) const;
  NodeRef masked(const NodeRef& x, const SymbolicAxes& axes, const std::vector<bool>& along,
                 uint64_t outside) const;
  NodeRef masked(const Pair& x, const std::vector<bool>& along, uint64_t outside) const;
  NodeRef contracted(const Pair& product, const std::vector<bool>& along) const;
  NodeRef shifted(const Pair& p, const NodeRef& x, size_t axis, int64_t size, int extra,
                  bool padding) const;
  void match(const Pair& p, const NodeRef& n, std::span<const int64_t> sizes,
             const SymbolicTrace& trace, std::vector<NodeRef>& sources,
             std::vector<NodeRef>& values) const;
  NodeRef reduced(const Pair& p, const NodeRef& n, std::span<const int64_t> sizes) const;
  std::string names() const;
  [[noreturn]] void refuse(const Pair& p) const;
  [[noreturn]] void differs(Op op, const std::string& a, const std::string& b) const;

  std::vector<Dim> dims_;
  std::vector<SymbolicAxes> slot_axes_;
  SymbolicTrace upper_, other_;
  std::vector<Pair> pairs_;
  std::vector<int> root_pairs_;
  std::map<std::pair<const Node*, const Node*>, int> known_;
  std::vector<NodeRef> roots_;
  std::vector<Extra> extras_;  // the first are the dimensions themselves
};

}  // namespace lazuli
