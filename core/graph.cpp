#include "core/graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/topology.h"

namespace lazuli {
namespace {

// The builders are called with checked arguments; a failure here is a bug of the caller inside lazuli.
inline void check(bool ok, const char* what) {
  if (!ok) [[unlikely]]
    internal_error(what);
}

bool same_shape(const NodeRef& a, const NodeRef& b) {
  return &a->shape == &b->shape || a->shape == b->shape;
}

// As make({...}), which would first fill all of its argument with zeros.
NodeInit init_of(Op op, DType dtype, Sources&& src, const Shape& shape) {
  NodeInit init;
  init.op = op;
  init.dtype = dtype;
  init.src = std::move(src);
  init.same_shape = &shape;
  return init;
}
NodeRef build(Op op, DType dtype, Sources&& src, const Shape& shape) {
  return make(init_of(op, dtype, std::move(src), shape));
}
template <typename A>
NodeRef build(Op op, DType dtype, Sources&& src, const Shape& shape, A arg) {
  NodeInit init = init_of(op, dtype, std::move(src), shape);
  init.arg.emplace<A>(std::move(arg));
  return make(std::move(init));
}

}  // namespace

NodeRef placeholder(DType dtype, const Shape& shape, bool tracked) {
  NodeInit init = init_of(Op::Buffer, dtype, {}, shape);
  init.arg = next_serial();
  init.tracked = tracked;
  return make(std::move(init));
}

NodeRef buffer(DType dtype, const Shape& shape, Ref<Storage> storage, bool tracked) {
  NodeRef n = placeholder(dtype, shape, tracked);
  n->set_storage(std::move(storage));
  return n;
}

NodeRef constant(const Scalar& value, DType dtype, const Shape& shape) {
  return build(Op::Const, dtype, {}, shape, ScalarBits{to_bits(value, dtype)});
}

NodeRef iota(int64_t n) {
  check(n >= 0, "iota of a negative length");
  return make({.op = Op::Iota, .dtype = DType::I64, .shape = {n}});
}

NodeRef elementwise(Op op, Sources src) {
  const OpInfo& row = info(op);
  check(is_elementwise(op) && op != Op::Cast && op != Op::Bitcast, "elementwise: not such an op");
  check(static_cast<size_t>(row.arity) == src.size(), "elementwise: number of sources");
  std::span<const NodeRef> values = src;
  for (const NodeRef& s : values.subspan(1)) {
    check(same_shape(s, values[0]), "elementwise: shapes differ");
  }
  if (op == Op::Where) {
    check(values[0]->dtype == DType::Bool, "where: the condition is not bool");
    values = values.subspan(1);
  }
  const DType in = values[0]->dtype;
  for (const NodeRef& s : values.subspan(1)) check(s->dtype == in, "elementwise: dtypes differ");
  if (row.traits & kFloatOnly) check(is_float(in), "elementwise: a float op on integers");
  if (row.traits & kIntegral) check(is_integral(in), "elementwise: an integer op on floats");
  const DType out = row.rule == DTypeRule::Bool ? DType::Bool : in;
  const Shape& shape = src[0]->shape;  // which the new node will keep alive
  return build(op, out, std::move(src), shape);
}

NodeRef sigmoid_with_normal_result(const NodeRef& x) {
  return make({.op = Op::Sigmoid,
               .dtype = x->dtype,
               .arg = kNormalResult,
               .src = {x},
               .same_shape = &x->shape});
}

NodeRef cast(const NodeRef& x, DType dtype) {
  if (x->dtype == dtype) return x;
  return build(Op::Cast, dtype, sources(x), x->shape);
}

NodeRef bitcast(const NodeRef& x, DType dtype) {
  if (x->dtype == dtype) return x;
  check(size_of(x->dtype) == size_of(dtype), "bitcast: sizes differ");
  return build(Op::Bitcast, dtype, sources(x), x->shape);
}

NodeRef reshape(const NodeRef& x, const Shape& shape) {
  check(numel(shape) == x->numel(), "reshape: element counts differ");
  NodeRef base = x->op == Op::Reshape && !x->realised() ? x->src[0] : x;
  if (base->shape == shape) return base;
  return build(Op::Reshape, x->dtype, sources(std::move(base)), shape);
}

NodeRef permute(const NodeRef& x, Ints order) {
  check(order.size() == x->shape.size(), "permute: rank");
  if (std::is_sorted(order.begin(), order.end())) return x;
  Shape shape;
  for (int64_t a : order) shape.push_back(x->shape[static_cast<size_t>(a)]);
  return build(Op::Permute, x->dtype, sources(x), shape, std::move(order));
}

NodeRef expand(const NodeRef& x, const Shape& shape) {
  check(shape.size() == x->shape.size(), "expand: rank");
  if (shape == x->shape) return x;
  for (size_t i = 0; i < shape.size(); i++) {
    check(x->shape[i] == shape[i] || x->shape[i] == 1, "expand: size");
  }
  return build(Op::Expand, x->dtype, sources(x), shape);
}

NodeRef pad(const NodeRef& x, Ints before_after) {
  check(before_after.size() == 2 * x->shape.size(), "pad: rank");
  if (std::all_of(before_after.begin(), before_after.end(), [](int64_t v) { return v == 0; })) return x;
  Shape shape = x->shape;
  for (size_t i = 0; i < shape.size(); i++) {
    check(before_after[2 * i] >= 0 && before_after[2 * i + 1] >= 0, "pad: negative");
    shape[i] += before_after[2 * i] + before_after[2 * i + 1];
  }
  return build(Op::Pad, x->dtype, sources(x), shape, std::move(before_after));
}

NodeRef shrink(const NodeRef& x, Ints begin_end) {
  check(begin_end.size() == 2 * x->shape.size(), "shrink: rank");
  Shape shape = x->shape;
  for (size_t i = 0; i < shape.size(); i++) {
    check(0 <= begin_end[2 * i] && begin_end[2 * i] <= begin_end[2 * i + 1] &&
              begin_end[2 * i + 1] <= x->shape[i],
          "shrink: range");
    shape[i] = begin_end[2 * i + 1] - begin_end[2 * i];
  }
  if (shape == x->shape) return x;
  return build(Op::Shrink, x->dtype, sources(x), shape, std::move(begin_end));
}

NodeRef flip(const NodeRef& x, Ints axes) {
  if (axes.empty()) return x;
  return build(Op::Flip, x->dtype, sources(x), x->shape, std::move(axes));
}

NodeRef window(const NodeRef& x, int64_t axis, int64_t size, int64_t step, int64_t dilation) {
  const int64_t n = x->shape[static_cast<size_t>(axis)], span = (size - 1) * dilation + 1;
  check(size >= 1 && step >= 1 && dilation >= 1 && span <= n, "window: does not fit");
  Shape shape = x->shape;
  shape[static_cast<size_t>(axis)] = (n - span) / step + 1;
  shape.push_back(size);
  return build(Op::Window, x->dtype, sources(x), shape, Ints{axis, size, step, dilation});
}

NodeRef unwindow(const NodeRef& x, int64_t axis, int64_t n, int64_t step, int64_t dilation) {
  check(axis < x->rank() - 1 && step >= 1 && dilation >= 1, "unwindow: axis");
  Shape shape = x->shape;
  shape[static_cast<size_t>(axis)] = n;
  return build(Op::Unwindow, x->dtype, sources(x), shape, Ints{axis, n, step, dilation});
}

NodeRef reduce(Op op, const NodeRef& x, Ints axes) {
  check(is_reduce(op), "reduce: not a reduction");
  if (axes.empty()) return x;
  Shape shape;
  for (int64_t i = 0; i < x->rank(); i++) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) {
      shape.push_back(x->shape[static_cast<size_t>(i)]);
    }
  }
  check(shape.size() + axes.size() == x->shape.size(), "reduce: axes");
  return build(op, x->dtype, sources(x), shape, std::move(axes));
}

