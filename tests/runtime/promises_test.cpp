// What changes between steps compiles nothing, and replays keep nothing: counted.
#include <doctest/doctest.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <vector>

#include "nn/lazuli.h"
#include "runtime/device.h"
#include "tests/sanitized.h"

using namespace lazuli;

namespace {

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// The perceptron of `lazuli bench tiny_adam`, with dropout.
struct Perceptron {
  std::vector<Tensor> p;
  Tensor x = randn({100, 2}).realize(), y = randn({100, 1}).realize();
  nn::Adam adam;

  Perceptron() : p(parameters()), adam(p, 1e-4) {}
  static std::vector<Tensor> parameters() {
    std::vector<Tensor> made;
    for (const Shape& s : std::vector<Shape>{{2, 16}, {16}, {16, 16}, {16}, {16, 1}, {1}}) {
      made.push_back(randn(s));
      made.back().requires_grad_();
    }
    return made;
  }
  Tensor loss(const Tensor& rows, const Tensor& wanted, double rate) const {
    const auto dense = [&](const Tensor& h, size_t i) { return matmul(h, p[i]) + p[i + 1]; };
    const Tensor h = tanh(dense(dropout(tanh(dense(rows, 0)), rate), 2));
    return mse_loss(dense(h, 4), wanted);
  }
  auto captured_step(double rate) {
    return jit([this, rate](const Tensor& rows, const Tensor& wanted) {
      const Tensor value = loss(rows, wanted, rate);
      backward(value);
      adam.step();
      adam.zero_grad();
      return value;
    });
  }
};

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("promised: rates, seeds, steps, positions and values compile nothing" *
            doctest::skip(!LAZULI_LLVM)) {
    Config config;
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    manual_seed(1);
    Perceptron net;
    auto captured = net.captured_step(0.25);
    Tensor cache = zeros({8, 4}).realize();
    const auto step = [&](int i) {
      net.adam.set_learning_rate(1e-3 / (1 + i));
      manual_seed(static_cast<uint64_t>(i));
      net.adam.step(net.loss(net.x, net.y, 0.25));                  // found by its structure
      captured(randn({100, 2}) * 2.0, net.y).item();                // replayed
      const Tensor key = random_key(static_cast<uint64_t>(i) + 9);  // a key of one's own
      rand({5}, DType::F32, key).realize();
      // A place in an array is data.
      cache.set_({Tensor::from<int64_t>({i % 8}, {1})}, randn({4}));
      cache.realize();
    };
    for (int i = 0; i < 3; i++) step(i);
    const CompileCount before = runtime.device().compiled();
    CHECK(before.kernels + before.loaded > 0);
    for (int i = 3; i < 40; i++) step(i);
    const CompileCount after = runtime.device().compiled();
    CHECK(after.plans == before.plans);
    CHECK(after.kernels == before.kernels);
    CHECK(after.loaded == before.loaded);
    CHECK(captured.count().captures == 1);
    CHECK(net.adam.steps() == 80);
  }

  TEST_CASE("promised: 20,000 replays of a training step keep nothing" *
            doctest::skip(!LAZULI_LLVM)) {
    Config config;
    config.threads = 1;
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    manual_seed(1);
    Perceptron net;
    auto step = net.captured_step(0.0);
    Tensor loss;  // outlives the step, as a user's would
    const auto train = [&](int steps) {
      for (int i = 0; i < steps; i++) loss = step(net.x, net.y);
    };
    train(1000);
    malloc_trim(0);
    const size_t nodes = live_nodes();
    const uint64_t live = runtime.memory.stats().live;
    const int64_t resident = resident_bytes();
    train(20000);
    CHECK(live_nodes() == nodes);
    CHECK(runtime.memory.stats().live == live);
    // A byte for each step is all that the system's own bookkeeping may take. The address sanitizer
    // holds on to what is freed.
#if defined(__SANITIZE_ADDRESS__)
    static_cast<void>(resident);
#else
    CHECK(resident_bytes() <= resident + 20000);
#endif
    CHECK(step.count().captures == 1);
  }
}
