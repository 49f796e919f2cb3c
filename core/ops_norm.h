// Normalisation layers, norms and distances, as in torch.nn.functional. 16-bit floats are computed
// in f32 and rounded once.
#pragma once

#include <optional>
#include <string_view>

#include "core/arguments.h"
#include "core/tensor.h"

namespace lazuli {

using OptionalTensor = std::optional<Tensor>;

// ---- normalisation layers
/// (x - mean) / sqrt(var + eps) over the last axes, which have the sizes `normalized_shape`; then *
/// weight + bias.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const OptionalTensor& weight = {},
                  const OptionalTensor& bias = {}, double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) over the last axes; eps is the spacing of 1 in x's dtype unless given.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const OptionalTensor& weight = {},
                std::optional<double> eps = {});
/// The channels (axis 1) in `num_groups` groups, each normalised over its channels and all further
/// axes.
Tensor group_norm(const Tensor& x, int64_t num_groups, const OptionalTensor& weight = {},
                  const OptionalTensor& bias = {}, double eps = 1e-5);
/// Every channel normalised over all other axes: by the running statistics, or by those of the
/// batch when training, which then move the running ones by `momentum` (Tensor::assign_), the
/// variance with n - 1 in place of n.
Tensor batch_norm(const Tensor& x, const OptionalTensor& running_mean,
                  const OptionalTensor& running_var, const OptionalTensor& weight = {},
                  const OptionalTensor& bias = {}, bool training = false, double momentum = 0.1,
                  double eps = 1e-5);
/// Every channel of every example normalised over the further axes; running statistics as in
/// batch_norm, of the batch's mean.
Tensor instance_norm(const Tensor& x, const OptionalTensor& running_mean = {},
                     const OptionalTensor& running_var = {}, const OptionalTensor& weight = {},
                     const OptionalTensor& bias = {}, bool use_input_stats = true,
                     double momentum = 0.1, double eps = 1e-5);

// ---- norms and distances
/// (sum |x|^p)^(1/p) over `dims`; p = 0 counts the nonzero, +-inf is the largest (smallest)
/// magnitude. At 0 the gradient is 0.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false,
            std::optional<DType> dtype = {});
/// x / max(norm, eps) along `dims`.
Tensor normalize(const Tensor& x, double p = 2, const Dims& dims = 1, double eps = 1e-12);
/// a . b / (max(|a|, eps) max(|b|, eps)) along `dim`; operands broadcast.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim = 1, double eps = 1e-8);
/// norm(a - b + eps) along the last axis.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6,
                         bool keepdim = false);
/// (..., m, d), (..., n, d) -> (..., m, n): the norm of every difference of a row of a and a row of
/// b. All of PyTorch's modes give the sum of the differences, never the less exact matrix product.
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2,
             std::string_view compute_mode = "use_mm_for_euclid_dist_if_necessary");

}  // namespace lazuli
