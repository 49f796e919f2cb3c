// The vjp of every op, one row each.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/gradient_graph.h"
#include "core/graph.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_scan.h"

namespace lazuli {
namespace {

using N = NodeRef;
using Grads = Sources;

// A node that can be written with, for the rows alone.
struct E {
  NodeRef n;
  E(NodeRef node) : n(std::move(node)) {}
  operator NodeRef() const { return n; }
};
E like(const E& x, double v) { return constant(Scalar(v), x.n->dtype, x.n->shape); }
E ew(Op op, Sources s) { return elementwise(op, std::move(s)); }
E operator+(const E& a, const E& b) { return ew(Op::Add, sources(a.n, b.n)); }
E operator-(const E& a, const E& b) { return ew(Op::Sub, sources(a.n, b.n)); }
E operator*(const E& a, const E& b) { return ew(Op::Mul, sources(a.n, b.n)); }
E operator/(const E& a, const E& b) { return ew(Op::Div, sources(a.n, b.n)); }
E operator+(const E& a, double b) { return a + like(a, b); }
E operator-(const E& a, double b) { return a - like(a, b); }
E operator*(const E& a, double b) { return a * like(a, b); }
E operator+(double a, const E& b) { return like(b, a) + b; }
E operator-(double a, const E& b) { return like(b, a) - b; }
E operator/(double a, const E& b) { return like(b, a) / b; }
E operator-(const E& a) { return ew(Op::Neg, sources(a.n)); }
E fn(Op op, const E& a) { return ew(op, sources(a.n)); }
E rsqrt(const E& a) { return fn(Op::Rsqrt, a); }
E where(const E& c, const E& a, const E& b) { return ew(Op::Where, sources(c.n, a.n, b.n)); }
E lt(const E& a, const E& b) { return ew(Op::Lt, sources(a.n, b.n)); }
E eq(const E& a, const E& b) { return ew(Op::Eq, sources(a.n, b.n)); }
E both(const E& a, const E& b) { return ew(Op::And, sources(a.n, b.n)); }
E x0(const N& out) { return out->src[0]; }
E x1(const N& out) { return out->src[1]; }

Ints last_axis(const N& n) { return Ints{n->rank() - 1}; }

// Inserts the axes that `out`, a reduction of x, lost, and repeats v along them.
E restore(const N& out, const E& v) {
  const N& x = out->src[0];
  Shape kept = x->shape;
  for (int64_t a : out->ints()) kept[static_cast<size_t>(a)] = 1;
  return expand(reshape(v.n, kept), x->shape);
}

Grads expand_rule(const N& out, const N& g) {
  const N& x = out->src[0];
  Ints axes;
  for (int64_t a = 0; a < x->rank(); a++) {
    if (x->shape[static_cast<size_t>(a)] != out->shape[static_cast<size_t>(a)]) axes.push_back(a);
  }
  return {reshape(reduce(Op::ReduceAdd, g, axes), x->shape)};
}

Grads permute_rule(const N& out, const N& g) {
  Ints inverse(out->ints().size());
  for (size_t i = 0; i < inverse.size(); i++) inverse[static_cast<size_t>(out->ints()[i])] = static_cast<int64_t>(i);
  return {permute(g, inverse)};
}

Grads pad_rule(const N& out, const N& g) {
  Ints range;
  for (size_t i = 0; i < out->shape.size(); i++) {
    range.push_back(out->ints()[2 * i]);
    range.push_back(out->ints()[2 * i] + out->src[0]->shape[i]);
  }
  return {shrink(g, range)};
}

Grads shrink_rule(const N& out, const N& g) {
  Ints amounts;
  for (size_t i = 0; i < out->shape.size(); i++) {
    amounts.push_back(out->ints()[2 * i]);
    amounts.push_back(out->src[0]->shape[i] - out->ints()[2 * i + 1]);
  }
  return {pad(g, amounts)};
}

Grads window_rule(const N& out, const N& g) {
  const Ints& a = out->ints();
  const N spread = unwindow(g, a[0], out->src[0]->shape[static_cast<size_t>(a[0])], a[2], a[3]);
  return {reduce(Op::ReduceAdd, spread, last_axis(spread))};
}

// x'[o, k] = g[o*step + k*dilation, k]: windows of g along the axis, of which the diagonal is kept.
Grads unwindow_rule(const N& out, const N& g) {
  const Ints& arg = out->ints();
  const int64_t axis = arg[0], step = arg[2], dilation = arg[3];
  const auto a = static_cast<size_t>(axis);
  const int64_t windows = out->src[0]->shape[a], size = out->shape.back();
  if (out->src[0]->numel() == 0) return {like(x0(out), 0)};
  const int64_t need = (windows - 1) * step + (size - 1) * dilation + 1;
  // What repeats along the places, as the gradient of their sum does, has no diagonal to look for.
  const bool repeats = g->op == Op::Expand && g->src[0]->shape.back() == 1;
  N x = g;
  if (repeats) {
    Shape shape = g->shape;
    shape.back() = 1;
    x = expand(g->src[0], shape);
    shape.pop_back();
    x = reshape(x, shape);
  }
  Ints amounts(2 * x->shape.size(), 0);
  amounts[2 * a + 1] = std::max<int64_t>(0, need - out->shape[a]);
  N w = window(pad(x, amounts), axis, size, step, dilation);
  Ints range;
  for (size_t i = 0; i < w->shape.size(); i++) {
    range.push_back(0);
    range.push_back(i == a ? windows : w->shape[i]);
  }
  w = shrink(w, range);
  if (repeats) return {w};
  Shape row(w->shape.size(), 1), column(w->shape.size(), 1);
  row[row.size() - 2] = size;
  column[column.size() - 1] = size;
  const N i = expand(reshape(iota(size), row), w->shape), j = expand(reshape(iota(size), column), w->shape);
  return {reduce(Op::ReduceAdd, where(eq(i, j), w, like(w, 0)), last_axis(w))};
}

// Shared evenly between all elements that attain the extreme.
Grads extreme_rule(const N& out, const N& g) {
  const E x = x0(out);
  const E hit = eq(x, restore(out, E(out)));
  const E one = where(hit, like(x, 1), like(x, 0));
  const E count = reduce(Op::ReduceAdd, one, out->ints());
  return {where(hit, restore(out, E(g) / count), like(x, 0))};
}

// out / x where no factor is zero; with one zero, the product of the others goes to it alone.
Grads product_rule(const N& out, const N& g) {
  const E x = x0(out), zero = like(x, 0), one = like(x, 1);
  const E is_zero = eq(x, zero);
  const E zeros = restore(out, E(reduce(Op::ReduceAdd, where(is_zero, one, zero), out->ints())));
  const E rest = restore(out, E(reduce(Op::ReduceMul, where(is_zero, one, x), out->ints())));
  const E others = where(is_zero, where(eq(zeros, one), rest, zero),
                         where(eq(zeros, zero), restore(out, E(out)) / where(is_zero, one, x), zero));
  return {restore(out, E(g)) * others};
}

E scan_sum(const E& x, const N& like_scan, bool reverse) {
  return scan(x, ScanOp::Add, like_scan->ints()[1], reverse);
}

// Up to the first zero of a line as for nonzero factors; at it, the products of all prefixes without it; nothing after.
Grads scan_product_rule(const N& out, const E& g) {
  const bool back = out->ints()[2] == 0;  // cotangents accumulate against the scan's direction
  const E x = x0(out), zero = like(x, 0), one = like(x, 1);
  const E is_zero = eq(x, zero);
  const E seen = scan_sum(where(is_zero, one, zero), out, !back);
  const E first = both(is_zero, eq(seen, one));
  const E without = scan(where(first, one, x), ScanOp::Mul, out->ints()[1], !back);
  const E plain = scan_sum(g * E(out), out, back) / where(is_zero, one, x);
  return {where(first, scan_sum(g * without, out, back), where(eq(seen, zero), plain, zero))};
}

// Flat position of the coordinates in the index sources, -1 where one is outside.
E flat_index(const N& gather_node) {
  const N& x = gather_node->src[0];
  const Shape& at = gather_node->shape;
  E flat = constant(Scalar(0), DType::I64, at);
  E inside = constant(Scalar(true), DType::Bool, at);
  for (size_t a = 0; a < x->shape.size(); a++) {
    const E i = gather_node->src[a + 1], size = constant(Scalar(x->shape[a]), DType::I64, at);
    flat = flat * size + i;
    inside = both(inside, both(ew(Op::Le, {constant(Scalar(0), DType::I64, at), i.n}), lt(i, size)));
  }
  return where(inside, flat, constant(Scalar(-1), DType::I64, at));
}

Grads gather_rule(const N& out, const N& g) {
  const N& x = out->src[0];
  Grads r(out->src.size());
  r[0] = scatter(constant(Scalar(0), x->dtype, x->shape), flat_index(out), g, Combine::Add);
  return r;
}

Grads scan_rule(const N& out, const N& g) {
  switch (static_cast<ScanOp>(out->ints()[0])) {
    case ScanOp::Add: return {scan_sum(g, out, out->ints()[2] == 0)};
    case ScanOp::Mul: return scan_product_rule(out, g);
    default: break;
  }
  // Max and Min: what is best so far was taken from the last of its equals.
  Sources at;
  for (int64_t a = 0; a < out->rank(); a++) {
    at.push_back(a == out->ints()[1] ? detail::places_of_best(out)
                                     : detail::coordinate(out->shape, a));
  }
  return {gather_rule(gather(x0(out), at), g)[0]};
}

E gather_flat(const E& x, const N& index) {
  const N flat = reshape(x.n, Shape{x.n->numel()});
  return gather(flat, std::span<const NodeRef>(&index, 1));
}

Grads scatter_rule(const N& out, const N& cotangent) {
  const E g = cotangent, base = out->src[0], value = out->src[2];
  const N& index = out->src[1];
  switch (static_cast<Combine>(out->integer())) {
    case Combine::Set:
      return {scatter(g, index, like(value, 0), Combine::Set), {}, gather_flat(g, index)};
    case Combine::Add: return {g, {}, gather_flat(g, index)};
    case Combine::Mul:
      return {(g * E(out)) / base, {}, gather_flat(g * E(out), index) / value};
    default: break;
  }
  // Max and Min: shared evenly between the base and all values that attain the result.
  const E zero = like(base, 0), one = like(base, 1);
  const E from_base = where(eq(base, E(out)), one, zero);
  const E hit = eq(value, gather_flat(E(out), index));
  const E from_value = where(hit, like(value, 1), like(value, 0));
  const E count = scatter(from_base, index, from_value, Combine::Add);
  const E share = g / count;
  return {from_base * share, {}, from_value * gather_flat(share, index)};
}

Grads custom_rule(const N& out, const N& g) {
  const Attribute* any = std::get<Ref<const Attribute>>(out->arg).get();
  const auto* attribute = dynamic_cast<const VjpAttribute*>(any);
  ensure(attribute != nullptr, "gradient: a CustomVjp node without a function");
  const std::vector<Tensor> given = attribute->cotangents(*out, Tensor(g));
  require(given.size() + 1 == out->src.size(), "custom_vjp: the function returned {} cotangents for {} inputs",
          given.size(), out->src.size() - 1);
  Grads r(out->src.size());
  for (size_t i = 0; i < given.size(); i++) {
    const N& x = out->src[i + 1];
    const N n = given[i].node();
    require(n->shape == x->shape, "custom_vjp: cotangent {} has shape {}, its input {}", i, to_string(n->shape),
            to_string(x->shape));
    if (is_float(x->dtype)) r[i + 1] = cast(n, x->dtype);
  }
  return r;
}

Grads pow_rule(const N& out, const N& cotangent) {
  const E g = cotangent, a = x0(out), b = x1(out), zero = like(a, 0);
  const E by_base = where(eq(b, zero), zero, g * (b * ew(Op::Pow, {a.n, (b - 1).n})));
  const E at_zero = both(eq(a, zero), ew(Op::Le, {zero.n, b.n}));
  return {by_base, where(at_zero, zero, g * (E(out) * fn(Op::Log, a)))};
}

constexpr double kLn2 = std::numbers::ln2, kLn10 = std::numbers::ln10;
const double kTwoOverSqrtPi = 2 / std::sqrt(std::numbers::pi);

struct Row {
  Op op;
  GradientRule rule;
};

// clang-format off
const Row kRules[] = {
    {Op::Neg,    [](const N&, const N& g) -> Grads { return {-E(g)}; }},
    {Op::Abs,    [](const N& o, const N& g) -> Grads { return {E(g) * fn(Op::Sign, x0(o))}; }},
    {Op::Recip,  [](const N& o, const N& g) -> Grads { return {-(E(g) * (E(o) * E(o)))}; }},
    {Op::Sqrt,   [](const N& o, const N& g) -> Grads { return {E(g) / (E(o) * 2.0)}; }},
    {Op::Rsqrt,  [](const N& o, const N& g) -> Grads { return {E(g) * (E(o) * E(o) * E(o)) * -0.5}; }},
    {Op::Exp,    [](const N& o, const N& g) -> Grads { return {E(g) * E(o)}; }},
    {Op::Exp2,   [](const N& o, const N& g) -> Grads { return {E(g) * E(o) * kLn2}; }},
    {Op::Expm1,  [](const N& o, const N& g) -> Grads { return {E(g) * fn(Op::Exp, x0(o))}; }},
    {Op::Log,    [](const N& o, const N& g) -> Grads { return {E(g) / x0(o)}; }},
    {Op::Log2,   [](const N& o, const N& g) -> Grads { return {E(g) / (x0(o) * kLn2)}; }},
    {Op::Log10,  [](const N& o, const N& g) -> Grads { return {E(g) / (x0(o) * kLn10)}; }},
    {Op::Log1p,  [](const N& o, const N& g) -> Grads { return {E(g) / (x0(o) + 1.0)}; }},
    {Op::Sin,    [](const N& o, const N& g) -> Grads { return {E(g) * fn(Op::Cos, x0(o))}; }},
    {Op::Cos,    [](const N& o, const N& g) -> Grads { return {-(E(g) * fn(Op::Sin, x0(o)))}; }},
    {Op::Tan,    [](const N& o, const N& g) -> Grads { return {E(g) * (1.0 + E(o) * E(o))}; }},
    {Op::Asin,   [](const N& o, const N& g) -> Grads { return {E(g) * rsqrt(1.0 - x0(o) * x0(o))}; }},
    {Op::Acos,   [](const N& o, const N& g) -> Grads { return {-(E(g) * rsqrt(1.0 - x0(o) * x0(o)))}; }},
    {Op::Atan,   [](const N& o, const N& g) -> Grads { return {E(g) / (1.0 + x0(o) * x0(o))}; }},
    {Op::Sinh,   [](const N& o, const N& g) -> Grads { return {E(g) * fn(Op::Cosh, x0(o))}; }},
    {Op::Cosh,   [](const N& o, const N& g) -> Grads { return {E(g) * fn(Op::Sinh, x0(o))}; }},
    {Op::Tanh,   [](const N& o, const N& g) -> Grads { return {E(g) * (1.0 - E(o) * E(o))}; }},
    {Op::Sigmoid, [](const N& o, const N& g) -> Grads { return {E(g) * (E(o) * (1.0 - E(o)))}; }},
    {Op::Asinh,  [](const N& o, const N& g) -> Grads { return {E(g) * rsqrt(x0(o) * x0(o) + 1.0)}; }},
    {Op::Acosh,  [](const N& o, const N& g) -> Grads { return {E(g) * rsqrt(x0(o) * x0(o) - 1.0)}; }},
    {Op::Atanh,  [](const N& o, const N& g) -> Grads { return {E(g) / (1.0 - x0(o) * x0(o))}; }},
    {Op::Erf,    [](const N& o, const N& g) -> Grads { return {E(g) * (fn(Op::Exp, -(x0(o) * x0(o))) * kTwoOverSqrtPi)}; }},
    {Op::Erfc,   [](const N& o, const N& g) -> Grads { return {E(g) * (fn(Op::Exp, -(x0(o) * x0(o))) * -kTwoOverSqrtPi)}; }},
    {Op::Digamma, [](const N& o, const N& g) -> Grads { return {E(g) * E(trigamma(Tensor(x0(o).n)).node())}; }},
    {Op::Lgamma, [](const N& o, const N& g) -> Grads { return {E(g) * fn(Op::Digamma, x0(o))}; }},
    {Op::Cast,   [](const N& o, const N& g) -> Grads { return {is_float(o->src[0]->dtype) ? cast(g, o->src[0]->dtype) : N()}; }},
    {Op::Add,    [](const N&, const N& g) -> Grads { return {g, g}; }},
    {Op::Sub,    [](const N&, const N& g) -> Grads { return {g, -E(g)}; }},
    {Op::Mul,    [](const N& o, const N& g) -> Grads { return {E(g) * x1(o), E(g) * x0(o)}; }},
    {Op::Div,    [](const N& o, const N& g) -> Grads { return {E(g) / x1(o), -(E(g) * (E(o) / x1(o)))}; }},
    {Op::Rem,    [](const N& o, const N& g) -> Grads { return {g, -(E(g) * fn(Op::Trunc, x0(o) / x1(o)))}; }},
    {Op::Pow,    pow_rule},
    {Op::Max,    [](const N& o, const N& g) -> Grads { const E a = x0(o), b = x1(o), h = E(g) * 0.5, z = like(a, 0); const E tie = eq(a, b);
                   return {where(tie, h, where(lt(a, b), z, g)), where(tie, h, where(lt(b, a), z, g))}; }},
    {Op::Min,    [](const N& o, const N& g) -> Grads { const E a = x0(o), b = x1(o), h = E(g) * 0.5, z = like(a, 0); const E tie = eq(a, b);
                   return {where(tie, h, where(lt(b, a), z, g)), where(tie, h, where(lt(a, b), z, g))}; }},
    {Op::Atan2,  [](const N& o, const N& g) -> Grads { const E d = x0(o) * x0(o) + x1(o) * x1(o), z = like(d, 0);
                   const E r = where(eq(d, z), z, 1.0 / d);
                   return {E(g) * (x1(o) * r), E(g) * (-x0(o) * r)}; }},
    {Op::Where,  [](const N& o, const N& g) -> Grads { const E z = like(E(g), 0); return {N(), where(x0(o), g, z), where(x0(o), z, g)}; }},
    {Op::Fma,    [](const N& o, const N& g) -> Grads { return {E(g) * x1(o), E(g) * x0(o), g}; }},
    {Op::Reshape,  [](const N& o, const N& g) -> Grads { return {reshape(g, o->src[0]->shape)}; }},
    {Op::Permute,  permute_rule},
    {Op::Expand,   expand_rule},
    {Op::Pad,      pad_rule},
    {Op::Shrink,   shrink_rule},
    {Op::Flip,     [](const N& o, const N& g) -> Grads { return {flip(g, o->ints())}; }},
    {Op::Window,   window_rule},
    {Op::Unwindow, unwindow_rule},
    {Op::ReduceAdd, [](const N& o, const N& g) -> Grads { return {restore(o, E(g))}; }},
    {Op::ReduceMul, product_rule},
    {Op::ReduceMax, extreme_rule},
    {Op::ReduceMin, extreme_rule},
    {Op::Gather,     gather_rule},
    {Op::Scatter,    scatter_rule},
    {Op::Scan,       scan_rule},
    {Op::Fresh,      [](const N&, const N& g) -> Grads { return {g}; }},
    {Op::Contiguous, [](const N&, const N& g) -> Grads { return {g}; }},
    {Op::Checkpoint, [](const N&, const N& g) -> Grads { return {g}; }},
    {Op::CustomVjp,  custom_rule},
};
// clang-format on

}  // namespace

GradientRule gradient_rule(Op op) {
  static const auto table = [] {
    std::array<GradientRule, kOpCount> t{};
    for (const Row& row : kRules) t[static_cast<size_t>(row.op)] = row.rule;
    return t;
  }();
  return table[static_cast<size_t>(op)];
}

bool is_differentiable(Op op) { return gradient_rule(op) != nullptr; }

}  // namespace lazuli
