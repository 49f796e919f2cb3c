// Optimizers, with PyTorch's formulas and defaults. Learning rates and what depends on the step
// count are arrays of one element, so a step never compiles anew. Everything is lazy: step()
// rebinds the parameters to their new values, and one realize computes loss, gradients and updates
// together.
#pragma once

#include <cstdint>
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
  /// backward(), step(), zero_grad() and one realize of the loss and tensors(). Returns the loss.
  double step(const Tensor& loss);
  /// The parameters and the state of the optimizer: what step() changes, for a realize of one's
  /// own.
  std::vector<Tensor> tensors() const;

  double learning_rate() const { return learning_rate_; }
  /// Of the steps that follow. UserError for a negative or undefined one.
  void set_learning_rate(double rate);
  /// Calls of step() so far.
  int64_t steps() const { return steps_; }

 protected:
  /// The new value of parameter i.
  virtual Tensor update(size_t i, const Tensor& parameter, const Tensor& gradient) = 0;
  /// Arrays of the shape and dtype of each parameter, zeros at first: `kinds` of them a parameter.
  void make_state(size_t kinds);
  Tensor& state(size_t kind, size_t i) { return states_[kind][i]; }
  /// How often parameter i has been updated, the update that is being made included.
  int64_t updates(size_t i) const { return updates_[i]; }
  /// `value`, which differs between steps, as an array of one element for parameter i. Parameters
  /// of one dtype that have been updated equally often share the array of a kind.
  Tensor argument(int kind, size_t i, double value);

 private:
  std::vector<Tensor> parameters_;
  std::vector<std::vector<Tensor>> states_;
  std::vector<int64_t> updates_;
  struct Argument {
    int kind;
    DType dtype;
    int64_t updates;
    Tensor value;
  };
  std::vector<Argument> arguments_;  // of the step that is being made: a handful
  double learning_rate_ = 0;
  int64_t steps_ = 0;
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
  Tensor update(size_t i, const Tensor& parameter, const Tensor& gradient) override;

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
  Tensor update(size_t i, const Tensor& parameter, const Tensor& gradient) override;
  /// How weight decay enters: in the gradient, or in the parameter before its step.
  virtual Tensor decayed_gradient(const Tensor& parameter, const Tensor& gradient);
  virtual Tensor decayed_parameter(size_t i, const Tensor& parameter);

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
  Tensor decayed_gradient(const Tensor& parameter, const Tensor& gradient) override;
  Tensor decayed_parameter(size_t i, const Tensor& parameter) override;
};

}  // namespace lazuli::nn
