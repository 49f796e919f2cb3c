// Activation functions, as in torch.nn.functional. 16-bit floats are computed in f32 and rounded
// once.
#pragma once

#include <string_view>

#include "core/tensor.h"

namespace lazuli {

/// max(x, 0); integers too. The gradient at 0 is 0.
Tensor relu(const Tensor& x);
/// min(max(x, 0), 6).
Tensor relu6(const Tensor& x);
/// x where x > 0, else negative_slope * x.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// `weight` has one element, or one for each index of axis 1.
Tensor prelu(const Tensor& x, const Tensor& weight);
/// x where x > 0, else alpha * (exp(x) - 1).
Tensor elu(const Tensor& x, double alpha = 1.0);
/// max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)); alpha is not 0.
Tensor celu(const Tensor& x, double alpha = 1.0);
/// elu with the scale and the alpha of Klambauer et al. (2017), which keep mean and variance.
Tensor selu(const Tensor& x);
/// x * Phi(x); `approximate` is "none" (by erf) or "tanh".
Tensor gelu(const Tensor& x, std::string_view approximate = "none");
/// x * sigmoid(1.702 x).
Tensor quick_gelu(const Tensor& x);
/// x * sigmoid(x).
Tensor silu(const Tensor& x);
/// Another name of silu.
Tensor swish(const Tensor& x);
/// x * tanh(softplus(x)).
Tensor mish(const Tensor& x);
/// log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold.
Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);
/// x / (1 + |x|).
Tensor softsign(const Tensor& x);
/// x - lambd where x > lambd, x + lambd where x < -lambd, else 0; lambd is not negative.
Tensor softshrink(const Tensor& x, double lambd = 0.5);
/// x where |x| > lambd, else 0.
Tensor hardshrink(const Tensor& x, double lambd = 0.5);
/// x - tanh(x).
Tensor tanhshrink(const Tensor& x);
/// x where it exceeds the threshold, else `value`.
Tensor threshold(const Tensor& x, double threshold, double value);
/// 1 / (1 + exp(-x)).
Tensor sigmoid(const Tensor& x);
/// log(sigmoid(x)) without overflow.
Tensor logsigmoid(const Tensor& x);
/// min(max(x + 3, 0), 6) / 6.
Tensor hardsigmoid(const Tensor& x);
/// x * hardsigmoid(x).
Tensor hardswish(const Tensor& x);
/// x within [min_val, max_val].
Tensor hardtanh(const Tensor& x, double min_val = -1.0, double max_val = 1.0);
/// The first half of axis `dim` times the sigmoid of the second.
Tensor glu(const Tensor& x, int64_t dim = -1);

}  // namespace lazuli
