#include "nn/optim.h"

#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/gradient.h"
#include "core/ops.h"

namespace lazuli::nn {
namespace {

// What differs between steps.
enum Argument { kRate, kShare, kStepSize, kRootCorrection, kShrink };

void check_rate(double rate) {
  require(rate >= 0, "optimizer: the learning rate is {}, but must not be negative", rate);
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, double learning_rate)
    : parameters_(std::move(parameters)),
      updates_(parameters_.size()),
      learning_rate_(learning_rate) {
  require(!parameters_.empty(), "optimizer: there are no parameters to optimize");
  for (size_t i = 0; i < parameters_.size(); i++) {
    require(parameters_[i].requires_grad(),
            "optimizer: parameter {} does not require a gradient; call requires_grad_() on it", i);
    for (size_t k = 0; k < i; k++) {
      require(parameters_[k].buffer() != parameters_[i].buffer(),
              "optimizer: parameters {} and {} are the same tensor; give it once", k, i);
    }
  }
  check_rate(learning_rate);
}

void Optimizer::set_learning_rate(double rate) {
  check_rate(rate);
  learning_rate_ = rate;
}

void Optimizer::make_state(size_t kinds) {
  states_.assign(kinds, {});
  for (auto& kind : states_) {
    for (const Tensor& p : parameters_) kind.push_back(zeros(p.shape(), p.dtype()).realize());
  }
}

Tensor Optimizer::argument(int kind, size_t i, double value) {
  const DType dtype = parameters_[i].dtype() == DType::F64 ? DType::F64 : DType::F32;
  for (const Argument& a : arguments_) {
    if (a.kind == kind && a.dtype == dtype && a.updates == updates_[i]) return a.value;
  }
  arguments_.push_back({kind, dtype, updates_[i],
                        dtype == DType::F64
                            ? Tensor::from<double>({value}, {})
                            : Tensor::from<float>({static_cast<float>(value)}, {})});
  return arguments_.back().value;
}

void Optimizer::zero_grad() {
  for (Tensor& p : parameters_) p.set_grad(std::nullopt);
}

void Optimizer::step() {
  steps_++;
  for (size_t i = 0; i < parameters_.size(); i++) {
    const std::optional<Tensor> gradient = parameters_[i].grad();
    if (!gradient) continue;
    updates_[i]++;
    parameters_[i].assign_(update(i, detach(parameters_[i]), *gradient));
  }
  arguments_.clear();
}

double Optimizer::step(const Tensor& loss) {
  backward(loss);
  step();
  zero_grad();
  std::vector<Tensor> all = tensors();
  all.push_back(loss);
  realize(all);
  return loss.item();
}

std::vector<Tensor> Optimizer::tensors() const {
  std::vector<Tensor> all = parameters_;
  for (const auto& kind : states_) all.insert(all.end(), kind.begin(), kind.end());
  return all;
}

SGD::SGD(std::vector<Tensor> parameters, double learning_rate, SGDOptions options)
    : Optimizer(std::move(parameters), learning_rate), options_(options) {
  require(options.momentum >= 0 && options.weight_decay >= 0,
          "SGD: momentum and weight decay must not be negative, but are {} and {}",
          options.momentum, options.weight_decay);
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
          "SGD: nesterov needs momentum and no dampening, but momentum is {} and dampening {}",
          options.momentum, options.dampening);
  if (options_.momentum != 0) make_state(1);
}

Tensor SGD::update(size_t i, const Tensor& parameter, const Tensor& gradient) {
  Tensor g = gradient;
  if (options_.weight_decay != 0) g = g + parameter * options_.weight_decay;
  if (options_.momentum != 0) {
    // The velocity is zero before the first update, in which the gradient enters whole.
    Tensor& velocity = state(0, i);
    const double share = updates(i) == 1 ? 1 : 1 - options_.dampening;
    velocity.assign_(velocity * options_.momentum +
                     (options_.dampening == 0 ? g : g * argument(kShare, i, share)));
    g = options_.nesterov ? g + velocity * options_.momentum : velocity;
  }
  return parameter - g * argument(kRate, i, learning_rate());
}

Adam::Adam(std::vector<Tensor> parameters, double learning_rate, AdamOptions options)
    : Optimizer(std::move(parameters), learning_rate), options_(options) {
  require(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
          "Adam: betas must lie in [0, 1), but are {} and {}", options.beta1, options.beta2);
  require(options.eps >= 0 && options.weight_decay >= 0,
          "Adam: eps and weight decay must not be negative, but are {} and {}", options.eps,
          options.weight_decay);
  make_state(2);
}

Tensor Adam::update(size_t i, const Tensor& parameter, const Tensor& gradient) {
  const Tensor g = decayed_gradient(parameter, gradient);
  Tensor &m = state(0, i), &v = state(1, i);
  m.assign_(m + (g - m) * (1 - options_.beta1));
  v.assign_(v * options_.beta2 + g * g * (1 - options_.beta2));
  const auto t = static_cast<double>(updates(i));
  const double correction1 = 1 - std::pow(options_.beta1, t);
  const double correction2 = 1 - std::pow(options_.beta2, t);
  const Tensor step_size = argument(kStepSize, i, learning_rate() / correction1);
  const Tensor root_correction = argument(kRootCorrection, i, std::sqrt(correction2));
  return decayed_parameter(i, parameter) -
         step_size * (m / (sqrt(v) / root_correction + options_.eps));
}

Tensor Adam::decayed_gradient(const Tensor& parameter, const Tensor& gradient) {
  return options_.weight_decay == 0 ? gradient : gradient + parameter * options_.weight_decay;
}

Tensor Adam::decayed_parameter(size_t, const Tensor& parameter) {
  return parameter;
}

AdamW::AdamW(std::vector<Tensor> parameters, double learning_rate, AdamOptions options)
    : Adam(std::move(parameters), learning_rate, options) {}

Tensor AdamW::decayed_gradient(const Tensor&, const Tensor& gradient) {
  return gradient;
}

Tensor AdamW::decayed_parameter(size_t i, const Tensor& parameter) {
  return parameter * argument(kShrink, i, 1 - learning_rate() * options_.weight_decay);
}

}  // namespace lazuli::nn
