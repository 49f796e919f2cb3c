#include "core/ops_pool.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/evaluate.h"
#include "core/gradient.h"
#include "core/ops_conv.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_movement.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

// The arguments of a pool over the last n axes, checked, and what follows from them.
struct Pool {
  std::string_view op;
  int64_t n;
  Ints size;  // of the spatial axes
  Ints kernel, stride, padding, dilation;
  Ints count;  // windows
  Ints after;  // zeros behind that the last window reaches into

  // The last axes of a tensor of windows: the places in a window.
  Ints place_axes(int64_t rank) const {
    Ints axes;
    for (int64_t i = 0; i < n; i++) axes.push_back(rank - n + i);
    return axes;
  }
  // Views x, of n or more axes whose last have the sizes `size`, as windows.
  NodeRef windows(const NodeRef& x) const {
    // A stride larger than the kernel leaves elements behind the last window; one smaller may need
    // none of the zeros.
    const NodeRef padded = detail::pad_spatial(x, padding, after);
    Ints range(2 * (padded->shape.size() - at(n)), 0);
    for (size_t i = 0; i < range.size() / 2; i++) range[2 * i + 1] = padded->shape[i];
    for (int64_t i = 0; i < n; i++) {
      range.push_back(0);
      range.push_back((count[at(i)] - 1) * stride[at(i)] + (kernel[at(i)] - 1) * dilation[at(i)] +
                      1);
    }
    return detail::windows(shrink(padded, range), kernel, stride, dilation);
  }
  bool is_padded() const {
    return std::any_of(padding.begin(), padding.end(), [](int64_t p) { return p > 0; }) ||
           std::any_of(after.begin(), after.end(), [](int64_t p) { return p > 0; });
  }
};

Pool checked_pool(std::string_view op, int64_t n, const Tensor& x, const Sizes& kernel,
                  const Sizes& stride, const Sizes& padding, const Sizes& dilation,
                  bool ceil_mode) {
  require(x.dim() == n + 2 || x.dim() == n + 1,
          "{}: the input has shape {}; it needs a batch, channels and {} spatial dimensions, or no "
          "batch",
          op, to_string(x.shape()), n);
  Pool p{.op = op,
         .n = n,
         .size = {},
         .kernel = detail::per_axis(op, "kernel_size", kernel, n, 1),
         .stride = {},
         .padding = detail::per_axis(op, "padding", padding, n, 0),
         .dilation = detail::per_axis(op, "dilation", dilation, n, 1),
         .count = {},
         .after = {}};
  p.stride = stride.empty() ? p.kernel : detail::per_axis(op, "stride", stride, n, 1);
  for (int64_t i = 0; i < n; i++) {
    const size_t a = at(i);
    const int64_t size = x.size(x.dim() - n + i), span = (p.kernel[a] - 1) * p.dilation[a] + 1,
                  pad = p.padding[a];
    p.size.push_back(size);
    require(pad <= span / 2, "{}: padding {} is more than half of the kernel's {} elements", op,
            pad, span);
    const int64_t room = size + 2 * pad - span;
    int64_t count = room < 0 ? 0 : room / p.stride[a] + 1;
    if (ceil_mode) {
      count = room + p.stride[a] - 1 < 0 ? 0 : (room + p.stride[a] - 1) / p.stride[a] + 1;
      if ((count - 1) * p.stride[a] >= size + pad)
        count--;  // a window in the zeros behind counts for nothing
    }
    require(count > 0,
            "{}: the kernel spans {} elements of a spatial dimension that has {} with its padding",
            op, span, size + 2 * pad);
    p.count.push_back(count);
    p.after.push_back(std::max<int64_t>(0, (count - 1) * p.stride[a] + span - size - pad));
  }
  return p;
}

// ---- means

// (first, last + 1) of each window of axis i, counted from the input's first element.
struct Bounds {
  Tensor begin, end;
};

Bounds bounds(const Pool& p, int64_t i) {
  const Tensor begin = Tensor(iota(p.count[at(i)])) * p.stride[at(i)] - p.padding[at(i)];
  return {begin, minimum(begin + p.kernel[at(i)], p.size[at(i)] + p.padding[at(i)])};
}

