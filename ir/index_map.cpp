#include "ir/index_map.h"

#include "core/error.h"
#include "ir/index.h"

namespace lazuli {
namespace {

bool is_true(const NodeRef& c) {
  return c->op == Op::Const && std::get<ScalarBits>(c->arg).bits != 0;
}

// Runs of axes whose products agree are converted by themselves, so that axes which a reshape
// leaves alone stay as they are and no quotient of a long sum is made for them.
std::vector<NodeRef> reshape_index(const Shape& from, const Shape& to,
                                   std::span<const NodeRef> index) {
  std::vector<NodeRef> out(to.size());
  size_t i = from.size(), j = to.size();
  while (i > 0 || j > 0) {
    const size_t i_end = i, j_end = j;
    int64_t a = 1, b = 1;
    do {
      if (a <= b && i > 0) {
        a *= from[--i];
      } else if (j > 0) {
        b *= to[--j];
      } else {
        a *= from[--i];
      }
    } while (a != b);
    const std::span<const int64_t> part(from.data() + i, i_end - i), made(to.data() + j, j_end - j);
    const std::vector<NodeRef> c = coordinates(flat_index(index.subspan(i, i_end - i), part), made);
    std::copy(c.begin(), c.end(), out.begin() + static_cast<std::ptrdiff_t>(j));
  }
  return out;
}

Access window_access(const Node& n, const Access& at) {
  const Ints& arg = n.ints();  // axis, size, step, dilation
  const auto axis = static_cast<size_t>(arg[0]);
  Access out{{at.index.begin(), at.index.end() - 1}, at.valid};
  out.index[axis] =
      index_add(index_mul(out.index[axis], arg[2]), index_mul(at.index.back(), arg[3]));
  return out;
}

Access unwindow_access(const Node& n, const Access& at) {
  const Ints& arg = n.ints();  // axis, n, step, dilation
  const auto axis = static_cast<size_t>(arg[0]);
  Access out = at;
  const NodeRef start = index_add(at.index[axis], at.index.back(), -arg[3]);
  const auto [place, rest] = index_divmod(start, arg[2]);
  out.index[axis] = place;
  const NodeRef exact = index_equal(rest, index_const(0));
  out.valid = both(both(out.valid, is_true(exact) ? NodeRef() : exact),
                   in_range(place, n.src[0]->shape[axis]));
  return out;
}

Access pad_access(const Node& n, const Access& at) {
  Access out = at;
  for (size_t i = 0; i < n.shape.size(); i++) {
    const int64_t before = n.ints()[2 * i], after = n.ints()[2 * i + 1];
    if (before == 0 && after == 0) continue;
    out.index[i] = index_add(at.index[i], index_const(-before));
    out.valid = both(out.valid, in_range(out.index[i], n.src[0]->shape[i]));
  }
  return out;
}

}  // namespace

NodeRef both(const NodeRef& a, const NodeRef& b) {
  if (!a || !b) return a ? a : b;
  return logical_and(a, b);
}

NodeRef in_range(const NodeRef& x, int64_t size) {
  const NodeRef above = index_less(index_const(-1), x), below = index_less(x, index_const(size));
  return both(is_true(above) ? NodeRef() : above, is_true(below) ? NodeRef() : below);
}

NodeRef flat_index(std::span<const NodeRef> index, std::span<const int64_t> shape) {
  ensure(index.size() == shape.size(), "flat_index: number of coordinates");
  NodeRef flat = index_const(0);
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1) flat = index_add(flat, index[i], stride);
    stride *= shape[i];
  }
  return flat;
}

std::vector<NodeRef> coordinates(const NodeRef& flat, std::span<const int64_t> shape) {
  std::vector<NodeRef> out(shape.size(), index_const(0));
  size_t first = 0;  // the outermost axis longer than 1 takes the quotient whole
  while (first < shape.size() && shape[first] == 1) first++;
  NodeRef rest = flat;
  for (size_t i = shape.size(); i-- > first;) {
    if (shape[i] == 1) continue;
    if (i == first) {
      out[i] = rest;
      break;
    }
    std::tie(rest, out[i]) = index_divmod(rest, shape[i]);
  }
  return out;
}

Access source_access(const Node& n, const Access& at) {
  const Shape& from = n.src[0]->shape;
  Access out{{}, at.valid};
  switch (n.op) {
    case Op::Reshape:
      out.index = reshape_index(n.shape, from, at.index);
      break;
    case Op::Permute:
      out.index.resize(from.size());
      for (size_t i = 0; i < from.size(); i++) {
        out.index[static_cast<size_t>(n.ints()[i])] = at.index[i];
      }
      break;
    case Op::Expand:
      out.index = at.index;
      break;
    case Op::Pad:
      out = pad_access(n, at);
      break;
    case Op::Shrink:
      for (size_t i = 0; i < from.size(); i++) {
        out.index.push_back(index_add(at.index[i], index_const(n.ints()[2 * i])));
      }
      break;
    case Op::Flip:
      out.index = at.index;
      for (int64_t a : n.ints()) {
        const auto i = static_cast<size_t>(a);
        out.index[i] = index_add(index_const(from[i] - 1), at.index[i], -1);
      }
      break;
    case Op::Window:
      out = window_access(n, at);
      break;
    case Op::Unwindow:
      out = unwindow_access(n, at);
      break;
    default:
      ensure(has(n.op, kIdentity), "source_access: not a movement op");
      out.index = at.index;
  }
  for (size_t i = 0; i < from.size(); i++) {
    if (from[i] == 1) out.index[i] = index_const(0);
  }
  return out;
}

}  // namespace lazuli