NodeRef gather(const NodeRef& x, std::span<const NodeRef> index) {
  check(static_cast<int64_t>(index.size()) == x->rank() && !index.empty(), "gather: rank");
  Sources src{x};
  for (const NodeRef& i : index) {
    check(i->dtype == DType::I64 && same_shape(i, index[0]), "gather: index");
    src.push_back(i);
  }
  return build(Op::Gather, x->dtype, std::move(src), index[0]->shape);
}

NodeRef scatter(const NodeRef& base, const NodeRef& index, const NodeRef& value, Combine combine) {
  check(index->dtype == DType::I64 && same_shape(index, value) && base->dtype == value->dtype,
        "scatter: sources");
  return build(Op::Scatter, base->dtype, sources(base, index, value), base->shape,
               static_cast<int64_t>(combine));
}

NodeRef scan(const NodeRef& x, ScanOp op, int64_t axis, bool reverse) {
  check(axis >= 0 && axis < x->rank(), "scan: axis");
  return build(Op::Scan, x->dtype, sources(x), x->shape,
               Ints{static_cast<int64_t>(op), axis, reverse});
}

NodeRef argsort(const NodeRef& x, bool descending, std::optional<int64_t> first) {
  check(x->rank() >= 1, "argsort: rank");
  Shape shape = x->shape;
  if (first) shape.back() = *first;
  check(shape.back() >= 0 && shape.back() <= x->shape.back(), "argsort: more than there are");
  return build(Op::ArgSort, DType::I64, sources(x), shape, static_cast<int64_t>(descending));
}

