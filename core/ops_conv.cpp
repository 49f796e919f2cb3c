#include "core/ops_conv.h"

#include <limits>

#include "core/error.h"
#include "core/ops_elementwise.h"
#include "core/ops_matmul.h"
#include "core/ops_movement.h"
#include "core/promotion.h"

namespace lazuli {

namespace detail {

Ints per_axis(std::string_view op, std::string_view what, const Sizes& sizes, int64_t n,
              int64_t least) {
  Ints out = sizes.list();
  require(out.size() == 1 || static_cast<int64_t>(out.size()) == n,
          "{}: {} has {} numbers; give one or {}", op, what, out.size(), n);
  if (out.size() == 1) out = Ints(static_cast<size_t>(n), out[0]);
  // So that products of two of them fit.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  for (int64_t v : out) {
    require(v >= least, "{}: {} is {}; it must be at least {}", op, what, v, least);
    require(v <= kMost, "{}: {} is {}; it must be at most {}", op, what, v, kMost);
  }
  return out;
}

NodeRef pad_spatial(const NodeRef& x, const Ints& before, const Ints& after) {
  Ints counts(2 * (x->shape.size() - before.size()), 0);
  for (size_t i = 0; i < before.size(); i++) {
    counts.push_back(before[i]);
    counts.push_back(after[i]);
  }
  return pad(x, counts);
}

NodeRef windows(const NodeRef& x, const Ints& size, const Ints& step, const Ints& dilation) {
  const int64_t first = x->rank() - static_cast<int64_t>(size.size());
  NodeRef out = x;
  for (size_t i = 0; i < size.size(); i++) {
    out = window(out, first + static_cast<int64_t>(i), size[i], step[i], dilation[i]);
  }
  return out;
}

}  // namespace detail

namespace {

// The arguments of a convolution over n spatial axes, checked. x has a batch.
struct Convolution {
  std::string_view op;
  int64_t n;
  Tensor x, weight;
  bool batched;
  Ints kernel, stride, dilation;
  int64_t groups;

