// Numbers in a graph: structure at first, arguments from the second value on. Counted.
#include "runtime/literals.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "nn/lazuli.h"
#include "runtime/device.h"

using namespace lazuli;

namespace {

#if LAZULI_LLVM

// What the reference device makes of it.
template <typename F>
std::vector<double> expected(F f) {
  Config config;
  config.device = "reference";
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  return f().template to_vector<double>();
}

template <typename F>
void check_value(F f, double units) {
  const std::vector<double> wanted = expected(f);
  const Tensor t = f();
  const std::vector<double> got = t.template to_vector<double>();
  REQUIRE(got.size() == wanted.size());
  const double epsilon = t.dtype() == DType::F64 ? 0x1p-53 : 0x1p-24;
  for (size_t i = 0; i < got.size(); i++) {
    const double error = std::abs(got[i] - wanted[i]);
    CHECK_MESSAGE(error <= units * epsilon * std::max(1.0, std::abs(wanted[i])), got[i], " for ",
                  wanted[i]);
  }
}

#endif

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("a literal is an argument from its second value on, with those that equal it always") {
    using Bits = std::vector<uint64_t>;
    const std::vector<Literal> met{
        {DType::I64, 1}, {DType::I64, 2}, {DType::I64, 2}, {DType::I64, 2}};
    LiteralUse use(met);
    CHECK(use.fits(Bits{1, 2, 2, 2}));
    CHECK_FALSE(use.fits(Bits{1, 3, 3, 2}));
    use = use.widened(Bits{1, 3, 3, 2});
    for (size_t i : {0, 3}) CHECK(use.argument(i) == -1);
    for (size_t i : {1, 2}) CHECK(use.argument(i) == 1);
    CHECK(use.fits(Bits{1, 2, 2, 2}));
    CHECK(use.fits(Bits{1, 9, 9, 2}));
    CHECK_FALSE(use.fits(Bits{0, 9, 9, 2}));
    CHECK_FALSE(use.fits(Bits{1, 9, 8, 2}));
    use = use.widened(Bits{1, 9, 8, 2});
    CHECK(use.argument(1) == 1);
    CHECK(use.argument(2) == 2);
    CHECK(use.argument(3) == -1);
    CHECK(use.fits(Bits{1, 8, 9, 2}));
    CHECK(use.fits(Bits{1, 2, 2, 2}));
  }

