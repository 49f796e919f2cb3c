// Rules on reductions. Sums may be reassociated: the sum of sums is one sum, and the sum of a sum
// of products is a sum for each product, because each of them alone is a contraction.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/graph.h"
#include "core/ops_creation.h"
#include "ir/fuse.h"
#include "ir/index.h"
#include "ir/math.h"
#include "ir/simplify_rules.h"

namespace lazuli {
namespace {

Ints count_axes(int64_t n) {
  Ints r;
  for (int64_t i = 0; i < n; i++) r.push_back(i);
  return r;
}

const Node* base_of(const NodeRef& n) {
  const Node* x = n;
  while (is_movement(x->op) && !x->realised()) x = x->src[0];
  return x;
}

// A product of factors that are both smaller than it: worth nothing by itself, a contraction once
// summed.
bool is_outer_product(const NodeRef& n) {
  return is_op(n, Op::Mul) && base_of(n->src[0])->numel() < n->numel() &&
         base_of(n->src[1])->numel() < n->numel();
}

NodeRef without_unit_axes(const NodeRef& n, Simplifier& s) {
  if (!is_reduce(n->op)) return {};
  const NodeRef& x = n->src[0];
  Ints axes, kept;
  Shape shape;
  for (size_t i = 0; i < x->shape.size(); i++) {
    if (contains(n->ints(), i)) {
      if (x->shape[i] == 1) continue;
      axes.push_back(static_cast<int64_t>(shape.size()));
    }
    shape.push_back(x->shape[i]);
  }
  if (axes.size() == n->ints().size()) return {};
  return reduce(n->op, s(reshape(x, shape)), axes);
}

// The sum of n equal numbers is n times the number, their maximum the number itself.
NodeRef reduce_repeated(const NodeRef& n, Simplifier& s) {
  if (!is_reduce(n->op) || n->op == Op::ReduceMul) return {};
  const NodeRef& x = n->src[0];
  const bool constant_source = is_constant(x);
  if (!constant_source && !is_op(x, Op::Expand)) return {};
  int64_t times = 1;
  Ints rest;
  Shape small = x->shape;
  for (size_t i = 0; i < x->shape.size(); i++) {
    if (!contains(n->ints(), i)) continue;
    if (constant_source || (x->src[0]->shape[i] == 1 && x->shape[i] > 1)) {
      times *= x->shape[i];
      small[i] = 1;
    } else {
      rest.push_back(static_cast<int64_t>(i));
    }
  }
  if (times == 1) return {};
  NodeRef y = constant_source ? constant_of_bits(std::get<ScalarBits>(x->arg).bits, x->dtype, small)
                              : s(expand(x->src[0], small));
  if (!rest.empty()) y = s(reduce(n->op, y, rest));
  y = s(reshape(y, n->shape));
  if (n->op != Op::ReduceAdd) return y;
  // A count that the dtype cannot hold is one that its sum could not reach exactly either.
  const DType wide = accumulator(n->dtype);
  NodeRef product =
      s(elementwise(Op::Mul, {s(cast(y, wide)), constant(Scalar(times), wide, n->shape)}));
  return cast(product, n->dtype);
}

// Kept axes along which the source only repeats are repeated afterwards.
NodeRef repeat_after(const NodeRef& n, Simplifier& s) {
  if (!is_reduce(n->op) || !is_op(n->src[0], Op::Expand)) return {};
  const NodeRef& x = n->src[0];
  Shape small = x->shape;
  for (size_t i = 0; i < small.size(); i++) {
    if (!contains(n->ints(), i) && x->src[0]->shape[i] == 1) small[i] = 1;
  }
  if (small == x->shape) return {};
  return expand(s(reduce(n->op, s(expand(x->src[0], small)), n->ints())), n->shape);
}

NodeRef sum_of_negated(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceAdd || !is_op(n->src[0], Op::Neg)) return {};
  return elementwise(Op::Neg, {s(reduce(n->op, n->src[0]->src[0], n->ints()))});
}

// Zeros around what is summed are no terms; those along other axes are zeros of the result. One
// term alone is not added to a zero, so that it may be a negative one.
NodeRef sum_of_padded(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceAdd || !is_op(n->src[0], Op::Pad)) return {};
  const NodeRef& padded = n->src[0];
  const Ints &axes = n->ints(), &amounts = padded->ints();
  Ints around;
  bool drops = false, several = false;
  for (size_t a = 0; a < padded->shape.size(); a++) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(a)) == axes.end()) {
      around.push_back(amounts[2 * a]);
      around.push_back(amounts[2 * a + 1]);
    } else {
      drops |= amounts[2 * a] != 0 || amounts[2 * a + 1] != 0;
      several |= padded->src[0]->shape[a] > 1;
    }
  }
  if (!drops || !several) return {};
  const NodeRef sum = s(reduce(n->op, padded->src[0], axes));
  const bool all = std::all_of(around.begin(), around.end(), [](int64_t x) { return x == 0; });
  return all ? sum : pad(sum, around);
}

