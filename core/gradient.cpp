#include "core/gradient_graph.h"

#include <algorithm>

#include "core/error.h"
#include "core/graph.h"
#include "core/topology.h"

namespace lazuli {
namespace {

NodeRef zeros_like(const NodeRef& n) { return constant(Scalar(0), n->dtype, n->shape); }

void check_differentiable(std::string_view op, const Tensor& y, std::span<const Tensor> xs) {
  if (!is_float(y.dtype())) {
    user_error("{}: the result has dtype {}; only floating point results have gradients", op, name(y.dtype()));
  }
  for (size_t i = 0; i < xs.size(); i++) {
    if (!is_float(xs[i].dtype())) {
      user_error("{}: input {} has dtype {}; only floating point tensors have gradients", op, i, name(xs[i].dtype()));
    }
  }
}

// A realised array whose history was dropped cannot depend on anything: asking it for a gradient would give silent zeros.
void check_history(std::string_view op, const Tensor& y, std::span<const Tensor> xs) {
  const NodeRef n = y.node();
  if (n->op != Op::Buffer || n->tracked) return;
  for (const Tensor& x : xs) {
    if (x.node() == n) return;
  }
  user_error("{}: the result is an array whose history was dropped when it was realised; take gradients before realize(), or "
             "call requires_grad_() on the inputs first",
             op);
}

NodeRef cotangent_of(const Tensor& y, const Tensor& v) {
  if (v.shape() != y.shape()) {
    user_error("vjp: the cotangent has shape {}, the result {}", to_string(v.shape()),
               to_string(y.shape()));
  }
  return cast(v.node(), y.dtype());
}

// A gradient by an input that no result is made of is zero, and mostly a mistake: an array between
// them was realised.
void check_used(std::string_view op, const Topology& graph, std::span<const Tensor> xs) {
  for (size_t i = 0; i < xs.size(); i++) {
    if (xs[i].numel() == 0 || graph.find(xs[i].node()) >= 0) continue;
    user_error("{}: the result is not made of input {}, of shape {}. If that was realised or assigned to since, or an array "
               "between them was realised, take gradients before, or call requires_grad_() on the inputs first; if it is "
               "meant, Unused::kZeros gives zeros",
               op, i, to_string(xs[i].shape()));
  }
}

// Where there is no dependence, zeros.
std::vector<NodeRef> or_zeros(std::vector<NodeRef> gradients, std::span<const NodeRef> targets) {
  for (size_t i = 0; i < targets.size(); i++) {
    if (!gradients[i]) gradients[i] = fresh(zeros_like(targets[i]));
  }
  return gradients;
}

std::vector<NodeRef> nodes_of(std::span<const Tensor> tensors) {
  std::vector<NodeRef> r;
  for (const Tensor& t : tensors) r.push_back(t.node());
  return r;
}

}  // namespace

std::vector<NodeRef> pull_back(std::span<const NodeRef> outputs, std::span<const NodeRef> cotangents,
                               std::span<const NodeRef> targets) {
  return pull_back(Topology(outputs), outputs, cotangents, targets);
}

std::vector<NodeRef> pull_back(const Topology& graph, std::span<const NodeRef> outputs,
                               std::span<const NodeRef> cotangents,
                               std::span<const NodeRef> targets) {
  std::vector<bool> wanted(graph.size()), is_target(graph.size());  // wanted: between a target and an output
  for (const NodeRef& t : targets) {
    const int i = graph.find(t);
    if (i >= 0) wanted[static_cast<size_t>(i)] = is_target[static_cast<size_t>(i)] = true;
  }
  const auto is_wanted = [&](int i) { return static_cast<bool>(wanted[static_cast<size_t>(i)]); };
  std::vector<bool> passes(graph.size());  // hands something on to its sources
  for (size_t i = 0; i < graph.size(); i++) {
    if (!gradient_rule(graph.nodes[i]->op)) continue;
    // A CustomVjp passes nothing to the value it stands for: its inputs alone count.
    const auto sources = graph.sources(i).subspan(graph.nodes[i]->op == Op::CustomVjp ? 1 : 0);
    passes[i] = std::any_of(sources.begin(), sources.end(), is_wanted);
    if (passes[i]) wanted[i] = true;
  }
  PassVector<NodeRef> adjoint(graph.size());
  const auto add = [&](int i, const NodeRef& g) {
    NodeRef& sum = adjoint[static_cast<size_t>(i)];
    sum = sum ? elementwise(Op::Add, sources(sum, g)) : g;
  };
  for (size_t i = 0; i < outputs.size(); i++) add(graph.find(outputs[i]), cotangents[i]);
  for (size_t i = graph.size(); i-- > 0;) {
    if (!passes[i] || !adjoint[i]) continue;
    const NodeRef& n = graph.nodes[i];
    const Sources grads = gradient_rule(n->op)(n, adjoint[i]);
    const auto sources = graph.sources(i);
    for (size_t k = 0; k < grads.size(); k++) {
      if (grads[k] && is_wanted(sources[k])) add(sources[k], grads[k]);
    }
    if (!is_target[i]) adjoint[i] = {};
  }
  std::vector<NodeRef> out;
  for (const NodeRef& t : targets) {
    const int i = graph.find(t);
    out.push_back(i < 0 ? NodeRef() : adjoint[static_cast<size_t>(i)]);
  }
  return out;
}

namespace {

std::vector<Tensor> pull_back_as(std::string_view op, std::span<const Tensor> ys, std::span<const Tensor> xs,
                                 std::span<const NodeRef> cotangents, Unused unused) {
  const std::vector<NodeRef> targets = nodes_of(xs), outputs = nodes_of(ys);
  const Topology graph{std::span<const NodeRef>(outputs)};
  if (unused == Unused::kError) check_used(op, graph, xs);
  std::vector<Tensor> out;
  for (const NodeRef& g : or_zeros(pull_back(graph, outputs, cotangents, targets), targets)) {
    out.emplace_back(g);
  }
  return out;
}

}  // namespace

std::vector<Tensor> vjp(std::span<const Tensor> ys, std::span<const Tensor> xs, std::span<const Tensor> vs, Unused unused) {
  require(ys.size() == vs.size(), "vjp: {} results but {} cotangents", ys.size(), vs.size());
  std::vector<NodeRef> cotangents;
  for (size_t i = 0; i < ys.size(); i++) {
    check_differentiable("vjp", ys[i], xs);
    cotangents.push_back(cotangent_of(ys[i], vs[i]));
  }
  return pull_back_as("vjp", ys, xs, cotangents, unused);
}

std::vector<Tensor> vjp(const Tensor& y, std::span<const Tensor> xs, const Tensor& v, Unused unused) {
  return vjp(std::span<const Tensor>(&y, 1), xs, std::span<const Tensor>(&v, 1), unused);
}

std::vector<Tensor> grad(const Tensor& y, std::span<const Tensor> xs, Unused unused) {
  check_differentiable("grad", y, xs);
  if (y.numel() != 1) {
    user_error("grad: the result has shape {}, not one element; reduce it to a scalar, or use vjp with a cotangent",
               to_string(y.shape()));
  }
  check_history("grad", y, xs);
  const NodeRef one = constant(Scalar(1.0), y.dtype(), y.shape());
  return pull_back_as("grad", std::span(&y, 1), xs, std::span(&one, 1), unused);
}

std::pair<Tensor, std::vector<Tensor>> value_and_grad(const ScalarFunction& f, const std::vector<Tensor>& xs, Unused unused) {
  Tensor y = f(xs);
  return {y, grad(y, xs, unused)};
}

Tensor jvp(const Tensor& y, std::span<const Tensor> xs, std::span<const Tensor> tangents) {
  require(xs.size() == tangents.size(), "jvp: {} inputs but {} tangents", xs.size(), tangents.size());
  check_differentiable("jvp", y, xs);
  // A variable cotangent u: u -> vjp(u) is linear, and its own vjp is the Jacobian.
  const Tensor u(fresh(zeros_like(y.node())));
  const std::vector<NodeRef> targets = nodes_of(xs);
  const NodeRef y_node = y.node(), u_node = u.node();
  const std::vector<NodeRef> pulled =
      pull_back(std::span<const NodeRef>(&y_node, 1), std::span<const NodeRef>(&u_node, 1), targets);
  std::vector<NodeRef> outputs, cotangents;
  for (size_t i = 0; i < xs.size(); i++) {
    if (tangents[i].shape() != xs[i].shape()) {
      user_error("jvp: tangent {} has shape {}, its input {}", i, to_string(tangents[i].shape()), to_string(xs[i].shape()));
    }
    if (!pulled[i]) continue;
    outputs.push_back(pulled[i]);
    cotangents.push_back(cast(tangents[i].node(), xs[i].dtype()));
  }
  const NodeRef r = pull_back(outputs, cotangents, std::span<const NodeRef>(&u_node, 1))[0];
  return Tensor(r ? r : fresh(zeros_like(y_node)));
}

namespace {

// What a user's function says.
class UserVjp : public VjpAttribute {
 public:
  explicit UserVjp(VjpFunction f) : function_(std::move(f)) {}
  std::string text() const override { return "custom"; }
  std::vector<Tensor> cotangents(const Node&, const Tensor& cotangent) const override {
    return function_(cotangent);
  }

