// Rules on movement: chains are composed, constants do not move, and what would be computed on
// repeated values is computed before they are repeated.
#include <algorithm>

#include "core/error.h"
#include "core/graph.h"
#include "ir/simplify_rules.h"

namespace lazuli {

NodeRef move_like(const NodeRef& m, const NodeRef& x) {
  switch (m->op) {
    case Op::Reshape:
      return reshape(x, m->shape);
    case Op::Permute:
      return permute(x, m->ints());
    case Op::Expand:
      return expand(x, m->shape);
    case Op::Pad:
      return pad(x, m->ints());
    case Op::Shrink:
      return shrink(x, m->ints());
    case Op::Flip:
      return flip(x, m->ints());
    case Op::Window:
      return window(x, m->ints()[0], m->ints()[1], m->ints()[2], m->ints()[3]);
    case Op::Unwindow:
      return unwindow(x, m->ints()[0], m->ints()[1], m->ints()[2], m->ints()[3]);
    default:
      internal_error("move_like: not a movement op");
  }
}

NodeRef shrink_axis(const NodeRef& x, size_t axis, int64_t begin, int64_t end) {
  Ints range;
  for (size_t i = 0; i < x->shape.size(); i++) {
    range.push_back(i == axis ? begin : 0);
    range.push_back(i == axis ? end : x->shape[i]);
  }
  return shrink(x, range);
}

NodeRef pad_axis(const NodeRef& x, size_t axis, int64_t before, int64_t after) {
  Ints around(2 * x->shape.size(), 0);
  around[2 * axis] = before;
  around[2 * axis + 1] = after;
  return pad(x, around);
}

NodeRef move_axis(const NodeRef& x, size_t from, size_t to) {
  Ints order;
  for (size_t i = 0; i < x->shape.size(); i++) {
    if (i != from) order.push_back(static_cast<int64_t>(i));
  }
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), static_cast<int64_t>(from));
  return permute(x, order);
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
    case Op::Reshape:
      return reshape(x, n->shape);
    case Op::Expand:
      return expand(x, n->shape);
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
    default:
      return {};
  }
}

// A part of a padded array: what the padding and the array leave of it.
NodeRef shrink_of_pad(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Shrink || !is_op(n->src[0], Op::Pad)) return {};
  const NodeRef &p = n->src[0], &x = p->src[0];
  Ints range = n->ints(), around(range.size(), 0);
  for (size_t i = 0; i < x->shape.size(); i++) {
    const int64_t before = p->ints()[2 * i], begin = range[2 * i] - before,
                  end = range[2 * i + 1] - before, size = x->shape[i];
    if (begin >= size || end <= 0) return constant(Scalar(0), n->dtype, n->shape);
    range[2 * i] = std::max<int64_t>(begin, 0);
    range[2 * i + 1] = std::min(end, size);
    around[2 * i] = range[2 * i] - begin;
    around[2 * i + 1] = end - range[2 * i + 1];
  }
  return pad(s(shrink(x, range)), around);
}

// Padding of other axes than a source's movement touches comes first, so that padding meets
// padding.
NodeRef pad_first(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Pad) return {};
  const NodeRef &m = n->src[0], &around = n;
  if (m->realised()) return {};
  const Ints& amounts = around->ints();
  Ints before(2 * (m->src.empty() ? 0 : m->src[0]->shape.size()), 0);
  const auto put = [&](size_t to, size_t from, bool swap = false) {
    before[2 * to] = amounts[2 * from + (swap ? 1 : 0)];
    before[2 * to + 1] = amounts[2 * from + (swap ? 0 : 1)];
  };
  const size_t rank = m->shape.size();
  if (m->op == Op::Permute) {
    for (size_t i = 0; i < rank; i++) put(static_cast<size_t>(m->ints()[i]), i);
  } else if (m->op == Op::Flip) {
    for (size_t i = 0; i < rank; i++) {
      const Ints& axes = m->ints();
      put(i, i, contains(axes, i));
    }
  } else if (m->op == Op::Window) {
    const auto axis = static_cast<size_t>(m->ints()[0]);
    for (size_t i : {axis, rank - 1}) {
      if (amounts[2 * i] != 0 || amounts[2 * i + 1] != 0) return {};
    }
    for (size_t i = 0; i + 1 < rank; i++) put(i, i);
  } else if (m->op == Op::Reshape) {
    // Units may come and go; a unit that is padded stays where it is.
    const Shape& from = m->src[0]->shape;
    size_t j = 0;
    Shape shape;
    for (size_t i = 0; i < rank; i++) {
      const bool padded = amounts[2 * i] != 0 || amounts[2 * i + 1] != 0;
      if (m->shape[i] == 1) {
        if (padded) return {};
        continue;
      }
      while (j < from.size() && from[j] == 1) j++;
      if (j == from.size() || from[j] != m->shape[i]) return {};
      put(j++, i);
    }
    return reshape(s(pad(m->src[0], before)), n->shape);
  } else {
    return {};
  }
  return move_like(m, s(pad(m->src[0], before)));
}