// Adjoints of a shared operand are added before they are summed; each sum alone is a contraction.
NodeRef sum_of_products(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceAdd) return {};
  const NodeRef& x = n->src[0];
  if (!(is_op(x, Op::Add) || is_op(x, Op::Sub)) || !s.read_once(x)) return {};
  constexpr size_t kMostTerms = 64;
  std::vector<NodeRef> open{x};
  size_t terms = 0;
  while (!open.empty()) {
    const NodeRef t = open.back();
    open.pop_back();
    if (is_op(t, Op::Add) || is_op(t, Op::Sub) || is_op(t, Op::Neg)) {
      for (const NodeRef& y : t->src) open.push_back(y);
    } else if (!is_outer_product(t)) {
      return {};
    }
    if (++terms > 2 * kMostTerms) return {};
  }
  Sources sums;
  for (const NodeRef& y : x->src) sums.push_back(s(reduce(n->op, y, n->ints())));
  return elementwise(x->op, std::move(sums));
}

// `move` on the leading axes of y, which has `extra` more axes behind.
NodeRef move_leading(const NodeRef& move, NodeRef y, size_t extra, Simplifier& s) {
  const size_t lead = y->shape.size() - extra;
  const auto with_extra = [&](Shape shape) {
    shape.append(y->shape.end() - static_cast<std::ptrdiff_t>(extra), y->shape.end());
    return shape;
  };
  switch (move->op) {
    case Op::Reshape:
      return s(reshape(y, with_extra(move->shape)));
    case Op::Expand:
      return s(expand(y, with_extra(move->shape)));
    case Op::Flip:
      return s(flip(y, move->ints()));
    case Op::Permute: {
      Ints order = move->ints();
      for (size_t i = 0; i < extra; i++) order.push_back(static_cast<int64_t>(lead + i));
      return s(permute(y, order));
    }
    case Op::Pad:
    case Op::Shrink: {
      Ints arg = move->ints();
      for (size_t i = 0; i < extra; i++) {
        arg.push_back(0);
        arg.push_back(move->op == Op::Pad ? 0 : y->shape[lead + i]);
      }
      return s(move->op == Op::Pad ? pad(y, arg) : shrink(y, arg));
    }
    case Op::Unwindow: {
      // The place in a window must be last: behind the extra axes and back again.
      const size_t last = y->shape.size() - 1;
      y = s(move_like(move, s(move_axis(y, lead - 1, last))));
      return s(move_axis(y, last, lead - 1));
    }
    case Op::Window: {
      // The place in a window comes to be last of the leading axes.
      y = s(move_like(move, y));
      return s(move_axis(y, y->shape.size() - 1, lead));
    }
    default:
      internal_error("move_leading: such a node does not move");
  }
}

// The movement chain below n down to something else, outermost first.
std::vector<NodeRef> chain_below(const NodeRef& n, NodeRef& end) {
  std::vector<NodeRef> chain;
  end = n;
  while (is_movement(end->op) && !end->realised()) {
    chain.push_back(end);
    end = end->src[0];
  }
  return chain;
}

bool is_expanded(const NodeRef& factor, size_t axis) {
  return is_op(factor, Op::Expand) && factor->src[0]->shape[axis] == 1;
}

// Whether windows share elements.
bool overlaps(const Node& n) {
  return n.op == Op::Window && (n.ints()[2] < n.ints()[1] || n.ints()[3] > 1);
}

// An unwindow of a product: a factor that only repeats along the windows stays whole, since the
// other one is zero where there is no window.
bool unwindow_factors(const NodeRef& move, NodeRef& a, NodeRef& b, size_t extra, Simplifier& s) {
  const auto axis = static_cast<size_t>(move->ints()[0]);
  if (is_expanded(a, axis) && is_expanded(b, axis)) return false;
  for (NodeRef* f : {&a, &b}) {
    if (!is_expanded(*f, axis)) {
      *f = move_leading(move, *f, extra, s);
      continue;
    }
    Shape shape = (*f)->shape;
    shape[axis] = move->ints()[1];
    *f = s(expand((*f)->src[0], shape));
  }
  return true;
}

