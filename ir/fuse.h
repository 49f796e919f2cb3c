// The partition of a tensor graph into kernels. A kernel has a main part, whose members share a
// grid of independent iterations, and a finish part behind a barrier, for sums over the grid and
// what follows from them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/node_map.h"
#include "ir/kernel.h"
#include "ir/labels.h"
#include "ir/plan.h"
#include "ir/target.h"

namespace lazuli {

enum class Role : uint8_t {
  Leaf,     // a buffer, a realised value, a constant, an iota
  Move,     // a movement node or identity: the index map of a read
  Inline,   // a pointwise node evaluated where it is read
  Member,   // computed by a kernel
  Library,  // a step of its own: Scatter, Scan, ArgSort
};

struct Group {
  std::vector<int> main, finish;  // numbers of nodes, sources before users
  bool library = false;
  std::vector<int64_t> grid;  // extents
};

/// Nodes are known by their number in `nodes`, which is in topological order.
struct Partition {
  std::vector<NodeRef> roots;
  std::vector<NodeRef> nodes;
  NodeMap<int> number;
  std::vector<SmallVector<int, 3>>
      sources;  // numbers of each node's sources; none of realised nodes
  std::vector<Role> role;
  std::vector<int> group;       // of members and library nodes; -1 for others
  std::vector<uint8_t> finish;  // is in the finish part of its group
  std::vector<uint8_t> stored;  // has an array of its own
  std::vector<Labels> labels;   // of members of main parts: their space (source shape of a
                                // reduction) as axes of the grid
  Atoms atoms;
  std::vector<Group> groups;        // in order of execution
  std::vector<Decision> decisions;  // `step` is a group

  int of(const Node* n) const { return number.at(n); }
};

/// What fusion looks up about every node before it places any: computed once, linear in the nodes.
struct GraphFacts {
  std::vector<std::vector<int>>
      members;  // of a member: the members it reads, through movement and inlined nodes
  std::vector<std::vector<int>> buffers;  // and the arrays that exist already
  std::vector<int> readers;               // direct users of a node
  std::vector<int> cone;   // of a member: the movement and inlined nodes it evaluates
  std::vector<int> order;  // members and library nodes as they are placed
};

/// Fills nodes, roles and what follows from them: inlined are nodes that are cheap to evaluate from
/// stored arrays and the products that reductions sum.
GraphFacts prepare(Partition& p);

/// The graph with copies of values that each reading kernel computes for itself, and which node
/// each copy is one of. No roots: nothing pays.
struct Recomputed {
  std::vector<NodeRef> roots;
  NodeRefMap<NodeRef> originals;
};
Recomputed recompute(const Partition& p, const Target& target);

/// Decides which nodes share a kernel. `roots` are simplified. Linear in the nodes.
Partition partition(std::vector<NodeRef> roots, const Target& target);

/// The iteration space of a node: its shape, or that of a reduction's source.
const Shape& space(const Node& n);
/// Movement nodes and identities: only index maps.
bool is_move(const Node& n);
/// The axes of `x` along which its values differ, as far as movement ops tell.
std::vector<bool> varying_axes(const Node& x);
/// Sum of a product whose factors each miss a kept axis of the other.
bool is_contraction(const Node& n);
/// The output axis along which index `n` counts 0, 1, ... and which it alone depends on; -1 if
/// there is none.
int64_t counted_axis(const Node& n);
/// Labels of a gather from those of the array: axes whose index merely counts arrive unchanged.
Labels gathered_labels(const Node& gather, const Labels& array);

/// Labels of the nodes for which `is_input` says so and that member n reads, through movement and
/// inlined nodes, where an axis of theirs arrives whole at one axis of n's space, which has labels
/// `space`. Looks at a bounded number of nodes.
std::vector<std::pair<int, Labels>> input_labels(Partition& p, int n, const Labels& space,
                                                 const std::function<bool(int)>& is_input);

/// A kernel and the nodes (numbers) whose arrays are its arguments.
struct BuiltKernel {
  std::shared_ptr<Kernel> kernel;
  std::vector<int> arguments;
};

/// The algorithm of one group: stages of values over shared axes.
BuiltKernel build_kernel(Partition& p, const Group& group);

}  // namespace lazuli
