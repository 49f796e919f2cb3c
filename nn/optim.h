// Optimizers, with PyTorch's formulas and defaults. The learning rate and the count of steps are
// arrays of one element, so a step never compiles anew and may be captured. Everything is lazy:
// step() rebinds the parameters to their new values, and one realize computes loss, gradients and
// updates together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace lazuli::nn {

class Optimizer {
 public:
  /// UserError for an empty list, a tensor that does not require a gradient or stands in it twice,
  /// and a negative rate.
  Optimizer(std::vector<Tensor> parameters, double learning_rate);
  virtual ~Optimizer() = default;

  /// Forgets the gradients that backward() left.
  void zero_grad();
  /// Rebinds every parameter that has a gradient to its new value; computes nothing. Realize
  /// tensors() before long: until then the graphs of all steps since are kept.
  void step();
  /// backward(), step(), zero_grad() and one realize of the loss and tensors(), all of it or,
  /// should it fail, nothing. Returns the loss.
  double step(const Tensor& loss);
  /// The parameters and the state of the optimizer, its counts of steps included: what step()
  /// changes, for a realize of one's own.
  std::vector<Tensor> tensors() const;

  double learning_rate() const { return learning_rate_; }
  /// Of the steps that follow. UserError for a negative or undefined one.
  void set_learning_rate(double rate);
  /// How often the parameter that was updated most has been; realises.
  int64_t steps() const;

 protected:
  /// What the updates of all parameters of one dtype that have been updated equally often have in
  /// common, made once a step: at least one scalar, by as_argument(). `updates` counts the one that
  /// is being made.
  virtual std::vector<Tensor> factors(const Tensor& updates, DType dtype) const = 0;
  /// The new value of parameter i; `factors` are its own.
  virtual Tensor update(size_t i, const Tensor& parameter, const Tensor& gradient,
                        std::span<const Tensor> factors) = 0;
  /// Arrays of the shape and dtype of each parameter, zeros at first: `kinds` of them a parameter.
  void make_state(size_t kinds);
  Tensor& state(size_t kind, size_t i) { return states_[kind][i]; }
  /// The learning rate. It is a scalar of F64, as the counts of updates: what is computed of them
  /// enters an update by as_argument().
  const Tensor& rate() const { return rate_; }
  /// `scalar`, which is computed once a step, as an operand of parameters of `dtype`.
  static Tensor as_argument(const Tensor& scalar, DType dtype);

 private:
  // Parameters that have been updated equally often: all of them, unless some lack gradients.
  struct Group {
    std::vector<size_t> members;
    Tensor updates;
  };
  class Undo;
  void count_updates();
  void update_all();

  std::vector<Tensor> parameters_;
  std::vector<std::vector<Tensor>> states_;
  std::vector<Group> groups_;
  Tensor rate_;
  double learning_rate_ = 0;
};

struct SGDOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
/// g += weight_decay * p; v = momentum * v + (1 - dampening) * g, but g itself the first time;
/// p -= lr * (nesterov ? g + momentum * v : v).
class SGD final : public Optimizer {
 public:
  SGD(std::vector<Tensor> parameters, double learning_rate = 1e-3, SGDOptions options = {});

 protected:
  std::vector<Tensor> factors(const Tensor& updates, DType dtype) const override;
  Tensor update(size_t i, const Tensor& parameter, const Tensor& gradient,
                std::span<const Tensor> factors) override;

 private:
  SGDOptions options_;
};

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
/// Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015: m and v are running means of
/// g and g^2, corrected for their start at zero; p -= lr * m / (sqrt(v) + eps). weight_decay * p is
/// added to the gradient.
class Adam : public Optimizer {
 public:
  Adam(std::vector<Tensor> parameters, double learning_rate = 1e-3, AdamOptions options = {});

 protected:
  std::vector<Tensor> factors(const Tensor& updates, DType dtype) const override;
  Tensor update(size_t i, const Tensor& parameter, const Tensor& gradient,
                std::span<const Tensor> factors) override;
  /// How weight decay enters: in the gradient, or in the parameter before its step.
  virtual Tensor decayed_gradient(const Tensor& parameter, const Tensor& gradient);
  virtual Tensor decayed_parameter(const Tensor& parameter, std::span<const Tensor> factors);

  const AdamOptions options_;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay
/// Regularization", 2019): the gradient stays as it is, and p *= 1 - lr * weight_decay before the
/// step.
class AdamW final : public Adam {
 public:
  AdamW(std::vector<Tensor> parameters, double learning_rate = 1e-3,
        AdamOptions options = {.weight_decay = 1e-2});

 protected:
  std::vector<Tensor> factors(const Tensor& updates, DType dtype) const override;
  Tensor decayed_gradient(const Tensor& parameter, const Tensor& gradient) override;
  Tensor decayed_parameter(const Tensor& parameter, std::span<const Tensor> factors) override;
};

}  // namespace lazuli::nn