// sum{A} M(sum{B} f) = sum{A, B} M(f): a sum behind movement goes on as one sum. With an unwindow
// in M this is the gradient of a convolution by its input, which is a contraction again; f must
// then be a product, into whose factors M is moved.
NodeRef sum_of_moved_sum(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceAdd) return {};
  NodeRef inner;
  const std::vector<NodeRef> chain = chain_below(n->src[0], inner);
  if (!is_op(inner, Op::ReduceAdd) || !s.read_once(inner) || inner->dtype != n->dtype) return {};
  bool unwinds = false;
  int64_t rank = n->src[0]->rank();
  for (const NodeRef& m : chain) {
    if (!s.read_once(m) || overlaps(*m) || m->op == Op::Expand) return {};
    unwinds |= m->op == Op::Unwindow;
    rank = std::max(rank, m->src[0]->rank());
  }
  if (chain.size() > 16) return {};
  const NodeRef& f = inner->src[0];
  if (unwinds && !is_outer_product(f)) return {};
  // To spread windows takes one axis for a while.
  if (rank + static_cast<int64_t>(inner->ints().size()) + 1 > kMaxRank) return {};
  Ints order;
  for (size_t i = 0; i < f->shape.size(); i++) {
    if (!contains(inner->ints(), i)) order.push_back(static_cast<int64_t>(i));
  }
  order.append(inner->ints().begin(), inner->ints().end());
  const size_t extra = inner->ints().size();
  NodeRef product;
  if (!unwinds) {
    product = s(permute(f, order));
    for (size_t c = chain.size(); c-- > 0;) product = move_leading(chain[c], product, extra, s);
  } else {
    NodeRef a = s(permute(f->src[0], order)), b = s(permute(f->src[1], order));
    for (size_t c = chain.size(); c-- > 0;) {
      if (chain[c]->op == Op::Unwindow) {
        if (!unwindow_factors(chain[c], a, b, extra, s)) return {};
      } else {
        a = move_leading(chain[c], a, extra, s);
        b = move_leading(chain[c], b, extra, s);
      }
    }
    product = s(elementwise(Op::Mul, {a, b}));
  }
  Ints axes = n->ints();
  for (int64_t a : count_axes(static_cast<int64_t>(extra))) axes.push_back(n->src[0]->rank() + a);
  std::sort(axes.begin(), axes.end());
  return reduce(Op::ReduceAdd, product, axes);
}

// A product behind movement: the factors are moved instead, so that the sum is seen to be a
// contraction.
NodeRef sum_of_moved_product(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceAdd || !is_movement(n->src[0]->op)) return {};
  NodeRef product;
  const std::vector<NodeRef> chain = chain_below(n->src[0], product);
  if (!is_outer_product(product) || chain.size() > 16) return {};
  NodeRef a = product->src[0], b = product->src[1];
  for (size_t c = chain.size(); c-- > 0;) {
    if (chain[c]->op == Op::Window) return {};
    if (chain[c]->op == Op::Unwindow) {
      const bool spread = chain[c]->ints()[2] > 1;
      if (spread || !unwindow_factors(chain[c], a, b, 0, s)) return {};
      continue;
    }
    a = s(move_like(chain[c], a));
    b = s(move_like(chain[c], b));
  }
  return reduce(Op::ReduceAdd, s(elementwise(Op::Mul, {a, b})), n->ints());
}

// Whatever x moves; where x moves a choice between a constant and something, whatever that moves.
NodeRef below_choice(const NodeRef& x) {
  NodeRef below;
  chain_below(x, below);
  if (is_op(below, Op::Where) && is_constant(below->src[1])) chain_below(below->src[2], below);
  return below;
}

