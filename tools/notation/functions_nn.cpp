// Rows of the functions of networks: products, convolutions, pools, norms, losses, orders.
#include "core/error.h"
#include "core/ops_attention.h"
#include "core/ops_conv.h"
#include "core/ops_einsum.h"
#include "core/ops_interpolate.h"
#include "core/ops_loss.h"
#include "core/ops_matmul.h"
#include "core/ops_norm.h"
#include "core/ops_softmax.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

using std::optional;
using T = const Tensor&;

// Inputs of the notation do not change: training moves the statistics of handles of its own.
OptionalTensor own_handle(const OptionalTensor& x) {
  return x ? OptionalTensor(Tensor(x->node())) : std::nullopt;
}

Tensor batch_norm_row(T x, const OptionalTensor& mean, const OptionalTensor& var,
                      const OptionalTensor& weight, const OptionalTensor& bias, bool training,
                      double momentum, double eps) {
  return batch_norm(x, own_handle(mean), own_handle(var), weight, bias, training, momentum, eps);
}

Tensor instance_norm_row(T x, const OptionalTensor& mean, const OptionalTensor& var,
                         const OptionalTensor& weight, const OptionalTensor& bias,
                         bool use_input_stats, double momentum, double eps) {
  return instance_norm(x, own_handle(mean), own_handle(var), weight, bias, use_input_stats,
                       momentum, eps);
}

Tensor frobenius_norm(T x, const std::string& p, const Dims& dims, bool keepdim,
                      optional<DType> dtype) {
  require(p == "fro", "norm: p is \"{}\"; it must be a number or fro", p);
  return norm(x, 2, dims, keepdim, dtype);
}

std::vector<Function> products() {
  // clang-format off
  return {
      {"matmul(input, other)", wrap(&matmul)},
      {"mm(input, mat2)", wrap(&mm)},
      {"bmm(input, mat2)", wrap(&bmm)},
      {"mv(input, vec)", wrap(&mv)},
      {"dot(input, other)", wrap(&dot)},
      {"outer(input, vec2)", wrap(&outer)},
      {"addmm(input, mat1, mat2, beta=1, alpha=1)", wrap(&addmm)},
      {"baddbmm(input, batch1, batch2, beta=1, alpha=1)", wrap(&baddbmm)},
      {"einsum(equation, *operands)", wrap(&einsum)},
      {"linear(input, weight, bias=None)", wrap(&linear)},
      {"tensordot(a, b, dims=2)", wrap<Tensor(T, T, int64_t)>(&tensordot)},
      {"tensordot(a, b, dims)", wrap([](T a, T b, const std::pair<Ints, Ints>& dims) { return tensordot(a, b, dims.first, dims.second); })},
  };
  // clang-format on
}

std::vector<Function> softmaxes() {
  // clang-format off
  return {
      {"softmax(input, dim, dtype=None)", wrap(&softmax)},
      {"softmin(input, dim, dtype=None)", wrap(&softmin)},
      {"log_softmax(input, dim, dtype=None)", wrap(&log_softmax)},
      {"logsumexp(input, dim, keepdim=false)", wrap(&logsumexp)},
      {"logcumsumexp(input, dim)", wrap(&logcumsumexp)},
  };
  // clang-format on
}

std::vector<Function> norms() {
  // clang-format off
  return {
      {"layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05)", wrap(&layer_norm)},
      {"rms_norm(input, normalized_shape, weight=None, eps=None)", wrap(&rms_norm)},
      {"group_norm(input, num_groups, weight=None, bias=None, eps=1e-05)", wrap(&group_norm)},
      {"batch_norm(input, running_mean, running_var, weight=None, bias=None, training=false, momentum=0.1, eps=1e-05)", wrap(&batch_norm_row)},
      {"instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=true, momentum=0.1, eps=1e-05)", wrap(&instance_norm_row)},
      {"norm(input, p=2.0, dim=None, keepdim=false, dtype=None)", wrap(&norm)},
      {"norm(input, p, dim=None, keepdim=false, dtype=None)", wrap(&frobenius_norm)},
      {"normalize(input, p=2.0, dim=1, eps=1e-12)", wrap(&normalize)},
      {"cosine_similarity(x1, x2, dim=1, eps=1e-08)", wrap(&cosine_similarity)},
      {"pairwise_distance(x1, x2, p=2.0, eps=1e-06, keepdim=false)", wrap(&pairwise_distance)},
      {"cdist(x1, x2, p=2.0, compute_mode=use_mm_for_euclid_dist_if_necessary)", wrap(&cdist)},
  };
  // clang-format on
}

