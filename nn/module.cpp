#include "nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/ops.h"
#include "core/ops_matmul.h"

namespace lazuli::nn {

void Module::collect(const std::string& prefix, std::vector<NamedTensor>& out) const {
  for (const auto& [name, tensor] : parameters_) out.emplace_back(prefix + name, tensor);
  for (const auto& [name, module] : modules_) module->collect(prefix + name + ".", out);
}

std::vector<NamedTensor> Module::named_parameters() const {
  std::vector<NamedTensor> out;
  collect("", out);
  return out;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> out;
  for (auto& [name, tensor] : named_parameters()) out.push_back(std::move(tensor));
  return out;
}

void Module::train(bool on) {
  training_ = on;
  for (auto& [name, module] : modules_) module->train(on);
}

std::vector<NamedTensor> Module::state() const {
  std::vector<NamedTensor> out = named_parameters();
  for (auto& [name, tensor] : out) tensor = detach(tensor);
  return out;
}

namespace {

// The first few.
std::string names_of(const std::vector<NamedTensor>& list) {
  constexpr size_t kMost = 8;
  std::string names;
  for (size_t i = 0; i < std::min(kMost, list.size()); i++)
    names += (i > 0 ? ", " : "") + list[i].first;
  if (list.size() > kMost) names += fmt::format(" and {} more", list.size() - kMost);
  return list.empty() ? "none" : names;
}

}  // namespace

void Module::load_state(const std::vector<NamedTensor>& state) {
  std::vector<NamedTensor> mine = named_parameters();
  const auto find = [](const std::vector<NamedTensor>& list, const std::string& name) {
    return std::find_if(list.begin(), list.end(), [&](const auto& t) { return t.first == name; });
  };
  for (const auto& [name, value] : state) {
    const auto it = find(mine, name);
    if (it == mine.end()) {
      user_error("load_state: there is no parameter '{}'; this module has {}", name,
                 names_of(mine));
    }
    require(it->second.shape() == value.shape(), "load_state: '{}' has shape {}, but {} was given",
            name, to_string(it->second.shape()), to_string(value.shape()));
  }
  for (const auto& [name, parameter] : mine) {
    require(find(state, name) != state.end(), "load_state: the parameter '{}' is missing", name);
  }
  for (auto& [name, parameter] : mine) parameter.assign_(find(state, name)->second);
}

Tensor Module::add_parameter(std::string name, Tensor value) {
  value.requires_grad_();
  parameters_.emplace_back(std::move(name), value);
  return value;
}

void Module::add_module(std::string name, Ref<Module> module) {
  modules_.emplace_back(std::move(name), std::move(module));
}

Sequential::Sequential(std::initializer_list<Ref<Module>> modules) {
  for (const auto& m : modules) {
    add_module(std::to_string(order_.size()), m);
    order_.push_back(m);
  }
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& m : order_) y = m->forward(y);
  return y;
}

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias) {
  require(in_features > 0 && out_features > 0, "Linear: sizes must be positive, not {} and {}",
          in_features, out_features);
  const double bound = 1 / std::sqrt(static_cast<double>(in_features));
  weight = add_parameter("weight", uniform({out_features, in_features}, -bound, bound));
  if (with_bias) bias = add_parameter("bias", uniform({out_features}, -bound, bound));
}

Tensor Linear::forward(const Tensor& x) {
  return linear(x, weight, bias);
}

ReLU::ReLU() : Activation([](const Tensor& x) { return relu(x); }) {}
Sigmoid::Sigmoid() : Activation([](const Tensor& x) { return sigmoid(x); }) {}
Tanh::Tanh() : Activation([](const Tensor& x) { return tanh(x); }) {}
GELU::GELU() : Activation([](const Tensor& x) { return gelu(x); }) {}

Dropout::Dropout(double p) : p_(p) {
  require(p >= 0 && p <= 1, "Dropout: the probability is {}, but must lie in [0, 1]", p);
}

Tensor Dropout::forward(const Tensor& x) {
  return dropout(x, p_, is_training());
}

}  // namespace lazuli::nn
