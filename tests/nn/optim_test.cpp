// Optimizers against PyTorch's trajectories (trajectories.py), and what a step must not do:
// compile, or keep memory.
#include "nn/optim.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "nn/lazuli.h"
#include "runtime/device.h"
#include "tests/text_of_error.h"

using namespace lazuli;
using nlohmann::json;

namespace {

json trajectories() {
  return json::parse(std::ifstream(LAZULI_TEST_DIR "/nn/trajectories.json"));
}

std::unique_ptr<nn::Optimizer> make_optimizer(const json& c, const std::vector<Tensor>& parameters,
                                              double rate) {
  const json& o = c["options"];
  if (c["optimizer"] == "SGD") {
    return std::make_unique<nn::SGD>(parameters, rate,
                                     nn::SGDOptions{.momentum = o.value("momentum", 0.0),
                                                    .dampening = o.value("dampening", 0.0),
                                                    .weight_decay = o.value("weight_decay", 0.0),
                                                    .nesterov = o.value("nesterov", false)});
  }
  const bool decoupled = c["optimizer"] == "AdamW";
  nn::AdamOptions options{.eps = o.value("eps", 1e-8),
                          .weight_decay = o.value("weight_decay", decoupled ? 1e-2 : 0.0)};
  if (o.contains("betas")) {
    options.beta1 = o["betas"][0];
    options.beta2 = o["betas"][1];
  }
  if (decoupled) return std::make_unique<nn::AdamW>(parameters, rate, options);
  return std::make_unique<nn::Adam>(parameters, rate, options);
}

// The same numbers as values() of trajectories.py.
Tensor optimized_values(const Shape& shape, DType dtype, double scale) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < numel(shape); i++) {
    numbers.push_back(static_cast<double>((i * 37 + 11) % 64 - 32) / 32 * scale);
  }
  return to(Tensor::from(numbers, shape), dtype);
}

// The largest error relative to the largest number.
double error(const Tensor& got, const json& expected) {
  const std::vector<double> a = got.to_vector<double>(), b = expected.get<std::vector<double>>();
  REQUIRE(a.size() == b.size());
  double difference = 0, scale = 0;
  for (size_t i = 0; i < a.size(); i++) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return difference / scale;
}

// The function of trajectories.py, and how its parameters fare.
struct Problem {
  explicit Problem(DType dtype)
      : x(optimized_values({4, 3}, dtype, 1)),
        y(optimized_values({4, 2}, dtype, 0.5)),
        w(optimized_values({3, 2}, dtype, 1)),
        b(optimized_values({2}, dtype, 0.25)) {
    w.requires_grad_();
    b.requires_grad_();
    realize(x, y);
  }
  Tensor loss(bool with_b = true) const {
    const Tensor z = with_b ? matmul(x, w) + b : matmul(x, w);
    return mean(square(tanh(z) - y));
  }
  Tensor x, y, w, b;
};

void replay_case(const json& c, double rate) {
  INFO(c["optimizer"], " ", c["options"].dump(), " ", c["dtype"], " late: ", c["late"]);
  const bool wide = c["dtype"] == "float64";
  const double tolerance = wide ? 1e-13 : 1e-6;
  Problem problem(wide ? DType::F64 : DType::F32);
  const auto optimizer = make_optimizer(c, {problem.w, problem.b}, rate);
  int step = 0;
  for (const json& expected : c["steps"]) {
    if (step == 3) optimizer->set_learning_rate(rate / 2);
    const bool with_b = !c["late"].get<bool>() || step >= 2;
    const double loss = optimizer->step(problem.loss(with_b));
    INFO("step ", step);
    CHECK(std::abs(loss - expected["loss"].get<double>()) <= tolerance);
    CHECK(error(problem.w, expected["w"]) <= tolerance);
    CHECK(error(problem.b, expected["b"]) <= tolerance);
    step++;
  }
}

Tensor parameter() {
  return ones({2}).requires_grad_();
}

}  // namespace