// Elements in each window: a number if it is the same for all, else a tensor over the spatial axes.
TensorOrScalar divisor(const Pool& p, bool count_include_pad, DType dtype) {
  bool uniform = true;
  double number = 1;
  for (int64_t i = 0; i < p.n; i++) {
    const size_t a = at(i);
    const int64_t last = (p.count[a] - 1) * p.stride[a] - p.padding[a] + p.kernel[a];
    uniform = uniform && last <= p.size[a] + (count_include_pad ? p.padding[a] : 0) &&
              (count_include_pad || p.padding[a] == 0);
    number *= static_cast<double>(p.kernel[a]);
  }
  if (uniform) return is_float(dtype) ? Scalar(number) : Scalar(static_cast<int64_t>(number));
  Tensor count = Tensor(constant(1, DType::I64));
  for (int64_t i = 0; i < p.n; i++) {
    const Bounds b = bounds(p, i);
    const Tensor inside =
        count_include_pad ? b.end - b.begin : minimum(b.end, p.size[at(i)]) - maximum(b.begin, 0);
    Shape aligned(at(p.n), 1);
    aligned[at(i)] = p.count[at(i)];
    count = count * reshape(inside, aligned);
  }
  return cast(count, dtype);
}

Tensor avg_pool(const Pool& p, const Tensor& x, bool count_include_pad,
                std::optional<int64_t> divisor_override) {
  require(x.dtype() != DType::Bool, "{}: bools have no mean; convert them first, as in x.to(f32)",
          p.op);
  require(!divisor_override || *divisor_override != 0, "{}: divisor_override is 0", p.op);
  return in_wide(x, [&](const Tensor& v) {
    const NodeRef w = p.windows(v.node());
    const Tensor sum(reduce(Op::ReduceAdd, w, p.place_axes(w->rank())));
    const TensorOrScalar by = divisor_override ? TensorOrScalar(*divisor_override)
                                               : divisor(p, count_include_pad, v.dtype());
    return is_float(v.dtype()) ? div(sum, by) : div(sum, by, "trunc");
  });
}

// ---- maxima

// What no element is above (ReduceMax) or below (ReduceMin).
NodeRef identity(Op reduce, DType dtype, const Shape& shape) {
  return constant(from_bits(reduce_identity(reduce, dtype), dtype), dtype, shape);
}

// Windows of x, the smallest number in place of padding.
Tensor max_windows(const Pool& p, const Tensor& x) {
  const NodeRef w = p.windows(x.node());
  if (!p.is_padded()) return Tensor(w);
  const NodeRef inside = p.windows(constant(true, DType::Bool, x.shape()));
  return Tensor(elementwise(Op::Where, {inside, w, identity(Op::ReduceMax, w->dtype, w->shape)}));
}

// The flat place in the spatial axes of every element of the windows; -1 for padding.
Tensor window_places(const Pool& p, const Shape& windows) {
  const NodeRef places = reshape(iota(numel(p.size)), p.size);
  Tensor w(p.windows(places));
  if (p.is_padded()) w = where(Tensor(p.windows(constant(true, DType::Bool, p.size))), w, -1);
  // The channels' axes go in front.
  return broadcast_to(w, windows);
}

// The number of every element in its window, of the smallest type that holds them; -1 for padding.
Tensor window_numbers(const Pool& p, const Shape& windows) {
  const int64_t count = numel(p.kernel);
  const DType type = count <= INT8_MAX ? DType::I8 : count <= INT32_MAX ? DType::I32 : DType::I64;
  const Tensor numbers = cast(Tensor(reshape(iota(count), p.kernel)), type);
  if (!p.is_padded()) return broadcast_to(numbers, windows);
  const Tensor inside(p.windows(constant(true, DType::Bool, p.size)));
  return broadcast_to(where(inside, numbers, -1), windows);
}

// The first place in each window whose element is the largest; NaN counts as that.
Tensor max_places(const Pool& p, const Tensor& windows, const Tensor& places) {
  const Ints axes = p.place_axes(windows.dim());
  const Tensor v = detach(windows), best = amax(v, axes, true);
  Tensor hit = v == best;
  if (p.is_padded()) hit = hit & (places >= 0);
  if (is_float(v.dtype())) hit = hit | isnan(v);
  return amin(where(hit, places, Tensor(identity(Op::ReduceMin, places.dtype(), places.shape()))),
              axes);
}