NodeRef sorted(const NodeRef& x, bool descending) {
  check(x->rank() >= 1, "sort: rank");
  return build(Op::Sort, x->dtype, sources(x), x->shape, static_cast<int64_t>(descending));
}

NodeRef update(const NodeRef& base, const NodeRef& value, Ints begin,
               std::span<const NodeRef> places) {
  check(base->dtype == value->dtype && base->rank() == value->rank() &&
            begin.size() == base->shape.size(),
        "update: sources");
  const auto count = static_cast<int64_t>(places.size());
  for (size_t i = 0; i < begin.size(); i++) {
    check(begin[i] >= -count && begin[i] + value->shape[i] <= base->shape[i], "update: range");
  }
  Sources src{base, value};
  for (const NodeRef& place : places) {
    check(place->dtype == DType::I64 && place->rank() == 0, "update: place");
    src.push_back(place);
  }
  return build(Op::Update, base->dtype, std::move(src), base->shape, std::move(begin));
}

NodeRef fresh(const NodeRef& x) {
  return build(Op::Fresh, x->dtype, sources(x), x->shape, next_serial());
}

NodeRef detach(const NodeRef& x) {
  return build(Op::Detach, x->dtype, sources(x), x->shape);
}

NodeRef contiguous(const NodeRef& x) {
  if (x->op == Op::Contiguous || x->op == Op::Buffer) return x;
  return build(Op::Contiguous, x->dtype, sources(x), x->shape);
}

std::vector<NodeRef> topological(std::span<const NodeRef> roots, bool stop_at_realised) {
  const Topology graph(roots, stop_at_realised);
  return {graph.nodes.begin(), graph.nodes.end()};
}

std::string arg_text(const Node& n) {
  struct Text {
    const Node& n;
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(const ScalarBits& v) const {
      const Scalar s = from_bits(v.bits, n.dtype);
      if (s.is_float()) return fmt::format("{}", s.as_double());
      return s.kind() == Kind::Bool ? (v.bits ? "true" : "false") : fmt::format("{}", s.as_int());
    }
    std::string operator()(const Ints& v) const {
      return fmt::format("[{}]", fmt::join(v.begin(), v.end(), ", "));
    }
    std::string operator()(const VarArg& v) const { return v.name; }
    std::string operator()(const Ref<const Attribute>& v) const { return v->text(); }
  };
  return std::visit(Text{n}, n.arg);
}

std::string print_graph(std::span<const NodeRef> roots) {
  std::string out;
  const Topology graph(roots);
  size_t buffers = 0;
  for (size_t id = 0; id < graph.size(); id++) {
    const NodeRef& n = graph.nodes[id];
    out += fmt::format("%{} = {}", id, name(n->op));
    const std::string arg = n->op == Op::Buffer  ? fmt::format("b{}", buffers++)
                            : n->op == Op::Fresh ? ""
                                                 : arg_text(*n);
    if (!arg.empty()) out += " " + arg;
    const char* separator = " ";
    for (int s : graph.sources(id)) {
      out += fmt::format("{}%{}", separator, s);
      separator = ", ";
    }
    out += fmt::format(" : {}{}\n", name(n->dtype),
                       fmt::format("[{}]", fmt::join(n->shape.begin(), n->shape.end(), ",")));
  }
  return out;
}

}  // namespace lazuli