// A part of a result is computed from parts of its sources, if nothing else needs the whole.
NodeRef shrink_first(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Shrink) return {};
  const NodeRef& m = n->src[0];
  const Ints& range = n->ints();
  if (m->realised() || m->src.empty() || !s.read_once(m)) return {};
  const auto length = [&](size_t i) { return range[2 * i + 1] - range[2 * i]; };
  if (is_elementwise(m->op)) {
    Sources src;
    for (const NodeRef& x : m->src) src.push_back(s(shrink(x, range)));
    return make({.op = m->op, .dtype = m->dtype, .shape = n->shape, .src = std::move(src)});
  }
  const Shape& from = m->src[0]->shape;
  Ints part;
  for (int64_t size : from) {
    part.push_back(0);
    part.push_back(size);
  }
  const auto put = [&](size_t to, size_t i) {
    part[2 * to] = range[2 * i];
    part[2 * to + 1] = range[2 * i + 1];
  };
  if (is_reduce(m->op)) {
    const Ints& axes = m->ints();
    size_t i = 0;
    for (size_t a = 0; a < from.size(); a++) {
      if (!contains(axes, a)) put(a, i++);
    }
    return reduce(m->op, s(shrink(m->src[0], part)), axes);
  }
  if (m->op == Op::Permute) {
    for (size_t i = 0; i < from.size(); i++) put(static_cast<size_t>(m->ints()[i]), i);
    return permute(s(shrink(m->src[0], part)), m->ints());
  }
  if (m->op == Op::Flip) {
    for (size_t i = 0; i < from.size(); i++) put(i, i);
    for (int64_t a : m->ints()) {
      const auto i = static_cast<size_t>(a);
      part[2 * i] = from[i] - range[2 * i + 1];
      part[2 * i + 1] = from[i] - range[2 * i];
    }
    return flip(s(shrink(m->src[0], part)), m->ints());
  }
  if (m->op == Op::Window) {
    const Ints& arg = m->ints();  // axis, size, step, dilation
    const auto axis = static_cast<size_t>(arg[0]);
    const size_t place = m->shape.size() - 1;
    if (length(place) != m->shape[place] || length(axis) == 0) return {};
    for (size_t i = 0; i < from.size(); i++) put(i, i);
    part[2 * axis] = range[2 * axis] * arg[2];
    part[2 * axis + 1] = (range[2 * axis + 1] - 1) * arg[2] + (arg[1] - 1) * arg[3] + 1;
    return move_like(m, s(shrink(m->src[0], part)));
  }
  return {};
}

// Windows that lie side by side are a reshape: x[o * size + k].
NodeRef windows_side_by_side(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Window || n->ints()[1] != n->ints()[2] || n->ints()[3] != 1) return {};
  const auto axis = static_cast<size_t>(n->ints()[0]);
  const int64_t size = n->ints()[1], windows = n->shape[axis];
  const NodeRef whole = s(shrink_axis(n->src[0], axis, 0, windows * size));
  Shape shape = n->src[0]->shape;
  shape[axis] = windows;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, size);
  return move_axis(s(reshape(whole, shape)), axis + 1, shape.size() - 1);
}

