// Activation functions, as in torch.nn.functional. 16-bit floats are computed in f32 and rounded
// once.
#pragma once

#include <string_view>

#include "core/tensor.h"

namespace lazuli {

Tensor relu(const Tensor& x);
Tensor relu6(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// `weight` has one element, or one for each index of axis 1.
Tensor prelu(const Tensor& x, const Tensor& weight);
Tensor elu(const Tensor& x, double alpha = 1.0);
Tensor celu(const Tensor& x, double alpha = 1.0);
Tensor selu(const Tensor& x);
/// x * Phi(x); `approximate` is "none" (by erf) or "tanh".
Tensor gelu(const Tensor& x, std::string_view approximate = "none");
/// x * sigmoid(1.702 x).
Tensor quick_gelu(const Tensor& x);
Tensor silu(const Tensor& x);
Tensor swish(const Tensor& x);
Tensor mish(const Tensor& x);
/// log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold.
Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);
Tensor softsign(const Tensor& x);
Tensor softshrink(const Tensor& x, double lambd = 0.5);
Tensor hardshrink(const Tensor& x, double lambd = 0.5);
Tensor tanhshrink(const Tensor& x);
/// x where it exceeds the threshold, else `value`.
Tensor threshold(const Tensor& x, double threshold, double value);
Tensor sigmoid(const Tensor& x);
Tensor logsigmoid(const Tensor& x);
Tensor hardsigmoid(const Tensor& x);
Tensor hardswish(const Tensor& x);
Tensor hardtanh(const Tensor& x, double min_val = -1.0, double max_val = 1.0);
/// The first half of axis `dim` times the sigmoid of the second.
Tensor glu(const Tensor& x, int64_t dim = -1);

}  // namespace lazuli
