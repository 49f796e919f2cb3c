// Plans that a process finds where an earlier one has left them.
#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "nn/lazuli.h"
#include "runtime/cpu/stored.h"
#include "runtime/cpu/target.h"
#include "runtime/device.h"
#include "runtime/inspect.h"
#include "runtime/kernel_cache.h"
#include "runtime/plan_key.h"
#include "tests/cache_folder.h"

#if LAZULI_LLVM
namespace lazuli {
namespace {

using Floats = std::vector<float>;

// In a runtime of its own, as a process has one.
struct Process {
  explicit Process(const test::CacheFolder& folder, uint64_t memory = 0)
      : runtime(config(folder, memory)), use(runtime) {}
  static Config config(const test::CacheFolder& folder, uint64_t memory) {
    Config c;
    c.device = "cpu";
    c.cache_folder = folder.cache();
    c.memory = memory;
    return c;
  }
  CompileCount count() { return runtime.device().compiled(); }

  Runtime runtime;
  const Runtime::Use use;
};

Tensor realised_random(const Shape& shape, uint64_t seed) {
  return randn(shape, DType::F32, random_key(seed)).realize();
}

// Checks that a second process gives the same bits by plans and kernels of the first alone.
void check_again(const std::function<Floats()>& run) {
  const test::CacheFolder folder;
  Floats first;
  CompileCount made;
  {
    Process p(folder);
    first = run();
    made = p.count();
  }
  CHECK(made.plans > 0);
  Process p(folder);
  CHECK(run() == first);
  CHECK(p.count().plans == made.plans);
  CHECK(p.count().plans_loaded == made.plans);
  CHECK(p.count().kernels == 0);
}

}  // namespace

TEST_SUITE_BEGIN("runtime");

TEST_CASE("a second process makes no plan that the first has made") {
  SUBCASE("of kernels over several values and numbers") {
    check_again([] {
      const Tensor x = realised_random({33, 65}, 1), w = realised_random({65, 20}, 2);
      const Tensor y = softmax(gelu(matmul(x, w)) * 3, 1), z = sum(y * y, {0}) + 2;
      realize(y, z);
      Floats out = y.to_vector(), more = z.to_vector();
      out.insert(out.end(), more.begin(), more.end());
      return out;
    });
  }
  SUBCASE("with library steps") {
    check_again([] {
      const Tensor x = realised_random({5, 40}, 1);
      const auto [values, places] = sort(x * 2, 1);
      const Tensor y = cumsum(values, 1) + cast(places, DType::F32);
      return (y - mean(y)).to_vector();
    });
  }
  SUBCASE("with numbers that have become arguments") {
    check_again([] {
      const Tensor x = realised_random({40}, 1);
      Floats out;
      for (int i = 1; i < 5; i++) out.push_back(sum(x * i + 0.5).item<float>());
      return out;
    });
  }
  SUBCASE("that read a value of constants alone") {
    check_again([] {
      const Tensor x = realised_random({40}, 1), steps = (arange(40, DType::F32) * 0.25).realize();
      return (x + arange(40, DType::F32) * 0.25 + steps).to_vector();
    });
  }
  SUBCASE("of captured steps that change parameters in place") {
    check_again([] {
      Tensor w = realised_random({20, 20}, 1), moment = zeros({20, 20}).realize();
      auto step = jit([&](const Tensor& x) {
        const Tensor slope = matmul(x.transpose(0, 1), matmul(x, w));
        moment.assign_(moment * 0.9 + slope);
        w.assign_(w - moment * 0.01);
        return sum(w * w);
      });
      Floats out;
      for (uint64_t i = 0; i < 4; i++)
        out.push_back(step(realised_random({8, 20}, i)).item<float>());
      const Floats last = w.to_vector();
      out.insert(out.end(), last.begin(), last.end());
      return out;
    });
  }
}

TEST_CASE("a plan from the disk is told of as the one that was made") {
  const test::CacheFolder folder;
  const auto told = [&] {
    Process p(folder);
    const Tensor x = realised_random({64, 64}, 1);
    const Tensor y = cumsum(softmax(matmul(x, x), 1), 1).realize();
    // The limit too: it follows from the measured peak and bandwidth.
    const std::regex measured("[0-9.]+ (us|GFLOP/s|with operands|GB/s|%)|bound by \\w+"),
        note("\nmore than 100 %[^\n]*");
    return std::regex_replace(std::regex_replace(explain(y), note, ""), measured, "#");
  };
  const std::string first = told();
  CHECK(first.find("why: ") != std::string::npos);
  CHECK(first.find("(scan)") != std::string::npos);
  CHECK(told() == first);
}

TEST_CASE("a plan that reads a value which simplifying found is not taken for another's") {
  const test::CacheFolder folder;
  // The first plan reads the value of b * 2, which the graph computes at another place too.
  const auto run = [&](bool with_value) {
    Process p(folder);
    auto f = jit([&](const Tensor& x) {
      const Tensor b = tensor({1.f, 2.f, 3.f, 4.f});
      const Tensor nines = tensor({9.f, 9.f, 9.f, 9.f}), twice = b * 2;
      const Tensor y = (with_value ? twice : nines) * x;
      if (with_value) twice.realize();
      return y + b.detach() * 2;
    });
    return f(ones({4})).to_vector();
  };
  CHECK(run(true) == Floats{4, 8, 12, 16});
  CHECK(run(false) == Floats{11, 13, 15, 17});
}

TEST_CASE("a plan whose kernels are gone is made again") {
  const test::CacheFolder folder;
  const auto run = [] { return sum(exp(realised_random({30, 40}, 1)), {1}).to_vector(); };
  Floats first;
  {
    Process p(folder);
    first = run();
  }
  for (const std::string& path : folder.files()) {
    constexpr size_t kHeader = 48;
    const std::vector<std::byte> bytes = read_file(path);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (load_kernel(text.substr(kHeader))) std::filesystem::remove(path);
  }
  Process p(folder);
  CHECK(run() == first);
  CHECK(p.count().plans_loaded == 0);
  CHECK(p.count().kernels > 0);
}

TEST_CASE("a plan from the disk runs steps again where memory is short") {
  const test::CacheFolder folder;
  const auto gradient = [] {
    const Tensor x = realised_random({512, 64}, 99).requires_grad_();
    Tensor h = x;
    for (uint64_t i = 0; i < 24; i++) {
      h = tanh(matmul(h, realised_random({64, 64}, i) * 0.1));
      h = h - mean(h, {0});  // over the rows: a kernel of its own
    }
    return grad(sum(h * h), x).to_vector();
  };
  Floats first;
  uint64_t peak = 0;
  {
    Process p(folder);
    first = gradient();
    peak = p.runtime.memory.stats().peak;
  }
  Process p(folder, peak * 90 / 100);
  CHECK(gradient() == first);
  CHECK(p.count().plans_loaded == p.count().plans);
}

TEST_CASE("threads of two runtimes share a folder of plans that is emptied now and then") {
  const test::CacheFolder folder, alone;
  constexpr size_t kThreads = 4;
  constexpr int kRounds = 6;
  const auto values = [](int round) {
    const Tensor x = realised_random({24, 10 + round % 3}, 7);
    return cumsum(softmax(x * 2, 1), 0).to_vector();
  };
  std::vector<Floats> wanted;
  {
    Process p(alone);
    for (int i = 0; i < kRounds; i++) wanted.push_back(values(i));
  }
  std::vector<int> wrong(kThreads);
  for (int repeat = 0; repeat < 3; repeat++) {
    Config config = Process::config(folder, 0);
    config.threads = 3;
    Runtime one(config), other(config);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; t++) {
      threads.emplace_back([&, t] {
        const Runtime::Use use(t % 2 ? one : other);
        for (int i = 0; i < kRounds; i++) {
          wrong[t] += values(i) != wanted[static_cast<size_t>(i)];
          if (t == 0 && i % 2) KernelCache(folder.cache()).clear();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(wrong == std::vector<int>(kThreads));
}

TEST_CASE("a key of a graph tells apart what plans are made for") {
  const auto key = [](const Tensor& t, const std::vector<NodeRef>& donors = {}) {
    const NodeRef root = t.node();
    const Hash128 h = graph_key({&root, 1}, donors).value().hash;
    return std::pair(h.low, h.high);
  };
  const Tensor a = ones({4}).realize(), b = zeros({4}).realize(), wide = ones({5}).realize();
  CHECK(key(a * 2 + b) == key(b * 2 + a));
  CHECK(key(a * 2 + b) != key(a * 3 + b));
  CHECK(key(a * 2 + b) != key(a * 2 + a));
  CHECK(key(a * 2 + b) != key(b + a * 2));
  CHECK(key(a * 2 + b) != key(a * 2 - b));
  CHECK(key(a * 2) != key(wide * 2));
  CHECK(key(a * 2) != key(ones({4}, DType::F64).realize() * 2));
  CHECK(key(a * 2) != key(a * 2, {a.node()}));
  CHECK(key(sum(a, {0})) != key(prod(a, {0})));
  CHECK(key(sum(ones({4, 4}).realize(), {0})) != key(sum(ones({4, 4}).realize(), {1})));
}

TEST_CASE("a stored plan is loaded whole or not at all, and for leaves and roots that fit") {
  const test::CacheFolder folder;
  Process p(folder);
  const Tensor x = realised_random({30, 40}, 1);
  const std::vector<NodeRef> roots{cumsum(softmax(matmul(x.transpose(0, 1), x), 1), 0).node()},
      leaves = graph_key(roots, {}).value().leaves;
  KernelStore store(host_target(nullptr), p.runtime, nullptr);
  const LinkedPlan linked = link_plan(make_plan(roots, store.target()), store, p.runtime);
  CHECK(!store_plan(linked, {}));
  const std::string bytes = store_plan(linked, leaves).value();
  const auto load = [&](const std::string& text) { return load_plan(text, leaves, roots); };
  REQUIRE(load(bytes));
  CHECK(store_plan(*load(bytes), leaves) == bytes);
  const std::vector<NodeRef> others{realised_random({30, 41}, 1).node()}, none;
  CHECK(!load_plan(bytes, others, roots));
  CHECK(!load_plan(bytes, none, roots));
  CHECK(!load_plan(bytes, leaves, others));
  CHECK(!load_plan(bytes, leaves, none));
  for (size_t n = 0; n < bytes.size(); n++) CHECK(!load(bytes.substr(0, n)));
  CHECK(!load(bytes + "x"));
  // Numbers that are not so: nothing is read or asked for beyond the bytes.
  for (size_t n = 0; n < bytes.size(); n++) {
    std::string text = bytes;
    text[n] = static_cast<char>(~text[n]);
    load(text);
  }
}

TEST_SUITE_END();

}  // namespace lazuli
#endif
