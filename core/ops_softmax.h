// Softmax and its relatives along one axis.
#pragma once

#include <optional>

#include "core/arguments.h"
#include "core/tensor.h"

namespace lazuli {

/// exp(x - max) / sum, along `dim`. With `dtype`, x is converted first.
Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
/// softmax(-x).
Tensor softmin(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
/// x - max - log(sum(exp(x - max))).
Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {});
/// log(sum(exp(x))) without overflow; rows of -inf give -inf.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);
/// The running logsumexp along `dim`: log2(n) steps, each of which doubles the number of elements
/// added up, so that no step loses the small ones beside a later large one.
Tensor logcumsumexp(const Tensor& x, int64_t dim);

namespace detail {

/// `y`, the softmax of x along `dim`, with the gradient y (g - sum(g y)): the backward pass reads y
/// alone, where that of exp(x - max) / sum keeps exponentials and sums besides.
Tensor with_softmax_gradient(const Tensor& y, const Tensor& x, int64_t dim);

}  // namespace detail

}  // namespace lazuli
