#include "core/ops_attention.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_matmul.h"
#include "core/ops_movement.h"
#include "core/ops_norm.h"
#include "core/ops_random.h"
#include "core/ops_reduce.h"
#include "core/ops_softmax.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

constexpr std::string_view kAttention = "scaled_dot_product_attention";

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  require(q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2,
          "{}: shapes {}, {} and {}; all need at least two dimensions", kAttention,
          to_string(q.shape()), to_string(k.shape()), to_string(v.shape()));
  require(q.dtype() == k.dtype() && q.dtype() == v.dtype(),
          "{}: query, key and value are {}, {} and {}; they must agree", kAttention,
          name(q.dtype()), name(k.dtype()), name(v.dtype()));
  require_float(kAttention, q);
  require(q.size(-1) == k.size(-1),
          "{}: rows of the query {} and the key {} have {} and {} elements", kAttention,
          to_string(q.shape()), to_string(k.shape()), q.size(-1), k.size(-1));
  require(k.size(-2) == v.size(-2), "{}: the key {} has {} rows, the value {} has {}", kAttention,
          to_string(k.shape()), k.size(-2), to_string(v.shape()), v.size(-2));
}

// (..., heads, L, E) as (..., groups, heads / groups, L, E).
Tensor grouped(const Tensor& x, int64_t groups) {
  return unflatten(x, -3, {groups, x.size(-3) / groups});
}

struct Masked {
  Tensor scores;
  bool may_be_empty;  // a row may have nothing to attend to
};

Masked masked(const Tensor& scores, const std::optional<Tensor>& mask, bool is_causal) {
  const Shape shape = scores.shape();
  if (is_causal) {
    const int64_t rank = scores.dim();
    const Tensor row(detail::coordinate(shape, rank - 2)),
        column(detail::coordinate(shape, rank - 1));
    return {where(column <= row, scores, -detail::kInf), false};
  }
  if (!mask) return {scores, false};
  require(broadcast_shapes(kAttention, mask->shape(), shape) == shape,
          "{}: the mask of shape {} does not broadcast to the scores' shape {}", kAttention,
          to_string(mask->shape()), to_string(shape));
  if (mask->dtype() == DType::Bool) return {where(*mask, scores, -detail::kInf), true};
  require(is_float(mask->dtype()), "{}: the mask is {}; it must be bool, or a float that is added",
          kAttention, name(mask->dtype()));
  return {scores + cast(*mask, scores.dtype()), true};
}

// softmax along the last axis; rows of nothing but -inf give 0.
Tensor weights_of(const Masked& m) {
  const Tensor& s = m.scores;
  Tensor top = detach(amax(s, -1, true));
  if (!m.may_be_empty) {
    const Tensor e = exp(s - top);
    return detail::with_softmax_gradient(e / sum(e, -1, true), s, -1);
  }
  const Tensor empty = top == -detail::kInf;
  const Tensor e = exp(s - where(empty, 0.0, top));
  return detail::with_softmax_gradient(e / where(empty, 1.0, sum(e, -1, true)), s, -1);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const std::optional<Tensor>& attn_mask, double dropout_p,
                                    bool is_causal, std::optional<double> scale, bool enable_gqa) {
  check_operands(query, key, value);
  require(!(is_causal && attn_mask), "{}: is_causal and attn_mask are both given; give one",
          kAttention);
  const DType wide = accumulator(query.dtype());
  Tensor q = cast(query, wide), k = cast(key, wide), v = cast(value, wide);
  std::optional<Tensor> mask = attn_mask;
  if (enable_gqa) {
    require(
        q.dim() >= 3 && k.dim() >= 3 && v.dim() >= 3 && k.size(-3) == v.size(-3) &&
            k.size(-3) > 0 && q.size(-3) % k.size(-3) == 0,
        "{}: the heads of the query {} are not a multiple of those of the key {} and the value {}",
        kAttention, to_string(q.shape()), to_string(k.shape()), to_string(v.shape()));
    const int64_t groups = k.size(-3);
    if (mask && mask->dim() >= 3)
      mask = mask->size(-3) == 1 ? unsqueeze(*mask, -3) : grouped(*mask, groups);
    q = grouped(q, groups);
    k = unsqueeze(k, -3);
    v = unsqueeze(v, -3);
  }
  const bool shares = !enable_gqa && q.dim() >= 3 && k.dim() >= 3 && k.size(-3) > 1 &&
                      q.size(-3) > k.size(-3) && q.size(-3) % k.size(-3) == 0;
  if (shares) {
    user_error(
        "{}: the query has {} heads and the key {}; with enable_gqa=true every {} of them share "
        "one",
        kAttention, q.size(-3), k.size(-3), q.size(-3) / k.size(-3));
  }
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  const Tensor scores = matmul(q * factor, transpose(k, -2, -1));
  if (scores.numel() == 0) return cast(matmul(scores, v), query.dtype());
  Tensor weights = weights_of(masked(scores, mask, is_causal));
  if (dropout_p > 0) weights = dropout(weights, dropout_p);
  const Tensor out = matmul(weights, v);
  return cast(enable_gqa ? flatten(out, -4, -3) : out, query.dtype());
}

namespace {

// The value of `x`, with its gradient times `factor`.
Tensor gradient_scaled(const Tensor& x, const Tensor& factor) {
  return (x - detach(x)) * factor + detach(x);
}

// Rows scaled down to max_norm; the gradient is that of the rows as they are.
Tensor renormed(const Tensor& rows, double max_norm, double p) {
  const Tensor r = detach(rows), length = norm(r, p, -1, true);
  const Tensor fitted = where(length > max_norm, r * (max_norm / (length + 1e-7)), r);
  return (rows - r) + fitted;
}

// How often each index occurs, at the place of each.
Tensor frequency(const Tensor& place, int64_t rows, DType dtype) {
  const NodeRef index = flatten(place).node();
  const NodeRef ones = constant(1, dtype, index->shape);
  const NodeRef count = scatter(constant(0, dtype, {rows}), index, ones, Combine::Add);
  return reshape(Tensor(gather(count, std::span<const NodeRef>(&index, 1))), place.shape());
}

}  // namespace

Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<int64_t> padding_idx,
                 std::optional<double> max_norm, double norm_type, bool scale_grad_by_freq, bool) {
  require(is_int(input.dtype()),
          "embedding: the indices are {}, not integers; convert them first, as in x.to(i64)",
          name(input.dtype()));
  require(weight.dim() == 2, "embedding: the weight has shape {}; it needs rows and columns",
          to_string(weight.shape()));
  const int64_t rows = weight.size(0);
  require(!padding_idx || (*padding_idx >= -rows && *padding_idx < rows),
          "embedding: padding_idx is {}, but the weight has {} rows", padding_idx.value_or(0),
          rows);
  Shape shape = input.shape();
  shape.push_back(weight.size(1));
  check_shape("embedding", shape);
  const Tensor place = unsqueeze(cast(input, DType::I64), -1);
  const NodeRef index[] = {broadcast_node(place.node(), shape),
                           detail::coordinate(shape, static_cast<int64_t>(shape.size()) - 1)};
  Tensor out(gather(weight.node(), index));
  if (max_norm) out = renormed(out, *max_norm, norm_type);
  if (scale_grad_by_freq) out = gradient_scaled(out, 1 / frequency(place, rows, weight.dtype()));
  if (!padding_idx) return out;
  return where(place == (*padding_idx < 0 ? *padding_idx + rows : *padding_idx), detach(out), out);
}

}  // namespace lazuli
