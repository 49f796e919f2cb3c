#include "nn/optim.h"

#include <cmath>

#include "core/error.h"
#include "core/gradient.h"
#include "core/ops.h"

namespace lazuli::nn {

Optimizer::Optimizer(std::vector<Tensor> parameters, double learning_rate)
    : parameters_(std::move(parameters)), learning_rate_(learning_rate) {
  require(!parameters_.empty(), "optimizer: there are no parameters to optimize");
  for (size_t i = 0; i < parameters_.size(); i++) {
    require(parameters_[i].requires_grad(), "optimizer: parameter {} does not require a gradient; call requires_grad_() on it", i);
  }
  require(learning_rate >= 0, "optimizer: the learning rate is {}, but must not be negative", learning_rate);
}

void Optimizer::make_state(size_t kinds) {
  states_.assign(kinds, {});
  for (auto& kind : states_) {
    for (const Tensor& p : parameters_) kind.push_back(zeros(p.shape(), p.dtype()).realize());
  }
}

Tensor Optimizer::argument(double v) { return Tensor::from<float>({static_cast<float>(v)}, {}); }

void Optimizer::zero_grad() {
  for (Tensor& p : parameters_) p.set_grad(std::nullopt);
}

void Optimizer::step() {
  steps_++;
  rate_ = argument(learning_rate_);
  begin_step();
  for (size_t i = 0; i < parameters_.size(); i++) {
    const std::optional<Tensor> g = parameters_[i].grad();
    if (g) parameters_[i].assign_(update(i, detach(parameters_[i]), *g));
  }
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
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
          "SGD: nesterov needs momentum and no dampening, but momentum is {} and dampening {}", options.momentum,
          options.dampening);
  if (options_.momentum != 0) make_state(1);
}

void SGD::begin_step() { share_ = argument(steps() == 1 ? 1 : 1 - options_.dampening); }

Tensor SGD::update(size_t i, const Tensor& parameter, const Tensor& gradient) {
  Tensor g = options_.weight_decay == 0 ? gradient : gradient + parameter * options_.weight_decay;
  if (options_.momentum != 0) {
    Tensor& velocity = state(0, i);
    velocity.assign_(velocity * options_.momentum + g * share_);
    g = options_.nesterov ? g + velocity * options_.momentum : velocity;
  }
  return parameter - g * rate_;
}

Adam::Adam(std::vector<Tensor> parameters, double learning_rate, AdamOptions options)
    : Optimizer(std::move(parameters), learning_rate), options_(options) {
  require(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
          "Adam: betas must lie in [0, 1), but are {} and {}", options.beta1, options.beta2);
  make_state(2);
}

void Adam::begin_step() {
  const double t = static_cast<double>(steps());
  step_size_ = argument(learning_rate() / (1 - std::pow(options_.beta1, t)));
  root_correction_ = argument(std::sqrt(1 - std::pow(options_.beta2, t)));
}

Tensor Adam::regularised(const Tensor& parameter, const Tensor& gradient) {
  return options_.weight_decay == 0 ? gradient : gradient + parameter * options_.weight_decay;
}

Tensor Adam::update(size_t i, const Tensor& parameter, const Tensor& gradient) {
  const Tensor g = regularised(parameter, gradient);
  Tensor &m = state(0, i), &v = state(1, i);
  m.assign_(m + (g - m) * (1 - options_.beta1));
  v.assign_(v * options_.beta2 + g * g * (1 - options_.beta2));
  return decayed(parameter) - step_size_ * (m / (sqrt(v) / root_correction_ + options_.eps));
}

AdamW::AdamW(std::vector<Tensor> parameters, double learning_rate, AdamOptions options)
    : Adam(std::move(parameters), learning_rate, options) {}

Tensor AdamW::decayed(const Tensor& parameter) {
  return parameter * (1.0 - rate_ * options_.weight_decay);
}

}  // namespace lazuli::nn