// The value is a plain maximum, which is fast; the gradient takes the one element that the place
// names.
Tensor max_pool(const Pool& p, const Tensor& x) {
  require(x.dtype() != DType::Bool, "{}: bools have no maximum; use any()", p.op);
  const Tensor windows = max_windows(p, x);
  const Ints axes = p.place_axes(windows.dim());
  const Tensor value = amax(windows, axes);
  if (!is_float(x.dtype())) return value;
  return custom_vjp(value, {x}, [p, x, axes](const Tensor& g) {
    const Tensor w = max_windows(p, x), places = window_numbers(p, w.shape());
    Tensor place = max_places(p, w, places);
    for (size_t i = 0; i < axes.size(); i++) place = unsqueeze(place, -1);
    const Tensor chosen = sum(where(places == place, w, 0.0), axes);
    return vjp(chosen, std::span<const Tensor>(&x, 1), g);
  });
}

ValuesIndices max_pool_with_indices(const Pool& p, const Tensor& x) {
  const Tensor w = max_windows(p, x);
  return {max_pool(p, x), max_places(p, w, window_places(p, w.shape()))};
}

}  // namespace

Tensor avg_pool1d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride,
                  const Sizes& padding, bool ceil_mode, bool count_include_pad) {
  return avg_pool(checked_pool("avg_pool1d", 1, x, kernel_size, stride, padding, 1, ceil_mode), x,
                  count_include_pad, {});
}

Tensor avg_pool2d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride,
                  const Sizes& padding, bool ceil_mode, bool count_include_pad,
                  std::optional<int64_t> divisor_override) {
  return avg_pool(checked_pool("avg_pool2d", 2, x, kernel_size, stride, padding, 1, ceil_mode), x,
                  count_include_pad, divisor_override);
}

Tensor avg_pool3d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride,
                  const Sizes& padding, bool ceil_mode, bool count_include_pad,
                  std::optional<int64_t> divisor_override) {
  return avg_pool(checked_pool("avg_pool3d", 3, x, kernel_size, stride, padding, 1, ceil_mode), x,
                  count_include_pad, divisor_override);
}