  Shape spatial() const {
    const Shape s = x.shape();
    return Shape(s.begin() + 2, s.end());
  }
};

// Labels of axes for the contraction; spatial and kernel axes count on from theirs.
enum : int64_t { kBatch, kGroup, kIn, kOut, kSpatial = 10, kKernel = 20 };

Convolution checked_convolution(std::string_view op, int64_t n, const Tensor& x,
                                const Tensor& weight, const OptionalTensor& bias,
                                const Sizes& stride, const Sizes& dilation, int64_t groups) {
  require(x.dim() == n + 2 || x.dim() == n + 1,
          "{}: the input has shape {}; it needs a batch, channels and {} spatial "
          "dimensions, or no batch",
          op, to_string(x.shape()), n);
  require(weight.dim() == n + 2, "{}: the weight has shape {}; it needs {} dimensions", op,
          to_string(weight.shape()), n + 2);
  require(x.dtype() == weight.dtype() && (!bias || bias->dtype() == x.dtype()),
          "{}: the input is {}, the weight {}{}; convert one with .to()", op, name(x.dtype()),
          name(weight.dtype()), bias ? fmt::format(" and the bias {}", name(bias->dtype())) : "");
  const bool batched = x.dim() == n + 2;
  Convolution c{.op = op,
                .n = n,
                .x = batched ? x : unsqueeze(x, 0),
                .weight = weight,
                .batched = batched,
                .kernel = {},
                .stride = detail::per_axis(op, "stride", stride, n, 1),
                .dilation = detail::per_axis(op, "dilation", dilation, n, 1),
                .groups = groups};
  for (int64_t i = 0; i < n; i++) {
    c.kernel.push_back(weight.size(2 + i));
    require(c.kernel.back() > 0, "{}: the weight of shape {} has an empty kernel", op,
            to_string(weight.shape()));
  }
  require(groups >= 1, "{}: groups is {}; it must be at least 1", op, groups);
  return c;
}

void require_bias(std::string_view op, const OptionalTensor& bias, int64_t channels) {
  if (!bias) return;
  require(bias->dim() == 1 && bias->numel() == channels,
          "{}: the bias has shape {}, but there are {} output channels", op,
          to_string(bias->shape()), channels);
}

// Axis `axis` of x in groups, as (groups, channels / groups); as it is for one group.
Tensor in_groups(const Tensor& x, int64_t axis, int64_t groups) {
  return groups == 1 ? x : unflatten(x, axis, {groups, x.size(axis) / groups});
}

// With the bias, in the dtype and with the batch that the arguments have.
Tensor finished_convolution(const Convolution& c, Tensor y, const OptionalTensor& bias) {
  if (bias) {
    Shape aligned(at(c.n + 1), 1);
    aligned[0] = bias->numel();
    y = y + cast(reshape(*bias, aligned), y.dtype());
  }
  y = cast(y, c.x.dtype());
  return c.batched ? y : squeeze(y, 0);
}

// labels, and those of n axes that count on from `first`.
Ints with_range(Ints labels, int64_t first, int64_t n) {
  for (int64_t i = 0; i < n; i++) labels.push_back(first + i);
  return labels;
}

// The contraction of x, which is in groups, and the weight, whose axes are labelled without them: x
// and the result have them behind the batch, the weight in front. Groups of several channels are an
// axis of their own where these are padded and slide, too: gradients go the same way back, and stay
// contractions.
Tensor contracted(const Convolution& c, const Tensor& x, Ints lx, Ints lw, Ints out) {
  if (c.groups > 1) {
    for (Ints* l : {&lx, &out}) l->insert(l->begin() + 1, kGroup);
    lw.insert(lw.begin(), kGroup);
  }
  return contract_wide(c.op, x, lx, in_groups(c.weight, 0, c.groups), lw, out);
}

Tensor without_groups(const Convolution& c, const Tensor& y) {
  return c.groups > 1 ? flatten(y, 1, 2) : y;
}

Tensor conv(std::string_view op, int64_t n, const Tensor& x, const Tensor& weight,
            const OptionalTensor& bias, const Sizes& stride, const Padding& padding,
            const Sizes& dilation, int64_t groups) {
  const Convolution c = checked_convolution(op, n, x, weight, bias, stride, dilation, groups);
  const int64_t channels = c.x.size(1), out = weight.size(0);
  require(channels == weight.size(1) * groups,
          "{}: the input of shape {} has {} channels, but the weight of shape {} takes {} in {} "
          "group{}{}",
          op, to_string(x.shape()), channels, to_string(weight.shape()), weight.size(1) * groups,
          groups, groups == 1 ? "" : "s",
          c.x.size(-1) == weight.size(1) * groups
              ? fmt::format("; channels come before the places: move the last axis there, as in "
                            "movedim(x, -1, {})",
                            x.dim() - n - 1)
              : "");
  require(out % groups == 0, "{}: {} output channels do not divide into {} groups", op, out,
          groups);
  require_bias(op, bias, out);
  const std::string& word = padding.word();
  require(word.empty() || word == "same" || word == "valid",
          "{}: padding is \"{}\"; it must be same, valid or numbers", op, word);
  Ints before(at(n), 0), after(at(n), 0);
  if (word.empty()) before = after = detail::per_axis(op, "padding", padding.counts(), n, 0);
  for (int64_t i = 0; word == "same" && i < n; i++) {
    require(c.stride[at(i)] == 1, "{}: padding \"same\" needs stride 1, not {}", op,
            c.stride[at(i)]);
    const int64_t total = c.dilation[at(i)] * (c.kernel[at(i)] - 1);
    before[at(i)] = total / 2;
    after[at(i)] = total - total / 2;
  }
  const bool several = channels > groups;
  const NodeRef padded =
      detail::pad_spatial((several ? in_groups(c.x, 1, groups) : c.x).node(), before, after);
  for (int64_t i = 0; i < n; i++) {
    const int64_t span = (c.kernel[at(i)] - 1) * c.dilation[at(i)] + 1,
                  size = padded->shape[at(padded->rank() - n + i)];
    require(span <= size,
            "{}: the kernel spans {} elements of a spatial dimension that has {} with its padding",
            op, span, size);
  }
  const Tensor windows(detail::windows(padded, c.kernel, c.stride, c.dilation));
  const Ints lx = with_range(with_range({kBatch, kIn}, kSpatial, n), kKernel, n);
  const Tensor x_in_groups = several ? windows : in_groups(windows, 1, groups);
  const Tensor y = contracted(c, x_in_groups, lx, with_range({kOut, kIn}, kKernel, n),
                              with_range({kBatch, kOut}, kSpatial, n));
  return finished_convolution(c, without_groups(c, y), bias);
}

Tensor conv_transpose(std::string_view op, int64_t n, const Tensor& x, const Tensor& weight,
                      const OptionalTensor& bias, const Sizes& stride, const Sizes& padding,
                      const Sizes& output_padding, int64_t groups, const Sizes& dilation) {
  const Convolution c = checked_convolution(op, n, x, weight, bias, stride, dilation, groups);
  const int64_t channels = c.x.size(1);
  require(channels == weight.size(0),
          "{}: the input of shape {} has {} channels, but the weight of shape {} takes {}", op,
          to_string(x.shape()), channels, to_string(weight.shape()), weight.size(0));
  require(channels % groups == 0, "{}: {} input channels do not divide into {} groups", op,
          channels, groups);
  require_bias(op, bias, weight.size(1) * groups);
  const Ints cut = detail::per_axis(op, "padding", padding, n, 0);
  const Ints extra = detail::per_axis(op, "output_padding", output_padding, n, 0);
  const Shape spatial = c.spatial();
  Ints sizes;
  for (int64_t i = 0; i < n; i++) {
    const size_t a = at(i);
    require(extra[a] < std::max(c.stride[a], c.dilation[a]),
            "{}: output_padding is {}; it must be smaller than the stride {} or the dilation {}",
            op, extra[a], c.stride[a], c.dilation[a]);
    sizes.push_back((spatial[a] - 1) * c.stride[a] - 2 * cut[a] +
                    c.dilation[a] * (c.kernel[a] - 1) + extra[a] + 1);
    require(sizes.back() >= 0, "{}: a spatial dimension of size {} would get the size {}", op,
            spatial[a], sizes.back());
  }
  // What x[i] gives to place k of its window goes to i * stride + k * dilation - padding.
  const Ints out = with_range(with_range({kBatch, kOut}, kSpatial, n), kKernel, n);
  const Tensor products =
      contracted(c, in_groups(c.x, 1, groups), with_range({kBatch, kIn}, kSpatial, n),
                 with_range({kIn, kOut}, kKernel, n), out);
  const bool several = weight.size(1) > 1;
  NodeRef y = (several ? products : without_groups(c, products)).node();
  const int64_t first = y->rank() - 2 * n;  // spatial axis
  Ints range;
  for (int64_t i = 0; i < first; i++) {
    range.push_back(0);
    range.push_back(y->shape[at(i)]);
  }
  for (int64_t i = n; i-- > 0;) {
    const size_t a = at(i);
    y = unwindow(y, first + i, cut[a] + sizes[a], c.stride[a], c.dilation[a]);
    y = reduce(Op::ReduceAdd, y, {y->rank() - 1});
  }
  for (size_t a = 0; a < at(n); a++) {
    range.push_back(cut[a]);
    range.push_back(cut[a] + sizes[a]);
  }
  const Tensor cropped(shrink(y, range));
  return finished_convolution(c, several ? without_groups(c, cropped) : cropped, bias);
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
              const Sizes& stride, const Padding& padding, const Sizes& dilation, int64_t groups) {
  return conv("conv1d", 1, x, weight, bias, stride, padding, dilation, groups);
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
              const Sizes& stride, const Padding& padding, const Sizes& dilation, int64_t groups) {
  return conv("conv2d", 2, x, weight, bias, stride, padding, dilation, groups);
}

Tensor conv3d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
              const Sizes& stride, const Padding& padding, const Sizes& dilation, int64_t groups) {
  return conv("conv3d", 3, x, weight, bias, stride, padding, dilation, groups);
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                        const Sizes& stride, const Sizes& padding, const Sizes& output_padding,
                        int64_t groups, const Sizes& dilation) {
  return conv_transpose("conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding,
                        groups, dilation);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                        const Sizes& stride, const Sizes& padding, const Sizes& output_padding,
                        int64_t groups, const Sizes& dilation) {
  return conv_transpose("conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding,
                        groups, dilation);
}

Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                        const Sizes& stride, const Sizes& padding, const Sizes& output_padding,
                        int64_t groups, const Sizes& dilation) {
  return conv_transpose("conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding,
                        groups, dilation);
}

