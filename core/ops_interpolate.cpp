#include "core/ops_interpolate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/ops_conv.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_movement.h"
#include "core/ops_pool.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

constexpr std::string_view kInterpolate = "interpolate";

enum class Kernel { Nearest, NearestExact, Linear, Cubic, Area };

struct Mode {
  std::string_view name;
  Kernel kernel;
  int64_t spatial;  // axes; 0: any
  bool can_align;
};
constexpr std::array<Mode, 7> kModes{{
    {"nearest", Kernel::Nearest, 0, false},
    {"nearest-exact", Kernel::NearestExact, 0, false},
    {"area", Kernel::Area, 0, false},
    {"linear", Kernel::Linear, 1, true},
    {"bilinear", Kernel::Linear, 2, true},
    {"trilinear", Kernel::Linear, 3, true},
    {"bicubic", Kernel::Cubic, 2, true},
}};

const Mode& find_mode(std::string_view name) {
  for (const Mode& m : kModes) {
    if (m.name == name) return m;
  }
  user_error(
      "{}: mode is \"{}\"; it must be nearest, nearest-exact, area, linear, bilinear, trilinear or "
      "bicubic",
      kInterpolate, name);
}

// How one axis is resampled: input elements per output element if that is given, else the ratio of
// the sizes.
struct Resampling {
  int64_t in, out;
  std::optional<double> scale;
  bool align;
};

// A number for each element of an axis, in memory that counts against the limit.
template <typename T>
class Table {
 public:
  explicit Table(int64_t size)
      : storage_(make_storage(bytes_of(Shape{size}, dtype_of<T>()))), size_(size) {}

  int64_t size() const { return size_; }
  T& operator[](int64_t i) const { return static_cast<T*>(storage_->data())[i]; }
  Tensor shaped(const Shape& shape) const {
    return Tensor::from_storage(storage_, shape, dtype_of<T>());
  }

 private:
  Ref<Storage> storage_;
  int64_t size_;
};

// Which element of the input each output element takes, and with which weight.
template <typename T>
struct Tap {
  explicit Tap(int64_t size) : index(size), weight(size) {}

  Table<int64_t> index;
  Table<T> weight;
};

template <typename T>
T ratio(const Resampling& a) {
  if (a.align) return a.out > 1 ? static_cast<T>(a.in - 1) / static_cast<T>(a.out - 1) : T(0);
  return a.scale ? static_cast<T>(1 / *a.scale) : static_cast<T>(a.in) / static_cast<T>(a.out);
}

// Places are computed in T and rounded in f32, as PyTorch does, so that both take the same
// elements.
template <typename T>
Table<int64_t> nearest(const Resampling& a, bool exact) {
  const Table<int64_t> index(a.out);
  const T step = ratio<T>(a);
  for (int64_t i = 0; i < a.out; i++) {
    const T centre = std::max(step * (static_cast<T>(i) + T(0.5)) - T(0.5), T(0));
    const double place =
        exact ? static_cast<double>(centre) + 0.5 : static_cast<double>(step * static_cast<T>(i));
    index[i] = std::min(static_cast<int64_t>(std::floor(static_cast<float>(place))), a.in - 1);
  }
  return index;
}

// Keys, "Cubic convolution interpolation for digital image processing" (1981), at distance d within
// 1 and from 1 to 2.
template <typename T>
T cubic(T d) {
  constexpr T kA = T(-0.75);
  if (d <= 1) return ((kA + 2) * d - (kA + 3)) * d * d + 1;
  return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA;
}

template <typename T>
std::vector<Tap<T>> taps(const Resampling& a, bool is_cubic) {
  std::vector<Tap<T>> out;
  for (int k = 0; k < (is_cubic ? 4 : 2); k++) out.emplace_back(a.out);
  const T step = ratio<T>(a);
  for (int64_t i = 0; i < a.out; i++) {
    T place = a.align ? step * static_cast<T>(i) : step * (static_cast<T>(i) + T(0.5)) - T(0.5);
    if (!is_cubic) place = std::max(place, T(0));
    const auto whole = std::min(static_cast<int64_t>(std::floor(place)), a.in - 1);
    const T part = std::clamp(place - static_cast<T>(whole), T(0), T(1));
    const auto add = [&](size_t tap, int64_t index, T weight) {
      out[tap].index[i] = std::clamp<int64_t>(index, 0, a.in - 1);
      out[tap].weight[i] = weight;
    };
    if (!is_cubic) {
      add(0, whole, 1 - part);
      add(1, whole + 1, part);
    } else {
      for (int64_t k = 0; k < 4; k++) {
        add(static_cast<size_t>(k), whole + k - 1,
            cubic(k < 2 ? part + static_cast<T>(1 - k) : static_cast<T>(k - 1) - part));
      }
    }
  }
  return out;
}