// Repetition is kept outermost: permute(repeat(x)) = repeat(permute(x)), and for a reshape that
// leaves the repeated axes alone too.
NodeRef move_before_repeating(const NodeRef& n, Simplifier& s) {
  if ((n->op != Op::Permute && n->op != Op::Reshape) || !is_op(n->src[0], Op::Expand)) return {};
  const NodeRef &e = n->src[0], &x = e->src[0];
  if (n->op == Op::Permute) return expand(s(permute(x, n->ints())), n->shape);
  // Groups of axes that become one another, apart from units, which may come and go: all of a group
  // is repeated, or nothing is.
  Shape small;
  size_t i = 0, j = 0;
  const auto skip = [](const Shape& shape, size_t& a) {
    while (a < shape.size() && shape[a] == 1) a++;
  };
  for (;;) {
    skip(e->shape, i);
    for (; j < n->shape.size() && n->shape[j] == 1; j++) small.push_back(1);
    if (i == e->shape.size() || j == n->shape.size()) break;
    const size_t first = i, made = j;
    int64_t from = e->shape[i++], to = n->shape[j++];
    while (from != to) (from < to ? from *= e->shape[i++] : to *= n->shape[j++]);
    size_t repeated = 0, axes = 0;
    for (size_t a = first; a < i; a++) {
      axes += e->shape[a] > 1;
      repeated += e->shape[a] > 1 && x->shape[a] == 1;
    }
    if (repeated != 0 && repeated != axes) return {};
    for (size_t a = made; a < j; a++) small.push_back(repeated > 0 ? 1 : n->shape[a]);
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
      case Op::Pad:
        return n->ints()[2 * a] != 0 || n->ints()[2 * a + 1] != 0;
      case Op::Window:
        return n->ints()[0] == static_cast<int64_t>(a);
      case Op::Unwindow:
        return n->ints()[0] == static_cast<int64_t>(a) || a + 1 == e->shape.size();
      default:
        return false;
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
    const bool common =
        std::all_of(n->src.begin(), n->src.end(), [&](const NodeRef& x) { return repeats(x, i); });
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

// An unwindow of what does not depend on the place in a window: out[i, k] = x[(i - k*dilation) /
// step]. Spread by the step, padded and windowed from the end, it is the same without a division,
// and a contraction may read it as it reads a convolution's input.
NodeRef unwindow_of_repeated(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Unwindow) return {};
  const NodeRef& x = n->src[0];
  const size_t place = x->shape.size() - 1, axis = static_cast<size_t>(n->ints()[0]);
  const int64_t size = x->shape[place], length = n->ints()[1], step = n->ints()[2],
                dilation = n->ints()[3];
  if (!is_op(x, Op::Expand) || x->src[0]->shape[place] != 1) return {};
  if (step > 1 && dilation == 1) return {};  // their sum is by residues
  Shape one = x->shape;
  one[place] = 1;
  NodeRef y = s(expand(x->src[0], one));
  one.pop_back();
  y = s(reshape(y, one));
  if (step > 1) {
    Shape spread = one;
    spread.insert(spread.begin() + static_cast<std::ptrdiff_t>(axis) + 1, 1);
    y = s(pad_axis(s(reshape(y, spread)), axis + 1, 0, step - 1));
    one[axis] *= step;
    y = s(reshape(y, one));
  }
  if (one[axis] > length) {
    y = s(shrink_axis(y, axis, 0, length));
    one[axis] = length;
  }
  y = s(pad_axis(y, axis, (size - 1) * dilation, length - one[axis]));
  y = s(window(y, static_cast<int64_t>(axis), size, 1, dilation));
  return flip(y, {static_cast<int64_t>(place)});
}

constexpr int kDepth = 4;  // of expressions that are looked into

// The axes of `fine` that each axis of `coarse` is split into, in order; none if some are not, or
// if nothing but units comes and goes.
std::vector<Ints> axis_parts(const Shape& coarse, const Shape& fine) {
  std::vector<Ints> parts(coarse.size());
  size_t i = 0;
  bool splits = false;
  for (size_t a = 0; a < coarse.size(); a++) {
    int64_t size = 1, long_axes = 0;
    while (i < fine.size() && (size < coarse[a] || fine[i] == 1)) {
      size *= fine[i];
      long_axes += fine[i] > 1;
      parts[a].push_back(static_cast<int64_t>(i++));
    }
    if (size != coarse[a]) return {};
    splits |= long_axes > 1;
  }
  return i == fine.size() && splits ? parts : std::vector<Ints>{};
}

// Axes are split before they are permuted, and permuted before they are merged, so that
// permutations meet.
NodeRef split_first(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Reshape || !is_op(n->src[0], Op::Permute)) return {};
  const NodeRef& p = n->src[0];
  const std::vector<Ints> parts = axis_parts(p->shape, n->shape);
  if (parts.empty()) return {};
  std::vector<Ints> before(parts.size());  // of each axis of the source
  for (size_t a = 0; a < parts.size(); a++) before[static_cast<size_t>(p->ints()[a])] = parts[a];
  Shape split;
  Ints order(n->shape.size());
  for (const Ints& part : before) {
    for (int64_t q : part) {
      order[static_cast<size_t>(q)] = static_cast<int64_t>(split.size());
      split.push_back(n->shape[static_cast<size_t>(q)]);
    }
  }
  return permute(s(reshape(p->src[0], split)), order);
}

