// vmap: the graph of one example, rewritten op by op for a batch along a new leading axis.
#include <algorithm>

#include "core/error.h"
#include "core/gradient_graph.h"
#include "core/graph.h"
#include "core/node_map.h"

namespace lazuli {
namespace {

class Batcher {
 public:
  Batcher(int64_t batch, std::span<const NodeRef> inputs, std::span<const NodeRef> batched)
      : batch_(batch), inputs_(inputs.begin(), inputs.end()), images_(batched.begin(), batched.end()) {
    for (size_t i = 0; i < inputs.size(); i++) batched_[inputs[i]] = batched[i];
  }

  std::vector<NodeRef> run(std::span<const NodeRef> outputs) {
    for (const NodeRef& n : topological(outputs)) {
      if (batched_.count(n)) continue;
      const bool depends =
          std::any_of(n->src.begin(), n->src.end(), [&](const NodeRef& s) { return batched_.count(s) > 0; });
      if (depends) batched_[n] = rewrite(n);
    }
    std::vector<NodeRef> r;
    for (const NodeRef& o : outputs) r.push_back(of(o));
    return r;
  }

 private:
  Shape batched_shape(const Shape& s) const {
    Shape r{batch_};
    r.append(s.begin(), s.end());
    return r;
  }

  // The batched form; what does not depend on the batch is repeated along it.
  NodeRef of(const NodeRef& n) const {
    if (const auto it = batched_.find(n); it != batched_.end()) return it->second;
    Shape one{1};
    one.append(n->shape.begin(), n->shape.end());
    return expand(reshape(n, one), batched_shape(n->shape));
  }

  NodeRef constant_index(int64_t v, const Shape& s) const { return constant(Scalar(v), DType::I64, s); }

  // The number of the example, at every index of a batched shape.
  NodeRef example(const Shape& s) const {
    Shape column(s.size(), 1);
    column[0] = batch_;
    return expand(reshape(iota(batch_), column), s);
  }

  NodeRef movement(const NodeRef& n) const {
    const NodeRef x = of(n->src[0]);
    Ints arg;
    if (n->op == Op::Reshape) return reshape(x, batched_shape(n->shape));
    if (n->op == Op::Expand) return expand(x, batched_shape(n->shape));
    const Ints& old = n->ints();
    switch (n->op) {
      case Op::Permute:
        arg.push_back(0);
        for (int64_t a : old) arg.push_back(a + 1);
        return permute(x, arg);
      case Op::Flip:
        for (int64_t a : old) arg.push_back(a + 1);
        return flip(x, arg);
      case Op::Pad:
        arg = {0, 0};
        arg.append(old.begin(), old.end());
        return pad(x, arg);
      case Op::Shrink:
        arg = {0, batch_};
        arg.append(old.begin(), old.end());
        return shrink(x, arg);
      case Op::Window: return window(x, old[0] + 1, old[1], old[2], old[3]);
      default: return unwindow(x, old[0] + 1, old[1], old[2], old[3]);
    }
  }

  NodeRef batched_gather(const NodeRef& n) const {
    const Shape at = batched_shape(n->shape);
    std::vector<NodeRef> index;
    const bool batched_x = batched_.count(n->src[0]) > 0;
    if (batched_x) index.push_back(example(at));
    for (size_t i = 1; i < n->src.size(); i++) index.push_back(of(n->src[i]));
    return gather(batched_x ? of(n->src[0]) : n->src[0], index);
  }

  NodeRef batched_scatter(const NodeRef& n) const {
    const NodeRef index = of(n->src[1]);
    const Shape& at = index->shape;
    const NodeRef size = constant_index(n->numel(), at), zero = constant_index(0, at);
    const NodeRef inside = elementwise(
        Op::And, {elementwise(Op::Le, {zero, index}), elementwise(Op::Lt, {index, size})});
    const NodeRef moved = elementwise(Op::Add, {index, elementwise(Op::Mul, {example(at), size})});
    const NodeRef flat = elementwise(Op::Where, {inside, moved, constant_index(-1, at)});
    return scatter(of(n->src[0]), flat, of(n->src[2]), static_cast<Combine>(n->integer()));
  }