// Whole multiples are views; anything else a gather by a table as long as the axis.
Tensor selected(const Tensor& x, int64_t axis, const Table<int64_t>& index) {
  const int64_t in = x.size(axis), out = index.size();
  const auto all = [&](auto expected) {
    for (int64_t i = 0; i < out; i++) {
      if (index[i] != expected(i)) return false;
    }
    return true;
  };
  if (in == out && all([](int64_t i) { return i; })) return Tensor(x.node());
  if (out % in == 0 && all([&](int64_t i) { return i / (out / in); }))
    return repeat_interleave(x, out / in, axis);
  if (in % out == 0 && all([&](int64_t i) { return i * (in / out); })) {
    return select(unflatten(x, axis, {out, in / out}), axis + 1, 0);
  }
  return index_select(x, axis, index.shaped({out}));
}

template <typename T>
Tensor weighted_taps(const Tensor& x, int64_t axis, const Resampling& a, bool is_cubic) {
  Shape aligned(static_cast<size_t>(x.dim()), 1);
  aligned[static_cast<size_t>(axis)] = a.out;
  std::optional<Tensor> sum;
  for (const Tap<T>& tap : taps<T>(a, is_cubic)) {
    const Tensor part = selected(x, axis, tap.index) * cast(tap.weight.shaped(aligned), x.dtype());
    sum = sum ? *sum + part : part;
  }
  return *sum;
}

// Axis by axis, the last first. Images of bytes are `rounded` after each, halves up.
Tensor resampled(const Tensor& x, const std::vector<Resampling>& axes, Kernel kernel,
                 bool rounded = false) {
  const auto n = static_cast<int64_t>(axes.size());
  const bool is_nearest = kernel == Kernel::Nearest || kernel == Kernel::NearestExact;
  Tensor y = x;
  for (int64_t i = n; i-- > 0;) {
    const Resampling& a = axes[static_cast<size_t>(i)];
    const int64_t axis = y.dim() - n + i;
    const bool is_cubic = kernel == Kernel::Cubic;
    if (is_nearest) {
      const bool exact = kernel == Kernel::NearestExact;
      y = selected(y, axis,
                   x.dtype() == DType::F64 ? nearest<double>(a, exact) : nearest<float>(a, exact));
    } else if (a.in != a.out || (is_cubic && a.scale)) {
      y = x.dtype() == DType::F64 ? weighted_taps<double>(y, axis, a, is_cubic)
                                  : weighted_taps<float>(y, axis, a, is_cubic);
      if (rounded) y = clamp(floor(y + 0.5), 0.0, 255.0);
    }
  }
  return y;
}

std::vector<Resampling> checked_axes(const Tensor& x, const Sizes& size,
                                     const std::vector<double>& scale_factor, bool align,
                                     bool keep_scale) {
  const int64_t n = x.dim() - 2;
  require(size.empty() != scale_factor.empty(), "{}: give either size or scale_factor{}",
          kInterpolate, size.empty() ? "" : ", not both");
  std::vector<double> scales = scale_factor;
  require(scales.size() <= 1 || static_cast<int64_t>(scales.size()) == n,
          "{}: scale_factor has {} numbers; give one or {}", kInterpolate, scales.size(), n);
  if (scales.size() == 1) scales.resize(static_cast<size_t>(n), scales[0]);
  const Ints sizes = size.empty() ? Ints() : detail::per_axis(kInterpolate, "size", size, n, 1);
  std::vector<Resampling> axes;
  for (int64_t i = 0; i < n; i++) {
    const auto k = static_cast<size_t>(i);
    const int64_t in = x.size(2 + i);
    require(in > 0, "{}: the input of shape {} has an empty spatial dimension", kInterpolate,
            to_string(x.shape()));
    if (!sizes.empty()) {
      axes.push_back({in, sizes[k], {}, align});
      continue;
    }
    const double out = std::floor(static_cast<double>(in) * scales[k]);
    require(out >= 1 && out < 9e18, "{}: scale_factor {} makes size {} of a dimension of size {}",
            kInterpolate, scales[k], out, in);
    axes.push_back({in, static_cast<int64_t>(out),
                    keep_scale ? std::optional(scales[k]) : std::nullopt, align});
  }
  return axes;
}

}  // namespace

