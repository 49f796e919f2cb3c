#include "core/ops_loss.h"

#include <array>

#include "core/error.h"
#include "core/gradient.h"
#include "core/ops_activation.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_movement.h"
#include "core/ops_norm.h"
#include "core/ops_reduce.h"
#include "core/ops_softmax.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

void require_reduction(std::string_view op, std::string_view reduction) {
  require(reduction == "none" || reduction == "mean" || reduction == "sum",
          "{}: reduction is \"{}\"; it must be none, mean or sum", op, reduction);
}

Tensor reduced_loss(const Tensor& loss, std::string_view reduction) {
  if (reduction == "none") return loss;
  return reduction == "sum" ? sum(loss) : mean(loss);
}

// `body(input, target)` on operands of one wide dtype that broadcast, reduced and rounded once.
template <typename Body>
Tensor elementwise_loss(std::string_view op, const Tensor& input, const Tensor& target,
                        std::string_view reduction, Body body) {
  require_reduction(op, reduction);
  const DType t = result_type(input, target);
  require(is_float(t),
          "{}: the input is {} and the target {}, not floats; convert one, as in x.to(f32)", op,
          name(input.dtype()), name(target.dtype()));
  const Shape shape = broadcast_shapes(op, input.shape(), target.shape());
  const DType wide = accumulator(t);
  return cast(
      reduced_loss(body(Tensor(operand(input, wide, shape)), Tensor(operand(target, wide, shape))),
                   reduction),
      t);
}

// ---- classes

struct ClassAxis {
  int64_t axis, count;
  Shape rest;  // the input's shape without the class axis
};

ClassAxis classes_of(std::string_view op, const Tensor& input) {
  require(input.dim() >= 1, "{}: the input is a scalar; it needs an axis of classes", op);
  require_float(op, input);
  const int64_t axis = input.dim() == 1 ? 0 : 1;
  Shape rest = input.shape();
  rest.erase(rest.begin() + axis);
  return {axis, input.size(axis), rest};
}

void require_class_weight(std::string_view op, const std::optional<Tensor>& weight, int64_t count) {
  if (!weight) return;
  require(weight->dim() == 1 && weight->numel() == count,
          "{}: the weight has shape {}, but there are {} classes", op, to_string(weight->shape()),
          count);
}

// A vector over the classes, aligned with their axis.
Tensor over_classes(const Tensor& v, const Tensor& like, const ClassAxis& c) {
  Shape shape(static_cast<size_t>(like.dim()), 1);
  shape[static_cast<size_t>(c.axis)] = c.count;
  return cast(reshape(v, shape), like.dtype());
}

// What each example's class index selects.
struct Picked {
  Tensor target;  // I64
  Tensor counts;  // whether the example counts
  Tensor weight;  // of its class; 0 where it does not count
};

Picked picked(std::string_view op, const Tensor& target, const ClassAxis& c,
              const std::optional<Tensor>& weight, int64_t ignore_index, DType dtype) {
  require(is_int(target.dtype()),
          "{}: class indices are {}, not integers; convert them first, as in y.to(i64)", op,
          name(target.dtype()));
  require(target.shape() == c.rest, "{}: the target has shape {}, but the input asks for {}", op,
          to_string(target.shape()), to_string(c.rest));
  const Tensor t = cast(target, DType::I64), counts = t != ignore_index;
  if (!weight) return {t, counts, cast(counts, dtype)};
  const NodeRef index = t.node();
  const Tensor w(gather(cast(weight->node(), dtype), std::span<const NodeRef>(&index, 1)));
  return {t, counts, where(counts, w, 0.0)};
}

// x at the class that each example names, 0 where it names none. A comparison with all classes, not
// a gather: it joins the reductions that made x, and its gradient needs no scatter.
Tensor at_class(const Tensor& x, const Picked& p, const ClassAxis& c) {
  const Tensor hit = Tensor(detail::coordinate(x.shape(), c.axis)) == unsqueeze(p.target, c.axis);
  return sum(where(hit, x, 0.0), c.axis);
}

Tensor nll(const Tensor& log_p, const Picked& p, const ClassAxis& c, std::string_view reduction) {
  const Tensor loss = where(p.counts, -(at_class(log_p, p, c) * p.weight), 0.0);
  if (reduction == "none") return loss;
  return reduction == "sum" ? sum(loss) : sum(loss) / sum(p.weight);
}