// sum{k} e[k] / sum(e) * x[k] = sum{k} e[k] * x[k] / sum(e) for the exponentials of a softmax, as
// in attention: none is larger than 1, and fewer sums are divided than there are weights.
NodeRef divide_last(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceAdd || !is_op(n->src[0], Op::Mul)) return {};
  const NodeRef& product = n->src[0];
  for (size_t side = 0; side < 2; side++) {
    NodeRef weights;
    const std::vector<NodeRef> chain = chain_below(product->src[side], weights);
    if (!is_op(weights, Op::Div) || !s.read_once(weights) || weights->numel() <= n->numel())
      continue;
    const NodeRef& e = weights->src[0];
    const NodeRef sum = below_choice(weights->src[1]);
    if (!is_op(sum, Op::ReduceAdd) || sum->src[0].get() != e.get() || !is_op(e, Op::Exp) ||
        !is_shifted(e->src[0], s)) {
      continue;
    }
    NodeRef up = e, down = weights->src[1];
    bool plain = true;
    for (size_t c = chain.size(); c-- > 0;) {
      const Op op = chain[c]->op;
      plain &= op == Op::Reshape || op == Op::Permute || op == Op::Expand;
      if (!plain) break;
      up = s(move_like(chain[c], up));
      down = s(move_like(chain[c], down));
    }
    for (int64_t a : n->ints()) plain = plain && is_expanded(down, static_cast<size_t>(a));
    if (!plain) continue;
    for (int64_t a : n->ints()) down = s(shrink_axis(down, static_cast<size_t>(a), 0, 1));
    const NodeRef terms = s(elementwise(Op::Mul, {up, product->src[1 - side]}));
    return elementwise(Op::Div,
                       {s(reduce(Op::ReduceAdd, terms, n->ints())), s(reshape(down, n->shape))});
  }
  return {};
}

// The sum of windows of x that begin at every step-th place: element q*step + r of the result meets
// window q - p at its place p*step + r alone. The places are split by r, and for each r the windows
// are summed as ones at step 1, without the zeros between them.
class SpreadWindows {
 public:
  SpreadWindows(int64_t length, int64_t step, Simplifier& s)
      : length_(length), step_(step), blocks_((length + step - 1) / step), s_(s) {}

  // x with `length` elements along `axis`, where its windows are counted, and without the axis
  // `place` of the places in a window. Movement along other axes and joins of residues stay
  // outside, so that sums of products below see nothing but windows.
  NodeRef sum(const NodeRef& x, size_t axis, size_t place) const {
    if (is_op(x, Op::Add) && is_op(x->src[0], Op::Pad) && is_op(x->src[1], Op::Pad)) {
      return s_(elementwise(Op::Add, {sum(x->src[0], axis, place), sum(x->src[1], axis, place)}));
    }
    NodeRef moved;
    switch (x->realised() ? Op::Count_ : x->op) {
      case Op::Permute:
        moved = through_permute(x, axis, place);
        break;
      case Op::Reshape:
        moved = through_reshape(x, axis, place);
        break;
      case Op::Pad:
      case Op::Shrink:
        moved = through_ranges(x, axis, place);
        break;
      default:
        break;
    }
    return moved ? moved : by_residues(x, axis, place);
  }

 private:
  NodeRef through_permute(const NodeRef& x, size_t axis, size_t place) const {
    const auto from = static_cast<size_t>(x->ints()[axis]),
               gone = static_cast<size_t>(x->ints()[place]);
    Ints order;
    for (size_t i = 0; i < x->shape.size(); i++) {
      const auto a = static_cast<size_t>(x->ints()[i]);
      if (i != place) order.push_back(static_cast<int64_t>(a - (a > gone ? 1 : 0)));
    }
    return s_(permute(sum(x->src[0], from, gone), order));
  }

  // Of the source of a reshape that keeps axis `a` as it is; its rank if it does not.
  static size_t axis_before(const Node& reshape, size_t a) {
    const Shape &to = reshape.shape, &from = reshape.src[0]->shape;
    int64_t before = 1, passed = 1;
    for (size_t i = 0; i < a; i++) before *= to[i];
    for (size_t i = 0; i < from.size(); passed *= from[i++]) {
      if (passed == before && from[i] == to[a] && to[a] > 1) return i;
    }
    return from.size();
  }

