// Modules: parameters by name, state, modes, and layers against their formulas.
#include "nn/module.h"

#include <doctest/doctest.h>

#include <cmath>

#include "nn/lazuli.h"
#include "tests/text_of_error.h"

using namespace lazuli;

namespace {

nn::Sequential perceptron() {
  return {nn::make<nn::Linear>(3, 4), nn::make<nn::ReLU>(), nn::make<nn::Linear>(4, 2, false)};
}

// A module of a user's own: two parameters and a module below.
class Scaled final : public nn::Module {
 public:
  Scaled() : gain_(add_parameter("gain", full({1}, 2.0))), inner_(nn::make<nn::Linear>(2, 2)) {
    add_module("inner", inner_);
  }
  Tensor forward(const Tensor& x) override { return (*inner_)(x)*gain_; }

 private:
  Tensor gain_;
  Ref<nn::Linear> inner_;
};

}  // namespace

TEST_SUITE("nn") {
  TEST_CASE("parameters have names, in order, joined by dots") {
    const nn::Sequential net{nn::make<Scaled>(), nn::make<nn::Linear>(2, 1)};
    std::vector<std::string> names;
    for (const auto& [name, tensor] : net.named_parameters()) {
      names.push_back(name);
      CHECK(tensor.requires_grad());
    }
    CHECK(names == std::vector<std::string>{"0.gain", "0.inner.weight", "0.inner.bias", "1.weight",
                                            "1.bias"});
    CHECK(net.parameters().size() == 5);
    CHECK(net.size() == 2);
  }

  TEST_CASE("Linear is x times the transposed weight, plus bias") {
    nn::Linear layer(3, 2);
    layer.weight.assign_(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
    layer.bias->assign_(Tensor::from<float>({10, 20}, {2}));
    CHECK(layer(Tensor::from<float>({1, 0, -1}, {3})).to_vector() == std::vector<float>{8, 18});
    CHECK(layer(ones({2, 4, 3})).shape() == Shape{2, 4, 2});
    CHECK(!nn::Linear(3, 2, false).bias);
    CHECK(text_of_error([] { nn::Linear(0, 2); }) == "Linear: sizes must be positive, not 0 and 2");
  }

  TEST_CASE("Linear begins uniform within one over the root of its inputs, by the seed") {
    manual_seed(7);
    const std::vector<float> w = nn::Linear(64, 1000).weight.to_vector();
    double sum = 0, squares = 0, most = 0;
    for (const float v : w) {
      sum += v;
      squares += static_cast<double>(v) * v;
      most = std::max(most, std::abs(static_cast<double>(v)));
    }
    const double n = static_cast<double>(w.size()), bound = 1.0 / 8;
    CHECK(most <= bound);
    CHECK(most > 0.999 * bound);
    CHECK(std::abs(sum / n) < 0.01 * bound);
    CHECK(squares / n == doctest::Approx(bound * bound / 3).epsilon(0.01));
    manual_seed(7);
    CHECK(nn::Linear(64, 1000).weight.to_vector() == w);
    CHECK(nn::Linear(64, 1000).weight.to_vector() != w);
  }

  TEST_CASE("activations are their functions") {
    const Tensor x = Tensor::from<float>({-1.5f, 0, 2}, {3});
    CHECK(nn::ReLU()(x).to_vector() == relu(x).to_vector());
    CHECK(nn::Sigmoid()(x).to_vector() == sigmoid(x).to_vector());
    CHECK(nn::Tanh()(x).to_vector() == tanh(x).to_vector());
    CHECK(nn::GELU()(x).to_vector() == gelu(x).to_vector());
  }

  TEST_CASE("dropout drops in training alone, and the mode reaches every module below") {
    manual_seed(3);
    nn::Sequential net{nn::make<nn::Sequential>(
        std::initializer_list<Ref<nn::Module>>{nn::make<nn::Dropout>(0.25)})};
    const Tensor x = ones({10000});
    const std::vector<float> dropped = net(x).to_vector();
    size_t zeros = 0;
    for (const float v : dropped) {
      CHECK((v == 0 || v == doctest::Approx(4.0 / 3)));
      zeros += v == 0;
    }
    CHECK(zeros == doctest::Approx(2500).epsilon(0.05));
    net.eval();
    CHECK(!net.is_training());
    CHECK(!net[0].is_training());
    CHECK(net(x).to_vector() == x.to_vector());
    net.train();
    CHECK(net(x).to_vector() != x.to_vector());
    CHECK(text_of_error([] { nn::Dropout(1.5); }) ==
          "Dropout: the probability is 1.5, but must lie in [0, 1]");
  }

  TEST_CASE("state is a snapshot, and loading it goes back") {
    nn::Sequential net = perceptron();
    const Tensor x = ones({1, 3});
    const std::vector<float> before = net(x).to_vector();
    const std::vector<nn::NamedTensor> saved = net.state();
    nn::SGD sgd(net.parameters(), 0.5);
    sgd.step(sum(square(net(x) - 1.0)));
    CHECK(net(x).to_vector() != before);
    net.load_state(saved);
    CHECK(net(x).to_vector() == before);
    for (const Tensor& p : net.parameters()) CHECK(p.requires_grad());
  }

  TEST_CASE("a state that does not fit is refused and changes nothing") {
    nn::Sequential net = perceptron();
    const std::vector<float> before = net.parameters()[0].to_vector();
    const auto load = [&](const std::vector<nn::NamedTensor>& state) {
      return text_of_error([&] { net.load_state(state); });
    };
    std::vector<nn::NamedTensor> state = net.state();
    for (auto& [name, tensor] : state) tensor = zeros(tensor.shape());
    std::vector<nn::NamedTensor> other = state;
    other.back().second = ones({3});
    CHECK(load(other) == "load_state: '2.weight' has shape (2, 4), but (3,) was given");
    other.back().first = "3.weight";
    CHECK(load(other) ==
          "load_state: there is no parameter '3.weight'; this module has 0.weight, 0.bias, "
          "2.weight");
    const auto pair = [] {
      return nn::make<nn::Sequential>(std::initializer_list<Ref<nn::Module>>{
          nn::make<nn::Linear>(2, 2), nn::make<nn::Linear>(2, 2)});
    };
    nn::Sequential deep{pair(), pair(), pair()};
    CHECK(text_of_error([&] { deep.load_state(other); }) ==
          "load_state: there is no parameter '0.weight'; this module has 0.0.weight, 0.0.bias, "
          "0.1.weight, 0.1.bias, 1.0.weight, 1.0.bias, 1.1.weight, 1.1.bias and 4 more");
    other.pop_back();
    CHECK(load(other) == "load_state: the parameter '2.weight' is missing");
    CHECK(net.parameters()[0].to_vector() == before);
    CHECK(load(state) == "no error");
    CHECK(net.parameters()[0].to_vector() == std::vector<float>(12, 0.0f));
  }
}
