// Graphs that need more memory than LAZULI_MEMORY leaves run some of their steps again: the same
// bits, within the limit; or they say what they need.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "nn/lazuli.h"
#include "runtime/inspect.h"

namespace lazuli {
namespace {

using Build = std::function<std::vector<Tensor>()>;

struct BudgetOutcome {
  std::vector<std::vector<std::byte>> values;
  uint64_t before = 0, peak = 0;  // bytes that are live before the graph runs, and at most
  std::string error, told;
};

std::vector<std::byte> bytes_in(const Tensor& t) {
  const auto* data = static_cast<const std::byte*>(t.storage()->data());
  return {data, data + t.storage()->bytes()};
}

// Of a graph in a runtime of its own that may use so much memory; 0: all that there is.
BudgetOutcome outcome(const Build& build, uint64_t limit, bool explained = false) {
  Config config;
  config.device = "cpu";
  config.memory = limit;
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  BudgetOutcome out;
  std::vector<Tensor> roots = build();
  out.before = runtime.memory.stats().live;
  try {
    if (explained) out.told = explain(roots);
    realize(roots);
  } catch (const DeviceError& e) {
    out.error = e.what();
    return out;
  }
  out.peak = runtime.memory.stats().peak;
  for (const Tensor& t : roots) out.values.push_back(bytes_in(t));
  return out;
}

// A value that is there before the graph is.
Tensor small_random(const Shape& shape, uint64_t seed) {
  return (randn(shape, DType::F32, random_key(seed)) * 0.1).realize();
}

// Gradients of a deep perceptron. Statistics over the rows keep its layers in kernels of their own.
std::vector<Tensor> deep_gradients() {
  std::vector<Tensor> w;
  for (uint64_t i = 0; i < 24; i++) w.push_back(small_random({64, 64}, i));
  Tensor h = small_random({512, 64}, 99);
  for (const Tensor& m : w) {
    const Tensor z = matmul(h, m);
    h = tanh((z - mean(z, {0}, true)) / sqrt(mean(z * z, {0}, true) + 1e-3));
  }
  return grad(sum(h * h), w);
}

// Gradients of blocks of a transformer.
std::vector<Tensor> transformer() {
  std::vector<Tensor> all;
  uint64_t seed = 0;
  const auto parameter = [&](const Shape& shape) {
    all.push_back(small_random(shape, seed++));
    return all.back();
  };
  Tensor x = small_random({2, 64, 32}, 99);
  for (int layer = 0; layer < 4; layer++) {
    const Tensor h = matmul(layer_norm(x, {32}), parameter({32, 96}));
    std::vector<Tensor> p;
    for (const Tensor& part : split(h, 32, 2)) {
      p.push_back(transpose(reshape(part, {2, 64, 4, 8}), 1, 2));
    }
    const Tensor a = scaled_dot_product_attention(p[0], p[1], p[2], {}, 0.0, true);
    x = x + matmul(reshape(transpose(a, 1, 2), {2, 64, 32}), parameter({32, 32}));
    x = x + matmul(gelu(matmul(layer_norm(x, {32}), parameter({32, 128}))), parameter({128, 32}));
  }
  return grad(sum(x * x), all);
}

// The limit that leaves so many percent of what the graph takes with all that there is.
uint64_t limit_at(const BudgetOutcome& whole, uint64_t percent) {
  return whole.before + (whole.peak - whole.before) * percent / 100;
}

TEST_SUITE("runtime") {
  TEST_CASE("LAZULI_MEMORY: gradients fit into less memory, with the same bits") {
    if (!LAZULI_LLVM) return;
    struct Row {
      Build build;
      std::vector<uint64_t> percents;
    };
    for (const auto& [build, percents] :
         {Row{deep_gradients, {90, 70, 50, 40}}, Row{transformer, {90, 80, 70}}}) {
      const BudgetOutcome whole = outcome(build, 0, true);
      CHECK(whole.told.find("run again") == std::string::npos);
      CHECK(whole.told.find("first order") == std::string::npos);
      for (const uint64_t percent : percents) {
        const uint64_t limit = limit_at(whole, percent);
        CAPTURE(percent);
        const BudgetOutcome less = outcome(build, limit, percent == percents.back());
        REQUIRE(less.error == "");
        CHECK(less.values == whole.values);
        CHECK(less.peak <= limit);
        CHECK(less.peak < whole.peak);
        if (percent != percents.back()) continue;
        CHECK(less.told.find("steps are run again, ") != std::string::npos);
        CHECK(less.told.find("less than in the first order of the steps") != std::string::npos);
        CHECK(less.told.find(" is computed again, so that ") != std::string::npos);
        CHECK(less.told.find(" need not be kept since step ") != std::string::npos);
      }
      const BudgetOutcome enough = outcome(build, whole.peak, true);
      CHECK(enough.values == whole.values);
      CHECK(enough.peak == whole.peak);
      CHECK(enough.told.find("run again") == std::string::npos);
    }
  }

  TEST_CASE("LAZULI_MEMORY: parameters change in place within it, step by step") {
    if (!LAZULI_LLVM) return;
    const auto trained = [](uint64_t limit, uint64_t& before, uint64_t& peak) {
      Config config;
      config.device = "cpu";
      config.memory = limit;
      Runtime runtime(config);
      const Runtime::Use use(runtime);
      std::vector<Tensor> w;
      for (uint64_t i = 0; i < 12; i++) w.push_back(small_random({64, 64}, i));
      const Tensor x = small_random({512, 64}, 99);
      before = runtime.memory.stats().live;
      auto step = jit([&](const Tensor& in) {
        Tensor h = in;
        for (const Tensor& m : w) {
          const Tensor z = matmul(h, m);
          h = tanh((z - mean(z, {0}, true)) / sqrt(mean(z * z, {0}, true) + 1e-3));
        }
        const Tensor loss = mean(h * h);
        const std::vector<Tensor> g = grad(loss, w);
        for (size_t i = 0; i < w.size(); i++) w[i] -= g[i] * 0.1;
        return loss;
      });
      std::vector<std::vector<std::byte>> values;
      for (int i = 0; i < 4; i++) values.push_back(bytes_in(step(x)));
      for (const Tensor& m : w) values.push_back(bytes_in(m));
      peak = runtime.memory.stats().peak;
      return values;
    };
    uint64_t before = 0, peak = 0, less = 0;
    const auto want = trained(0, before, peak);
    const uint64_t limit = before + (peak - before) * 60 / 100;
    CHECK(trained(limit, before, less) == want);
    CHECK(less <= limit);
  }

  TEST_CASE("LAZULI_MEMORY: a graph that does not fit says what it needs") {
    if (!LAZULI_LLVM) return;
    const BudgetOutcome less = outcome(
        [] {
          const Tensor z = contiguous(exp(small_random({1024, 64}, 1)));
          return std::vector<Tensor>{sort(z, 0).values};
        },
        700 << 10);
    CHECK(less.error ==
          "memory: a graph needs at least 769.1 KiB beside what it reads, 513.1 KiB of it for "
          "values between its 4 steps, and 444 KiB of the limit of 700 KiB are left "
          "(LAZULI_MEMORY, or what the machine has); use smaller shapes or batches, or free other "
          "values, which hold 256 KiB");
    // Where it is the result alone, the allocator tells.
    const BudgetOutcome result = outcome(
        [] {
          return std::vector<Tensor>{small_random({1024, 64}, 1) + 1};
        },
        400 << 10);
    CHECK(result.error ==
          "memory: a value needs 256 KiB (262144 bytes), and the limit is 400 KiB (LAZULI_MEMORY, "
          "or what the machine has); use smaller shapes or free other values, which hold 256 KiB");
  }
}

}  // namespace
}  // namespace lazuli