  TEST_CASE(
      "equal numbers of two types, and numbers that become equal, are arguments of their own") {
    const std::vector<Literal> before{{DType::I32, 0}, {DType::F32, 0}, {DType::I32, 1}};
    const LiteralUse use = LiteralUse(before).widened(std::vector<uint64_t>{7, 7, 7});
    for (int i = 0; i < 3; i++) CHECK(use.argument(static_cast<size_t>(i)) == i);
  }

#if LAZULI_LLVM
  TEST_CASE("a number that changes compiles twice, then never") {
    Runtime runtime{Config()};
    const Runtime::Use use(runtime);
    manual_seed(3);
    const Tensor x = randn({6, 20}).realize(), w = randn({20, 7}).realize();
    const Tensor i = randint(-9, 9, {6, 20}).realize(), b = randn({7}).realize();
    const auto whole = [](double v) { return std::lround(v * 4); };
    struct Case {
      const char* what;
      std::function<Tensor(double)> f;
      double units;
    };
    const std::vector<Case> cases = {
        {"a product", [&](double v) { return x * v; }, 0},
        {"one number, twice", [&](double v) { return (x * v + x) / (v + x * x); }, 2},
        {"one of two numbers", [&](double v) { return (x * 0.5 + v) * 0.25; }, 1},
        {"one value in two places", [&](double v) { return (x + v) * 2 + (x * x + v); }, 2},
        {"matmul with a tail", [&](double v) { return relu(matmul(x, w) * v + b); }, 64},
        {"softmax with a scale", [&](double v) { return softmax(x * v, 1); }, 64},
        {"a threshold", [&](double v) { return where(x < v - 12, x, -x); }, 0},
        {"clip", [&](double v) { return clamp(x, -v / 9, v / 9); }, 0},
        {"integers", [&](double v) { return i * whole(v) + 3; }, 0},
        {"integer division", [&](double v) { return floor_divide(i, whole(v)); }, 0},
        {"a remainder", [&](double v) { return i % whole(v); }, 0},
        {"a comparison", [&](double v) { return (i < whole(v) - 50).to(DType::I32); }, 0},
        {"a shift", [&](double v) { return i << whole(v); }, 0},
        {"a power", [&](double v) { return pow(abs(x), v / 9.01); }, 64},
        {"a filled array",
         [&](double v) {
           return full({3, 2}, v);
         },
         0},
        {"a number alone", [&](double v) { return full({}, v); }, 0},
        {"numbers alone", [&](double v) { return full({}, v) * 3 + v; }, 0},
        {"a sum of one number",
         [&](double v) {
           return sum(full({3, 2}, v));
         },
         0},
        {"a range", [&](double v) { return arange(v, v + 5); }, 0},
        {"places",
         [&](double v) { return index_select(x, 1, arange(whole(v), whole(v) + 3) % 20); }, 0},
        {"a scan", [&](double v) { return cumsum(i * whole(v), 0); }, 0},
        {"a gradient",
         [&](double v) {
           const Tensor p = (x * 1.0).requires_grad_();
           return grad(sum(tanh(p * (v / 9)) * 3.0), p);
         },
         64},
        {"half precision", [&](double v) { return (x.to(DType::F16) * v).to(DType::F32); }, 0},
        {"double precision", [&](double v) { return x.to(DType::F64) * v; }, 0},
    };
    for (const Case& c : cases) {
      INFO(std::string(c.what));
      const auto at = [&](int k) { return c.f(k * 0.25 + 0.25); };
      const int64_t plans = runtime.device().compiled().plans;
      for (int k = 0; k < 2; k++) at(k).realize();
      const CompileCount before = runtime.device().compiled();
      CHECK(before.plans == plans + 2);
      for (int k = 2; k < 100; k++) at(k).realize();
      CHECK(runtime.device().compiled().plans == before.plans);
      CHECK(runtime.device().compiled().kernels == before.kernels);
      for (int k : {0, 1, 17, 64}) check_value([&] { return at(k); }, c.units);
    }
  }

  TEST_CASE("numbers that stay are built in, until they change too") {
    Runtime runtime{Config()};
    const Runtime::Use use(runtime);
    const Tensor x = Tensor::from<float>({1, 2}, {2});
    const auto run = [&](double a, double b) { return (x * a + b).to_vector()[1]; };
    const auto plans = [&] { return runtime.device().compiled().plans; };
    const int64_t before = plans();
    CHECK(run(2, 5) == 9);
    CHECK(run(3, 5) == 11);
    CHECK(plans() == before + 2);
    CHECK(run(4, 5) == 13);
    CHECK(plans() == before + 2);
    CHECK(run(4, 6) == 14);
    CHECK(plans() == before + 3);
    for (int k = 7; k < 20; k++) CHECK(run(k, k + 1) == 3 * k + 1);
    CHECK(run(2, 5) == 9);
    CHECK(plans() == before + 3);
  }

  TEST_CASE("two numbers that happen to be equal make one node of two, and are right") {
    Runtime runtime{Config()};
    const Runtime::Use use(runtime);
    const Tensor x = Tensor::from<float>({1, 2}, {2}), y = Tensor::from<float>({3, 4}, {2});
    for (int a = 0; a < 5; a++) {
      for (int b = 0; b < 5; b++) {
        CHECK(((x * a) - (x * b)).to_vector()[1] == 2 * (a - b));
        CHECK(((x * a) - (y * b)).to_vector()[1] == 2 * a - 4 * b);
      }
    }
    CHECK(runtime.device().compiled().plans <= 8);
  }

