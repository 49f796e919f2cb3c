// Modules: functions with parameters. A module owns its parameters by name, may own other modules,
// and maps a tensor to a tensor.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace lazuli::nn {

using NamedTensor = std::pair<std::string, Tensor>;

class Module : public Counted {
 public:
  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return forward(x); }

  /// Parameters of this module and those below it; names joined by dots, in order of registration.
  std::vector<NamedTensor> named_parameters() const;
  std::vector<Tensor> parameters() const;

  /// Sets the mode of this module and those below it: layers such as dropout behave differently in
  /// training.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// The values of all parameters by name, as they are now: later steps do not change them. For
  /// save_npz (nn/npy.h).
  std::vector<NamedTensor> state() const;
  /// Sets parameters by name, converting to their dtypes. UserError for a name that is missing or
  /// unknown, or a shape that differs; then nothing has changed.
  void load_state(const std::vector<NamedTensor>& state);

 protected:
  /// Makes `value` a parameter: a leaf whose gradient is wanted. The result is the parameter
  /// itself; assign_ changes it.
  Tensor add_parameter(std::string name, Tensor value);
  void add_module(std::string name, Ref<Module> module);

 private:
  void collect(const std::string& prefix, std::vector<NamedTensor>& out) const;

  std::vector<NamedTensor> parameters_;
  std::vector<std::pair<std::string, Ref<Module>>> modules_;
  bool training_ = true;
};

/// Modules one after the other; named "0", "1", ...
class Sequential final : public Module {
 public:
  Sequential(std::initializer_list<Ref<Module>> modules);
  Tensor forward(const Tensor& x) override;
  size_t size() const { return order_.size(); }
  Module& operator[](size_t i) { return *order_[i]; }

 private:
  std::vector<Ref<Module>> order_;
};

/// y = x weight^T + bias for x (..., in); weight (out, in) and bias (out) drawn uniformly from
/// +-1/sqrt(in), as PyTorch's nn.Linear draws them (He et al., "Delving Deep into Rectifiers",
/// 2015, with a = sqrt(5)).
class Linear final : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias = true);
  Tensor forward(const Tensor& x) override;

  Tensor weight;
  std::optional<Tensor> bias;
};

/// An activation as a module: relu, sigmoid, ... by function.
class Activation : public Module {
 public:
  using Function = Tensor (*)(const Tensor&);
  explicit Activation(Function f) : function_(f) {}
  Tensor forward(const Tensor& x) override { return function_(x); }

 private:
  Function function_;
};

class ReLU final : public Activation {
 public:
  ReLU();
};
class Sigmoid final : public Activation {
 public:
  Sigmoid();
};
class Tanh final : public Activation {
 public:
  Tanh();
};
class GELU final : public Activation {
 public:
  GELU();
};

/// Zeroes elements with probability p in training and scales the others by 1/(1-p).
class Dropout final : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) override;

 private:
  double p_;
};

/// A new module, as Sequential's list and add_module() take it.
template <typename M, typename... Args>
Ref<M> make(Args&&... args) {
  return make_ref<M>(std::forward<Args>(args)...);
}

}  // namespace lazuli::nn
