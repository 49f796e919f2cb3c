#include "ir/winograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/graph.h"
#include "core/ops.h"
#include "core/topology.h"
#include "ir/fuse.h"
#include "ir/simplify_rules.h"

namespace lazuli {
namespace {

constexpr int64_t kTile = 4, kKernel = 3, kWindow = kTile + kKernel - 1;
constexpr int64_t kPoints = kWindow * kWindow;
constexpr double kMargin = 1.3;  // by which it must be predicted to be faster

int64_t tiles_along(int64_t size) {
  return (size + kTile - 1) / kTile;
}

// ---- which sums are such convolutions

// Axes of the space of a sum, by what they are in a convolution.
struct Axes {
  Ints batch, out, in;
  int64_t place[2] = {-1, -1};   // in the result: row, column
  int64_t kernel[2] = {-1, -1};  // in the kernel
  bool by_kernel = false;        // the sum is a gradient by the kernel

  // Does a factor of the product that is no image vary along the axis?
  bool in_weight(int64_t l) const {
    const bool result = contains(batch, l) || l == place[0] || l == place[1];
    return contains(out, l) || result == by_kernel;
  }
};

struct Convolution {
  NodeRef image;   // (batch, in, rows, columns), padded
  NodeRef kernel;  // (out, in, 3, 3); of a gradient by the kernel, that of its result
  NodeRef slope;   // (batch, out, rows, columns): of a gradient by the kernel, that by the result
  Axes axes;
  int64_t batch = 1, in = 1, out = 1, rows = 1, columns = 1;  // of the result
  // Images whose tiles are columns of the same matrix: enough for long rows, few enough to stay
  // near in memory.
  int64_t together = 1;
  // Where the points of transforms lie: outside the channels, so that the products read whole
  // matrices; inside, if rows of tiles are short, so that the transforms write to few pages, or if
  // lines of all points would push each other out of L1.
  bool points_first = true;