  NodeRef through_reshape(const NodeRef& x, size_t axis, size_t place) const {
    const size_t from = axis_before(*x, axis), gone = axis_before(*x, place);
    if (from == x->src[0]->shape.size() || gone == x->src[0]->shape.size()) return {};
    Shape shape = x->shape;
    shape[axis] = length_;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(place));
    return s_(reshape(sum(x->src[0], from, gone), shape));
  }

  // Of a pad or a shrink that leaves both axes alone.
  NodeRef through_ranges(const NodeRef& x, size_t axis, size_t place) const {
    if (x->src[0]->shape[axis] != x->shape[axis] || x->src[0]->shape[place] != x->shape[place])
      return {};
    Ints arg;
    for (size_t i = 0; i < x->shape.size(); i++) {
      if (i == place) continue;
      const bool whole = i == axis && x->op == Op::Shrink;
      arg.push_back(x->ints()[2 * i]);
      arg.push_back(whole ? length_ : x->ints()[2 * i + 1]);
    }
    const NodeRef y = sum(x->src[0], axis, place);
    return s_(x->op == Op::Pad ? pad(y, arg) : shrink(y, arg));
  }

  NodeRef by_residues(const NodeRef& given, size_t axis, size_t place) const {
    // Residues come first, so that what lies last, and vectors along it, stay as they are.
    const int64_t size = given->shape[place], terms = size / step_, longer = size % step_;
    const bool mixed = terms == 1 && longer > 0;
    const NodeRef x = s_(move_axis(mixed ? with_stored_factors(given) : given, place, 0));
    if (axis < place) axis++;
    // The first residues meet one place more than the others.
    NodeRef all;
    for (const auto& [from, to, count] :
         {std::tuple(int64_t{0}, longer, terms + 1), std::tuple(longer, step_, terms)}) {
      if (from == to || count == 0) continue;
      const NodeRef y = s_(pad_axis(residues(x, axis, from, to, count), 0, from, step_ - to));
      all = all ? s_(elementwise(Op::Add, {all, y})) : y;
    }
    all = s_(move_axis(all, 0, axis));
    Shape shape = all->shape;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    shape[axis - 1] = blocks_ * step_;
    return s_(shrink_axis(s_(reshape(all, shape)), axis - 1, 0, length_));
  }

  // Windows of a factor are read from memory. Where a part reads single elements of it, what
  // computes them would take that part in, at the pace of a sum whose results are needed one by
  // one.
  NodeRef with_stored_factors(const NodeRef& x) const {
    if (!is_op(x, Op::ReduceAdd) || !is_outer_product(x->src[0])) return x;
    Sources factors;
    for (const NodeRef& f : x->src[0]->src) {
      NodeRef stored;
      const std::vector<NodeRef> chain = chain_below(f, stored);
      const bool computed =
          !stored->realised() && !is_leaf(stored->op) && stored->op != Op::Contiguous;
      if (computed) stored = s_(contiguous(stored));
      for (size_t c = chain.size(); computed && c-- > 0;) stored = s_(move_like(chain[c], stored));
      factors.push_back(computed ? stored : f);
    }
    return s_(reduce(Op::ReduceAdd, s_(elementwise(Op::Mul, std::move(factors))), x->ints()));
  }

  // Residues [from, to) of all blocks, first: sums of `terms` places.
  NodeRef residues(const NodeRef& x, size_t axis, int64_t from, int64_t to, int64_t terms) const {
    NodeRef y = cut(x, from, (terms - 1) * step_ + to);
    if (terms == 1) {
      return y->shape[axis] > blocks_ ? s_(shrink_axis(y, axis, 0, blocks_))
                                      : s_(pad_axis(y, axis, 0, blocks_ - y->shape[axis]));
    }
    const size_t last = y->shape.size();
    y = s_(window(y, 0, to - from, step_, 1));
    y = s_(move_axis(s_(move_axis(y, last, 0)), 1, last));
    y = s_(unwindow(y, static_cast<int64_t>(axis), blocks_, 1, 1));
    return s_(reduce(Op::ReduceAdd, y, {static_cast<int64_t>(last)}));
  }

  // [from, to) of axis 0; of sums, what is summed.
  NodeRef cut(const NodeRef& x, int64_t from, int64_t to) const {
    if (from == 0 && to == x->shape[0]) return x;
    if (is_op(x, Op::Mul)) {
      return s_(elementwise(Op::Mul, {cut(x->src[0], from, to), cut(x->src[1], from, to)}));
    }
    if (!is_op(x, Op::ReduceAdd)) return s_(shrink_axis(x, 0, from, to));
    const NodeRef& f = x->src[0];
    size_t first = 0;  // axis of f that is the first of x
    while (contains(x->ints(), first)) first++;
    NodeRef terms = s_(move_axis(f, first, 0));
    Ints axes;
    for (int64_t a : x->ints()) axes.push_back(a + (a < static_cast<int64_t>(first) ? 1 : 0));
    return s_(reduce(Op::ReduceAdd, cut(terms, from, to), axes));
  }

  int64_t length_, step_, blocks_;
  Simplifier& s_;
};