  TEST_CASE("a number that someone has realised is an array, and others are not") {
    Runtime runtime{Config()};
    const Runtime::Use use(runtime);
    const Tensor x = Tensor::from<float>({1, 2}, {2});
    for (int k = 1; k < 9; k++) {
      const Tensor held = full({2}, k).realize();
      CHECK((x * k).to_vector()[1] == 2 * k);
      CHECK((x * (k + 1)).to_vector()[1] == 2 * k + 2);
      CHECK(held.to_vector() == std::vector<float>(2, static_cast<float>(k)));
    }
    // What a plan gave back stays as it is, though its argument changes.
    std::vector<Tensor> kept;
    for (int k = 0; k < 9; k++) kept.push_back(full({}, k).realize());
    for (int k = 0; k < 9; k++) CHECK(kept[static_cast<size_t>(k)].item() == k);
  }

  TEST_CASE("more structures than are kept, each met with several numbers") {
    Runtime runtime{Config()};
    const Runtime::Use use(runtime);
    for (int round = 0; round < 2; round++) {
      for (int64_t n = 1; n <= 300; n++) {
        for (int k = 0; k < 3; k++) {
          const int v = round + k;
          CHECK((arange(n) * v).to_vector<int>().back() == (n - 1) * v);
        }
      }
    }
  }

  TEST_CASE("threads that meet a structure with other numbers compile no more than one would") {
    Runtime runtime{Config()};
    const Runtime::Use use(runtime);
    constexpr int kThreads = 4, kStructures = 12;
    std::vector<Tensor> arrays;
    for (int n = 0; n < kStructures; n++) arrays.push_back(randn({n + 1}).realize());
    const auto plans = [&] { return runtime.device().compiled().plans; };
    // All threads at one structure at a time. Returns how many plans they made for each.
    const auto plans_by_threads = [&](auto f) {
      const int64_t before = plans();
      std::barrier together(kThreads);
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; t++) {
        threads.emplace_back([&, t] {
          const Runtime::Use also(runtime);
          for (const Tensor& x : arrays) {
            together.arrive_and_wait();
            f(x, t).realize();
          }
        });
      }
      for (std::thread& t : threads) t.join();
      return static_cast<double>(plans() - before) / kStructures;
    };
    CHECK(plans_by_threads([](const Tensor& x, int) { return tanh(x); }) == 1);
    CHECK(plans_by_threads([](const Tensor& x, int t) { return x * (t + 2.5); }) == 2);
    // Of a number that changes on some threads and another that does on the rest, one is widened
    // first.
    for (const Tensor& x : arrays) (x * 2.5 + 0.25).realize();
    CHECK(plans_by_threads([](const Tensor& x, int t) {
            return t % 2 ? x * (t + 9.5) + 0.25 : x * 2.5 + (t + 99.5);
          }) == 2);
    CHECK(plans_by_threads([](const Tensor& x, int t) { return x * (t + 7.5) + (t + 8.5); }) == 0);
  }

  TEST_CASE("threads that bring other numbers each have their own") {
    Runtime runtime{Config()};
    const Tensor x = Tensor::from<float>({1, 2}, {2});
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 8; t++) {
      threads.emplace_back([&, t] {
        const Runtime::Use use(runtime);
        for (int k = 0; k < 40; k++) {
          const int a = 100 * t + k, b = k % 5 == 0 ? t : 1;
          wrong += (x * a + b).to_vector()[1] != static_cast<float>(2 * a + b);
        }
      });
    }
    for (std::thread& t : threads) t.join();
    CHECK(wrong == 0);
    const Runtime::Use use(runtime);
    const int64_t before = runtime.device().compiled().plans;
    CHECK((x * 1234 + 1).to_vector()[1] == 2469);
    CHECK((x * 1234 + 7).to_vector()[1] == 2475);
    CHECK(runtime.device().compiled().plans == before);
  }
#endif
}