Tensor index_cross_entropy(const Tensor& log_p, const Tensor& target, const ClassAxis& c,
                           const std::optional<Tensor>& weight, int64_t ignore_index,
                           std::string_view reduction, double label_smoothing) {
  const Picked p = picked("cross_entropy", target, c, weight, ignore_index, log_p.dtype());
  const Tensor loss = nll(log_p, p, c, reduction);
  if (label_smoothing == 0) return loss;
  const Tensor all = weight ? log_p * over_classes(*weight, log_p, c) : log_p;
  Tensor smooth = where(p.counts, -sum(all, c.axis), 0.0);
  if (reduction == "sum") smooth = sum(smooth);
  if (reduction == "mean") smooth = sum(smooth) / sum(p.weight);
  return loss * (1 - label_smoothing) + smooth * (label_smoothing / static_cast<double>(c.count));
}

Tensor probability_cross_entropy(const Tensor& log_p, const Tensor& target, const ClassAxis& c,
                                 const std::optional<Tensor>& weight, std::string_view reduction,
                                 double label_smoothing) {
  require(is_float(target.dtype()), "cross_entropy: probabilities are {}, not floats",
          name(target.dtype()));
  Tensor t = cast(target, log_p.dtype());
  if (label_smoothing > 0) {
    t = t * (1 - label_smoothing) + label_smoothing / static_cast<double>(c.count);
  }
  const Tensor part = log_p * t;
  const Tensor loss = -sum(weight ? part * over_classes(*weight, log_p, c) : part, c.axis);
  if (reduction == "none") return loss;
  if (reduction == "sum") return sum(loss);
  return sum(loss) / (static_cast<double>(log_p.numel()) / static_cast<double>(c.count));
}

}  // namespace

Tensor cross_entropy(const Tensor& input, const Tensor& target, const std::optional<Tensor>& weight,
                     int64_t ignore_index, std::string_view reduction, double label_smoothing) {
  constexpr std::string_view kOp = "cross_entropy";
  require_reduction(kOp, reduction);
  require(label_smoothing >= 0 && label_smoothing <= 1,
          "{}: label_smoothing is {}; it must lie in [0, 1]", kOp, label_smoothing);
  const ClassAxis c = classes_of(kOp, input);
  require_class_weight(kOp, weight, c.count);
  return in_wide(input, [&](const Tensor& x) {
    const Tensor log_p = log_softmax(x, c.axis);
    if (target.shape() == input.shape() && is_float(target.dtype())) {
      return probability_cross_entropy(log_p, target, c, weight, reduction, label_smoothing);
    }
    return index_cross_entropy(log_p, target, c, weight, ignore_index, reduction, label_smoothing);
  });
}

Tensor sparse_categorical_crossentropy(const Tensor& input, const Tensor& target,
                                       int64_t ignore_index, double label_smoothing,
                                       std::string_view reduction) {
  return cross_entropy(input, target, {}, ignore_index, reduction, label_smoothing);
}

Tensor nll_loss(const Tensor& input, const Tensor& target, const std::optional<Tensor>& weight,
                int64_t ignore_index, std::string_view reduction) {
  require_reduction("nll_loss", reduction);
  const ClassAxis c = classes_of("nll_loss", input);
  require_class_weight("nll_loss", weight, c.count);
  return in_wide(input, [&](const Tensor& x) {
    return nll(x, picked("nll_loss", target, c, weight, ignore_index, x.dtype()), c, reduction);
  });
}

// ---- two classes

namespace {

Tensor weighted_loss(std::string_view op, const Tensor& loss, const std::optional<Tensor>& weight) {
  if (!weight) return loss;
  require(broadcast_shapes(op, weight->shape(), loss.shape()) == loss.shape(),
          "{}: the weight of shape {} does not broadcast to the input's shape {}", op,
          to_string(weight->shape()), to_string(loss.shape()));
  return loss * cast(*weight, loss.dtype());
}

void require_same_shape(std::string_view op, const Tensor& input, const Tensor& target) {
  require(input.shape() == target.shape(),
          "{}: the input has shape {} and the target {}; they must agree", op,
          to_string(input.shape()), to_string(target.shape()));
}

}  // namespace

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                            const std::optional<Tensor>& weight, std::string_view reduction) {
  constexpr std::string_view kOp = "binary_cross_entropy";
  require_same_shape(kOp, input, target);
  return elementwise_loss(kOp, input, target, reduction, [&](const Tensor& x, const Tensor& t) {
    const Tensor log_x = log(x), log_rest = log1p(-x);
    const Tensor loss = (t - 1) * clamp(log_rest, -100.0) - t * clamp(log_x, -100.0);
    // At 0 and 1 the slope is kept finite, as the loss is.
    const Tensor bounded =
        custom_vjp(loss, {x, t}, [x, t, log_x, log_rest](const Tensor& g) -> std::vector<Tensor> {
          return {g * (x - t) / clamp((1 - x) * x, 1e-12), g * (log_rest - log_x)};
        });
    return weighted_loss(kOp, bounded, weight);
  });
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const std::optional<Tensor>& weight,
                                        std::string_view reduction,
                                        const std::optional<Tensor>& pos_weight) {
  constexpr std::string_view kOp = "binary_cross_entropy_with_logits";
  require_same_shape(kOp, input, target);
  return elementwise_loss(kOp, input, target, reduction, [&](const Tensor& x, const Tensor& t) {
    Tensor log_p = logsigmoid(x);
    if (pos_weight) {
      const Tensor scale = (cast(*pos_weight, x.dtype()) - 1) * t + 1;
      require(scale.shape() == x.shape(),
              "{}: the pos_weight of shape {} does not broadcast to the input's shape {}", kOp,
              to_string(pos_weight->shape()), to_string(x.shape()));
      log_p = scale * log_p;
    }
    return weighted_loss(kOp, (1 - t) * x - log_p, weight);
  });
}

