// Derivatives at the level of the graph, which the functions of core/gradient.h are made of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/gradient.h"
#include "core/topology.h"

namespace lazuli {

/// The cotangents of `targets`, given those of `outputs`, the roots of `graph`; a null entry: no
/// dependence.
std::vector<NodeRef> pull_back(const Topology& graph, std::span<const NodeRef> outputs,
                               std::span<const NodeRef> cotangents,
                               std::span<const NodeRef> targets);
/// The same, of whatever graph is below.
std::vector<NodeRef> pull_back(std::span<const NodeRef> outputs,
                               std::span<const NodeRef> cotangents,
                               std::span<const NodeRef> targets);

/// One row: the op, and the cotangents of its sources from its own (null: none). No row: no
/// gradient passes the op.
using GradientRule = Sources (*)(const NodeRef& out, const NodeRef& cotangent);
/// The row of an op; null if there is none.
GradientRule gradient_rule(Op op);
/// Whether an op passes gradients to at least one source.
bool is_differentiable(Op op);

/// The argument of a CustomVjp node. Nodes of one attribute and of equal sources are one node.
class VjpAttribute : public Attribute {
 public:
  /// The cotangents of the inputs of `node`, which has this attribute, from that of its value.
  virtual std::vector<Tensor> cotangents(const Node& node, const Tensor& cotangent) const = 0;
};

/// `value`, with the gradient that `rule` says.
NodeRef with_vjp(const NodeRef& value, std::span<const NodeRef> inputs, Ref<const Attribute> rule);

/// The graph of `outputs` for a batch: each of `inputs` is replaced by the node with a new leading
/// axis of size `batch`.
std::vector<NodeRef> batch_graph(std::span<const NodeRef> outputs, std::span<const NodeRef> inputs,
                                 std::span<const NodeRef> batched, int64_t batch);

}  // namespace lazuli