Tensor max_pool1d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride,
                  const Sizes& padding, const Sizes& dilation, bool ceil_mode) {
  return max_pool(
      checked_pool("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode), x);
}

Tensor max_pool2d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride,
                  const Sizes& padding, const Sizes& dilation, bool ceil_mode) {
  return max_pool(
      checked_pool("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode), x);
}

Tensor max_pool3d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride,
                  const Sizes& padding, const Sizes& dilation, bool ceil_mode) {
  return max_pool(
      checked_pool("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode), x);
}

ValuesIndices max_pool1d_with_indices(const Tensor& x, const Sizes& kernel_size,
                                      const Sizes& stride, const Sizes& padding,
                                      const Sizes& dilation, bool ceil_mode) {
  return max_pool_with_indices(
      checked_pool("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode), x);
}

ValuesIndices max_pool2d_with_indices(const Tensor& x, const Sizes& kernel_size,
                                      const Sizes& stride, const Sizes& padding,
                                      const Sizes& dilation, bool ceil_mode) {
  return max_pool_with_indices(
      checked_pool("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode), x);
}

ValuesIndices max_pool3d_with_indices(const Tensor& x, const Sizes& kernel_size,
                                      const Sizes& stride, const Sizes& padding,
                                      const Sizes& dilation, bool ceil_mode) {
  return max_pool_with_indices(
      checked_pool("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode), x);
}

Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const Sizes& kernel_size,
                    const Sizes& stride, const Sizes& padding, const Sizes& output_size) {
  constexpr std::string_view kOp = "max_unpool2d";
  require(x.dim() == 4 || x.dim() == 3,
          "{}: the input has shape {}; it needs a batch, channels and 2 spatial dimensions, or no "
          "batch",
          kOp, to_string(x.shape()));
  require(is_int(indices.dtype()), "{}: the indices are {}, not integers", kOp,
          name(indices.dtype()));
  require(indices.shape() == x.shape(),
          "{}: the input has shape {} and the indices {}; they must agree", kOp,
          to_string(x.shape()), to_string(indices.shape()));
  const Ints kernel = detail::per_axis(kOp, "kernel_size", kernel_size, 2, 1);
  const Ints step = stride.empty() ? kernel : detail::per_axis(kOp, "stride", stride, 2, 1);
  const Ints cut = detail::per_axis(kOp, "padding", padding, 2, 0);
  Ints size = output_size.list();
  while (size.size() > 2) size.erase(size.begin());  // the whole shape may be given
  if (size.empty()) {
    for (int64_t i = 0; i < 2; i++) {
      size.push_back((x.size(i - 2) - 1) * step[at(i)] - 2 * cut[at(i)] + kernel[at(i)]);
    }
  }
  require(size.size() == 2 && size[0] > 0 && size[1] > 0,
          "{}: the output size {} is no height and width", kOp, to_string(size));
  Shape shape = x.shape();
  shape[shape.size() - 2] = size[0];
  shape[shape.size() - 1] = size[1];
  check_shape(kOp, shape);
  const int64_t area = size[0] * size[1], planes = numel(shape) / area;
  const Tensor i = reshape(cast(indices, DType::I64), {planes, x.size(-2) * x.size(-1)});
  const Tensor flat = i + unsqueeze(Tensor(iota(planes)), 1) * area;
  const Tensor place = where((i >= 0) & (i < area), flat, -1);
  return Tensor(scatter(constant(0, x.dtype(), shape), place.node(),
                        reshape(x.node(), place.shape()), Combine::Set));
}

// ---- adaptive pools

namespace {

Ints adaptive_sizes(std::string_view op, int64_t n, const Tensor& x, const Sizes& output_size) {
  require(x.dim() == n + 2 || x.dim() == n + 1,
          "{}: the input has shape {}; it needs a batch, channels and {} spatial dimensions, or no "
          "batch",
          op, to_string(x.shape()), n);
  Ints sizes = detail::per_axis(op, "output_size", output_size, n, kKeepSize);
  for (int64_t i = 0; i < n; i++) {
    const int64_t size = x.size(x.dim() - n + i);
    require(size > 0, "{}: the input of shape {} has an empty spatial dimension", op,
            to_string(x.shape()));
    if (sizes[at(i)] == kKeepSize) sizes[at(i)] = size;
  }
  return sizes;
}

// Which elements of axis `axis` (of n) belong to which of m windows: bool (m, 1..., n, 1...),
// aligned with a tensor of this rank and the windows in front.
struct Membership {
  Tensor inside;
  Tensor count;  // of each window, (m, 1...)
};

Membership membership(int64_t n, int64_t m, int64_t axis, int64_t rank) {
  Shape windows(at(rank + 1), 1), elements(at(rank + 1), 1);
  windows[0] = m;
  elements[at(axis + 1)] = n;
  const Tensor i = reshape(Tensor(iota(m)), windows), place = reshape(Tensor(iota(n)), elements);
  const Tensor begin = div(i * n, m, "trunc"), end = div((i + 1) * n + (m - 1), m, "trunc");
  return {(place >= begin) & (place < end), end - begin};
}

// The windows of one axis as a masked reduction over it: out[..., window, ...].
template <typename Reduce>
Tensor over_windows(const Tensor& x, int64_t axis, int64_t m, Reduce reduce) {
  const Membership member = membership(x.size(axis), m, axis, x.dim());
  return movedim(reduce(unsqueeze(x, 0), member, axis + 1), 0, axis);
}

// Windows of different sizes along one axis.
Tensor uneven_mean(const Tensor& x, int64_t axis, int64_t m) {
  return over_windows(x, axis, m, [](const Tensor& v, const Membership& member, int64_t a) {
    const Tensor total = sum(where(member.inside, v, 0.0), a);
    return total / cast(squeeze(member.count, a), v.dtype());
  });
}

struct Extreme {
  Tensor value, place;  // place in the flat spatial axes
};

// One axis more of the maximum of windows: of equals the smallest place, which is the first.
Extreme adaptive_extreme(const Extreme& e, int64_t axis, int64_t m) {
  const Tensor v = unsqueeze(e.value, 0), place = unsqueeze(e.place, 0);
  const Membership member = membership(e.value.size(axis), m, axis, e.value.dim());
  const Tensor masked = where(member.inside, v, Tensor(identity(Op::ReduceMax, v.dtype(), {})));
  const Tensor best = amax(masked, axis + 1, true);
  Tensor hit = masked == best;
  if (is_float(v.dtype())) hit = hit | isnan(masked);
  const Tensor first =
      amin(where(hit & member.inside, place, std::numeric_limits<int64_t>::max()), axis + 1);
  return {movedim(squeeze(best, axis + 1), 0, axis), movedim(first, 0, axis)};
}

ValuesIndices adaptive_max(std::string_view op, int64_t n, const Tensor& x,
                           const Sizes& output_size) {
  require(x.dtype() != DType::Bool, "{}: bools have no maximum; use any()", op);
  const Ints sizes = adaptive_sizes(op, n, x, output_size);
  const Shape shape = x.shape(), spatial(shape.end() - n, shape.end());
  const Tensor places = broadcast_to(reshape(Tensor(iota(numel(spatial))), spatial), shape);
  Extreme e{detach(x), places};
  for (int64_t i = n; i-- > 0;) e = adaptive_extreme(e, x.dim() - n + i, sizes[at(i)]);
  const Tensor flat = flatten(x, -n, -1);
  const Tensor value = gather(flat, -1, flatten(e.place, -n, -1));
  return {reshape(value, e.place.shape()), e.place};
}

Tensor adaptive_avg(std::string_view op, int64_t n, const Tensor& x, const Sizes& output_size) {
  require_float(op, x);
  return detail::area_means(x, adaptive_sizes(op, n, x, output_size));
}

}  // namespace

namespace detail {

Tensor area_means(const Tensor& x, const Ints& size) {
  const auto n = static_cast<int64_t>(size.size());
  return in_wide(x, [&](const Tensor& v) {
    // Axes that divide evenly are summed together; the others follow one by one.
    Tensor y = v;
    Ints places;
    for (int64_t i = 0; i < n; i++) {
      const int64_t axis = v.dim() - n + i + static_cast<int64_t>(places.size()), in = y.size(axis),
                    out = size[at(i)];
      if (in == out || out == 0 || in % out != 0) continue;
      y = unflatten(y, axis, {out, in / out});
      places.push_back(axis + 1);
    }
    if (!places.empty()) y = mean(y, places);
    for (int64_t i = 0; i < n; i++) {
      const int64_t axis = y.dim() - n + i;
      if (y.size(axis) != size[at(i)]) y = uneven_mean(y, axis, size[at(i)]);
    }
    return y;
  });
}

}  // namespace detail

Tensor adaptive_avg_pool1d(const Tensor& x, const Sizes& size) {
  return adaptive_avg("adaptive_avg_pool1d", 1, x, size);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const Sizes& size) {
  return adaptive_avg("adaptive_avg_pool2d", 2, x, size);
}
Tensor adaptive_avg_pool3d(const Tensor& x, const Sizes& size) {
  return adaptive_avg("adaptive_avg_pool3d", 3, x, size);
}

ValuesIndices adaptive_max_pool1d_with_indices(const Tensor& x, const Sizes& size) {
  return adaptive_max("adaptive_max_pool1d", 1, x, size);
}
ValuesIndices adaptive_max_pool2d_with_indices(const Tensor& x, const Sizes& size) {
  return adaptive_max("adaptive_max_pool2d", 2, x, size);
}
ValuesIndices adaptive_max_pool3d_with_indices(const Tensor& x, const Sizes& size) {
  return adaptive_max("adaptive_max_pool3d", 3, x, size);
}

Tensor adaptive_max_pool1d(const Tensor& x, const Sizes& size) {
  return adaptive_max_pool1d_with_indices(x, size).values;
}
Tensor adaptive_max_pool2d(const Tensor& x, const Sizes& size) {
  return adaptive_max_pool2d_with_indices(x, size).values;
}
Tensor adaptive_max_pool3d(const Tensor& x, const Sizes& size) {
  return adaptive_max_pool3d_with_indices(x, size).values;
}

}  // namespace lazuli