// ---- windows as columns

namespace {

// What im2col and fold have in common, for (h, w) = `size`.
struct Columns {
  Ints kernel, dilation, padding, stride, count;

  Columns(std::string_view op, const Shape& size, const Sizes& kernel_size, const Sizes& dilations,
          const Sizes& paddings, const Sizes& strides)
      : kernel(detail::per_axis(op, "kernel_size", kernel_size, 2, 1)),
        dilation(detail::per_axis(op, "dilation", dilations, 2, 1)),
        padding(detail::per_axis(op, "padding", paddings, 2, 0)),
        stride(detail::per_axis(op, "stride", strides, 2, 1)) {
    for (size_t i = 0; i < 2; i++) {
      const int64_t span = (kernel[i] - 1) * dilation[i] + 1, n = size[i] + 2 * padding[i];
      require(
          span <= n,
          "{}: the kernel spans {} elements of a spatial dimension that has {} with its padding",
          op, span, n);
      count.push_back((n - span) / stride[i] + 1);
    }
  }
};

}  // namespace

Tensor im2col(const Tensor& x, const Sizes& kernel_size, const Sizes& dilation,
              const Sizes& padding, const Sizes& stride) {
  require(x.dim() == 4 || x.dim() == 3,
          "im2col: the input has shape {}; it needs a batch, channels and 2 spatial dimensions, "
          "or no batch",
          to_string(x.shape()));
  if (x.dim() == 3)
    return squeeze(im2col(unsqueeze(x, 0), kernel_size, dilation, padding, stride), 0);
  const Columns c("im2col", {x.size(2), x.size(3)}, kernel_size, dilation, padding, stride);
  const NodeRef padded = detail::pad_spatial(x.node(), c.padding, c.padding);
  const Tensor w(
      permute(detail::windows(padded, c.kernel, c.stride, c.dilation), Ints{0, 1, 4, 5, 2, 3}));
  return flatten(flatten(w, 4, 5), 1, 3);
}

