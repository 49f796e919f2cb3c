// Rules on movement: chains are composed, constants do not move, and what would be computed on repeated values is computed before they
// are repeated.
#include <algorithm>

#include "core/error.h"
#include "core/graph.h"
#include "ir/simplify_rules.h"

namespace lazuli {

NodeRef move_like(const NodeRef& m, const NodeRef& x) {
  switch (m->op) {
    case Op::Reshape: return reshape(x, m->shape);
    case Op::Permute: return permute(x, m->ints());
    case Op::Expand: return expand(x, m->shape);
    case Op::Pad: return pad(x, m->ints());
    case Op::Shrink: return shrink(x, m->ints());
    case Op::Flip: return flip(x, m->ints());
    case Op::Window: return window(x, m->ints()[0], m->ints()[1], m->ints()[2], m->ints()[3]);
    case Op::Unwindow: return unwindow(x, m->ints()[0], m->ints()[1], m->ints()[2], m->ints()[3]);
    default: internal_error("move_like: not a movement op");
  }
}

namespace {

NodeRef move_constant(const NodeRef& n, Simplifier&) {
  if (!is_movement(n->op) || !is_constant(n->src[0])) return {};
  const uint64_t bits = std::get<ScalarBits>(n->src[0]->arg).bits;
  if ((n->op == Op::Pad || n->op == Op::Unwindow) && bits != 0) return {};
  return constant_of_bits(bits, n->dtype, n->shape);
}

NodeRef same_again(const NodeRef& n, Simplifier&) {
  if (!is_movement(n->op) || !is_op(n->src[0], n->op)) return {};
  const NodeRef &s = n->src[0], &x = s->src[0];
  const auto rank = static_cast<size_t>(x->rank());
  switch (n->op) {
    case Op::Reshape: return reshape(x, n->shape);
    case Op::Expand: return expand(x, n->shape);
    case Op::Permute: {
      Ints order;
      for (int64_t a : n->ints()) order.push_back(s->ints()[static_cast<size_t>(a)]);
      return permute(x, order);
    }
    case Op::Pad: {
      Ints sum = n->ints();
      for (size_t i = 0; i < sum.size(); i++) sum[i] += s->ints()[i];
      return pad(x, sum);
    }
    case Op::Shrink: {
      Ints range = n->ints();
      for (size_t i = 0; i < rank; i++) {
        range[2 * i] += s->ints()[2 * i];
        range[2 * i + 1] += s->ints()[2 * i];
      }
      return shrink(x, range);
    }
    case Op::Flip: {
      Ints axes;
      std::set_symmetric_difference(n->ints().begin(), n->ints().end(), s->ints().begin(),
                                    s->ints().end(), std::back_inserter(axes));
      return flip(x, axes);
    }
    default: return {};
  }
}

// A part of a padded array that lies inside the array.
NodeRef shrink_of_pad(const NodeRef& n, Simplifier&) {
  if (n->op != Op::Shrink || !is_op(n->src[0], Op::Pad)) return {};
  const NodeRef &p = n->src[0], &x = p->src[0];
  Ints range = n->ints();
  for (size_t i = 0; i < x->shape.size(); i++) {
    range[2 * i] -= p->ints()[2 * i];
    range[2 * i + 1] -= p->ints()[2 * i];
    if (range[2 * i] < 0 || range[2 * i + 1] > x->shape[i]) return {};
  }
  return shrink(x, range);
}

// Repetition is kept outermost: permute(repeat(x)) = repeat(permute(x)), and for a reshape that leaves the repeated axes alone too.
NodeRef move_before_repeating(const NodeRef& n, Simplifier& s) {
  if ((n->op != Op::Permute && n->op != Op::Reshape) || !is_op(n->src[0], Op::Expand)) return {};
  const NodeRef &e = n->src[0], &x = e->src[0];
  if (n->op == Op::Permute) return expand(s(permute(x, n->ints())), n->shape);
  // Axis by axis, apart from units, which may come and go.
  Shape small;
  size_t i = 0;
  for (int64_t size : n->shape) {
    if (size == 1) {
      small.push_back(1);
      continue;
    }
    while (i < e->shape.size() && e->shape[i] == 1) i++;
    if (i == e->shape.size() || e->shape[i] != size) return {};
    small.push_back(x->shape[i++]);
  }
  return expand(s(reshape(x, small)), n->shape);
}

// The same for movement along other axes than the repeated ones.
NodeRef move_inside_repeating(const NodeRef& n, Simplifier& s) {
  const bool moves = n->op == Op::Pad || n->op == Op::Shrink || n->op == Op::Flip ||
                     n->op == Op::Window || n->op == Op::Unwindow;
  if (!moves || !is_op(n->src[0], Op::Expand)) return {};
  const NodeRef &e = n->src[0], &x = e->src[0];
  const auto touches = [&](size_t a) {
    switch (n->op) {
      case Op::Pad: return n->ints()[2 * a] != 0 || n->ints()[2 * a + 1] != 0;
      case Op::Window: return n->ints()[0] == static_cast<int64_t>(a);
      case Op::Unwindow: return n->ints()[0] == static_cast<int64_t>(a) || a + 1 == e->shape.size();
      default: return false;
    }
  };
  Shape small = e->shape;
  for (size_t a = 0; a < small.size(); a++) {
    if (x->shape[a] == 1 && !touches(a)) small[a] = 1;
  }
  if (small == e->shape) return {};
  const NodeRef inner = s(expand(x, small));
  NodeRef moved;
  if (n->op == Op::Shrink) {
    Ints range = n->ints();
    for (size_t a = 0; a < small.size(); a++) {
      if (small[a] == e->shape[a]) continue;
      range[2 * a] = 0;
      range[2 * a + 1] = 1;
    }
    moved = shrink(inner, range);
  } else if (n->op == Op::Flip) {
    Ints axes;
    for (int64_t a : n->ints()) {
      if (small[static_cast<size_t>(a)] == e->shape[static_cast<size_t>(a)]) axes.push_back(a);
    }
    moved = flip(inner, axes);
  } else {
    moved = move_like(n, inner);
  }
  return expand(s(moved), n->shape);
}

// A permutation that moves only axes of size 1 is a reshape.
NodeRef permute_of_units(const NodeRef& n, Simplifier&) {
  if (n->op != Op::Permute) return {};
  int64_t last = -1;
  for (int64_t a : n->ints()) {
    if (n->src[0]->shape[static_cast<size_t>(a)] == 1) continue;
    if (a < last) return {};
    last = a;
  }
  return reshape(n->src[0], n->shape);
}

NodeRef flip_of_units(const NodeRef& n, Simplifier&) {
  if (n->op != Op::Flip) return {};
  Ints axes;
  for (int64_t a : n->ints()) {
    if (n->shape[static_cast<size_t>(a)] != 1) axes.push_back(a);
  }
  return axes.size() == n->ints().size() ? NodeRef() : flip(n->src[0], axes);
}

NodeRef window_of_one(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Window || n->ints()[1] != 1 || n->ints()[2] != 1) return {};
  return s(reshape(n->src[0], n->shape));
}

// Along which axes a node repeats one value; all for a constant.
bool repeats(const NodeRef& n, size_t axis) {
  return is_constant(n) || (is_op(n, Op::Expand) && n->src[0]->shape[axis] == 1);
}

// f(repeat(a), repeat(b)) = repeat(f(a, b))
NodeRef repeat_last(const NodeRef& n, Simplifier& s) {
  if (!is_elementwise(n->op)) return {};
  Shape small = n->shape;
  bool any = false, all_constant = true;
  for (size_t i = 0; i < small.size(); i++) {
    if (small[i] == 1) continue;
    const bool common = std::all_of(n->src.begin(), n->src.end(),
                                    [&](const NodeRef& x) { return repeats(x, i); });
    if (common) small[i] = 1;
    any |= common;
  }
  for (const NodeRef& x : n->src) all_constant &= is_constant(x);
  if (!any || all_constant) return {};
  Sources src;
  for (const NodeRef& x : n->src) {
    src.push_back(is_constant(x)
                      ? constant_of_bits(std::get<ScalarBits>(x->arg).bits, x->dtype, small)
                      : s(expand(x->src[0], small)));
  }
  NodeRef inner = make({.op = n->op, .dtype = n->dtype, .shape = small, .src = std::move(src)});
  return expand(s(std::move(inner)), n->shape);
}

// An unwindow of what does not depend on the place in a window: out[i, k] = x[(i - k*dilation) / step]. Spread by the step, padded and
// windowed from the end, it is the same without a division, and a contraction may read it as it reads a convolution's input.
NodeRef unwindow_of_repeated(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Unwindow) return {};
  const NodeRef& x = n->src[0];
  const size_t place = x->shape.size() - 1, axis = static_cast<size_t>(n->ints()[0]);
  const int64_t size = x->shape[place], length = n->ints()[1], step = n->ints()[2],
                dilation = n->ints()[3];
  if (!is_op(x, Op::Expand) || x->src[0]->shape[place] != 1) return {};
  Shape one = x->shape;
  one[place] = 1;
  NodeRef y = s(expand(x->src[0], one));
  one.pop_back();
  y = s(reshape(y, one));
  if (step > 1) {
    Shape spread = one;
    spread.insert(spread.begin() + static_cast<std::ptrdiff_t>(axis) + 1, 1);
    y = s(reshape(y, spread));
    Ints zeros(2 * spread.size(), 0);
    zeros[2 * (axis + 1) + 1] = step - 1;
    y = s(pad(y, zeros));
    one[axis] *= step;
    y = s(reshape(y, one));
  }
  if (one[axis] > length) {
    Ints range;
    for (size_t i = 0; i < one.size(); i++) {
      range.push_back(0);
      range.push_back(i == axis ? length : one[i]);
    }
    y = s(shrink(y, range));
    one[axis] = length;
  }
  Ints around(2 * one.size(), 0);
  around[2 * axis] = (size - 1) * dilation;
  around[2 * axis + 1] = length - one[axis];
  y = s(pad(y, around));
  y = s(window(y, static_cast<int64_t>(axis), size, 1, dilation));
  return flip(y, {static_cast<int64_t>(place)});
}

constexpr Rule kMovementRules[] = {
    {"a moved constant is a constant", move_constant},
    {"compose two of a kind", same_again},
    {"cut padding away", shrink_of_pad},
    {"permuting units is reshaping", permute_of_units},
    {"move before repeating", move_before_repeating},
    {"move along other axes before repeating", move_inside_repeating},
    {"units cannot be flipped", flip_of_units},
    {"windows of one element", window_of_one},
    {"compute before repeating", repeat_last},
    {"unwindow by window", unwindow_of_repeated},
};

}  // namespace

std::span<const Rule> movement_rules() { return kMovementRules; }

}  // namespace lazuli