std::vector<Function> convolutions() {
  // clang-format off
  return {
      {"conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)", wrap(&conv1d)},
      {"conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)", wrap(&conv2d)},
      {"conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)", wrap(&conv3d)},
      {"conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1)", wrap(&conv_transpose1d)},
      {"conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1)", wrap(&conv_transpose2d)},
      {"conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1)", wrap(&conv_transpose3d)},
      {"im2col(input, kernel_size, dilation=1, padding=0, stride=1)", wrap(&im2col)},
      {"fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1)", wrap(&fold)},
  };
  // clang-format on
}

Tensor interpolate_row(T x, const Sizes& size, const optional<std::vector<double>>& scale_factor,
                       std::string_view mode, optional<bool> align_corners,
                       optional<bool> recompute, bool antialias) {
  return interpolate(x, size, scale_factor.value_or(std::vector<double>()), mode, align_corners,
                     recompute, antialias);
}

std::vector<Function> resampling() {
  // clang-format off
  return {
      {"interpolate(input, size=None, scale_factor=None, mode=nearest, align_corners=None, recompute_scale_factor=None, antialias=false)", wrap(&interpolate_row)},
      {"pixel_shuffle(input, upscale_factor)", wrap(&pixel_shuffle)},
      {"pixel_unshuffle(input, downscale_factor)", wrap(&pixel_unshuffle)},
  };
  // clang-format on
}

std::vector<Function> attention() {
  // clang-format off
  return {
      {"scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=false, scale=None, enable_gqa=false)", wrap(&scaled_dot_product_attention)},
      {"embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=false, sparse=false)", wrap(&embedding)},
  };
  // clang-format on
}

std::vector<Function> losses() {
  // clang-format off
  return {
      {"cross_entropy(input, target, weight=None, ignore_index=-100, reduction=mean, label_smoothing=0.0)", wrap(&cross_entropy)},
      {"sparse_categorical_crossentropy(input, target, ignore_index=-1, label_smoothing=0.0, reduction=mean)", wrap(&sparse_categorical_crossentropy)},
      {"nll_loss(input, target, weight=None, ignore_index=-100, reduction=mean)", wrap(&nll_loss)},
      {"binary_crossentropy(input, target, reduction=mean)", wrap(&binary_crossentropy)},
      {"binary_crossentropy_logits(input, target, reduction=mean, pos_weight=None)", wrap(&binary_crossentropy_logits)},
      {"binary_cross_entropy(input, target, weight=None, reduction=mean)", wrap(&binary_cross_entropy)},
      {"binary_cross_entropy_with_logits(input, target, weight=None, reduction=mean, pos_weight=None)", wrap(&binary_cross_entropy_with_logits)},
      {"mse_loss(input, target, reduction=mean)", wrap(&mse_loss)},
      {"l1_loss(input, target, reduction=mean)", wrap(&l1_loss)},
      {"smooth_l1_loss(input, target, reduction=mean, beta=1.0)", wrap(&smooth_l1_loss)},
      {"huber_loss(input, target, reduction=mean, delta=1.0)", wrap(&huber_loss)},
      {"hinge_embedding_loss(input, target, margin=1.0, reduction=mean)", wrap(&hinge_embedding_loss)},
      {"margin_ranking_loss(input1, input2, target, margin=0.0, reduction=mean)", wrap(&margin_ranking_loss)},
      {"cosine_embedding_loss(input1, input2, target, margin=0.0, reduction=mean)", wrap(&cosine_embedding_loss)},
      {"kl_div(input, target, reduction=mean, log_target=false)", wrap(&kl_div)},
  };
  // clang-format on
}

}  // namespace

std::vector<Function> nn_functions() {
  return join_rows(
      {products(), softmaxes(), norms(), convolutions(), attention(), losses(), resampling()});
}

}  // namespace lazuli::notation
