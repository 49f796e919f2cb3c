#include "ir/convolution.h"

#include <algorithm>
#include <vector>

#include "core/graph.h"
#include "core/ops.h"
#include "ir/fuse.h"
#include "ir/simplify_rules.h"

namespace lazuli {
namespace {

// The windows that a factor of a product is read through, and what lies below them.
struct Windows {
  NodeRef below;
  Ints labels;  // for each axis of `below`, the axis of the product that walks it, or -1
  int count = 0;
  int64_t place[2] = {-1, -1}, kernel[2] = {-1, -1};
  int64_t size[2] = {1, 1}, dilation[2] = {1, 1}, stride[2] = {1, 1};
  // For each axis of the product, where in `below` its first index is, and whether it walks down.
  Ints begin, down;

  // From the first element of a window to its last.
  int64_t reach(size_t i) const { return (size[i] - 1) * dilation[i]; }

  // The axis of `below` that this one of the product walks.
  int64_t axis_of(int64_t l) const {
    return std::find(labels.begin(), labels.end(), l) - labels.begin();
  }
};

// Units may come and go. False for any other reshape.
bool through_reshape(const Node& n, Ints& labels) {
  const Shape &to = n.shape, &from = n.src[0]->shape;
  Ints out(from.size(), -1);
  size_t i = 0;
  for (size_t a = 0; a < to.size(); a++) {
    if (to[a] == 1) continue;
    while (i < from.size() && from[i] == 1) i++;
    if (i == from.size() || from[i] != to[a]) return false;
    out[i++] = labels[a];
  }
  while (i < from.size() && from[i] == 1) i++;
  labels = std::move(out);
  return i == from.size();
}

void through_permute(const Node& n, Ints& labels) {
  const Ints before = labels;
  for (size_t a = 0; a < before.size(); a++) {
    labels[static_cast<size_t>(n.ints()[a])] = before[a];
  }
}

void through_expand(const Node& n, Ints& labels) {
  for (size_t a = 0; a < labels.size(); a++) {
    if (n.src[0]->shape[a] == 1) labels[a] = -1;
  }
}

std::optional<Windows> find_windows(const NodeRef& factor) {
  Windows w;
  const Shape& space = factor->shape;
  Ints labels;
  for (size_t a = 0; a < space.size(); a++) {
    labels.push_back(space[a] == 1 ? -1 : static_cast<int64_t>(a));
    w.begin.push_back(0);
    w.down.push_back(0);
  }
  NodeRef x = factor;
  for (; w.count < 2; x = x->src[0]) {
    if (x->realised()) return {};
    const Ints before = labels;
    switch (x->op) {
      case Op::Reshape:
        if (!through_reshape(*x, labels)) return {};
        break;
      case Op::Permute:
        through_permute(*x, labels);
        break;
      case Op::Expand:
        through_expand(*x, labels);
        break;
      case Op::Flip:
        for (int64_t a : x->ints()) {
          const int64_t l = labels[static_cast<size_t>(a)];
          if (l < 0) continue;
          if (l == w.place[0]) return {};  // its window would turn too
          int64_t &begin = w.begin[static_cast<size_t>(l)], &down = w.down[static_cast<size_t>(l)];
          begin = x->shape[static_cast<size_t>(a)] - 1 - begin;
          down = 1 - down;
        }
        break;
      case Op::Shrink:
        for (size_t a = 0; a < before.size(); a++) {
          const bool whole = x->shape[a] == x->src[0]->shape[a];
          if (!whole && labels[a] < 0) return {};
          if (!whole) w.begin[static_cast<size_t>(labels[a])] += x->ints()[2 * a];
        }
        break;
      case Op::Window: {
        const Ints& arg = x->ints();  // axis, size, step, dilation
        const int64_t place = labels[static_cast<size_t>(arg[0])], kernel = labels.back();
        if (place < 0 || kernel < 0) return {};
        // A window along the places within another is none of an image's.
        if (w.count == 1 && (kernel == w.place[0] || place == w.kernel[0])) return {};
        w.stride[w.count] = arg[2];
        w.begin[static_cast<size_t>(place)] *= arg[2];
        w.size[w.count] = arg[1];
        w.dilation[w.count] = arg[3];
        w.place[w.count] = place;
        w.kernel[w.count++] = kernel;
        labels.pop_back();
        break;
      }
      default:
        return {};
    }
  }
  if (w.place[0] == w.place[1]) return {};
  w.below = std::move(x);
  w.labels = std::move(labels);
  // Rows before columns, as they lie in memory.
  if (w.axis_of(w.place[0]) > w.axis_of(w.place[1])) {
    std::swap(w.place[0], w.place[1]);
    std::swap(w.kernel[0], w.kernel[1]);
    std::swap(w.size[0], w.size[1]);
    std::swap(w.dilation[0], w.dilation[1]);
    std::swap(w.stride[0], w.stride[1]);
  }
  return w;
}

// x with its axes in this order, those not named being of size 1, in groups that become one axis
// each.
NodeRef grouped(const NodeRef& x, std::span<const Ints> groups) {
  Ints order;
  Shape shape;
  for (const Ints& g : groups) {
    int64_t size = 1;
    for (int64_t a : g) {
      order.push_back(a);
      size *= x->shape[static_cast<size_t>(a)];
    }
    shape.push_back(size);
  }
  for (int64_t a = 0; a < x->rank(); a++) {
    if (!contains(order, a)) order.push_back(a);
  }
  return reshape(permute(x, order), shape);
}

// A gradient by the kernel sums over the places and the batch, and keeps what a convolution sums
// over; `weight` is then the gradient by the result.
std::optional<ConvolutionAxes> sort_axes(const Node& sum, const Windows& w, const Node& weight) {
  ConvolutionAxes out;
  const Shape& shape = sum.src[0]->shape;
  const auto varies = varying_axes(weight);
  out.by_kernel = reduces_axis(sum, static_cast<size_t>(w.place[0]));
  for (size_t i = 0; i < 2; i++) {
    out.place[i] = w.place[i];
    out.kernel[i] = w.kernel[i];
  }
  for (size_t a = 0; a < shape.size(); a++) {
    if (shape[a] == 1) continue;
    const auto l = static_cast<int64_t>(a);
    const bool kept = !reduces_axis(sum, a), in_weight = varies[a];
    const bool in_image = contains(w.labels, l);
    const bool of_result = kept != out.by_kernel && in_weight == out.by_kernel,
               of_kernel = kept == out.by_kernel && in_weight != out.by_kernel;
    const bool walks_kernel = l == w.kernel[0] || l == w.kernel[1];
    if (w.down[a] && (!walks_kernel || out.by_kernel)) return {};
    if (l == w.place[0] || l == w.place[1]) {
      if (!of_result) return {};
    } else if (walks_kernel) {
      if (!of_kernel || shape[a] != w.size[l == w.kernel[1]] || in_image) return {};
    } else if (kept && in_weight && !in_image) {
      out.out.push_back(l);
    } else if (in_image && of_result) {
      out.batch.push_back(l);
    } else if (in_image && of_kernel) {
      out.in.push_back(l);
    } else {
      return {};
    }
  }
  return out;
}

// The part of the image that the windows see, as (batch, in, rows, columns).
NodeRef image_of(const Windows& w, const ConvolutionAxes& axes, const Shape& space) {
  NodeRef x = w.below;
  for (size_t axis = 0; axis < w.labels.size(); axis++) {
    const int64_t l = w.labels[axis];
    if (l < 0) continue;
    const int64_t begin = w.begin[static_cast<size_t>(l)];
    int64_t last = space[static_cast<size_t>(l)] - 1;
    for (size_t i = 0; i < 2; i++) {
      if (l == axes.place[i]) last = last * w.stride[i] + w.reach(i);
    }
    x = shrink_axis(x, axis, begin, begin + last + 1);
  }
  Ints groups[4];
  for (int64_t l : axes.batch) groups[0].push_back(w.axis_of(l));
  for (int64_t l : axes.in) groups[1].push_back(w.axis_of(l));
  for (size_t i = 0; i < 2; i++) groups[2 + i].push_back(w.axis_of(axes.place[i]));
  return grouped(x, groups);
}

// The other factor, as (out, in, size[0], size[1]), or of a gradient by the kernel as (batch, out,
// rows, columns).
NodeRef weight_of(const NodeRef& weight, const Windows& w, const ConvolutionAxes& axes) {
  NodeRef x = weight;
  Ints range, flips;
  for (size_t a = 0; a < x->shape.size(); a++) {
    const auto l = static_cast<int64_t>(a);
    range.push_back(0);
    range.push_back(axes.in_weight(l) ? x->shape[a] : 1);
  }
  x = shrink(x, range);
  for (int64_t l : axes.kernel) {
    if (w.down[static_cast<size_t>(l)]) flips.push_back(l);
  }
  std::sort(flips.begin(), flips.end());
  if (!flips.empty()) x = flip(x, flips);
  const Ints kernel[] = {axes.out, axes.in, {axes.kernel[0]}, {axes.kernel[1]}},
             slope[] = {axes.batch, axes.out, {axes.place[0]}, {axes.place[1]}};
  return grouped(x, axes.by_kernel ? slope : kernel);
}

// Whether what a factor is made of has these axes outside of all others, which follow in order, or
// inside of them.
bool lies_apart(const NodeRef& factor, const Ints& axes) {
  Ints labels;
  for (size_t a = 0; a < factor->shape.size(); a++) {
    labels.push_back(factor->shape[a] == 1 ? -1 : static_cast<int64_t>(a));
  }
  for (const Node* x = factor.get(); !x->realised() && is_move(*x); x = x->src[0].get()) {
    if (x->op == Op::Permute) {
      through_permute(*x, labels);
    } else if (x->op == Op::Expand) {
      through_expand(*x, labels);
    } else if (x->op != Op::Reshape || !through_reshape(*x, labels)) {
      return false;
    }
  }
  std::vector<bool> is_one;
  int64_t last = -1;
  bool in_order = true;
  for (const int64_t l : labels) {
    if (l < 0) continue;
    is_one.push_back(contains(axes, l));
    if (is_one.back()) continue;
    in_order &= l > last;
    last = l;
  }
  const bool inside = std::is_sorted(is_one.begin(), is_one.end()),
             outside = std::is_sorted(is_one.rbegin(), is_one.rend());
  return inside || (outside && in_order);
}

}  // namespace

bool ConvolutionAxes::in_weight(int64_t l) const {
  const bool result = contains(batch, l) || l == place[0] || l == place[1];
  return contains(out, l) || result == by_kernel;
}

int64_t Convolution::lanes(const Target& target) const {
  return size_of(image->dtype) == 8 ? target.lanes / 2 : target.lanes;
}

double Convolution::seconds(double row, const Target& target) const {
  double work = row;
  for (int64_t n : {batch, in, out, size[0], size[1], rows}) work *= static_cast<double>(n);
  return work / target.fma_per_second * target.lanes / static_cast<double>(lanes(target));
}

std::optional<Convolution> convolution_of(const NodeRef& n) {
  if (!is_op(n, Op::ReduceAdd) || !is_op(n->src[0], Op::Mul)) return {};
  const NodeRef& product = n->src[0];
  for (size_t side = 0; side < 2; side++) {
    const std::optional<Windows> w = find_windows(product->src[side]);
    if (!w) continue;
    const NodeRef& weight = product->src[1 - side];
    const std::optional<ConvolutionAxes> axes = sort_axes(*n, *w, *weight);
    if (!axes) continue;
    const bool is_strided = w->stride[0] != 1 || w->stride[1] != 1;
    if (is_strided && axes->by_kernel) continue;
    Convolution c;
    c.axes = *axes;
    c.lies_by_channels = lies_apart(weight, axes->out);
    c.image = image_of(*w, *axes, product->shape);
    (axes->by_kernel ? c.slope : c.kernel) = weight_of(weight, *w, *axes);
    c.batch = c.image->shape[0];
    c.in = c.image->shape[1];
    c.out = axes->by_kernel ? c.slope->shape[1] : c.kernel->shape[0];
    for (size_t i = 0; i < 2; i++) {
      c.size[i] = w->size[i];
      c.dilation[i] = w->dilation[i];
      c.stride[i] = w->stride[i];
    }
    c.rows = (c.image->shape[2] - 1 - w->reach(0)) / c.stride[0] + 1;
    c.columns = (c.image->shape[3] - 1 - w->reach(1)) / c.stride[1] + 1;
    return c;
  }
  return {};
}

NodeRef as_sum(const Convolution& c, const NodeRef& x, const Node& sum) {
  const ConvolutionAxes& axes = c.axes;
  const bool g = axes.by_kernel;
  Ints labels;
  for (const Ints* list : {g ? &axes.out : &axes.batch, g ? &axes.in : &axes.out}) {
    labels.append(list->begin(), list->end());
  }
  for (int64_t l : g ? axes.kernel : axes.place) labels.push_back(l);
  Shape shape;
  for (int64_t l : labels) shape.push_back(sum.src[0]->shape[static_cast<size_t>(l)]);
  Ints order(labels.size(), 0), sorted = labels;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); i++) {
    order[i] = std::find(labels.begin(), labels.end(), sorted[i]) - labels.begin();
  }
  return reshape(permute(reshape(x, shape), order), sum.shape);
}

double direct_seconds(const Convolution& c, const Target& target) {
  constexpr double kDirect = 0.85;  // of the peak, as measured on Zen 3 and Zen 5
  const int64_t lanes = c.lanes(target), row = (c.columns + lanes - 1) / lanes * lanes;
  return c.seconds(static_cast<double>(row), target) / kDirect;
}

}  // namespace lazuli
