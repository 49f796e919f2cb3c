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

}  // namespace

NodeRef placeholder(DType dtype, Shape shape, bool tracked) {
  return make({.op = Op::Buffer,
               .dtype = dtype,
               .shape = std::move(shape),
               .arg = next_serial(),
               .tracked = tracked});
}

NodeRef buffer(DType dtype, Shape shape, Ref<Storage> storage, bool tracked) {
  NodeRef n = placeholder(dtype, std::move(shape), tracked);
  n->set_storage(std::move(storage));
  return n;
}

NodeRef constant(const Scalar& value, DType dtype, const Shape& shape) {
  return make({.op = Op::Const,
               .dtype = dtype,
               .arg = ScalarBits{to_bits(value, dtype)},
               .same_shape = &shape});
}

NodeRef iota(int64_t n) {
  check(n >= 0, "iota of a negative length");
  return make({.op = Op::Iota, .dtype = DType::I64, .shape = {n}});
}

NodeRef elementwise(Op op, Sources src) {
  const OpInfo& row = info(op);
  check(is_elementwise(op) && op != Op::Cast && op != Op::Bitcast, "elementwise: not such an op");
  check(static_cast<size_t>(row.arity) == src.size(), "elementwise: number of sources");
  for (size_t i = 1; i < src.size(); i++) {
    check(same_shape(src[i], src[0]), "elementwise: shapes differ");
  }
  const size_t first = op == Op::Where ? 1 : 0;
  if (op == Op::Where) check(src[0]->dtype == DType::Bool, "where: the condition is not bool");
  for (size_t i = first; i < src.size(); i++) {
    check(src[i]->dtype == src[first]->dtype, "elementwise: dtypes differ");
  }
  const DType in = src[first]->dtype;
  if (row.traits & kFloatOnly) check(is_float(in), "elementwise: a float op on integers");
  if (row.traits & kIntegral) check(is_integral(in), "elementwise: an integer op on floats");
  const DType out = row.rule == DTypeRule::Bool ? DType::Bool : in;
  const Shape* const shape = &src[0]->shape;  // which the new node will keep alive
  return make({.op = op, .dtype = out, .src = std::move(src), .same_shape = shape});
}

NodeRef cast(const NodeRef& x, DType dtype) {
  if (x->dtype == dtype) return x;
  return make({.op = Op::Cast, .dtype = dtype, .src = sources(x), .same_shape = &x->shape});
}

NodeRef bitcast(const NodeRef& x, DType dtype) {
  if (x->dtype == dtype) return x;
  check(size_of(x->dtype) == size_of(dtype), "bitcast: sizes differ");
  return make({.op = Op::Bitcast, .dtype = dtype, .src = sources(x), .same_shape = &x->shape});
}

NodeRef reshape(const NodeRef& x, Shape shape) {
  check(numel(shape) == x->numel(), "reshape: element counts differ");
  NodeRef base = x->op == Op::Reshape && !x->realised() ? x->src[0] : x;
  if (base->shape == shape) return base;
  return make({.op = Op::Reshape,
               .dtype = x->dtype,
               .shape = std::move(shape),
               .src = sources(std::move(base))});
}

NodeRef permute(const NodeRef& x, Ints order) {
  check(order.size() == x->shape.size(), "permute: rank");
  if (std::is_sorted(order.begin(), order.end())) return x;
  Shape shape;
  for (int64_t a : order) shape.push_back(x->shape[static_cast<size_t>(a)]);
  return make({.op = Op::Permute,
               .dtype = x->dtype,
               .shape = std::move(shape),
               .arg = std::move(order),
               .src = sources(x)});
}

NodeRef expand(const NodeRef& x, Shape shape) {
  check(shape.size() == x->shape.size(), "expand: rank");
  if (shape == x->shape) return x;
  for (size_t i = 0; i < shape.size(); i++) {
    check(x->shape[i] == shape[i] || x->shape[i] == 1, "expand: size");
  }
  return make({.op = Op::Expand, .dtype = x->dtype, .shape = std::move(shape), .src = sources(x)});
}

NodeRef pad(const NodeRef& x, Ints before_after) {
  check(before_after.size() == 2 * x->shape.size(), "pad: rank");
  if (std::all_of(before_after.begin(), before_after.end(), [](int64_t v) { return v == 0; })) return x;
  Shape shape = x->shape;
  for (size_t i = 0; i < shape.size(); i++) {
    check(before_after[2 * i] >= 0 && before_after[2 * i + 1] >= 0, "pad: negative");
    shape[i] += before_after[2 * i] + before_after[2 * i + 1];
  }
  return make({.op = Op::Pad,
               .dtype = x->dtype,
               .shape = std::move(shape),
               .arg = std::move(before_after),
               .src = sources(x)});
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
  return make({.op = Op::Shrink,
               .dtype = x->dtype,
               .shape = std::move(shape),
               .arg = std::move(begin_end),
               .src = sources(x)});
}