NodeRef sum_of_spread_windows(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceAdd || !is_op(n->src[0], Op::Unwindow)) return {};
  const NodeRef& u = n->src[0];
  const Ints& arg = u->ints();
  const int64_t place = u->rank() - 1, length = arg[1], step = arg[2], dilation = arg[3];
  if (step == 1 || dilation != 1 || length == 0 || n->ints() != Ints{place}) return {};
  if (u->shape.back() == 0) return {};
  return SpreadWindows(length, step, s)
      .sum(u->src[0], static_cast<size_t>(arg[0]), static_cast<size_t>(place));
}

// A maximum of maxima.
NodeRef reduce_of_reduce(const NodeRef& n, Simplifier& s) {
  if (!is_reduce(n->op) || n->op == Op::ReduceAdd || n->op == Op::ReduceMul) return {};
  const NodeRef& inner = n->src[0];
  if (!is_op(inner, n->op) || !s.read_once(inner)) return {};
  Ints axes = inner->ints(), kept;
  for (size_t i = 0; i < inner->src[0]->shape.size(); i++) {
    if (!contains(inner->ints(), i)) kept.push_back(static_cast<int64_t>(i));
  }
  for (int64_t a : n->ints()) axes.push_back(kept[static_cast<size_t>(a)]);
  std::sort(axes.begin(), axes.end());
  return reduce(n->op, inner->src[0], axes);
}

// The sum of the elements whose place is an index is the element there, or zero. A sum makes a zero
// of a negative zero, and so does adding one.
NodeRef sum_of_selected(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceAdd || n->ints().size() != 1 || !is_op(n->src[0], Op::Where)) return {};
  const NodeRef &hit = n->src[0]->src[0], &x = n->src[0]->src[1], &none = n->src[0]->src[2];
  if (!is_op(hit, Op::Eq) || !is_constant(none) || std::get<ScalarBits>(none->arg).bits != 0) {
    return {};
  }
  const int64_t axis = n->ints()[0];
  for (size_t side = 0; side < 2; side++) {
    const NodeRef &counts = hit->src[side], &place = hit->src[1 - side];
    if (counts->dtype != DType::I64 || counted_axis(*counts) != axis) continue;
    if (varying_axes(*place)[static_cast<size_t>(axis)]) continue;
    std::vector<NodeRef> index;
    for (int64_t a = 0, kept = 0; a < x->rank(); a++) {
      index.push_back(
          a == axis ? s(reshape(s(shrink_axis(place, static_cast<size_t>(a), 0, 1)), n->shape))
                    : s(detail::coordinate(n->shape, kept++)));
    }
    const NodeRef y = s(gather(x, index));
    return is_float(n->dtype) ? elementwise(Op::Add, {y, constant(Scalar(0.0), n->dtype, n->shape)})
                              : y;
  }
  return {};
}

// ---- long rows

// The shape of x with its last axis, if that is long, in chunks which stay in the cache of a core;
// empty if it is not, or divides badly, or is not cheaply read again: pointwise on arrays and on
// values of whole rows.
Shape in_chunks(const NodeRef& x) {
  constexpr int64_t kLong = 1 << 17, kFewest = 512, kMost = 8192, kChunks = 64, kUnit = 8;
  constexpr size_t kNodes = 64;
  if (x->shape.empty() || x->shape.back() < kLong) return {};
  const int64_t n = x->shape.back();
  int64_t best = 0;
  for (int64_t d = kFewest; d <= std::min(kMost, n / kChunks); d++) {
    if (n % d == 0 && (d % kUnit == 0 || best % kUnit != 0)) best = d;
  }
  if (best == 0) return {};
  std::vector<const Node*> open{x};
  for (size_t seen = 0; seen < open.size(); seen++) {
    const Node* y = open[seen];
    if (y->realised() || is_leaf(y->op) || y->op == Op::Contiguous) continue;
    if (is_reduce(y->op) && y->numel() <= x->numel() / n) continue;
    if (!(is_elementwise(y->op) || is_movement(y->op)) || open.size() > kNodes) return {};
    for (const NodeRef& source : y->src) open.push_back(source);
  }
  Shape shape = x->shape;
  shape.back() = n / best;
  shape.push_back(best);
  return shape;
}

bool reduces_last(const NodeRef& n) {
  return n->ints().size() == 1 && n->ints()[0] == n->src[0]->rank() - 1;
}