TEST_SUITE("nn") {
  TEST_CASE("every optimizer goes where PyTorch's goes") {
    const json all = trajectories();
    CHECK(all["cases"].size() == 27);
    for (const json& c : all["cases"]) replay_case(c, all["rate"]);
  }

  TEST_CASE("on the reference device too") {
    Config config;
    config.device = "reference";
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    const json all = trajectories();
    for (const json& c : all["cases"]) replay_case(c, all["rate"]);
  }

  TEST_CASE("a step computes nothing, and reading a parameter gives its new value") {
    Problem problem(DType::F64);
    nn::SGD sgd({problem.w, problem.b}, 0.5);
    const std::vector<double> before = problem.w.to_vector<double>();
    backward(problem.loss());
    const std::vector<double> gradient = problem.w.grad()->to_vector<double>();
    sgd.step();
    CHECK(!problem.w.realised());
    CHECK(problem.w.requires_grad());
    const std::vector<double> after = problem.w.to_vector<double>();
    for (size_t i = 0; i < after.size(); i++) CHECK(after[i] == before[i] - 0.5 * gradient[i]);
    CHECK(sgd.steps() == 1);
  }

  TEST_CASE("gradients add up over backward() until zero_grad()") {
    Problem problem(DType::F64);
    nn::SGD sgd({problem.w, problem.b}, 0.5);
    backward(problem.loss());
    const std::vector<double> once = problem.w.grad()->to_vector<double>();
    backward(problem.loss());
    const std::vector<double> twice = problem.w.grad()->to_vector<double>();
    for (size_t i = 0; i < once.size(); i++) CHECK(twice[i] == 2 * once[i]);
    sgd.zero_grad();
    CHECK(!problem.w.grad());
    sgd.step();
    CHECK(problem.w.realised());  // nothing to do without gradients
  }

  TEST_CASE("values taken before a step stay as they were") {
    Problem problem(DType::F32);
    nn::Adam adam({problem.w, problem.b}, 0.1);
    const Tensor old = detach(problem.w), doubled = problem.w * 2.0;
    const std::vector<float> before = old.to_vector();
    adam.step(problem.loss());
    CHECK(old.to_vector() == before);
    CHECK(doubled.to_vector()[0] == 2 * before[0]);
    CHECK(problem.w.to_vector() != before);
  }

  TEST_CASE("a step without realize is a graph that a later realize computes") {
    Problem lazy(DType::F64), eager(DType::F64);
    nn::Adam a({lazy.w, lazy.b}, 0.1), b({eager.w, eager.b}, 0.1);
    for (int i = 0; i < 3; i++) {
      backward(lazy.loss());
      a.step();
      a.zero_grad();
      b.step(eager.loss());
    }
    const std::vector<double> x = lazy.w.to_vector<double>(), y = eager.w.to_vector<double>();
    for (size_t i = 0; i < x.size(); i++) CHECK(std::abs(x[i] - y[i]) < 1e-14);
  }

#if LAZULI_LLVM
  TEST_CASE("after two steps no step compiles, whatever the rate") {
    Runtime runtime{Config()};
    const Runtime::Use use(runtime);
    const json all = trajectories();
    for (const json& c : all["cases"]) {
      if (c["late"].get<bool>()) continue;
      INFO(c["optimizer"], " ", c["options"].dump(), " ", c["dtype"]);
      Problem problem(c["dtype"] == "float64" ? DType::F64 : DType::F32);
      const auto optimizer = make_optimizer(c, {problem.w, problem.b}, 0.1);
      for (int i = 0; i < 2; i++) optimizer->step(problem.loss());
      const CompileCount before = runtime.device().compiled();
      CHECK(before.kernels + before.loaded > 0);
      for (int i = 0; i < 20; i++) {
        optimizer->set_learning_rate(0.1 / (i + 1));
        optimizer->step(problem.loss());
      }
      CHECK(runtime.device().compiled().plans == before.plans);
      CHECK(runtime.device().compiled().kernels == before.kernels);
    }
  }
#endif

  TEST_CASE("thousands of steps keep no more than two") {
    Problem problem(DType::F32);
    nn::Adam adam({problem.w, problem.b}, 1e-3);
    Tensor loss;  // outlives the step, as a user's would
    const auto train = [&](int steps) {
      for (int i = 0; i < steps; i++) {
        loss = problem.loss();
        adam.step(loss);
      }
      return std::pair(live_nodes(), Runtime::current().memory.stats().live);
    };
    const auto few = train(2), many = train(3000);
    CHECK(many.first == few.first);
    CHECK(many.second == few.second);  // bytes
  }

  TEST_CASE("what cannot be optimized is refused") {
    CHECK(text_of_error([] { nn::SGD({}, 0.1); }) == "optimizer: there are no parameters to optimize");
    CHECK(text_of_error([] {
            nn::SGD({parameter(), ones({2})}, 0.1);
          }) == "optimizer: parameter 1 does not require a gradient; call requires_grad_() on it");
    const Tensor p = parameter();
    CHECK(text_of_error([&] {
            nn::SGD({p, p}, 0.1);
          }) == "optimizer: parameters 0 and 1 are the same tensor; give it once");
    CHECK(text_of_error([] { nn::Adam({parameter()}, -1); }) ==
          "optimizer: the learning rate is -1, but must be 0 or more");
    CHECK(text_of_error([] { nn::Adam({parameter()}).set_learning_rate(NAN); }) ==
          "optimizer: the learning rate is nan, but must be 0 or more");
    CHECK(text_of_error([] { nn::Adam({parameter()}, 0.1, {.beta1 = 1}); }) ==
          "Adam: betas must lie in [0, 1), but are 1 and 0.999");
    CHECK(text_of_error([] { nn::AdamW({parameter()}, 0.1, {.eps = -1}); }) ==
          "Adam: eps and weight decay must be 0 or more, but are -1 and 0");
    CHECK(text_of_error([] { nn::SGD({parameter()}, 0.1, {.nesterov = true}); }) ==
          "SGD: nesterov needs momentum and no dampening, but momentum is 0 and dampening 0");
    CHECK(text_of_error([] { nn::SGD({parameter()}, 0.1, {.momentum = -0.5}); }) ==
          "SGD: momentum and weight decay must be 0 or more, but are -0.5 and 0");
  }
}
