// Attention and the table of embeddings.
#pragma once

#include <optional>

#include "core/tensor.h"

namespace lazuli {

/// softmax(query key^T * scale + mask) value, with query (..., L, E), key (..., S, E) and value
/// (..., S, V). scale is 1/sqrt(E) unless given. attn_mask broadcasts to (..., L, S): bools say
/// what may be attended to, floats are added; a row that may attend to nothing gives 0. is_causal
/// lets row i attend to columns 0 to i. With enable_gqa, key and value have fewer heads (axis -3)
/// than the query, each shared by as many neighbouring ones. dropout_p drops weights.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const std::optional<Tensor>& attn_mask = {},
                                    double dropout_p = 0.0, bool is_causal = false,
                                    std::optional<double> scale = {}, bool enable_gqa = false);

/// Rows of `weight` (n, d) that `input` (integers of any shape) names: (..., d). Row padding_idx
/// gets no gradient. Rows whose norm (of order norm_type) exceeds max_norm are read scaled down to
/// it; the weight itself stays. With scale_grad_by_freq a row's gradient is divided by how often
/// the row is named. Gradients are dense, whatever `sparse` says. An index in data out of range
/// gives zeros.
Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<int64_t> padding_idx = {},
                 std::optional<double> max_norm = {}, double norm_type = 2.0,
                 bool scale_grad_by_freq = false, bool sparse = false);

}  // namespace lazuli
