#include "core/ops_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/gradient.h"
#include "core/ops_elementwise.h"
#include "core/ops_movement.h"
#include "core/ops_reduce.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

struct Moments {
  Tensor mean, var;  // the axes kept as size 1; var divides by n
};

Moments moments_over(const Tensor& x, const Dims& axes) {
  const Tensor m = mean(x, axes, true), distance = x - m;
  return {m, mean(distance * distance, axes, true)};
}

Tensor standardised(const Tensor& x, const Moments& m, double eps) {
  return (x - m.mean) * rsqrt(m.var + eps);
}

// A vector over the channels, aligned with axis 1 of a tensor of this rank.
Tensor over_channels(const Tensor& v, int64_t rank) {
  Shape shape(static_cast<size_t>(rank), 1);
  shape[1] = v.numel();
  return reshape(v, shape);
}

Tensor affine(const Tensor& y, const OptionalTensor& weight, const OptionalTensor& bias) {
  const Tensor z = weight ? y * cast(*weight, y.dtype()) : y;
  return bias ? z + cast(*bias, y.dtype()) : z;
}

// `weight` and `bias` over the channels.
Tensor channel_scaled(const Tensor& y, const OptionalTensor& weight, const OptionalTensor& bias) {
  const auto aligned = [&](const OptionalTensor& v) {
    return v ? OptionalTensor(over_channels(*v, y.dim())) : OptionalTensor();
  };
  return affine(y, aligned(weight), aligned(bias));
}

void require_channels(std::string_view op, std::string_view what, const OptionalTensor& v,
                      int64_t channels) {
  if (!v) return;
  require(v->dim() == 1 && v->numel() == channels,
          "{}: the {} has shape {}, but the input has {} channels", op, what, to_string(v->shape()),
          channels);
}

// The trailing axes that `normalized_shape` names.
Ints normalised_axes(std::string_view op, const Tensor& x, const Shape& normalized_shape) {
  const Shape shape = x.shape();
  const size_t n = normalized_shape.size();
  require(n >= 1, "{}: normalized_shape is empty; give the sizes of the last axes", op);
  bool fits = n <= shape.size();
  for (size_t i = 0; fits && i < n; i++) fits = shape[shape.size() - n + i] == normalized_shape[i];
  require(fits, "{}: normalized_shape {} is not the end of the input's shape {}", op,
          to_string(normalized_shape), to_string(shape));
  Ints axes;
  for (size_t i = shape.size() - n; i < shape.size(); i++) axes.push_back(static_cast<int64_t>(i));
  return axes;
}

void require_shape(std::string_view op, std::string_view what, const OptionalTensor& v,
                   const Shape& shape) {
  if (!v) return;
  require(v->shape() == shape, "{}: the {} has shape {}, not the normalized_shape {}", op, what,
          to_string(v->shape()), to_string(shape));
}

Ints all_but(const Tensor& x, std::initializer_list<int64_t> kept) {
  Ints axes;
  for (int64_t i = 0; i < x.dim(); i++) {
    if (std::find(kept.begin(), kept.end(), i) == kept.end()) axes.push_back(i);
  }
  return axes;
}

// running = (1 - momentum) * running + momentum * batch, in place.
void move_running(const OptionalTensor& running, const Tensor& batch, double momentum) {
  if (!running) return;
  Tensor handle = *running;  // shares what it names
  const Tensor now = detach(reshape(batch, running->shape()));
  handle.assign_(detach(*running) * (1 - momentum) + now * momentum);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps) {
  require_float("layer_norm", x);
  const Ints axes = normalised_axes("layer_norm", x, normalized_shape);
  require_shape("layer_norm", "weight", weight, normalized_shape);
  require_shape("layer_norm", "bias", bias, normalized_shape);
  return in_wide(x, [&](const Tensor& v) {
    return affine(standardised(v, moments_over(v, axes), eps), weight, bias);
  });
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const OptionalTensor& weight,
                std::optional<double> eps) {
  require_float("rms_norm", x);
  const Ints axes = normalised_axes("rms_norm", x, normalized_shape);
  require_shape("rms_norm", "weight", weight, normalized_shape);
  const double spacing = x.dtype() == DType::F64    ? 0x1p-52
                         : x.dtype() == DType::F32  ? 0x1p-23
                         : x.dtype() == DType::BF16 ? 0x1p-7
                                                    : 0x1p-10;
  return in_wide(x, [&](const Tensor& v) {
    return affine(v * rsqrt(mean(v * v, axes, true) + eps.value_or(spacing)), weight, {});
  });
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps) {
  require_float("group_norm", x);
  require(x.dim() >= 2, "group_norm: the input has shape {}; it needs a batch and channels",
          to_string(x.shape()));
  const int64_t channels = x.size(1);
  require(num_groups > 0 && channels % num_groups == 0,
          "group_norm: {} channels do not divide into {} groups", channels, num_groups);
  require_channels("group_norm", "weight", weight, channels);
  require_channels("group_norm", "bias", bias, channels);
  if (x.numel() == 0) return x;
  return in_wide(x, [&](const Tensor& v) {
    const Tensor groups = reshape(v, {v.size(0), num_groups, -1});
    const Tensor y = standardised(groups, moments_over(groups, 2), eps);
    return channel_scaled(reshape(y, v.shape()), weight, bias);
  });
}