  // The user's function knows one example: it is called with the cotangent of one, and what it returns is batched as the
  // forward pass was.
  NodeRef custom(const NodeRef& n) const {
    std::vector<Tensor> inputs;
    for (size_t i = 1; i < n->src.size(); i++) inputs.emplace_back(of(n->src[i]));
    const auto rule = std::get<Ref<const Attribute>>(n->arg);
    auto vjp = [rule, n, batch = batch_, inputs = inputs_, images = images_](const Tensor& cotangent) {
      std::vector<NodeRef> from = inputs, to = images;
      from.push_back(placeholder(n->dtype, n->shape));
      to.push_back(cotangent.node());
      std::vector<NodeRef> given;
      for (const Tensor& t : static_cast<const VjpAttribute&>(*rule).cotangents(*n, Tensor(from.back()))) given.push_back(t.node());
      std::vector<Tensor> r;
      for (NodeRef& g : batch_graph(given, from, to, batch)) r.emplace_back(std::move(g));
      return r;
    };
    return custom_vjp(Tensor(of(n->src[0])), inputs, std::move(vjp)).node();
  }

  NodeRef rewrite(const NodeRef& n) const {
    if (is_movement(n->op)) return movement(n);
    if (n->op == Op::Cast) return cast(of(n->src[0]), n->dtype);
    if (n->op == Op::Bitcast) return bitcast(of(n->src[0]), n->dtype);
    if (is_elementwise(n->op)) {
      Sources src;
      for (const NodeRef& s : n->src) src.push_back(of(s));
      return elementwise(n->op, std::move(src));
    }
    if (is_reduce(n->op)) {
      Ints axes;
      for (int64_t a : n->ints()) axes.push_back(a + 1);
      return reduce(n->op, of(n->src[0]), axes);
    }
    switch (n->op) {
      case Op::Gather: return batched_gather(n);
      case Op::Scatter: return batched_scatter(n);
      case Op::Scan:
        return scan(of(n->src[0]), static_cast<ScanOp>(n->ints()[0]), n->ints()[1] + 1, n->ints()[2] != 0);
      case Op::ArgSort: return argsort(of(n->src[0]), n->integer() != 0, n->shape.back());
      case Op::Sort: return sorted(of(n->src[0]), n->integer() != 0);
      case Op::Update: {
        ensure(n->src.size() == 2, "vmap: an update at places that change");
        Ints begin{0};
        begin.append(n->ints().begin(), n->ints().end());
        return update(of(n->src[0]), of(n->src[1]), std::move(begin));
      }
      case Op::CustomVjp: return custom(n);
      default:
        return make({.op = n->op,
                     .dtype = n->dtype,
                     .shape = batched_shape(n->shape),
                     .arg = n->arg,
                     .src = {of(n->src[0])}});
    }
  }

  int64_t batch_;
  std::vector<NodeRef> inputs_, images_;  // what is mapped over, and its batched form
  NodeMap<NodeRef> batched_;
};

}  // namespace

std::vector<NodeRef> batch_graph(std::span<const NodeRef> outputs, std::span<const NodeRef> inputs,
                                 std::span<const NodeRef> batched, int64_t batch) {
  return Batcher(batch, inputs, batched).run(outputs);
}

std::vector<Tensor> vmap(const Function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
                         const std::vector<Tensor>& xs, int64_t in_dim) {
  require(!xs.empty(), "vmap: no inputs; give at least one tensor to map over");
  int64_t batch = -1;
  std::vector<NodeRef> placeholders, batched;
  std::vector<Tensor> examples;
  for (const Tensor& x : xs) {
    NodeRef n = x.node();
    require(n->rank() > 0, "vmap: an input has rank 0; there is no axis to map over");
    const int64_t axis = check_axis("vmap", in_dim, n->rank());
    const int64_t size = n->shape[static_cast<size_t>(axis)];
    if (batch >= 0 && size != batch) {
      user_error("vmap: inputs have different sizes along axis {}: {} and {}", in_dim, batch, size);
    }
    batch = size;
    Ints order{axis};
    Shape one;
    for (int64_t a = 0; a < n->rank(); a++) {
      if (a == axis) continue;
      order.push_back(a);
      one.push_back(n->shape[static_cast<size_t>(a)]);
    }
    batched.push_back(permute(n, order));
    placeholders.push_back(placeholder(n->dtype, one));  // for every example
    examples.emplace_back(placeholders.back());
  }
  std::vector<NodeRef> outputs;
  for (const Tensor& t : f(examples)) outputs.push_back(t.node());
  std::vector<Tensor> r;
  for (NodeRef& n : batch_graph(outputs, placeholders, batched, batch)) r.emplace_back(std::move(n));
  return r;
}

Tensor vmap(const Function<Tensor(const Tensor&)>& f, const Tensor& x, int64_t in_dim) {
  return vmap([&](const std::vector<Tensor>& v) { return std::vector<Tensor>{f(v[0])}; }, std::vector<Tensor>{x},
              in_dim)[0];
}

}  // namespace lazuli
