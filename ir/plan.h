// What the graph-level scheduler hands to the runtime: kernels and library steps in order, over slots of memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/node.h"
#include "core/symbolic.h"
#include "ir/kernel.h"
#include "ir/target.h"

namespace lazuli {

/// One array that a plan reads or writes.
struct PlanSlot {
  enum class Role : uint8_t { Input, Output, Temporary };
  Role role = Role::Temporary;
  DType dtype = DType::F32;
  Shape shape;
  NodeRef node;  // the node whose value it holds
  bool sized = false;  // an input or output of the true size, which the shape is not
};

/// One step. A kernel's argument i is slot arguments[i]. A library step runs the op of `node` (Scatter, Scan, ArgSort, Sort or Update) with
/// its sources in arguments[0..n-1] and its result in the last.
struct PlanStep {
  std::shared_ptr<Kernel> kernel;  // null: a library step
  NodeRef node;
  std::vector<int> arguments;
  std::vector<NodeRef> members;    // graph nodes computed here
  std::vector<Op> operations;      // and all ops that it takes, those evaluated inside others too
};

/// How far rows lie apart, in rows, of an input that has an axis of rows inside which follows a
/// dimension: the size that `rows` has, or as many as at the upper bounds, where the array was
/// copied to a room for those.
struct PlanPitch {
  int array = -1, slot = -1;  // the input, and the one that says it
  AxisPart rows;
};

/// One decision of the scheduler: which node, what was decided, and why, with numbers.
struct Decision {
  int node = -1;  // number of the node in print_graph of the simplified roots
  int step = -1;
  std::string text;
  Op op = Op::Count_;  // what the node is
};

struct Plan {
  std::vector<PlanSlot> slots;
  std::vector<PlanStep> steps;
  std::vector<Decision> decisions;
  std::vector<NodeRef> roots;  // simplified: what the plan computes, in the caller's order
  std::vector<int> outputs;    // slot of each root; an Input slot if the root was realised already
  std::vector<int> donors;     // of each root: the input slot whose memory its value may take, or -1
  std::vector<int> size_slots;  // slots of the sizes that a graph for several sizes is run for; -1:
                                // it needs none
  std::vector<PlanPitch> pitches;
  bool exact = true;           // no sum takes the form of ir/winograd.h
};

/// Simplifies, partitions into kernels and builds their algorithms. `roots` are tensor-level nodes; realised nodes below
/// them are leaves. `donors` holds for each root (or for none at all) the leaf that nobody needs once the root is there, or
/// null: a root that changes a box of its donor, or scatters into it, is a step that may do so in the donor's memory.
/// `made`, if it is given, is called with each kernel as soon as its algorithm is written.
Plan make_plan(std::span<const NodeRef> roots, const Target& target, std::span<const NodeRef> donors = {},
               const std::function<void(const std::shared_ptr<Kernel>&)>& made = {});

/// The partition as text: every kernel, its nodes, and the reasons.
std::string print_plan(const Plan& plan);

}  // namespace lazuli