Tensor batch_norm(const Tensor& x, const OptionalTensor& running_mean,
                  const OptionalTensor& running_var, const OptionalTensor& weight,
                  const OptionalTensor& bias, bool training, double momentum, double eps) {
  constexpr std::string_view kOp = "batch_norm";
  require_float(kOp, x);
  require(training || (running_mean && running_var),
          "{}: without training, the running mean and variance must be given", kOp);
  if (x.dim() < 2) {
    require(x.numel() == 0, "{}: the input has shape {}; it needs a batch and channels", kOp,
            to_string(x.shape()));
    return x;
  }
  const int64_t channels = x.size(1), n = channels == 0 ? 0 : x.numel() / channels;
  require_channels(kOp, "running mean", running_mean, channels);
  require_channels(kOp, "running variance", running_var, channels);
  require_channels(kOp, "weight", weight, channels);
  require_channels(kOp, "bias", bias, channels);
  require(!training || n != 1,
          "{}: training needs more than one value in each channel, but the input has shape {}", kOp,
          to_string(x.shape()));
  if (x.numel() == 0) return x;
  return in_wide(x, [&](const Tensor& v) {
    if (!training) {
      const auto wide = [&](const OptionalTensor& t) {
        return over_channels(cast(*t, v.dtype()), v.dim());
      };
      return channel_scaled(standardised(v, {wide(running_mean), wide(running_var)}, eps), weight,
                            bias);
    }
    const Moments m = moments_over(v, all_but(v, {1}));
    const auto count = static_cast<double>(n);
    move_running(running_mean, m.mean, momentum);
    move_running(running_var, m.var * (count / (count - 1)), momentum);
    return channel_scaled(standardised(v, m, eps), weight, bias);
  });
}

Tensor instance_norm(const Tensor& x, const OptionalTensor& running_mean,
                     const OptionalTensor& running_var, const OptionalTensor& weight,
                     const OptionalTensor& bias, bool use_input_stats, double momentum,
                     double eps) {
  constexpr std::string_view kOp = "instance_norm";
  require_float(kOp, x);
  require(use_input_stats || (running_mean && running_var),
          "{}: without use_input_stats, the running mean and variance must be given", kOp);
  require(x.dim() >= 2, "{}: the input has shape {}; it needs a batch and channels", kOp,
          to_string(x.shape()));
  if (!use_input_stats)
    return batch_norm(x, running_mean, running_var, weight, bias, false, momentum, eps);
  const int64_t channels = x.size(1), lines = x.size(0) * channels,
                n = lines == 0 ? 0 : x.numel() / lines;
  require_channels(kOp, "running mean", running_mean, channels);
  require_channels(kOp, "running variance", running_var, channels);
  require_channels(kOp, "weight", weight, channels);
  require_channels(kOp, "bias", bias, channels);
  require(n != 1, "{}: each channel needs more than one value, but the input has shape {}", kOp,
          to_string(x.shape()));
  if (x.numel() == 0) return x;
  return in_wide(x, [&](const Tensor& v) {
    const Moments m = moments_over(v, all_but(v, {0, 1}));
    const auto count = static_cast<double>(n);
    move_running(running_mean, mean(m.mean, 0), momentum);
    move_running(running_var, mean(m.var, 0) * (count / (count - 1)), momentum);
    return channel_scaled(standardised(v, m, eps), weight, bias);
  });
}