// The greatest of a long row is that of its chunks, which are shared out.
NodeRef extreme_of_chunks(const NodeRef& n, Simplifier& s) {
  if ((n->op != Op::ReduceMax && n->op != Op::ReduceMin) || !reduces_last(n)) return {};
  const NodeRef& x = n->src[0];
  const Shape shape = in_chunks(x);
  if (shape.empty()) return {};
  const NodeRef parts = s(reduce(n->op, s(reshape(x, shape)), {x->rank()}));
  return reduce(n->op, s(contiguous(parts)), {x->rank() - 1});
}

// The array of the extremes of `chunks` that `of` is computed from; null if it is not.
NodeRef extremes_below(const NodeRef& of, Op op, const NodeRef& chunks) {
  constexpr size_t kNodes = 32;
  std::vector<NodeRef> open{of};
  for (size_t seen = 0; seen < open.size() && open.size() < kNodes; seen++) {
    const NodeRef y = open[seen];
    if (is_op(y, Op::Contiguous)) {
      const NodeRef& m = y->src[0];
      if (is_op(m, op) && m->src[0].get() == chunks.get()) return y;
    } else if (!y->realised()) {
      open.insert(open.end(), y->src.begin(), y->src.end());
    }
  }
  return {};
}

// sum{k} exp(z[k] - t) = sum{c} exp(m[c] - t) sum{k in chunk c} exp(z[k] - m[c]): with the maximum
// m of its own chunk each exponential is known as soon as the chunk is, and memory is read once.
NodeRef exponentials_of_chunks(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceAdd || !reduces_last(n) || !is_op(n->src[0], Op::Exp)) return {};
  const NodeRef& difference = n->src[0]->src[0];
  if (!is_op(difference, Op::Sub) || (n->dtype != DType::F32 && n->dtype != DType::F64)) return {};
  const NodeRef &z = difference->src[0], &shift = difference->src[1];
  const size_t last = z->shape.size() - 1;
  const Shape shape = in_chunks(z);
  if (shape.empty() || !is_expanded(shift, last)) return {};
  const NodeRef chunks = s(reshape(z, shape));
  const NodeRef stored = extremes_below(shift, Op::ReduceMax, chunks);
  if (!stored) return {};
  // Of nothing but -inf the exponentials are 0 all the same.
  const auto finite = [&](const NodeRef& m) {
    const double most = n->dtype == DType::F32 ? std::numeric_limits<float>::max()
                                               : std::numeric_limits<double>::max();
    const NodeRef lower = constant(Scalar(-most), n->dtype, m->shape);
    const NodeRef upper = constant(Scalar(most), n->dtype, m->shape);
    return s(elementwise(Op::Min, {s(elementwise(Op::Max, {m, lower})), upper}));
  };
  Shape column = stored->shape;
  column.push_back(1);
  const NodeRef own = s(expand(s(reshape(finite(stored->src[0]), column)), shape));
  // What is infinite made NaN of the row already, so of finite differences it is true here too that
  // none is positive.
  const auto power = [&](const NodeRef& a, const NodeRef& b) {
    const NodeRef x = s(elementwise(Op::Sub, {a, b}));
    return s(is_not_positive_exp(*n->src[0]) ? exp_not_positive(x) : elementwise(Op::Exp, {x}));
  };
  const NodeRef e = power(chunks, own);
  const NodeRef sums = s(contiguous(s(reduce(Op::ReduceAdd, e, {z->rank()}))));
  const NodeRef t = s(expand(s(shrink_axis(shift, last, 0, 1)), stored->shape));
  return reduce(Op::ReduceAdd, s(elementwise(Op::Mul, {sums, power(finite(stored), t)})),
                n->ints());
}

