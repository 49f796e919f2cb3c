#include "nn/optim.h"

#include <algorithm>
#include <optional>

#include "core/capture.h"
#include "core/error.h"
#include "core/gradient.h"
#include "core/ops.h"

namespace lazuli::nn {
namespace {

Tensor scalar(double value) {
  return Tensor::from<double>({value}, {});
}

void check_rate(double rate) {
  require(rate >= 0, "optimizer: the learning rate is {}, but must be 0 or more", rate);
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, double learning_rate)
    : parameters_(std::move(parameters)),
      groups_{{{}, scalar(0)}},
      rate_(scalar(learning_rate)),
      learning_rate_(learning_rate) {
  require(!parameters_.empty(), "optimizer: there are no parameters to optimize");
  for (size_t i = 0; i < parameters_.size(); i++) {
    require(parameters_[i].requires_grad(),
            "optimizer: parameter {} does not require a gradient; call requires_grad_() on it", i);
    for (size_t k = 0; k < i; k++) {
      require(parameters_[k].buffer() != parameters_[i].buffer(),
              "optimizer: parameters {} and {} are the same tensor; give it once", k, i);
    }
    groups_[0].members.push_back(i);
  }
  check_rate(learning_rate);
}

void Optimizer::set_learning_rate(double rate) {
  check_rate(rate);
  rate_.assign_(scalar(rate));
  learning_rate_ = rate;
}

void Optimizer::make_state(size_t kinds) {
  states_.assign(kinds, {});
  for (auto& kind : states_) {
    for (const Tensor& p : parameters_) kind.push_back(zeros(p.shape(), p.dtype()).realize());
  }
}

Tensor Optimizer::as_argument(const Tensor& scalar, DType dtype) {
  return contiguous(to(scalar, dtype == DType::F64 ? DType::F64 : DType::F32));
}

int64_t Optimizer::steps() const {
  int64_t most = 0;
  for (const Group& g : groups_) most = std::max(most, g.updates.item<int64_t>());
  return most;
}

void Optimizer::zero_grad() {
  for (Tensor& p : parameters_) p.set_grad(std::nullopt);
}

// One more for the parameters that have a gradient; those of a group that have none leave it.
void Optimizer::count_updates() {
  const auto updated = [&](size_t i) { return parameters_[i].grad().has_value(); };
  for (size_t k = 0, size = groups_.size(); k < size; k++) {
    std::vector<size_t>& members = groups_[k].members;
    const auto rest = std::stable_partition(members.begin(), members.end(), updated);
    if (rest == members.begin()) continue;
    require(
        rest == members.end() || !Capture::current(),
        "optimizer: parameter {} has no gradient in a captured step, but shares its count of "
        "updates "
        "with some that have; take one such step before it is captured, or leave the parameter out",
        *rest);
    Group others{{rest, members.end()}, Tensor(groups_[k].updates.node())};
    groups_[k].updates.assign_(groups_[k].updates + 1.0);
    if (others.members.empty()) continue;
    members.erase(rest, members.end());
    groups_.push_back(std::move(others));
  }
}

// Gives parameters, gradients and state back what they were, unless it is done() before. A captured
// function that fails needs none of this.
class Optimizer::Undo {
 public:
  explicit Undo(Optimizer& o) : optimizer_(o), is_done_(Capture::current() != nullptr) {
    if (is_done_) return;
    groups_ = o.groups_;
    tensors_ = o.tensors();
    nodes_.reserve(tensors_.size());
    gradients_.reserve(o.parameters_.size());
    for (const Tensor& t : tensors_) nodes_.push_back(t.node());
    for (const Tensor& p : o.parameters_) gradients_.push_back(p.grad());
  }
  ~Undo() {
    if (is_done_) return;
    optimizer_.groups_.swap(groups_);
    for (size_t i = 0; i < nodes_.size(); i++) tensors_[i].buffer()->rebind(nodes_[i]);
    for (size_t i = 0; i < gradients_.size(); i++)
      optimizer_.parameters_[i].set_grad(gradients_[i]);
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  void done() { is_done_ = true; }

 private:
  Optimizer& optimizer_;
  bool is_done_;
  std::vector<Group> groups_;
  std::vector<Tensor> tensors_;
  std::vector<NodeRef> nodes_;
  std::vector<std::optional<Tensor>> gradients_;
};

void Optimizer::step() {
  Undo undo(*this);
  update_all();
  undo.done();
}

void Optimizer::update_all() {
  count_updates();
  for (const Group& g : groups_) {
    std::vector<std::pair<DType, std::vector<Tensor>>> made;
    const auto factors_of = [&](DType dtype) -> const std::vector<Tensor>& {
      for (const auto& [known, list] : made) {
        if (known == dtype) return list;
      }
      return made.emplace_back(dtype, factors(g.updates, dtype)).second;
    };
    for (size_t i : g.members) {
      Tensor& p = parameters_[i];
      if (const std::optional<Tensor> gradient = p.grad()) {
        p.assign_(update(i, detach(p), *gradient, factors_of(p.dtype())));
      }
    }
  }
}

double Optimizer::step(const Tensor& loss) {
  Undo undo(*this);
  backward(loss);
  update_all();
  zero_grad();
  std::vector<Tensor> all = tensors();
  all.push_back(loss);
  realize(all);
  undo.done();
  return loss.item();
}

std::vector<Tensor> Optimizer::tensors() const {
  std::vector<Tensor> all;
  all.reserve((states_.size() + 1) * parameters_.size() + groups_.size() + 1);  // and a loss
  all.insert(all.end(), parameters_.begin(), parameters_.end());
  for (const auto& kind : states_) all.insert(all.end(), kind.begin(), kind.end());
  for (const Group& g : groups_) all.push_back(g.updates);
  return all;
}

SGD::SGD(std::vector<Tensor> parameters, double learning_rate, SGDOptions options)
    : Optimizer(std::move(parameters), learning_rate), options_(options) {
  require(options.momentum >= 0 && options.weight_decay >= 0,
          "SGD: momentum and weight decay must be 0 or more, but are {} and {}", options.momentum,
          options.weight_decay);
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
          "SGD: nesterov needs momentum and no dampening, but momentum is {} and dampening {}",
          options.momentum, options.dampening);
  if (options_.momentum != 0) make_state(1);
}

std::vector<Tensor> SGD::factors(const Tensor& updates, DType dtype) const {
  std::vector<Tensor> out{as_argument(rate(), dtype)};
  if (options_.momentum != 0 && options_.dampening != 0) {
    // The velocity is zero before the first update, in which the gradient enters whole.
    const Tensor share = where(eq(updates, 1.0), scalar(1), scalar(1 - options_.dampening));
    out.push_back(as_argument(share, dtype));
  }
  return out;
}

Tensor SGD::update(size_t i, const Tensor& parameter, const Tensor& gradient,
                   std::span<const Tensor> factors) {
  Tensor g = gradient;
  if (options_.weight_decay != 0) g = g + parameter * options_.weight_decay;
  if (options_.momentum != 0) {
    Tensor& velocity = state(0, i);
    velocity.assign_(velocity * options_.momentum + (options_.dampening == 0 ? g : g * factors[1]));
    g = options_.nesterov ? g + velocity * options_.momentum : velocity;
  }
  return parameter - g * factors[0];
}

Adam::Adam(std::vector<Tensor> parameters, double learning_rate, AdamOptions options)
    : Optimizer(std::move(parameters), learning_rate), options_(options) {
  require(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
          "Adam: betas must lie in [0, 1), but are {} and {}", options.beta1, options.beta2);
  require(options.eps >= 0 && options.weight_decay >= 0,
          "Adam: eps and weight decay must be 0 or more, but are {} and {}", options.eps,
          options.weight_decay);
  make_state(2);
}

std::vector<Tensor> Adam::factors(const Tensor& updates, DType dtype) const {
  const Tensor correction1 = 1.0 - pow(options_.beta1, updates);
  const Tensor correction2 = 1.0 - pow(options_.beta2, updates);
  return {as_argument(rate() / correction1, dtype), as_argument(sqrt(correction2), dtype)};
}

Tensor Adam::update(size_t i, const Tensor& parameter, const Tensor& gradient,
                    std::span<const Tensor> factors) {
  const Tensor g = decayed_gradient(parameter, gradient);
  Tensor &m = state(0, i), &v = state(1, i);
  m.assign_(m + (g - m) * (1 - options_.beta1));
  v.assign_(v * options_.beta2 + g * g * (1 - options_.beta2));
  return decayed_parameter(parameter, factors) -
         factors[0] * (m / (sqrt(v) / factors[1] + options_.eps));
}

Tensor Adam::decayed_gradient(const Tensor& parameter, const Tensor& gradient) {
  return options_.weight_decay == 0 ? gradient : gradient + parameter * options_.weight_decay;
}

Tensor Adam::decayed_parameter(const Tensor& parameter, std::span<const Tensor>) {
  return parameter;
}

AdamW::AdamW(std::vector<Tensor> parameters, double learning_rate, AdamOptions options)
    : Adam(std::move(parameters), learning_rate, options) {}

std::vector<Tensor> AdamW::factors(const Tensor& updates, DType dtype) const {
  std::vector<Tensor> out = Adam::factors(updates, dtype);
  out.push_back(as_argument(1.0 - rate() * options_.weight_decay, dtype));
  return out;
}

Tensor AdamW::decayed_gradient(const Tensor&, const Tensor& gradient) {
  return gradient;
}

Tensor AdamW::decayed_parameter(const Tensor& parameter, std::span<const Tensor> factors) {
  return parameter * factors[2];
}

}  // namespace lazuli::nn