namespace {

// 0 where the sum is 0, with gradient 0.
Tensor norm_root(const Tensor& sum, double p) {
  const Tensor zero = sum == 0;
  const Tensor safe = where(zero, 1.0, sum);
  return where(zero, 0.0, p == 2 ? sqrt(safe) : pow(safe, 1 / p));
}

Tensor power_norm(const Tensor& x, double p, const Ints& axes, bool keepdim) {
  if (p == 2) return norm_root(sum(x * x, axes, keepdim), p);
  if (p == 1) return sum(abs(x), axes, keepdim);
  // The power's slope at 0 may be infinite; such elements get no gradient.
  const Tensor zero = x == 0;
  const Tensor powers = where(zero, p > 0 ? 0.0 : detail::kInf, pow(where(zero, 1.0, abs(x)), p));
  const Tensor total = sum(powers, axes, keepdim);
  return p > 0 ? norm_root(total, p) : pow(total, 1 / p);
}

Tensor vector_norm(std::string_view op, const Tensor& x, double p, const Ints& axes, bool keepdim) {
  require_float(op, x);
  // A sum over no axes at all, of a scalar, leaves it as it is.
  return in_wide(x, [&](const Tensor& v) {
    if (p == detail::kInf && v.numel() == 0) return sum(v, axes, keepdim);
    if (p == detail::kInf) return amax(abs(v), axes, keepdim);
    if (p == -detail::kInf) return amin(abs(v), axes, keepdim);
    if (p == 0) return sum(cast(detach(v) != 0, v.dtype()), axes, keepdim);
    return power_norm(v, p, axes, keepdim);
  });
}

// max(n, eps), through which the gradient passes as if it were n.
Tensor at_least(const Tensor& n, double eps) {
  return where(n < eps, (n - detach(n)) + eps, n);
}

}  // namespace

Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  return vector_norm("norm", dtype ? cast(x, *dtype) : x, p, check_axes("norm", dims, x.dim()),
                     keepdim);
}

Tensor normalize(const Tensor& x, double p, const Dims& dims, double eps) {
  const Ints axes = check_axes("normalize", dims, x.dim());
  return in_wide(x, [&](const Tensor& v) {
    return v / clamp(vector_norm("normalize", v, p, axes, true), eps);
  });
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim, double eps) {
  constexpr std::string_view kOp = "cosine_similarity";
  const DType t = result_type(a, b);
  require(is_float(t),
          "{}: the operands are {} and {}, not floats; convert them first, as in x.to(f32)", kOp,
          name(a.dtype()), name(b.dtype()));
  const Shape shape = broadcast_shapes(kOp, a.shape(), b.shape());
  const int64_t axis = check_axis(kOp, dim, static_cast<int64_t>(shape.size()));
  const Dims axes = shape.empty() ? Dims() : Dims(axis);
  const DType wide = accumulator(t);
  const Tensor x(operand(a, wide, shape)), y(operand(b, wide, shape));
  const auto unit = [&](const Tensor& v) {
    return v / at_least(vector_norm(kOp, v, 2, check_axes(kOp, axes, v.dim()), true), eps);
  };
  return cast(sum(unit(x) * unit(y), axes), t);
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p, double eps, bool keepdim) {
  const Tensor difference = to_float(a - b) + eps;
  const Ints last = difference.dim() == 0 ? Ints() : Ints{difference.dim() - 1};
  return vector_norm("pairwise_distance", difference, p, last, keepdim);
}

Tensor cdist(const Tensor& a, const Tensor& b, double p, std::string_view compute_mode) {
  constexpr std::array<std::string_view, 3> kModes{"use_mm_for_euclid_dist_if_necessary",
                                                   "use_mm_for_euclid_dist",
                                                   "donot_use_mm_for_euclid_dist"};
  require(std::find(kModes.begin(), kModes.end(), compute_mode) != kModes.end(),
          "cdist: compute_mode is \"{}\"; it must be {}, {} or {}", compute_mode, kModes[0],
          kModes[1], kModes[2]);
  require_float("cdist", a);
  require_float("cdist", b);
  require(p >= 0, "cdist: p is {}; it cannot be negative", p);
  require(a.dim() >= 2 && b.dim() >= 2,
          "cdist: operands of shapes {} and {}; both need rows and columns", to_string(a.shape()),
          to_string(b.shape()));
  require(a.size(-1) == b.size(-1), "cdist: rows of {} and of {} have {} and {} elements",
          to_string(a.shape()), to_string(b.shape()), a.size(-1), b.size(-1));
  const Tensor difference = unsqueeze(a, -2) - unsqueeze(b, -3);
  const Tensor distance = vector_norm("cdist", difference, p, {difference.dim() - 1}, false);
  if (p != detail::kInf) return distance;
  // Every coordinate that attains the maximum gets the whole gradient, where a norm shares it.
  return custom_vjp(distance, {difference},
                    [difference, distance](const Tensor& g) -> std::vector<Tensor> {
                      const Tensor attains = abs(difference) == unsqueeze(distance, -1);
                      return {where(attains, unsqueeze(g, -1) * sign(difference), 0.0)};
                    });
}

}  // namespace lazuli