// Where the extreme of a long row is, as argmax asks: in the first chunk that has it.
NodeRef place_in_chunk(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::ReduceMin || !reduces_last(n) || !is_op(n->src[0], Op::Where)) return {};
  const NodeRef& where = n->src[0];
  const auto last = static_cast<int64_t>(where->shape.size()) - 1;
  const NodeRef &hit = where->src[0], &counts = where->src[1];
  if (counts->dtype != DType::I64 || counted_axis(*counts) != last) return {};
  const bool with_nan = is_op(hit, Op::Or) && is_op(hit->src[1], Op::Ne);
  const NodeRef& equal = with_nan ? hit->src[0] : hit;
  if (!is_op(equal, Op::Eq) || is_float(equal->src[0]->dtype) != with_nan) return {};
  const NodeRef &x = equal->src[0], &extreme = equal->src[1];
  if (with_nan && (hit->src[1]->src[0].get() != x.get() || hit->src[1]->src[1].get() != x.get()))
    return {};
  const Shape shape = in_chunks(x);
  NodeRef found;
  chain_below(extreme, found);
  if (shape.empty() || !is_reduce(found->op) || found->shape != n->shape) return {};
  const NodeRef chunks = s(reshape(x, shape)), stored = extremes_below(found, found->op, chunks);
  const auto along = [&](const NodeRef& rows, int64_t length) {
    Shape column = rows->shape, whole = rows->shape;
    column.push_back(1);
    whole.push_back(length);
    return s(expand(s(reshape(rows, column)), whole));
  };
  if (!stored || along(found, x->shape.back()).get() != extreme.get()) return {};
  const auto first = [&](const NodeRef& y, const NodeRef& count) {
    NodeRef here = s(elementwise(Op::Eq, {y, along(found, y->shape.back())}));
    if (with_nan) here = s(elementwise(Op::Or, {here, s(elementwise(Op::Ne, {y, y}))}));
    const NodeRef none = constant(Scalar(x->shape.back()), DType::I64, y->shape);
    return reduce(Op::ReduceMin, s(elementwise(Op::Where, {here, count, none})), n->ints());
  };
  const int64_t length = shape.back();
  const NodeRef chunk = s(first(stored, s(detail::coordinate(stored->shape, last))));
  Shape part = n->shape;
  part.push_back(length);
  std::vector<NodeRef> index;
  for (int64_t a = 0; a <= last + 1; a++) {
    index.push_back(a == last ? along(chunk, length)
                              : s(detail::coordinate(part, a > last ? last : a)));
  }
  const NodeRef begin = s(elementwise(
      Op::Mul, {index[static_cast<size_t>(last)], constant(Scalar(length), DType::I64, part)}));
  return first(s(gather(chunks, index)), s(elementwise(Op::Add, {begin, index.back()})));
}

constexpr Rule kReductions[] = {
    {"read what one index selects", sum_of_selected},
    {"do not reduce one element", without_unit_axes},
    {"reduce what repeats by counting", reduce_repeated},
    {"reduce before repeating", repeat_after},
    {"sum, then negate", sum_of_negated},
    {"sum no padding", sum_of_padded},
    {"sum each product", sum_of_products},
    {"sum spread windows by residues", sum_of_spread_windows},
    {"divide last", divide_last},
    {"sum once", sum_of_moved_sum},
    {"move the factors", sum_of_moved_product},
    {"reduce once", reduce_of_reduce},
    {"find the chunk first", place_in_chunk},
    {"extremes of chunks", extreme_of_chunks},
    {"exponentials of chunks", exponentials_of_chunks},
};

}  // namespace

bool is_shifted(const NodeRef& difference, Simplifier& s) {
  if (!is_op(difference, Op::Sub) || !is_op(difference->src[1], Op::Expand)) return false;
  const NodeRef& z = difference->src[0];
  NodeRef top = difference->src[1]->src[0];
  Shape rows = top->shape;
  const auto unshape = [&] {
    while (is_op(top, Op::Reshape)) top = top->src[0];
  };
  unshape();
  if (is_op(top, Op::Where)) {
    const NodeRef &empty = top->src[0], &most = top->src[2];
    if (!is_op(empty, Op::Eq) || empty->src[0].get() != most.get() || !is_constant(empty->src[1]) ||
        !is_constant(top->src[1]) ||
        const_scalar(*empty->src[1]).as_double() != -std::numeric_limits<double>::infinity()) {
      return false;
    }
    top = most;
    unshape();
  }
  if (!is_op(top, Op::ReduceMax)) return false;
  const NodeRef& x = top->src[0];
  if (x.get() != z.get()) {  // of its chunks?
    if (!reduces_last(top) || !is_op(x, Op::Contiguous) || !is_op(x->src[0], Op::ReduceMax)) {
      return false;
    }
    const Shape shape = in_chunks(z);
    const NodeRef& parts = x->src[0];
    if (shape.empty() || !reduces_last(parts)) return false;
    if (parts->src[0].get() != s(reshape(z, shape)).get()) return false;
  }
  Shape each = z->shape;
  for (int64_t a : top->ints()) each[static_cast<size_t>(a)] = 1;
  return rows == each;
}

std::span<const Rule> reduction_rules() {
  return kReductions;
}

}  // namespace lazuli
