#include "ir/winograd.h"

#include <algorithm>
#include <numeric>

#include "core/ops.h"

namespace lazuli {
namespace {

constexpr int64_t kTile = 4, kKernel = 3, kWindow = kTile + kKernel - 1;
constexpr int64_t kPoints = kWindow * kWindow;

int64_t tiles_along(int64_t size) {
  return (size + kTile - 1) / kTile;
}

int64_t tiles_of_image(const Convolution& c) {
  return tiles_along(c.rows) * tiles_along(c.columns);
}

// Would lines of all points, so many bytes apart, push each other out of L1?
bool collide(const Target& target, int64_t distance) {
  const int64_t way = target.l1 / target.l1_ways;
  return kPoints * std::gcd(way, distance) > 2 * target.l1_ways * way;
}

// How the transformed arrays lie.
struct Layout {
  // Images whose tiles are columns of the same matrix: enough for long rows, few enough to stay
  // near in memory.
  int64_t together = 1, groups = 1;
  int64_t tiles = 1;  // of the images of a group
  // Where the points of transforms lie: outside the channels, so that the products read whole
  // matrices; inside, if rows of tiles are short, so that the transforms write to few pages, or if
  // lines of all points would push each other out of L1.
  bool points_first = true;
  // Kernels are transformed a few at a time, beside their products, and what they become is never
  // stored: if the transformed tiles of a group, which each few kernels read, stay in L2, or are
  // fewer bytes to read again than the transformed kernels are to write and read.
  bool near = false;
  // Of few tiles in all, products have their vectors along the channels, so these are last.
  bool channels_last = false;
};

Layout layout_of(const Convolution& c, const Target& target) {
  // Some 16 kernels are multiplied at once, so each number of theirs costs a sixteenth of those of
  // its point and channel in the tiles; a stored one, the line that is written, fetched and read.
  constexpr int64_t kManyTiles = 160, kFewTiles = 3 * 16;
  const int64_t tiles = tiles_of_image(c);
  Layout l;
  while (l.together < c.batch && (l.together * tiles <= kManyTiles || c.batch % l.together)) {
    l.together++;
  }
  l.groups = c.batch / l.together;
  l.tiles = l.together * tiles;
  const int64_t row = l.tiles * static_cast<int64_t>(sizeof(float));
  l.near = 2 * kPoints * c.in * row <= target.l2 || l.tiles <= kFewTiles;
  l.channels_last = !c.axes.by_kernel && l.tiles < c.lanes(target);
  l.points_first =
      l.tiles > kManyTiles && !collide(target, c.in * row) && !collide(target, c.out * row);
  return l;
}

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
Tensor transformed_kernel(const Convolution& c, const Layout& l) {
  constexpr int64_t k = kKernel;
  const auto stored = [&](const Tensor& x) { return l.near ? x : x.contiguous(); };
  Tensor x = stored(transpose(reshape(Tensor(c.kernel), {c.out, c.in, k * k}), 1, 2));
  x = transform(kernel_transform, reshape(x, {c.out, k, k, c.in}), 1, 2);
  x = stored(transform(kernel_transform, x, 1, 1));
  return transpose(reshape(x, {c.out, kPoints, c.in}), 0, 1);
}

// The channels of x (batch, channels, rows, columns), of which tiles of size `window` are
// transformed, as (groups, 36, channels, tiles).
Tensor transformed_tiles(const Convolution& c, const Layout& l, Tensors (*along)(const Tensors&),
                         const NodeRef& x, int64_t window) {
  const int64_t down = tiles_along(c.rows), across = tiles_along(c.columns), channels = x->shape[1],
                points = l.points_first ? 1 : 2;
  Tensor t = pad(Tensor(x), {0, across * kTile - c.columns, 0, down * kTile - c.rows});
  t = reshape(t, {l.groups, l.together, channels, t.size(2), t.size(3)});
  t = unfold(transpose(t, 1, 2), 3, window, kTile);
  t = unfold(transform(along, t, 5, points), 5, window, kTile);
  t = transform(along, t, 6, points).contiguous();
  if (l.points_first) return reshape(t, {l.groups, kPoints, channels, l.tiles});
  return transpose(reshape(t, {l.groups, channels, kPoints, l.tiles}), 1, 2);
}

// The same of few tiles, as (36, tiles, channels).
Tensor tiles_of_channels(const Convolution& c, const Layout& l) {
  const int64_t down = tiles_along(c.rows), across = tiles_along(c.columns);
  Tensor t = permute(Tensor(c.image), {0, 2, 3, 1}).contiguous();
  t = pad(t, {0, 0, 0, across * kTile - c.columns, 0, down * kTile - c.rows});
  t = unfold(unfold(t, 1, kWindow, kTile), 2, kWindow, kTile);
  t = transform(image_transform, transform(image_transform, t, 5, 0), 5, 1).contiguous();
  return reshape(t, {kPoints, l.tiles, c.in});
}

// The result of the products (groups, 36, out, tiles), or of few tiles (out, 36, tiles), as (batch,
// out, rows, columns).
Tensor transformed_back(const Convolution& c, const Layout& l, const Tensor& products) {
  const int64_t down = tiles_along(c.rows), across = tiles_along(c.columns);
  Tensor x = l.channels_last  ? products.contiguous()
             : l.points_first ? transpose(products.contiguous(), 1, 2)
                              : transpose(products, 1, 2).contiguous();
  x = reshape(x, {l.groups, c.out, kWindow, kWindow, l.together, down, across});
  x = transform(result_transform, permute(x, {0, 1, 4, 5, 2, 3, 6}), 5, 4);
  x = transpose(transform(result_transform, x, 5, 6), 1, 2);
  x = reshape(x, {c.batch, c.out, down * kTile, across * kTile});
  return narrow(narrow(x, 2, 0, c.rows), 3, 0, c.columns);
}

// The products (36, out, in) that a gradient by the kernel is made of, as (out, in, 3, 3).
Tensor kernel_back(const Convolution& c, const Tensor& products) {
  Tensor x = reshape(products.contiguous(), {kWindow, kWindow, c.out, c.in});
  x = transform(kernel_transposed, permute(x, {2, 3, 0, 1}), 2, 3);
  return transform(kernel_transposed, x, 2, 2);
}

}  // namespace

bool has_winograd_form(const Convolution& c) {
  return c.size[0] == kKernel && c.size[1] == kKernel && c.dilation[0] == 1 && c.dilation[1] == 1 &&
         !c.is_strided() && c.image->dtype == DType::F32 && c.batch * tiles_of_image(c) > 1;
}

// As measured on Zen 3 and Zen 5: products run at 90 % of the peak but for what is between two
// sums; a transform takes as long for each element that it stores as so many multiply-adds of a
// lane, a part of which goes in vectors along the tiles of a row, with lanes wasted where those are
// few, and longer where the tiles leave L2; and there are four more kernels to start. What does not
// fit the last cache is written to memory, for which a line is read first, and read again. What is
// said of kernels beside their products is measured on Zen 4. From a far L3 kernels come as slowly
// as from memory, on Xeons of the fifth generation, since nothing is left to do meanwhile.
double winograd_seconds(const Convolution& c, const Target& target) {
  constexpr double kProducts = 0.9, kBetweenSums = 8.3, kStarts = 20e-6;
  constexpr double kKernels = 10, kNearKernels = 7, kTiles = 11, kAlongRows = 4.2, kLeaving = 12;
  constexpr int64_t kMostNear = 4;  // so many times L2
  const auto in = static_cast<double>(c.in), out = static_cast<double>(c.out),
             points = static_cast<double>(kPoints),
             tiles = static_cast<double>(c.batch * tiles_of_image(c));
  const int64_t across = tiles_along(c.columns), lanes = c.lanes(target);
  // Lanes of whole vectors for each element of a row.
  const auto lanes_of = [&](int64_t row) {
    return static_cast<double>((row + lanes - 1) / lanes * lanes) / static_cast<double>(row);
  };
  // Kernels that are transformed beside their products leave no cache.
  const Layout l = layout_of(c, target);
  const bool near = !c.axes.by_kernel && l.near;
  const double of_kernels = points * in * out, of_tiles = points * (in + out) * tiles;
  const bool leaves = sizeof(float) * of_tiles > static_cast<double>(kMostNear * target.l2);
  const double transforms =
      (near ? kNearKernels : kKernels) * of_kernels +
      (kTiles + kAlongRows * lanes_of(across) + (leaves ? kLeaving : 0)) * of_tiles;
  const double terms = c.axes.by_kernel ? tiles : in;
  // Vectors of the products lie along the tiles of a group, or along the channels.
  const int64_t row = c.axes.by_kernel || l.channels_last ? c.in : l.tiles;
  const double products =
      points * out * tiles * in * lanes_of(row) * (1 + kBetweenSums / terms) / kProducts;
  const double bytes = sizeof(float) * ((near ? 0 : of_kernels) + of_tiles);
  // Transforms add and multiply side by side, which takes two units as well.
  const double both = target.fma_per_second * 2 / target.fma_units;
  double seconds = kStarts + products / target.fma_per_second + transforms / both;
  if (bytes > static_cast<double>(target.l3) / 2) seconds += 3 * bytes / target.bandwidth;
  const double kernels = sizeof(float) * static_cast<double>(kKernel * kKernel) * in * out;
  if (target.far_l3 && !c.axes.by_kernel && kernels > static_cast<double>(target.l2)) {
    seconds += kernels / target.bandwidth;
  }
  return seconds;
}

ConvolutionForm winograd_form(const Convolution& c, const Node& sum, const Target& target) {
  const Layout l = layout_of(c, target);
  if (l.channels_last) {
    const Tensor kernel =
        reshape(transpose(transformed_kernel(c, l), 0, 1), {c.out, kPoints, 1, c.in});
    const Tensor p =
        lazuli::sum(kernel * reshape(tiles_of_channels(c, l), {1, kPoints, l.tiles, c.in}), {3});
    return {p.node(), as_sum(c, transformed_back(c, l, p).node(), sum)};
  }
  const Tensor image = transformed_tiles(c, l, image_transform, c.image, kWindow);
  if (c.axes.by_kernel) {
    const Tensor slope = transformed_tiles(c, l, result_transposed, c.slope, kTile);
    const Tensor p = einsum("gpot,gpit->poi", {slope, image});
    return {p.node(), as_sum(c, kernel_back(c, p).node(), sum)};
  }
  const Tensor p = matmul(transformed_kernel(c, l), image);
  return {p.node(), as_sum(c, transformed_back(c, l, p).node(), sum)};
}

}  // namespace lazuli