Tensor binary_crossentropy(const Tensor& input, const Tensor& target, std::string_view reduction) {
  return binary_cross_entropy(input, target, {}, reduction);
}
Tensor binary_crossentropy_logits(const Tensor& input, const Tensor& target,
                                  std::string_view reduction,
                                  const std::optional<Tensor>& pos_weight) {
  return binary_cross_entropy_with_logits(input, target, {}, reduction, pos_weight);
}

// ---- distances

Tensor mse_loss(const Tensor& input, const Tensor& target, std::string_view reduction) {
  return elementwise_loss("mse_loss", input, target, reduction,
                          [](const Tensor& x, const Tensor& t) { return square(x - t); });
}

Tensor l1_loss(const Tensor& input, const Tensor& target, std::string_view reduction) {
  return elementwise_loss("l1_loss", input, target, reduction,
                          [](const Tensor& x, const Tensor& t) { return abs(x - t); });
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, std::string_view reduction,
                      double beta) {
  require(beta >= 0, "smooth_l1_loss: beta is {}; it cannot be negative", beta);
  if (beta == 0) return l1_loss(input, target, reduction);
  return elementwise_loss("smooth_l1_loss", input, target, reduction,
                          [&](const Tensor& x, const Tensor& t) {
                            const Tensor d = x - t, size = abs(d);
                            return where(size < beta, d * d * 0.5 / beta, size - 0.5 * beta);
                          });
}

Tensor huber_loss(const Tensor& input, const Tensor& target, std::string_view reduction,
                  double delta) {
  require(delta > 0, "huber_loss: delta is {}; it must be positive", delta);
  return elementwise_loss("huber_loss", input, target, reduction,
                          [&](const Tensor& x, const Tensor& t) {
                            const Tensor d = x - t, size = abs(d);
                            return where(size <= delta, d * d * 0.5, (size - 0.5 * delta) * delta);
                          });
}

// ---- margins

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin,
                            std::string_view reduction) {
  return elementwise_loss(
      "hinge_embedding_loss", input, target, reduction, [&](const Tensor& x, const Tensor& t) {
        // Each part is left out only by its own sign, so a target that is neither counts both.
        return where(t == 1, 0.0, clamp(margin - x, 0.0)) + where(t == -1, 0.0, x);
      });
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                           std::string_view reduction) {
  return elementwise_loss(
      "margin_ranking_loss", a - b, target, reduction,
      [&](const Tensor& d, const Tensor& t) { return clamp(margin - t * d, 0.0); });
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                             std::string_view reduction) {
  constexpr std::string_view kOp = "cosine_embedding_loss";
  require(a.dim() >= 1 && b.dim() >= 1,
          "{}: operands of shapes {} and {}; both need an axis of elements", kOp,
          to_string(a.shape()), to_string(b.shape()));
  constexpr double kEps = 1e-12;
  const DType wide = accumulator(result_type(a, b));
  const Tensor x = cast(a, wide), y = cast(b, wide);
  const Tensor cosine = sum(x * y, -1) / sqrt((sum(x * x, -1) + kEps) * (sum(y * y, -1) + kEps));
  const auto loss = [&](const Tensor& c, const Tensor& t) {
    return where(t == 1, 1 - c, 0.0) + where(t == -1, clamp(c - margin, 0.0), 0.0);
  };
  return cast(elementwise_loss(kOp, cosine, target, reduction, loss), result_type(a, b));
}

Tensor kl_div(const Tensor& input, const Tensor& target, std::string_view reduction,
              bool log_target) {
  const bool by_batch = reduction == "batchmean";
  require(!by_batch || input.dim() > 0,
          "kl_div: a scalar has no batch for the reduction batchmean");
  const Tensor loss = elementwise_loss("kl_div", input, target, by_batch ? "sum" : reduction,
                                       [&](const Tensor& x, const Tensor& t) {
                                         return log_target ? exp(t) * (t - x) : xlogy(t, t) - t * x;
                                       });
  return by_batch ? loss / input.size(0) : loss;
}

}  // namespace lazuli
