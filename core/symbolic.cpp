#include "core/symbolic.h"

#include <algorithm>

#include "core/error.h"
#include "core/evaluate.h"
#include "core/graph.h"

namespace lazuli {
namespace {

bool is_leaf_node(const NodeRef& n) {
  return n->realised() || is_leaf(n->op);
}

// Fixed neighbours are one part; parts of size 1 are none.
std::vector<AxisPart> canonical(const std::vector<AxisPart>& parts) {
  std::vector<AxisPart> out;
  for (const AxisPart& p : parts) {
    if (p.dim < 0 && p.most == 1) continue;
    if (p.dim < 0 && !out.empty() && out.back().dim < 0) {
      out.back().most *= p.most;
    } else {
      out.push_back(p);
    }
  }
  return out;
}

SymbolicAxis fixed_axis(int64_t size, bool uniform = false) {
  return {canonical({{size}}), uniform};
}

NodeRef broadcast(const NodeRef& scalar, const Shape& shape) {
  return expand(reshape(scalar, Shape(shape.size(), 1)), shape);
}

// `x`, which has one axis, along axis `a` of `shape`.
NodeRef along_axis(const NodeRef& x, const Shape& shape, size_t a) {
  Shape thin(shape.size(), 1);
  thin[a] = shape[a];
  return expand(reshape(x, thin), shape);
}

NodeRef constant_of(uint64_t bits, DType dtype, const Shape& shape) {
  return make({.op = Op::Const, .dtype = dtype, .shape = shape, .arg = ScalarBits{bits}});
}

}  // namespace

bool SymbolicAxis::fixed() const {
  return std::none_of(parts.begin(), parts.end(), [](const AxisPart& p) { return p.dim >= 0; });
}

int64_t SymbolicAxis::at(std::span<const int64_t> sizes) const {
  int64_t n = 1;
  for (const AxisPart& p : parts) n *= p.at(sizes);
  return n;
}

Shape shape_at(const SymbolicAxes& axes, std::span<const int64_t> sizes) {
  Shape shape;
  for (const SymbolicAxis& a : axes) shape.push_back(a.at(sizes));
  return shape;
}

std::vector<AxisPart> parts_of(const SymbolicAxes& axes) {
  std::vector<AxisPart> out;
  for (const SymbolicAxis& a : axes) out.insert(out.end(), a.parts.begin(), a.parts.end());
  return out;
}

bool ends_with_size(const SymbolicAxes& axes) {
  const std::vector<AxisPart> parts = canonical(parts_of(axes));
  return !parts.empty() && parts[0].dim >= 0 &&
         std::none_of(parts.begin() + 1, parts.end(), [](const AxisPart& p) { return p.dim >= 0; });
}

int SymbolicGraph::slot_of(const NodeRef& leaf) const {
  const auto it = std::find(upper_.slots.begin(), upper_.slots.end(), leaf);
  return it == upper_.slots.end() ? -1 : static_cast<int>(it - upper_.slots.begin());
}

// ---- movements

bool SymbolicGraph::may_do_nothing(Op op) {
  return op == Op::Shrink || op == Op::Pad || op == Op::Expand || op == Op::Reshape;
}

// Do two pads have the same amounts?
bool SymbolicGraph::same_places(const NodeRef& a, const NodeRef& b) {
  const auto is_pad = [](const NodeRef& n) { return !n->realised() && n->op == Op::Pad; };
  return is_pad(a) == is_pad(b) && (!is_pad(a) || a->ints() == b->ints());
}

int64_t SymbolicGraph::argument(const NodeRef& n, Op op, size_t i, size_t axis) {
  if (n->op == op && !n->realised()) return n->ints()[i];
  return op == Op::Shrink && i % 2 == 1 ? n->shape[axis] : 0;
}

// ---- errors

std::string SymbolicGraph::names() const {
  std::string out;
  for (const Dim& d : dims_) out += (out.empty() ? "" : ", ") + d.name;
  return out;
}

void SymbolicGraph::refuse(const Pair& p) const {
  user_error(
      "jit: {} of shape {} along an axis whose size follows {} is not built yet; let that size be "
      "fixed",
      name(p.op), to_string(p.upper->shape), names());
}

void SymbolicGraph::differs(Op op, const std::string& a, const std::string& b) const {
  user_error(
      "jit: the function is another one at another size of {}: {} has {} and {}; let it be the "
      "same "
      "at all sizes, or declare no dimension",
      names(), name(op), a, b);
}

// ---- pairs

SymbolicGraph::SymbolicGraph(std::vector<Dim> dims, std::vector<SymbolicAxes> slots,
                             SymbolicTrace upper, SymbolicTrace other)
    : dims_(std::move(dims)),
      slot_axes_(std::move(slots)),
      upper_(std::move(upper)),
      other_(std::move(other)) {
  for (size_t d = 0; d < dims_.size(); d++) add_extra(placeholder(DType::I64, {}));
  ensure(upper_.roots.size() == other_.roots.size(), "symbolic: numbers of roots differ");
  for (size_t r = 0; r < upper_.roots.size(); r++) {
    root_pairs_.push_back(pair(upper_.roots[r], other_.roots[r]));
    roots_.push_back(pairs_[static_cast<size_t>(root_pairs_.back())].made);
  }
}

const SymbolicAxes& SymbolicGraph::root_axes(size_t root) const {
  return pairs_[static_cast<size_t>(root_pairs_[root])].axes;
}

const SymbolicGraph::Pair& SymbolicGraph::source(const Pair& p, size_t i) const {
  return pairs_[static_cast<size_t>(p.src[i])];
}

SymbolicGraph::Pair SymbolicGraph::begin(const NodeRef& upper, const NodeRef& other) const {
  Pair p;
  p.op = upper->op;
  p.upper = upper;
  p.other = other;
  if (is_leaf_node(upper) && is_leaf_node(other)) return p;
  const bool same = !upper->realised() && !other->realised() && upper->op == other->op &&
                    upper->src.size() == other->src.size();
  if (same) return p;
  // A movement that does nothing at one of the sizes is not in that graph.
  const auto stands_alone = [](const NodeRef& n, bool reshapes) {
    return !n->realised() && may_do_nothing(n->op) && (n->op == Op::Reshape) == reshapes;
  };
  for (const bool reshapes : {false, true}) {
    if (stands_alone(other, reshapes)) {
      p.op = other->op;
      return p;
    }
    if (stands_alone(upper, reshapes)) return p;
  }
  differs(upper->op, std::string(name(upper->op)), std::string(name(other->op)));
}

int SymbolicGraph::pair(const NodeRef& upper, const NodeRef& other) {
  struct Frame {
    Pair p;
    std::vector<std::pair<NodeRef, NodeRef>> wanted;
  };
  std::vector<Frame> stack;
  int last = -1;
  const auto enter = [&](const NodeRef& a, const NodeRef& b) {
    if (const auto it = known_.find({a.get(), b.get()}); it != known_.end()) {
      last = it->second;
      return;
    }
    Frame f{begin(a, b), {}};
    const bool leaf = is_leaf_node(a) && is_leaf_node(b);
    const bool in_a = !leaf && !a->realised() && a->op == f.p.op,
               in_b = !leaf && !b->realised() && b->op == f.p.op;
    const size_t count = in_a ? a->src.size() : in_b ? b->src.size() : 0;
    for (size_t i = 0; i < count; i++) {
      f.wanted.emplace_back(in_a ? a->src[i] : a, in_b ? b->src[i] : b);
    }
    stack.push_back(std::move(f));
    last = -1;
  };
  enter(upper, other);
  while (!stack.empty()) {
    Frame& top = stack.back();
    if (last >= 0) {
      top.p.src.push_back(last);
      last = -1;
    }
    if (top.p.src.size() < top.wanted.size()) {
      const auto [a, b] = top.wanted[top.p.src.size()];
      enter(a, b);
      continue;
    }
    Pair p = std::move(top.p);
    stack.pop_back();
    make(p);
    if (shape_at(p.axes, upper_.sizes) != p.upper->shape ||
        shape_at(p.axes, other_.sizes) != p.other->shape) {
      differs(p.op, to_string(p.upper->shape), to_string(p.other->shape));
    }
    last = static_cast<int>(pairs_.size());
    known_[{p.upper.get(), p.other.get()}] = last;
    pairs_.push_back(std::move(p));
  }
  return last;
}

// ---- what each pair becomes

int SymbolicGraph::add_extra(NodeRef leaf, SymbolicAxes axes) {
  extras_.push_back({std::move(leaf), std::move(axes)});
  return static_cast<int>(extras_.size()) - 1;
}

// The axis that has these sizes in the two traces.
SymbolicAxis SymbolicGraph::axis_from_sizes(const Pair& p, int64_t upper, int64_t other) const {
  if (upper == other) return fixed_axis(upper);
  // times * (dimension + add)
  for (const bool once : {true, false}) {
    for (size_t d = 0; d < dims_.size(); d++) {
      const int64_t most = upper_.sizes[d], difference = most - other_.sizes[d];
      const int64_t times = (upper - other) / difference;
      if (times * difference != upper - other || times < 1 || (times == 1) != once) continue;
      if (upper % times != 0) continue;
      const int64_t size = upper / times;
      return {canonical({{size, static_cast<int>(d), size - most}, {times}})};
    }
  }
  differs(p.op, to_string(p.upper->shape), to_string(p.other->shape));
}

void SymbolicGraph::make_leaf(Pair& p) {
  const NodeRef &a = p.upper, &b = p.other;
  for (size_t s = 0; s < upper_.slots.size(); s++) {
    if (upper_.slots[s] != a) continue;
    if (other_.slots[s] != b) differs(p.op, "one tensor", "another");
    p.slot = static_cast<int>(s);
    p.axes = slot_axes_[s];
    for (SymbolicAxis& axis : p.axes) axis.beyond = Beyond::Zero;
    p.made = a;
    return;
  }
  if (a->op != b->op && !(a->realised() && b->realised())) {
    differs(a->op, std::string(name(a->op)), std::string(name(b->op)));
  }
  if (a->dtype != b->dtype || a->rank() != b->rank()) {
    differs(a->op, to_string(a->shape), to_string(b->shape));
  }
  const bool is_const = a->op == Op::Const && !a->realised();
  for (size_t i = 0; i < a->shape.size(); i++) {
    p.axes.push_back(axis_from_sizes(p, a->shape[i], b->shape[i]));
    p.axes.back().uniform = is_const;
  }
  p.made = a;
  if (is_const && a->arg != b->arg) {
    p.extra = add_extra(placeholder(a->dtype, {}));
    p.made = broadcast(extras_.back().leaf, a->shape);
  } else if (a->realised() && a != b) {
    p.extra = add_extra(placeholder(a->dtype, a->shape), p.axes);
    p.made = extras_.back().leaf;
  }
}

void SymbolicGraph::make(Pair& p) {
  if (p.src.empty()) return make_leaf(p);
  Sources src;
  for (size_t i = 0; i < p.src.size(); i++) src.push_back(source(p, i).made);
  const Op op = p.op;
  if (op == Op::Reshape) return reshape(p);
  if (op == Op::Expand) return expand(p);
  if (op == Op::Pad) return pad(p);
  if (op == Op::Shrink) return shrink(p);
  if (is_reduce(op)) return reduce(p);
  if (op == Op::Gather) return gather(p);
  if (op == Op::Scatter) return scatter(p);
  const bool counted = op == Op::Fresh || op == Op::Checkpoint;
  if (!counted && p.upper->arg != p.other->arg) {
    differs(op, arg_text(*p.upper), arg_text(*p.other));
  }
  if (op == Op::Scan || op == Op::ArgSort || op == Op::Sort) return ordered(p);
  if (places(p)) return;
  if (is_elementwise(op)) {
    elementwise(p);
  } else {
    p.axes = source(p, 0).axes;
  }
  if (op == Op::Permute) {
    for (size_t i = 0; i < p.axes.size(); i++) {
      p.axes[i] = source(p, 0).axes[static_cast<size_t>(p.upper->ints()[i])];
    }
  } else if (op == Op::Flip) {
    for (int64_t a : p.upper->ints()) {
      if (!p.axes[static_cast<size_t>(a)].fixed()) refuse(p);
    }
  } else if (op == Op::Window || op == Op::Unwindow) {
    const auto a = static_cast<size_t>(p.upper->ints()[0]);
    if (!p.axes[a].fixed()) refuse(p);
    p.axes[a] = fixed_axis(p.upper->shape[a]);
    if (op == Op::Window) p.axes.push_back(fixed_axis(p.upper->shape.back()));
  }
  p.made = with_src(p.upper, std::move(src));
}

// Is it a box of an array written over, at a place that changes? Writing that box is all there is
// to do then.
bool SymbolicGraph::places(Pair& p) {
  if (p.op != Op::Where) return false;
  const Pair &inside = source(p, 0), &box = source(p, 1), &base = source(p, 2);
  const auto fixed = [](const Pair& x) {
    return std::all_of(x.axes.begin(), x.axes.end(), [](auto& a) { return a.fixed(); });
  };
  if (inside.op != Op::Pad || box.op != Op::Pad || box.shifts.empty() || !fixed(base)) return false;
  const Pair &value = source(box, 0), &all = source(inside, 0);
  const bool whole = all.op == Op::Const && !all.upper->realised() && all.extra < 0 &&
                     std::get<ScalarBits>(all.upper->arg).bits != 0;
  if (!whole || !fixed(value) || !same_places(inside.upper, box.upper) ||
      !same_places(inside.other, box.other)) {
    return false;
  }
  Ints begin;
  std::vector<NodeRef> changing;
  for (size_t a = 0; a < base.axes.size(); a++) {
    if (const auto shift = box.shifts.find(a); shift != box.shifts.end()) {
      changing.push_back(extras_[static_cast<size_t>(shift->second)].leaf);
      begin.push_back(-static_cast<int64_t>(changing.size()));
    } else {
      begin.push_back(argument(box.upper, Op::Pad, 2 * a, a));
    }
  }
  p.axes = base.axes;
  p.places = true;
  p.made = update(base.made, value.made, std::move(begin), changing);
  return true;
}

void SymbolicGraph::elementwise(Pair& p) {
  p.axes = source(p, 0).axes;
  for (size_t i = 1; i < p.src.size(); i++) {
    const SymbolicAxes& other = source(p, i).axes;
    for (size_t a = 0; a < p.axes.size(); a++) {
      if (p.axes[a].uniform && !other[a].uniform) {
        p.axes[a] = other[a];
      } else if (!other[a].uniform && p.axes[a].parts != other[a].parts) {
        refuse(p);
      }
    }
  }
  for (size_t a = 0; a < p.axes.size(); a++) p.axes[a].beyond = beyond(p, a);
}

// Is pair x, but for movement, what this op reduces pair `of` to?
bool SymbolicGraph::reduces(int x, Op op, int of) const {
  const auto pair = [&](int i) -> const Pair& { return pairs_[static_cast<size_t>(i)]; };
  while (pair(x).op == Op::Expand || pair(x).op == Op::Reshape || pair(x).op == Op::Detach) {
    x = pair(x).src[0];
  }
  if (pair(x).op != op) return false;
  int source = pair(x).src[0];
  while (pair(source).op == Op::Detach) source = pair(source).src[0];
  while (pair(of).op == Op::Detach) of = pair(of).src[0];
  return source == of;
}

// Is pair x, but for movement, this number at all sizes?
bool SymbolicGraph::is_constant(int x, uint64_t bits) const {
  const Pair* p = &pairs_[static_cast<size_t>(x)];
  while (p->op == Op::Expand || p->op == Op::Reshape) p = &source(*p, 0);
  return p->op == Op::Const && p->extra < 0 && std::get<ScalarBits>(p->upper->arg).bits == bits;
}

// As far as a softmax and what follows it need to know.
Beyond SymbolicGraph::beyond(const Pair& p, size_t axis) const {
  const auto of = [&](size_t i) { return source(p, i).axes[axis].beyond; };
  const bool zero = of(0) == Beyond::Zero || of(0) == Beyond::MaskedZero;
  // Is the other operand this reduction of the first one, over this axis too? Over others only, it
  // is itself what lies beyond, and the result not a number.
  const auto by = [&](Op reduce) {
    return source(p, 1).axes[axis].uniform && reduces(p.src[1], reduce, p.src[0]);
  };
  switch (p.op) {
    case Op::Exp:
    case Op::Exp2:
      return of(0) == Beyond::MinusInfinity ? Beyond::MaskedZero : Beyond::Unknown;
    case Op::Sub:
      // The maximum is infinite only where all elements give NaN.
      return of(0) == Beyond::MinusInfinity && by(Op::ReduceMax) ? of(0) : Beyond::Unknown;
    case Op::Div:
      // A sum of exponentials is zero only where all of them are.
      return zero && has(source(p, 0).op, kFloatOnly) &&
                     (source(p, 0).op == Op::Exp || source(p, 0).op == Op::Exp2) &&
                     by(Op::ReduceAdd)
                 ? of(0)
                 : Beyond::Unknown;
    case Op::Cast:
    case Op::Neg:
      return zero ? of(0) : Beyond::Unknown;
    default:
      return Beyond::Unknown;
  }
}

// Parts of the source are dealt out to the axes of the result.
void SymbolicGraph::reshape(Pair& p) {
  const Pair& x = source(p, 0);
  std::vector<AxisPart> parts;
  std::vector<bool> uniform;
  std::vector<Beyond> beyond;
  for (const SymbolicAxis& a : x.axes) {
    const auto dynamic =
        std::count_if(a.parts.begin(), a.parts.end(), [](const AxisPart& q) { return q.dim >= 0; });
    for (const AxisPart& part : a.parts) {
      parts.push_back(part);
      uniform.push_back(a.uniform);
      beyond.push_back(dynamic == 1 ? a.beyond : Beyond::Unknown);
    }
  }
  const Shape& shape = p.upper->shape;
  p.made = lazuli::reshape(x.made, shape);
  size_t next = 0;
  for (size_t i = 0; i < shape.size(); i++) {
    SymbolicAxis axis;
    axis.uniform = true;
    int dynamic = 0;
    int64_t left = shape[i];
    if (left == 0) {
      // Nothing is in it: axes are fixed, if they are anything.
      for (size_t j = 0; j < shape.size(); j++) {
        p.axes.resize(j);
        p.axes.push_back(axis_from_sizes(p, shape[j], p.other->shape[j]));
      }
      return;
    }
    while (left > 1) {
      if (next == parts.size()) refuse(p);
      AxisPart& part = parts[next];
      axis.uniform = axis.uniform && uniform[next];
      if (left % part.most == 0) {
        left /= part.most;
        axis.parts.push_back(part);
        if (part.dim >= 0) axis.beyond = dynamic++ == 0 ? beyond[next] : Beyond::Unknown;
        next++;
      } else if (part.dim < 0 && part.most % left == 0) {
        axis.parts.push_back({left});
        part.most /= left;
        left = 1;
      } else {
        refuse(p);
      }
    }
    // What has size 1 at the upper bound may still follow a dimension.
    while (next < parts.size() && parts[next].most == 1) axis.parts.push_back(parts[next++]);
    axis.parts = canonical(axis.parts);
    axis.uniform = axis.uniform && !axis.parts.empty();
    p.axes.push_back(std::move(axis));
  }
}

void SymbolicGraph::expand(Pair& p) {
  const Pair& x = source(p, 0);
  p.axes = x.axes;
  for (size_t i = 0; i < p.axes.size(); i++) {
    const int64_t upper = p.upper->shape[i], other = p.other->shape[i];
    if (x.upper->shape[i] == upper && x.other->shape[i] == other) continue;
    p.axes[i] = axis_from_sizes(p, upper, other);
    p.axes[i].uniform = true;
  }
  p.made = lazuli::expand(x.made, p.upper->shape);
}

NodeRef SymbolicGraph::bound(const AxisPart& part) const {
  const NodeRef& size = extras_[static_cast<size_t>(part.dim)].leaf;
  if (part.add == 0) return size;
  return lazuli::elementwise(Op::Add, {size, constant(Scalar(part.add), DType::I64)});
}

// x, with `outside` beyond the true sizes of these axes.
NodeRef SymbolicGraph::masked(const NodeRef& x, const SymbolicAxes& axes,
                              const std::vector<bool>& along, uint64_t outside) const {
  Shape split;
  std::vector<std::pair<size_t, AxisPart>> bounded;
  for (size_t a = 0; a < axes.size(); a++) {
    if (axes[a].parts.empty()) split.push_back(1);
    for (const AxisPart& part : axes[a].parts) {
      if (along[a] && part.dim >= 0) bounded.emplace_back(split.size(), part);
      split.push_back(part.most);
    }
  }
  if (bounded.empty()) return x;
  NodeRef inside;
  for (const auto& [at, part] : bounded) {
    const NodeRef here =
        lazuli::elementwise(Op::Lt, {iota(part.most), broadcast(bound(part), {part.most})});
    const NodeRef all = along_axis(here, split, at);
    inside = inside ? lazuli::elementwise(Op::And, {inside, all}) : all;
  }
  const NodeRef kept = lazuli::elementwise(
      Op::Where, {inside, lazuli::reshape(x, split), constant_of(outside, x->dtype, split)});
  return lazuli::reshape(kept, x->shape);
}

// The same of a pair. A condition with that number in its place already takes the other first.
NodeRef SymbolicGraph::masked(const Pair& x, const std::vector<bool>& along,
                              uint64_t outside) const {
  if (x.op != Op::Where || x.src.empty() || !is_constant(x.src[2], outside)) {
    return masked(x.made, x.axes, along, outside);
  }
  const NodeRef inner = masked(source(x, 1).made, x.axes, along, outside);
  return lazuli::elementwise(Op::Where, {source(x, 0).made, inner, source(x, 2).made});
}

// Along `axis`, of which the result has `size`: result[i] = x[i + shift], or with `padding`
// x[i - shift] where there is such an element and zero elsewhere.
NodeRef SymbolicGraph::shifted(const Pair& p, const NodeRef& x, size_t axis, int64_t size,
                               int extra, bool padding) const {
  Shape shape = x->shape;
  shape[axis] = size;
  const NodeRef& shift = extras_[static_cast<size_t>(extra)].leaf;
  const auto at = [&](const NodeRef& index) { return along_axis(index, shape, axis); };
  if (x->shape[axis] == 1 && padding) {
    const NodeRef here = at(lazuli::elementwise(Op::Eq, {iota(size), broadcast(shift, {size})}));
    const NodeRef zero = constant(Scalar(0), x->dtype, shape);
    return lazuli::elementwise(Op::Where, {here, lazuli::expand(x, shape), zero});
  }
  if (shape.empty()) refuse(p);
  std::vector<NodeRef> index;
  for (size_t a = 0; a < shape.size(); a++) {
    NodeRef i = iota(shape[a]);
    if (a == axis) {
      i = lazuli::elementwise(padding ? Op::Sub : Op::Add, {i, broadcast(shift, {size})});
    }
    index.push_back(along_axis(i, shape, a));
  }
  return lazuli::gather(x, index);
}

void SymbolicGraph::pad(Pair& p) {
  const Pair& x = source(p, 0);
  const size_t rank = x.axes.size();
  p.axes = x.axes;
  std::vector<bool> beyond(rank);
  Ints amounts(2 * rank, 0);
  for (size_t i = 0; i < rank; i++) {
    const int64_t before = argument(p.upper, Op::Pad, 2 * i, i);
    const int64_t after = argument(p.upper, Op::Pad, 2 * i + 1, i);
    const int64_t other = argument(p.other, Op::Pad, 2 * i, i);
    if (p.upper->shape[i] == x.upper->shape[i] && p.other->shape[i] == x.other->shape[i]) continue;
    if (x.axes[i].parts.size() > 1 && !x.axes[i].fixed()) refuse(p);
    beyond[i] = true;
    p.axes[i] = axis_from_sizes(p, p.upper->shape[i], p.other->shape[i]);
    if (p.axes[i].parts.size() > 1) refuse(p);
    if (before == other) {
      amounts[2 * i] = before;
      amounts[2 * i + 1] = after;
    } else {
      p.shifts[i] = add_extra(placeholder(DType::I64, {}));
    }
  }
  const uint64_t zero = to_bits(Scalar(0), p.upper->dtype);
  p.made = lazuli::pad(masked(x.made, x.axes, beyond, zero), amounts);
  for (const auto& [axis, extra] : p.shifts) {
    p.made = shifted(p, p.made, axis, p.upper->shape[axis], extra, true);
  }
}

void SymbolicGraph::shrink(Pair& p) {
  const Pair& x = source(p, 0);
  const size_t rank = x.axes.size();
  p.axes = x.axes;
  Ints ranges;
  for (size_t i = 0; i < rank; i++) {
    const int64_t begin = argument(p.upper, Op::Shrink, 2 * i, i);
    const int64_t end = argument(p.upper, Op::Shrink, 2 * i + 1, i);
    const int64_t other = argument(p.other, Op::Shrink, 2 * i, i);
    const bool whole = p.upper->shape[i] == x.upper->shape[i] &&
                       p.other->shape[i] == x.other->shape[i] && begin == other;
    if (!whole) {
      if (x.axes[i].parts.size() > 1 && !x.axes[i].fixed()) refuse(p);
      p.axes[i] = axis_from_sizes(p, p.upper->shape[i], p.other->shape[i]);
      if (p.axes[i].parts.size() > 1) refuse(p);
      p.axes[i].uniform = x.axes[i].uniform;
    }
    if (begin != other) p.shifts[i] = add_extra(placeholder(DType::I64, {}));
    ranges.push_back(begin == other ? begin : 0);
    ranges.push_back(begin == other ? end : x.upper->shape[i]);
  }
  p.made = x.made;
  for (const auto& [axis, extra] : p.shifts) {
    const int64_t size = p.upper->shape[axis];
    ranges[2 * axis + 1] = size;
    if (size != 1 || x.axes[axis].fixed()) {
      p.made = shifted(p, p.made, axis, size, extra, false);
      continue;
    }
    // One element is a sum in which all others are zero: it ends where the axis does, and what is
    // summed need not be computed beyond.
    std::vector<bool> along(rank);
    along[axis] = true;
    const Shape shape = p.made->shape;
    const uint64_t zero = to_bits(Scalar(0), p.made->dtype);
    const NodeRef& shift = extras_[static_cast<size_t>(extra)].leaf;
    const NodeRef here = along_axis(
        lazuli::elementwise(Op::Eq, {iota(shape[axis]), broadcast(shift, {shape[axis]})}), shape,
        axis);
    const NodeRef one =
        lazuli::elementwise(Op::Where, {here, p.made, constant_of(zero, p.made->dtype, shape)});
    const Op sum = p.made->dtype == DType::Bool ? Op::ReduceMax : Op::ReduceAdd;
    const NodeRef picked =
        lazuli::reduce(sum, masked(one, x.axes, along, zero), {static_cast<int64_t>(axis)});
    Shape kept = shape;
    kept[axis] = 1;
    p.made = lazuli::reshape(picked, kept);
  }
  p.made = lazuli::shrink(p.made, ranges);
}

void SymbolicGraph::reduce(Pair& p) {
  if (p.upper->arg != p.other->arg) differs(p.op, arg_text(*p.upper), arg_text(*p.other));
  const Pair& x = source(p, 0);
  std::vector<bool> along(x.axes.size());
  for (int64_t a : p.upper->ints()) along[static_cast<size_t>(a)] = true;
  for (size_t a = 0; a < x.axes.size(); a++) {
    if (!along[a]) p.axes.push_back(x.axes[a]);
  }
  const uint64_t outside = reduce_identity(p.op, p.upper->dtype);
  // The factors of a contraction, so that it stays one.
  const bool is_cast = x.op == Op::Cast && !x.upper->realised();
  const Pair& product = is_cast ? source(x, 0) : x;
  const auto misses_kept = [&](const Pair& f, const Pair& g) {
    for (size_t a = 0; a < along.size(); a++) {
      if (!along[a] && f.axes[a].uniform && !g.axes[a].uniform) return true;
    }
    return false;
  };
  for (SymbolicAxis& axis : p.axes) axis.beyond = Beyond::Unknown;
  NodeRef made = x.made;
  if (p.op == Op::ReduceAdd && product.op == Op::Mul && product.src.size() == 2 &&
      misses_kept(source(product, 0), source(product, 1)) &&
      misses_kept(source(product, 1), source(product, 0))) {
    made = contracted(product, along);
    if (is_cast) made = cast(made, x.upper->dtype);
  } else {
    std::vector<bool> open = along;
    const bool maximum = p.op == Op::ReduceMax && is_float(p.upper->dtype);
    for (size_t a = 0; a < along.size(); a++) {
      const Beyond beyond = x.axes[a].beyond;
      if ((p.op == Op::ReduceAdd && beyond == Beyond::MaskedZero) ||
          (maximum && beyond == Beyond::MinusInfinity)) {
        open[a] = false;
      }
    }
    made = masked(x, open, outside);
    if (maximum && made != x.made) {
      // Whoever comes later may as well read that.
      Pair& source = pairs_[static_cast<size_t>(p.src[0])];
      source.made = made;
      for (size_t a = 0; a < along.size(); a++) {
        if (along[a]) source.axes[a].beyond = Beyond::MinusInfinity;
      }
    }
  }
  p.made = with_src(p.upper, {made});
}

// The product, both factors of which are zero beyond the axes that are summed: a number that is not
// finite there must not meet a zero. One of them is so by a condition.
NodeRef SymbolicGraph::contracted(const Pair& product, const std::vector<bool>& along) const {
  std::vector<bool> open[2] = {along, along};
  for (size_t a = 0; a < along.size(); a++) {
    const Beyond f[2] = {source(product, 0).axes[a].beyond, source(product, 1).axes[a].beyond};
    for (size_t i = 0; i < 2; i++) {
      const bool enough = f[1 - i] == Beyond::Zero && i == 0;
      if (f[i] == Beyond::MaskedZero || (f[i] == Beyond::Zero && !enough)) open[i][a] = false;
    }
  }
  Sources factors;
  const uint64_t zero = to_bits(Scalar(0), product.upper->dtype);
  for (size_t i = 0; i < 2; i++) {
    factors.push_back(masked(source(product, i).made, product.axes, open[i], zero));
  }
  return lazuli::elementwise(Op::Mul, std::move(factors));
}

void SymbolicGraph::gather(Pair& p) {
  const Pair& x = source(p, 0);
  p.axes = source(p, 1).axes;
  for (size_t i = 2; i < p.src.size(); i++) {
    for (size_t a = 0; a < p.axes.size(); a++) {
      const SymbolicAxis& other = source(p, i).axes[a];
      if (p.axes[a].uniform && !other.uniform) {
        p.axes[a] = other;
      } else if (!other.uniform && p.axes[a].parts != other.parts) {
        refuse(p);
      }
    }
  }
  Sources src{x.made};
  for (size_t i = 0; i < x.axes.size(); i++) {
    NodeRef index = source(p, i + 1).made;
    if (!x.axes[i].fixed()) {
      if (x.axes[i].parts.size() != 1) refuse(p);
      const NodeRef inside =
          lazuli::elementwise(Op::Lt, {index, broadcast(bound(x.axes[i].parts[0]), index->shape)});
      index = lazuli::elementwise(Op::Where,
                                  {inside, index, constant(Scalar(-1), DType::I64, index->shape)});
    }
    src.push_back(index);
  }
  p.made = with_src(p.upper, std::move(src));
}

void SymbolicGraph::scatter(Pair& p) {
  if (p.upper->arg != p.other->arg) differs(p.op, arg_text(*p.upper), arg_text(*p.other));
  const Pair &base = source(p, 0), &index = source(p, 1), &value = source(p, 2);
  p.axes = base.axes;
  // Places in the base are numbers of elements: only a first part may follow a dimension.
  const std::vector<AxisPart> parts = parts_of(base.axes);
  for (size_t i = 1; i < parts.size(); i++) {
    if (parts[i].dim >= 0) refuse(p);
  }
  SymbolicAxes axes = index.axes;
  for (size_t a = 0; a < axes.size(); a++) {
    if (axes[a].uniform && !value.axes[a].uniform) axes[a] = value.axes[a];
  }
  const std::vector<bool> all(axes.size(), true);
  const uint64_t nowhere = to_bits(Scalar(-1), DType::I64);
  p.made = with_src(p.upper, {base.made, masked(index.made, axes, all, nowhere), value.made});
}

void SymbolicGraph::ordered(Pair& p) {
  const Pair& x = source(p, 0);
  p.axes = x.axes;
  for (SymbolicAxis& a : p.axes) a.uniform = false;
  const DType t = x.upper->dtype;
  std::vector<bool> along(x.axes.size());
  uint64_t outside = 0;
  if (p.op == Op::Scan) {
    const auto axis = static_cast<size_t>(p.upper->ints()[1]);
    constexpr Op kReduce[] = {Op::ReduceAdd, Op::ReduceMul, Op::ReduceMax, Op::ReduceMin};
    along[axis] = true;
    outside = reduce_identity(kReduce[p.upper->ints()[0]], t);
    for (size_t i = 1; i < x.axes[axis].parts.size(); i++) {
      if (x.axes[axis].parts[i].dim >= 0) refuse(p);
    }
  } else {
    along.back() = true;
    if (x.axes.back().parts.size() > 1 && !x.axes.back().fixed()) refuse(p);
    // What comes last; NaN is larger than everything.
    const bool descending = p.upper->integer() != 0;
    outside = descending    ? reduce_identity(Op::ReduceMax, t)
              : is_float(t) ? to_bits(Scalar(std::numeric_limits<double>::quiet_NaN()), t)
                            : reduce_identity(Op::ReduceMin, t);
  }
  p.made = with_src(p.upper, {masked(x.made, x.axes, along, outside)});
  const int64_t first = p.upper->shape.back();
  if (first != x.upper->shape.back()) {
    p.axes.back() = axis_from_sizes(p, first, p.other->shape.back());
  }
}

}  // namespace lazuli