 private:
  VjpFunction function_;
};

}  // namespace

NodeRef with_vjp(const NodeRef& value, std::span<const NodeRef> inputs, Ref<const Attribute> rule) {
  Sources src{value};
  src.append(inputs.begin(), inputs.end());
  return make({.op = Op::CustomVjp,
               .dtype = value->dtype,
               .shape = value->shape,
               .arg = std::move(rule),
               .src = std::move(src)});
}

Tensor custom_vjp(const Tensor& value, const std::vector<Tensor>& inputs, VjpFunction vjp) {
  std::vector<NodeRef> nodes;
  for (const Tensor& t : inputs) nodes.push_back(t.node());
  return Tensor(with_vjp(value.node(), nodes, Ref<const Attribute>(make_ref<UserVjp>(std::move(vjp)))));
}

Tensor checkpoint(const Function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& xs) {
  return custom_vjp(f(xs), xs, [f, xs](const Tensor& cotangent) {
    // The same cone again over inputs of another identity, so that it is not merged with the first.
    std::vector<Tensor> again;
    for (const Tensor& x : xs) {
      const NodeRef n = x.node();
      again.emplace_back(make(
          {.op = Op::Checkpoint, .dtype = n->dtype, .shape = n->shape, .arg = next_serial(), .src = {n}}));
    }
    const Tensor y = f(again);
    return vjp(y, again, cotangent, Unused::kZeros);
  });
}

void backward(const Tensor& y, const std::optional<Tensor>& gradient) {
  if (!is_float(y.dtype())) {
    user_error("backward: the result has dtype {}; only floating point results have gradients", name(y.dtype()));
  }
  if (!gradient && y.numel() != 1) {
    user_error("backward: the result has shape {}, not one element; give a gradient of that shape, or reduce it to a scalar",
               to_string(y.shape()));
  }
  const NodeRef root = y.node();
  std::vector<Tensor> leaves;
  std::vector<NodeRef> targets;
  const Topology graph(std::span<const NodeRef>(&root, 1));
  for (const NodeRef& n : graph.nodes) {
    if (!n->tracked || !has_identity(n->op)) continue;  // a leaf is a node of its own
    if (Ref<LazyBuffer> leaf = gradient_leaf(n)) {
      leaves.emplace_back(std::move(leaf));
      targets.push_back(n);
    }
  }
  require(!leaves.empty(),
          "backward: no tensor below the result requires a gradient; call requires_grad_() on the inputs first");
  const NodeRef seed =
      gradient ? cotangent_of(y, *gradient) : constant(Scalar(1.0), root->dtype, root->shape);
  const std::vector<NodeRef> g =
      or_zeros(pull_back(graph, std::span(&root, 1), std::span(&seed, 1), targets), targets);
  std::vector<Tensor> sums;
  for (size_t i = 0; i < leaves.size(); i++) {
    const NodeRef mine = detach(g[i]);
    const std::optional<Tensor> before = leaves[i].grad();
    sums.emplace_back(before ? elementwise(Op::Add, {before->node(), mine}) : mine);
  }
  // Only now does anything change.
  for (size_t i = 0; i < leaves.size(); i++) leaves[i].set_grad(sums[i]);
}

}  // namespace lazuli