NodeRef flip(const NodeRef& x, Ints axes) {
  if (axes.empty()) return x;
  return make({.op = Op::Flip,
               .dtype = x->dtype,
               .arg = std::move(axes),
               .src = sources(x),
               .same_shape = &x->shape});
}

NodeRef window(const NodeRef& x, int64_t axis, int64_t size, int64_t step, int64_t dilation) {
  const int64_t n = x->shape[static_cast<size_t>(axis)], span = (size - 1) * dilation + 1;
  check(size >= 1 && step >= 1 && dilation >= 1 && span <= n, "window: does not fit");
  Shape shape = x->shape;
  shape[static_cast<size_t>(axis)] = (n - span) / step + 1;
  shape.push_back(size);
  return make({.op = Op::Window,
               .dtype = x->dtype,
               .shape = std::move(shape),
               .arg = Ints{axis, size, step, dilation},
               .src = sources(x)});
}

NodeRef unwindow(const NodeRef& x, int64_t axis, int64_t n, int64_t step, int64_t dilation) {
  check(axis < x->rank() - 1 && step >= 1 && dilation >= 1, "unwindow: axis");
  Shape shape = x->shape;
  shape[static_cast<size_t>(axis)] = n;
  return make({.op = Op::Unwindow,
               .dtype = x->dtype,
               .shape = std::move(shape),
               .arg = Ints{axis, n, step, dilation},
               .src = sources(x)});
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
  return make({.op = op,
               .dtype = x->dtype,
               .shape = std::move(shape),
               .arg = std::move(axes),
               .src = sources(x)});
}

NodeRef gather(const NodeRef& x, std::span<const NodeRef> index) {
  check(static_cast<int64_t>(index.size()) == x->rank() && !index.empty(), "gather: rank");
  Sources src{x};
  for (const NodeRef& i : index) {
    check(i->dtype == DType::I64 && same_shape(i, index[0]), "gather: index");
    src.push_back(i);
  }
  return make(
      {.op = Op::Gather, .dtype = x->dtype, .src = std::move(src), .same_shape = &index[0]->shape});
}

NodeRef scatter(const NodeRef& base, const NodeRef& index, const NodeRef& value, Combine combine) {
  check(index->dtype == DType::I64 && same_shape(index, value) && base->dtype == value->dtype,
        "scatter: sources");
  return make({.op = Op::Scatter,
               .dtype = base->dtype,
               .arg = static_cast<int64_t>(combine),
               .src = sources(base, index, value),
               .same_shape = &base->shape});
}

NodeRef scan(const NodeRef& x, ScanOp op, int64_t axis, bool reverse) {
  check(axis >= 0 && axis < x->rank(), "scan: axis");
  return make({.op = Op::Scan,
               .dtype = x->dtype,
               .arg = Ints{static_cast<int64_t>(op), axis, reverse},
               .src = sources(x),
               .same_shape = &x->shape});
}

NodeRef argsort(const NodeRef& x, bool descending) {
  check(x->rank() >= 1, "argsort: rank");
  return make({.op = Op::ArgSort,
               .dtype = DType::I64,
               .arg = static_cast<int64_t>(descending),
               .src = sources(x),
               .same_shape = &x->shape});
}

NodeRef sorted(const NodeRef& x, bool descending) {
  check(x->rank() >= 1, "sort: rank");
  return make({.op = Op::Sort,
               .dtype = x->dtype,
               .arg = static_cast<int64_t>(descending),
               .src = sources(x),
               .same_shape = &x->shape});
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
  return make({.op = Op::Update,
               .dtype = base->dtype,
               .shape = base->shape,
               .arg = std::move(begin),
               .src = std::move(src)});
}

NodeRef fresh(const NodeRef& x) {
  return make({.op = Op::Fresh,
               .dtype = x->dtype,
               .arg = next_serial(),
               .src = sources(x),
               .same_shape = &x->shape});
}

NodeRef detach(const NodeRef& x) {
  return make({.op = Op::Detach, .dtype = x->dtype, .src = sources(x), .same_shape = &x->shape});
}

NodeRef contiguous(const NodeRef& x) {
  if (x->op == Op::Contiguous || x->op == Op::Buffer) return x;
  return make(
      {.op = Op::Contiguous, .dtype = x->dtype, .src = sources(x), .same_shape = &x->shape});
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
