// Optimizers, with PyTorch's formulas and defaults. Learning rates and what depends on the step count are arrays of one element, so a
// step never compiles anew. Everything is lazy: step() rebinds the parameters to their new values, and one realize computes loss,
// gradients and updates together.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.h"

namespace lazuli::nn {

class Optimizer {
 public:
  /// UserError for an empty list, or a tensor that does not require a gradient.
  Optimizer(std::vector<Tensor> parameters, double learning_rate);
  virtual ~Optimizer() = default;

  /// Forgets the gradients that backward() left.
  void zero_grad();
  /// Rebinds every parameter that has a gradient to its new value; computes nothing.
  void step();
  /// backward(), step(), zero_grad() and one realize of the loss, the parameters and this optimizer's state. Returns the loss.
  double step(const Tensor& loss);
  /// What step() will have changed: for a realize of one's own.
  std::vector<Tensor> tensors() const;

  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double rate) { learning_rate_ = rate; }
  int64_t steps() const { return steps_; }

 protected:
  /// The new value of parameter i, and of its state.
  virtual Tensor update(size_t i, const Tensor& parameter, const Tensor& gradient) = 0;
  /// Called before the updates of a step, with steps() counting it already.
  virtual void begin_step() {}
  /// State of every parameter, zeros at first; `name` index counts from 0.
  Tensor& state(size_t kind, size_t i) { return states_[kind][i]; }
  void make_state(size_t kinds);
  /// A number that changes between steps, as an array.
  static Tensor argument(double v);

  std::vector<Tensor> parameters_;
  Tensor rate_;  // of this step

 private:
  std::vector<std::vector<Tensor>> states_;
  double learning_rate_;
  int64_t steps_ = 0;
};

struct SGDOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
/// g += weight_decay * p; v = momentum * v + (1 - dampening) * g (the first v is g); p -= lr * (nesterov ? g + momentum * v : v).
class SGD final : public Optimizer {
 public:
  SGD(std::vector<Tensor> parameters, double learning_rate = 1e-3, SGDOptions options = {});

 protected:
  Tensor update(size_t i, const Tensor& parameter, const Tensor& gradient) override;
  void begin_step() override;

 private:
  SGDOptions options_;
  Tensor share_;  // of the gradient in the velocity: 1 at the first step
};

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
/// Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015: m and v are running means of g and g^2, corrected for their start at
/// zero; p -= lr * m / (sqrt(v) + eps). weight_decay is added to the gradient.
class Adam : public Optimizer {
 public:
  Adam(std::vector<Tensor> parameters, double learning_rate = 1e-3, AdamOptions options = {});

 protected:
  Tensor update(size_t i, const Tensor& parameter, const Tensor& gradient) override;
  void begin_step() override;
  /// p before the step; AdamW shrinks it.
  virtual Tensor decayed(const Tensor& parameter) { return parameter; }
  virtual Tensor regularised(const Tensor& parameter, const Tensor& gradient);

  AdamOptions options_;

 private:
  Tensor step_size_, root_correction_;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): p *= 1 - lr * weight_decay before the step.
class AdamW final : public Adam {
 public:
  AdamW(std::vector<Tensor> parameters, double learning_rate = 1e-3,
        AdamOptions options = {.weight_decay = 1e-2});

 protected:
  Tensor decayed(const Tensor& parameter) override;
  Tensor regularised(const Tensor&, const Tensor& gradient) override { return gradient; }
};

}  // namespace lazuli::nn