  int64_t tiles() const { return tiles_along(rows) * tiles_along(columns); }  // of an image
  int64_t groups() const { return batch / together; }
};

// The windows that a factor of a product is read through, and what lies below them.
struct Windows {
  NodeRef below;
  Ints labels;  // for each axis of `below`, the axis of the product that walks it, or -1
  int count = 0;
  int64_t place[2] = {-1, -1}, kernel[2] = {-1, -1};
  // For each axis of the product, where in `below` its first index is, and whether it walks down.
  Ints begin, down;

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
        for (size_t a = 0; a < before.size(); a++) {
          labels[static_cast<size_t>(x->ints()[a])] = before[a];
        }
        break;
      case Op::Expand:
        for (size_t a = 0; a < before.size(); a++) {
          if (x->src[0]->shape[a] == 1) labels[a] = -1;
        }
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
        if (arg[1] != kKernel || arg[2] != 1 || arg[3] != 1 || place < 0 || kernel < 0) return {};
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
std::optional<Axes> sort_axes(const Node& sum, const Windows& w, const Node& weight) {
  Axes out;
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
      if (!of_kernel || shape[a] != kKernel || in_image) return {};
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
NodeRef image_of(const Windows& w, const Axes& axes, const Shape& space) {
  NodeRef x = w.below;
  for (size_t axis = 0; axis < w.labels.size(); axis++) {
    const int64_t l = w.labels[axis];
    if (l < 0) continue;
    const bool windows = l == axes.place[0] || l == axes.place[1];
    const int64_t begin = w.begin[static_cast<size_t>(l)],
                  end = begin + space[static_cast<size_t>(l)] + (windows ? kKernel - 1 : 0);
    x = shrink_axis(x, axis, begin, end);
  }
  Ints groups[4];
  for (int64_t l : axes.batch) groups[0].push_back(w.axis_of(l));
  for (int64_t l : axes.in) groups[1].push_back(w.axis_of(l));
  for (size_t i = 0; i < 2; i++) groups[2 + i].push_back(w.axis_of(axes.place[i]));
  return grouped(x, groups);
}

// The other factor, as (out, in, 3, 3), or of a gradient by the kernel as (batch, out, rows,
// columns).
NodeRef weight_of(const NodeRef& weight, const Windows& w, const Axes& axes) {
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

// Would lines of all points, so many bytes apart, push each other out of L1?
bool collide(const Target& target, int64_t distance) {
  const int64_t way = target.l1 / target.l1_ways;
  return kPoints * std::gcd(way, distance) > 2 * target.l1_ways * way;
}

// The convolution that `n` is, if it is one of the kind.
std::optional<Convolution> convolution_of(const NodeRef& n, const Target& target) {
  if (!is_op(n, Op::ReduceAdd) || n->dtype != DType::F32 || !is_op(n->src[0], Op::Mul)) return {};
  const NodeRef& product = n->src[0];
  for (size_t side = 0; side < 2; side++) {
    const std::optional<Windows> w = find_windows(product->src[side]);
    if (!w) continue;
    const NodeRef& weight = product->src[1 - side];
    const std::optional<Axes> axes = sort_axes(*n, *w, *weight);
    if (!axes) continue;
    Convolution c;
    c.axes = *axes;
    c.image = image_of(*w, *axes, product->shape);
    (axes->by_kernel ? c.slope : c.kernel) = weight_of(weight, *w, *axes);
    c.batch = c.image->shape[0];
    c.in = c.image->shape[1];
    c.out = axes->by_kernel ? c.slope->shape[1] : c.kernel->shape[0];
    c.rows = c.image->shape[2] - kKernel + 1;
    c.columns = c.image->shape[3] - kKernel + 1;
    constexpr int64_t kManyTiles = 160;
    while (c.together < c.batch && (c.together * c.tiles() <= kManyTiles || c.batch % c.together)) {
      c.together++;
    }
    const int64_t row = c.together * c.tiles() * static_cast<int64_t>(sizeof(float));
    c.points_first = c.together * c.tiles() > kManyTiles && !collide(target, c.in * row) &&
                     !collide(target, c.out * row);
    return c;
  }
  return {};
}

// ---- its Winograd form

using Tensors = std::vector<Tensor>;

// The transforms of F(4, 3) along one axis, for the points 0, p, -p, q, -q and infinity: B^T of an
// image, G of a kernel, A^T of their products, rows of one magnitude made of common parts. With
// these points the result is four times as accurate as with 1 and 2.
constexpr double kP = 0.75, kQ = 1.5, kP2 = kP * kP, kQ2 = kQ * kQ;

Tensors image_transform(const Tensors& x) {
  const Tensor a = x[4] - x[2] * kQ2, b = (x[3] - x[1] * kQ2) * kP, c = x[4] - x[2] * kP2,
               d = (x[3] - x[1] * kP2) * kQ;
  const auto outer = [&](size_t i) {
    return x[i] * (kP2 * kQ2) - x[i + 2] * (kP2 + kQ2) + x[i + 4];
  };
  return {outer(0), a + b, a - b, c + d, c - d, outer(1)};
}
Tensors kernel_transform(const Tensors& x) {
  constexpr double p = 1 / (2 * kP2 * (kP2 - kQ2)), q = 1 / (2 * kQ2 * (kQ2 - kP2));
  const Tensor a = x[0] * p + x[2] * (p * kP2), b = x[1] * (p * kP),
               c = x[0] * q + x[2] * (q * kQ2), d = x[1] * (q * kQ);
  return {x[0] * (1 / (kP2 * kQ2)), a + b, a - b, c + d, c - d, x[2]};
}
Tensors result_transform(const Tensors& x) {
  const Tensor a = x[1] + x[2], b = x[1] - x[2], c = x[3] + x[4], d = x[3] - x[4];
  return {x[0] + a + c, b * kP + d * kQ, a * kP2 + c * kQ2, b * (kP * kP2) + d * (kQ * kQ2) + x[5]};
}

// Of a gradient by the kernel: A of the gradient by the result, G^T of the products.
Tensors result_transposed(const Tensors& x) {
  const Tensor a = x[0] + x[2] * kP2, b = x[1] * kP + x[3] * (kP * kP2), c = x[0] + x[2] * kQ2,
               d = x[1] * kQ + x[3] * (kQ * kQ2);
  return {x[0], a + b, a - b, c + d, c - d, x[3]};
}
Tensors kernel_transposed(const Tensors& x) {
  constexpr double p = 1 / (2 * kP2 * (kP2 - kQ2)), q = 1 / (2 * kQ2 * (kQ2 - kP2));
  const Tensor a = (x[1] + x[2]) * p, b = (x[1] - x[2]) * (p * kP), c = (x[3] + x[4]) * q,
               d = (x[3] - x[4]) * (q * kQ);
  return {x[0] * (1 / (kP2 * kQ2)) + a + c, b + d, a * kP2 + c * kQ2 + x[5]};
}

// Transforms along `axis`; what comes of it is axis `to` of the rest.
Tensor transform(Tensors (*along)(const Tensors&), const Tensor& x, int64_t axis, int64_t to) {
  Tensors parts;
  for (int64_t i = 0; i < x.size(axis); i++) parts.push_back(select(x, axis, i));
  return stack(along(parts), to);
}

// (36, out, in), columns of the tile before rows.
Tensor transformed_kernel(const Convolution& c) {
  constexpr int64_t k = kKernel;
  Tensor x = transpose(reshape(Tensor(c.kernel), {c.out, c.in, k * k}), 1, 2).contiguous();
  x = transform(kernel_transform, reshape(x, {c.out, k, k, c.in}), 1, 2);
  x = transform(kernel_transform, x, 1, 1).contiguous();
  return transpose(reshape(x, {c.out, kPoints, c.in}), 0, 1);
}

// The channels of x (batch, channels, rows, columns), of which tiles of size `window` are
// transformed, as (groups, 36, channels, tiles).
Tensor transformed_tiles(const Convolution& c, Tensors (*along)(const Tensors&), const NodeRef& x,
                         int64_t window) {
  const int64_t down = tiles_along(c.rows), across = tiles_along(c.columns), channels = x->shape[1],
                points = c.points_first ? 1 : 2, tiles = c.together * c.tiles();
  Tensor t = pad(Tensor(x), {0, across * kTile - c.columns, 0, down * kTile - c.rows});
  t = reshape(t, {c.groups(), c.together, channels, t.size(2), t.size(3)});
  t = unfold(transpose(t, 1, 2), 3, window, kTile);
  t = unfold(transform(along, t, 5, points), 5, window, kTile);
  t = transform(along, t, 6, points).contiguous();
  if (c.points_first) return reshape(t, {c.groups(), kPoints, channels, tiles});
  return transpose(reshape(t, {c.groups(), channels, kPoints, tiles}), 1, 2);
}

// The result of the products (groups, 36, out, tiles), as (batch, out, rows, columns).
Tensor transformed_back(const Convolution& c, const Tensor& products) {
  const int64_t down = tiles_along(c.rows), across = tiles_along(c.columns);
  Tensor x = c.points_first ? transpose(products.contiguous(), 1, 2)
                            : transpose(products, 1, 2).contiguous();
  x = reshape(x, {c.groups(), c.out, kWindow, kWindow, c.together, down, across});
  x = transform(result_transform, permute(x, {0, 1, 4, 5, 2, 3, 6}), 5, 4);
  x = transpose(transform(result_transform, x, 5, 6), 1, 2);
  x = reshape(x, {c.batch, c.out, down * kTile, across * kTile});
  return narrow(narrow(x, 2, 0, c.rows), 3, 0, c.columns);
}

// The products (36, out, in) that a gradient by the kernel is made of, as (out, in, 3, 3).
Tensor kernel_back(const Convolution& c, const Tensor& products) {
  Tensor x = reshape(products.contiguous(), {kWindow, kWindow, c.out, c.in});
  x = transform(kernel_transposed, x, 0, 3);
  return transform(kernel_transposed, x, 0, 2);
}

// (batch, out, rows, columns) or (out, in, 3, 3) as the sum has it.
NodeRef as_sum(const Convolution& c, const NodeRef& x, const Node& sum) {
  const Axes& axes = c.axes;
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

// The same sum by Winograd's form, and the node of its products.
NodeRef winograd_form(const Convolution& c, const Node& sum, NodeRef& products) {
  const Tensor image = transformed_tiles(c, image_transform, c.image, kWindow);
  if (c.axes.by_kernel) {
    const Tensor slope = transformed_tiles(c, result_transposed, c.slope, kTile);
    const Tensor p = einsum("gpot,gpit->poi", {slope, image});
    products = p.node();
    return as_sum(c, kernel_back(c, p).node(), sum);
  }
  const Tensor p = matmul(transformed_kernel(c), image);
  products = p.node();
  return as_sum(c, transformed_back(c, p).node(), sum);
}

// ---- whether it pays

// Seconds of one core.
struct Costs {
  double direct = 0, winograd = 0;
  bool faster() const { return winograd * kMargin < direct; }
};

// As measured on Zen 3: products run at 90 % of the peak but for what is between two sums; the
// transforms take as long for each element that they store as so many multiply-adds of a lane; and
// there are four more kernels to start. What does not fit the last cache is written to memory, for
// which a line is read first, and read again.
Costs predict(const Convolution& c, const Target& target) {
  constexpr double kDirect = 0.85, kProducts = 0.9, kBetweenSums = 8.3, kTransform = 15,
                   kStarts = 20e-6;
  const auto in = static_cast<double>(c.in), out = static_cast<double>(c.out),
             points = static_cast<double>(kPoints),
             tiles = static_cast<double>(c.batch * c.tiles());
  const double elements = points * (in * tiles + out * tiles + in * out);
  const auto places = static_cast<double>(c.batch * c.rows * c.columns * kKernel * kKernel);
  const double terms = c.axes.by_kernel ? tiles : in;
  const double products = points * out * tiles * in * (1 + kBetweenSums / terms) / kProducts;
  Costs costs;
  costs.direct = places * in * out / kDirect / target.fma_per_second;
  costs.winograd = kStarts + (products + kTransform * elements) / target.fma_per_second;
  const double bytes = sizeof(float) * elements;
  if (bytes > static_cast<double>(target.l3) / 2) costs.winograd += 3 * bytes / target.bandwidth;
  return costs;
}

std::string reason(const Convolution& c, const Costs& costs, bool allowed) {
  const std::string what =
      fmt::format("{}a 3x3 convolution of {} to {} channels",
                  c.axes.by_kernel ? "the gradient by the kernel of " : "", c.in, c.out);
  if (!allowed) return what + ", summed directly: winograd is off";
  const std::string times =
      fmt::format("{:.3g} us predicted by Winograd's F(4x4, 3x3), {:.3g} us directly",
                  costs.winograd * 1e6, costs.direct * 1e6);
  return fmt::format("{}, {}: {}", what,
                     costs.faster() ? "its transforms multiplied" : "summed directly", times);
}

}  // namespace

WinogradGraph use_winograd(std::span<const NodeRef> roots, const Target& target) {
  WinogradGraph out;
  const Topology graph(roots, true);
  // What all readers evaluate point by point.
  PassVector<char> pointwise(graph.size(), 1);
  for (size_t i = 0; i < graph.size(); i++) {
    for (int s : graph.sources(i)) {
      const Node &n = *graph.nodes[i], &x = *graph.nodes[static_cast<size_t>(s)];
      if (!is_elementwise(n.op) || n.shape != x.shape) pointwise[static_cast<size_t>(s)] = 0;
    }
  }
  PassVector<char> fused(graph.size(), 0);  // with the last transform of a convolution
  std::vector<NodeRef> done;
  done.reserve(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    NodeRef n = graph.nodes[i];
    if (!n->realised() && !is_leaf(n->op)) {
      Sources src;
      for (int s : graph.sources(i)) {
        src.push_back(done[static_cast<size_t>(s)]);
        fused[i] |= fused[static_cast<size_t>(s)];
      }
      n = with_src(n, std::move(src));
      if (const auto c = convolution_of(n, target)) {
        const Costs costs = predict(*c, target);
        const bool use = target.winograd && costs.faster();
        NodeRef products;
        if (use) n = winograd_form(*c, *n, products);
        out.notes.push_back({use ? products : n, reason(*c, costs, target.winograd)});
        out.changed |= use;
        fused[i] = use;
      }
      // Tiles of 4x4 are no order in which to pool, reduce or move.
      if (fused[i] && !pointwise[i]) {
        n = contiguous(n);
        fused[i] = 0;
      }
    }
    done.push_back(std::move(n));
  }
  for (const NodeRef& r : roots) out.roots.push_back(done[static_cast<size_t>(graph.find(r))]);
  return out;
}

}  // namespace lazuli
