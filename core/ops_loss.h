// Loss functions, as in torch.nn.functional. `reduction` is none, mean or sum. 16-bit floats are
// computed in f32 and rounded once. Classes are axis 1 of the input (axis 0 if it is a vector); a
// class index in data that is out of range and not ignore_index counts as a loss of 0.
#pragma once

#include <optional>
#include <string_view>

#include "core/tensor.h"

namespace lazuli {

/// -log softmax(input)[target], for class indices (integers) or the expectation of it under
/// probabilities (floats of the input's shape). `weight` scales each class, and the mean divides by
/// the weights used; indices equal to ignore_index do not count; label_smoothing mixes the target
/// with the uniform distribution.
Tensor cross_entropy(const Tensor& input, const Tensor& target,
                     const std::optional<Tensor>& weight = {}, int64_t ignore_index = -100,
                     std::string_view reduction = "mean", double label_smoothing = 0.0);
/// tinygrad's name, whose ignored index is -1.
Tensor sparse_categorical_crossentropy(const Tensor& input, const Tensor& target,
                                       int64_t ignore_index = -1, double label_smoothing = 0.0,
                                       std::string_view reduction = "mean");
/// -input[target] for log-probabilities.
Tensor nll_loss(const Tensor& input, const Tensor& target, const std::optional<Tensor>& weight = {},
                int64_t ignore_index = -100, std::string_view reduction = "mean");

/// -(t log x + (1 - t) log(1 - x)) for probabilities; logarithms are at least -100.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                            const std::optional<Tensor>& weight = {},
                            std::string_view reduction = "mean");
/// The same of sigmoid(input), without overflow; pos_weight scales the positive part.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const std::optional<Tensor>& weight = {},
                                        std::string_view reduction = "mean",
                                        const std::optional<Tensor>& pos_weight = {});
/// tinygrad's names of the two, without weights.
Tensor binary_crossentropy(const Tensor& input, const Tensor& target,
                           std::string_view reduction = "mean");
/// The same of binary_cross_entropy_with_logits.
Tensor binary_crossentropy_logits(const Tensor& input, const Tensor& target,
                                  std::string_view reduction = "mean",
                                  const std::optional<Tensor>& pos_weight = {});

/// (input - target)^2.
Tensor mse_loss(const Tensor& input, const Tensor& target, std::string_view reduction = "mean");
/// |input - target|.
Tensor l1_loss(const Tensor& input, const Tensor& target, std::string_view reduction = "mean");
/// d^2 / (2 beta) where |d| < beta, else |d| - beta / 2.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                      std::string_view reduction = "mean", double beta = 1.0);
/// d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2).
Tensor huber_loss(const Tensor& input, const Tensor& target, std::string_view reduction = "mean",
                  double delta = 1.0);

/// input where target is 1, max(0, margin - input) where it is -1.
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin = 1.0,
                            std::string_view reduction = "mean");
/// max(0, -target (a - b) + margin).
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                           double margin = 0.0, std::string_view reduction = "mean");
/// 1 - cosine where target is 1, max(0, cosine - margin) where it is -1; along the last axis.
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             double margin = 0.0, std::string_view reduction = "mean");
/// target (log target - input), or exp(target) (target - input) with log_target; the reduction may
/// also be batchmean.
Tensor kl_div(const Tensor& input, const Tensor& target, std::string_view reduction = "mean",
              bool log_target = false);

}  // namespace lazuli