Tensor interpolate(const Tensor& x, const Sizes& size, const std::vector<double>& scale_factor,
                   std::string_view mode, std::optional<bool> align_corners,
                   std::optional<bool> recompute_scale_factor, bool antialias) {
  const Mode& m = find_mode(mode);
  require(x.dim() >= 3 && x.dim() <= 5,
          "{}: the input has shape {}; it needs a batch, channels and 1 to 3 spatial dimensions",
          kInterpolate, to_string(x.shape()));
  require(m.spatial == 0 || m.spatial == x.dim() - 2,
          "{}: mode {} is for {} spatial dimension{}, but the input has shape {}", kInterpolate,
          mode, m.spatial, m.spatial == 1 ? "" : "s", to_string(x.shape()));
  require(m.can_align || !align_corners,
          "{}: align_corners has no meaning for mode {}; leave it out", kInterpolate, mode);
  require(!antialias, "{}: antialias is not built yet; resample without it, or by mode area",
          kInterpolate);
  const bool keep_scale = !recompute_scale_factor.value_or(false) && m.kernel != Kernel::Area;
  const std::vector<Resampling> axes =
      checked_axes(x, size, scale_factor, align_corners.value_or(false), keep_scale);
  Shape shape = x.shape();
  for (size_t i = 0; i < axes.size(); i++) shape[2 + i] = axes[i].out;
  check_shape(kInterpolate, shape);
  if (m.kernel == Kernel::Nearest || m.kernel == Kernel::NearestExact)
    return resampled(x, axes, m.kernel);
  if (x.dtype() == DType::U8 && m.kernel != Kernel::Area) {
    return cast(resampled(cast(x, DType::F32), axes, m.kernel, true), DType::U8);
  }
  require_float(kInterpolate, x);
  if (m.kernel == Kernel::Area) return detail::area_means(x, Ints(shape.begin() + 2, shape.end()));
  return in_wide(x, [&](const Tensor& v) { return resampled(v, axes, m.kernel); });
}

Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor) {
  const int64_t r = upscale_factor;
  require(x.dim() >= 3,
          "pixel_shuffle: the input has shape {}; it needs channels, height and width",
          to_string(x.shape()));
  require(r > 0, "pixel_shuffle: upscale_factor is {}; it must be positive", r);
  const int64_t channels = x.size(-3), h = x.size(-2), w = x.size(-1);
  require(channels % r == 0 && channels / r % r == 0,
          "pixel_shuffle: {} channels are not a multiple of the square of the factor {}", channels,
          r);
  const Shape shape = x.shape();
  Shape split(shape.begin(), shape.end() - 3), joined = split;
  const auto front = static_cast<int64_t>(split.size());
  for (int64_t v : {channels / r / r, r, r, h, w}) split.push_back(v);
  for (int64_t v : {channels / r / r, h * r, w * r}) joined.push_back(v);
  Ints order;
  for (int64_t i = 0; i < front; i++) order.push_back(i);
  for (int64_t i : {0, 3, 1, 4, 2}) order.push_back(front + i);
  return reshape(permute(reshape(x, split), order), joined);
}

Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor) {
  const int64_t r = downscale_factor;
  require(x.dim() >= 3,
          "pixel_unshuffle: the input has shape {}; it needs channels, height and width",
          to_string(x.shape()));
  require(r > 0, "pixel_unshuffle: downscale_factor is {}; it must be positive", r);
  const int64_t channels = x.size(-3), h = x.size(-2), w = x.size(-1);
  require(h % r == 0 && w % r == 0,
          "pixel_unshuffle: height {} and width {} are not multiples of the factor {}", h, w, r);
  const Shape shape = x.shape();
  Shape split(shape.begin(), shape.end() - 3), joined = split;
  const auto front = static_cast<int64_t>(split.size());
  for (int64_t v : {channels, h / r, r, w / r, r}) split.push_back(v);
  for (int64_t v : {channels * r * r, h / r, w / r}) joined.push_back(v);
  Ints order;
  for (int64_t i = 0; i < front; i++) order.push_back(i);
  for (int64_t i : {0, 2, 4, 1, 3}) order.push_back(front + i);
  return reshape(permute(reshape(x, split), order), joined);
}

}  // namespace lazuli