Tensor fold(const Tensor& x, const Sizes& output_size, const Sizes& kernel_size,
            const Sizes& dilation, const Sizes& padding, const Sizes& stride) {
  require(x.dim() == 3 || x.dim() == 2,
          "fold: the input has shape {}; it needs a batch, rows and columns, or no batch",
          to_string(x.shape()));
  if (x.dim() == 2)
    return squeeze(fold(unsqueeze(x, 0), output_size, kernel_size, dilation, padding, stride), 0);
  const Ints size = detail::per_axis("fold", "output_size", output_size, 2, 1);
  const Columns c("fold", size, kernel_size, dilation, padding, stride);
  const int64_t places = c.kernel[0] * c.kernel[1], windows = c.count[0] * c.count[1];
  require(x.size(1) % places == 0,
          "fold: {} rows are not a multiple of the {} places of the kernel", x.size(1), places);
  require(x.size(2) == windows, "fold: {} columns, but an output of {} has {} windows", x.size(2),
          to_string(size), windows);
  const Shape shape{x.size(0),   x.size(1) / places, c.kernel[0],
                    c.kernel[1], c.count[0],         c.count[1]};
  // Width first: the place in the window of an unwound axis is always the last axis.
  NodeRef y = permute(reshape(x.node(), shape), Ints{0, 1, 4, 5, 2, 3});
  for (size_t i = 2; i-- > 0;) {
    const int64_t axis = 2 + static_cast<int64_t>(i);
    y = unwindow(y, axis, size[i] + 2 * c.padding[i], c.stride[i], c.dilation[i]);
    y = reduce(Op::ReduceAdd, y, {y->rank() - 1});
  }
  Ints range{0, shape[0], 0, shape[1]};
  for (size_t i = 0; i < 2; i++) {
    range.push_back(c.padding[i]);
    range.push_back(c.padding[i] + size[i]);
  }
  return Tensor(shrink(y, range));
}

}  // namespace lazuli
