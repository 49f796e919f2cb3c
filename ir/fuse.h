// The partition of a tensor graph into kernels. A kernel has a main part, whose members share a
// grid of independent iterations, and a finish part behind a barrier, for sums over the grid and
// what follows from them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/topology.h"
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
  Library,  // a step of its own: Scatter, Scan, ArgSort, Sort, Update
};

/// What fusion knows and decides of one node.
struct FusedNode {
  Role role = Role::Member;
  bool array = false;   // must be an array: what a root or a library step is or reads, a copy
  bool finish = false;  // is in the finish part of its group
  bool stored = false;  // has an array of its own
  int group = -1;
  int place = 0;  // among the members of its group in ascending order
  int cone = 0;
  Numbers users;
  // of members and library nodes
  Numbers members;  // read through movement and inlined nodes, of which there are `cone`
  Numbers buffers;  // arrays that exist already, read likewise
  Labels labels;    // of members of main parts: their space as axes of the grid

  bool is_member() const { return role == Role::Member || role == Role::Library; }
  /// Evaluated where it is read.
  bool passes() const { return role == Role::Move || role == Role::Inline; }
};

struct Group {
  std::vector<int> main, finish;  // numbers of nodes, sources before users
  bool library = false;
  std::vector<int64_t> grid;  // extents

  std::vector<int> members() const;  // of both parts
};

/// Nodes are known by their numbers in the graph.
struct Partition {
  explicit Partition(std::vector<NodeRef> of)
      : roots(std::move(of)), graph(roots, true), nodes(graph.size()) {}

  std::vector<NodeRef> roots;
  Topology graph;
  PassVector<FusedNode> nodes;
  std::vector<int> order;  // members and library nodes as they are placed
  Atoms atoms;
  std::vector<Group> groups;        // in order of execution
  std::vector<Decision> decisions;  // `step` is a group

  FusedNode& operator[](int n) { return nodes[static_cast<size_t>(n)]; }
  const FusedNode& operator[](int n) const { return nodes[static_cast<size_t>(n)]; }
  const NodeRef& node_ref(int n) const { return graph.nodes[static_cast<size_t>(n)]; }
  const Node& node(int n) const { return *node_ref(n); }
  std::span<const int> sources(int n) const { return graph.sources(static_cast<size_t>(n)); }
};

/// Decides which nodes share a kernel. `roots` are simplified. Linear in the nodes.
Partition partition(std::vector<NodeRef> roots, const Target& target);

// ---- its steps

/// Fills in what is known of every node before any is placed: inlined are nodes that are cheap to
/// evaluate from stored arrays and the products that reductions sum. Linear in the nodes.
void prepare(Partition& p);

/// The graph with copies of values that reading kernels compute for themselves, and which node
/// each copy is one of. No roots: nothing pays. `together`: a copy is for all of them, which may
/// become one kernel; else each has its own.
struct Recomputed {
  std::vector<NodeRef> roots;
  NodeRefMap<NodeRef> originals;
};
Recomputed recompute(const Partition& p, const Target& target, bool together);

/// A kernel and the nodes (numbers) whose arrays are its arguments.
struct BuiltKernel {
  std::shared_ptr<Kernel> kernel;
  std::vector<int> arguments;
};

/// The algorithm of one group: stages of values over shared axes.
BuiltKernel build_kernel(Partition& p, const Group& group);

// ---- facts of a node

/// The iteration space of a node: its shape, or that of a reduction's source.
const Shape& space(const Node& n);
/// Is the axis one that n reduces?
bool reduces_axis(const Node& n, size_t axis);
/// The entries of a reduction's space that it keeps; all of another node's.
Labels kept_labels(const Node& n, const Labels& space);
/// Movement nodes and identities: only index maps.
bool is_move(const Node& n);
/// What x is an index map of.
const Node& moved_from(const Node& x);
/// For each axis of `x`: do its values differ along it, as far as movement ops tell?
SmallVector<bool, 8> varying_axes(const Node& x);
/// The axis along which index `n` counts 0, 1, ... and which it alone depends on; -1 if there is
/// none.
int64_t counted_axis(const Node& n);
/// Sum of a product whose factors each miss a kept axis of the other.
bool is_contraction(const Node& n);
/// The axes that a sum of a product keeps and that one factor alone has.
struct TileAxes {
  SmallVector<size_t, 8> of[2];
};
TileAxes tile_axes(const Node& n);
/// Sum of a product with a factor that moves windows over a padded array, so that an element of it
/// is read more than once.
bool slides_over_padding(const Node& n);

// ---- labels, followed through the graph

/// Labels of nodes as they follow from known ones, through movement and pointwise nodes.
class LabelWalk {
 public:
  /// Does a walk end at node x, and with which labels, if any?
  using End = std::function<bool(int x, std::optional<Labels>& labels)>;
  LabelWalk(Partition& p, Atoms::Join join, End end) : p_(p), join_(join), end_(std::move(end)) {}

  /// Labels of node x; nothing if no way up from it ends at labels.
  std::optional<Labels> at(int x);
  /// Labels of node n's space from those of its sources.
  std::optional<Labels> of_sources(int n);

 private:
  Partition& p_;
  Atoms::Join join_;
  End end_;
  std::map<int, std::optional<Labels>> known_;  // of nodes on the way
};

/// The other way: labels of the nodes for which `is_input` says so and that member n reads, through
/// movement and inlined nodes, where an axis of theirs arrives whole at one axis of n's space,
/// which has labels `space`. Looks at a bounded number of nodes.
std::vector<std::pair<int, Labels>> input_labels(Partition& p, int n, const Labels& space,
                                                 const std::function<bool(int)>& is_input);

}  // namespace lazuli