NodeRef merge_last(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Permute || !is_op(n->src[0], Op::Reshape)) return {};
  const NodeRef &r = n->src[0], &x = r->src[0];
  const std::vector<Ints> parts = axis_parts(r->shape, x->shape);
  if (parts.empty()) return {};
  Ints order;
  for (int64_t a : n->ints()) {
    const Ints& part = parts[static_cast<size_t>(a)];
    for (int64_t q : part) order.push_back(q);
  }
  return reshape(s(permute(x, order)), n->shape);
}

// f(permute(a), permute(b)) = permute(f(a, b)), where what is repeated goes along: what reduces or
// permutes the result may then need no permutation at all, and what is stored lies as a does.
NodeRef permute_last(const NodeRef& n, Simplifier& s) {
  if (!is_elementwise(n->op)) return {};
  const Node* p = nullptr;
  for (const NodeRef& x : n->src) {
    if (is_op(x, Op::Permute)) {
      if (p != nullptr && x->ints() != p->ints()) return {};
      p = x.get();
    } else if (!is_constant(x) && !is_op(x, Op::Expand)) {
      return {};
    }
  }
  if (p == nullptr) return {};
  const Ints order = p->ints();
  const Ints back = inverse(order);
  Sources src;
  for (const NodeRef& x : n->src) {
    src.push_back(is_op(x, Op::Permute) ? x->src[0] : s(permute(x, back)));
  }
  return permute(s(make({.op = n->op, .dtype = n->dtype, .shape = src[0]->shape, .src = src})),
                 order);
}

// Is a value repeated along an axis that is part of a longer one?
bool spreads(const NodeRef& n, const std::vector<Ints>& parts, int depth) {
  if (is_op(n, Op::Expand)) {
    return std::any_of(parts.begin(), parts.end(), [&](const Ints& part) {
      return part.size() > 1 && std::any_of(part.begin(), part.end(), [&](int64_t a) {
               const auto i = static_cast<size_t>(a);
               return n->src[0]->shape[i] != n->shape[i];
             });
    });
  }
  return depth > 0 && !n->realised() && is_elementwise(n->op) &&
         std::any_of(n->src.begin(), n->src.end(),
                     [&](const NodeRef& x) { return spreads(x, parts, depth - 1); });
}

// f(merge(a), b) = merge(f(a, split(b))) where a is spread between other elements along a merged
// axis: apart, the axes are those of what is spread.
NodeRef merge_after(const NodeRef& n, Simplifier& s) {
  if (!is_elementwise(n->op)) return {};
  for (const NodeRef& r : n->src) {
    if (!is_op(r, Op::Reshape)) continue;
    const NodeRef& m = r->src[0];
    if (m->realised() || !is_elementwise(m->op) || !s.read_once(r) || !s.read_once(m)) continue;
    const std::vector<Ints> parts = axis_parts(r->shape, m->shape);
    if (parts.empty() || !spreads(m, parts, kDepth)) continue;
    Sources src;
    for (const NodeRef& x : n->src) src.push_back(s(reshape(x, m->shape)));
    return reshape(
        s(make({.op = n->op, .dtype = n->dtype, .shape = m->shape, .src = std::move(src)})),
        n->shape);
  }
  return {};
}

// A choice between nothing and a padded array is padded itself, if that is what is computed here:
// then it is stored without the padding, which its readers see.
NodeRef pad_last(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Where) return {};
  for (const size_t i : {1, 2}) {
    const NodeRef &p = n->src[i], &other = n->src[3 - i];
    const bool nothing = is_constant(other) && std::get<ScalarBits>(other->arg).bits == 0;
    if (!nothing || !is_op(p, Op::Pad) || !s.read_once(p)) continue;
    const NodeRef& x = p->src[0];
    NodeRef below = x;
    while (is_op(below, Op::Reshape)) below = below->src[0];
    if (below->realised() || !is_elementwise(below->op)) continue;
    Ints range;
    for (size_t a = 0; a < x->shape.size(); a++) {
      range.push_back(p->ints()[2 * a]);
      range.push_back(p->ints()[2 * a] + x->shape[a]);
    }
    Sources src{s(shrink(n->src[0], range)), x, constant(Scalar(0), n->dtype, x->shape)};
    if (i == 2) std::swap(src[1], src[2]);
    return pad(s(elementwise(Op::Where, std::move(src))), p->ints());
  }
  return {};
}

// Does a permutation of this vanish in what it is made of? All of that is repeated along some axis,
// and nothing else reads it: else a permutation would be left on the way, and taken out again.
bool absorbs_permutation(const NodeRef& n, const Simplifier& s, int depth) {
  if (is_constant(n) || is_op(n, Op::Expand)) return true;
  return depth > 0 && !n->realised() && is_elementwise(n->op) && s.read_once(n) &&
         std::all_of(n->src.begin(), n->src.end(),
                     [&](const NodeRef& x) { return absorbs_permutation(x, s, depth - 1); });
}

NodeRef permute_first(const NodeRef& n, Simplifier& s) {
  if (n->op != Op::Permute) return {};
  const NodeRef& m = n->src[0];
  if (!is_elementwise(m->op) || !absorbs_permutation(m, s, kDepth)) return {};
  Sources src;
  for (const NodeRef& x : m->src) src.push_back(s(permute(x, n->ints())));
  return make({.op = m->op, .dtype = m->dtype, .shape = n->shape, .src = std::move(src)});
}

// Without the permutation, if what is left of it is none.
NodeRef reduce_of_permuted(const NodeRef& n, Simplifier& s) {
  if (!is_reduce(n->op) || !is_op(n->src[0], Op::Permute)) return {};
  const Ints& order = n->src[0]->ints();
  Ints axes, kept;
  for (size_t i = 0; i < order.size(); i++) {
    (contains(n->ints(), i) ? axes : kept).push_back(order[i]);
  }
  if (!std::is_sorted(kept.begin(), kept.end())) return {};
  std::sort(axes.begin(), axes.end());
  return reduce(n->op, s(NodeRef(n->src[0]->src[0])), axes);
}

constexpr Rule kMovementRules[] = {
    {"a moved constant is a constant", move_constant},
    {"compose two of a kind", same_again},
    {"cut padding away", shrink_of_pad},
    {"pad first", pad_first},
    {"take a part first", shrink_first},
    {"windows side by side", windows_side_by_side},
    {"permuting units is reshaping", permute_of_units},
    {"move before repeating", move_before_repeating},
    {"move along other axes before repeating", move_inside_repeating},
    {"units cannot be flipped", flip_of_units},
    {"compute before repeating", repeat_last},
    {"split before permuting", split_first},
    {"permute before merging", merge_last},
    {"compute before permuting", permute_last},
    {"repeat in another order", permute_first},
    {"merge axes after computing", merge_after},
    {"pad after choosing", pad_last},
    {"reduce instead of permuting", reduce_of_permuted},
    {"unwindow by window", unwindow_of_repeated},
};

}  // namespace

std::span<const Rule> movement_rules() {
  return kMovementRules;
}

}  // namespace lazuli
