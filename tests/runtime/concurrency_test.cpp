// Several threads at once: building, differentiating and realising graphs, of their own and shared
// ones, in one runtime and in two. What a thread gets is, bit for bit, what it would get alone. The
// thread sanitizer runs these tests.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/graph.h"
#include "nn/lazuli.h"

using namespace lazuli;

namespace {

using FloatBits = std::vector<uint32_t>;
constexpr int kThreads = 8;

// Runs body(0) ... body(kThreads - 1), each on a thread of its own, all let go together. What
// threads may not do is check: they return what they have found, or throw.
template <typename R>
std::vector<R> on_threads(const std::function<R(int)>& body) {
  std::vector<R> results(kThreads);
  std::vector<std::string> errors(kThreads);
  std::barrier together(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      together.arrive_and_wait();
      try {
        results[t] = body(static_cast<int>(t));
      } catch (const Error& e) {
        errors[t] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& e : errors) CHECK(e == "");
  return results;
}

FloatBits float_bits_of(const Tensor& x) {
  const std::vector<float> values = x.to_vector();
  FloatBits bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

Tensor numbered(int seed, const Shape& shape) {
  return randn(shape, DType::F32, random_key(static_cast<uint64_t>(seed)));
}

// The gradient of a small network with a reduction, a softmax and random inputs; `seed` changes the
// values, `size` the structure.
FloatBits train_once(int seed, int64_t size) {
  Tensor w = numbered(seed, {size, 7}), x = numbered(seed + 1, {5, size});
  w.requires_grad_();
  const Tensor hidden = layer_norm(tanh(x.matmul(w)), {7});
  backward(sum(softmax(hidden, -1) * hidden));
  return float_bits_of(w.grad().value());
}

Config with_threads(int threads) {
  Config config;
  config.threads = threads;
  return config;
}

}  // namespace

TEST_SUITE_BEGIN("runtime");

TEST_CASE("eight threads build, differentiate and realise graphs of their own") {
  constexpr int kRounds = 6;
  std::vector<std::vector<FloatBits>> wanted(kThreads);
  {
    Runtime alone(with_threads(1));
    const Runtime::Use use(alone);
    for (int t = 0; t < kThreads; t++) {
      for (int i = 0; i < kRounds; i++)
        wanted[static_cast<size_t>(t)].push_back(train_once(100 * t + i, 3 + i));
    }
  }
  Runtime shared(with_threads(3));
  const auto got = on_threads<std::vector<FloatBits>>([&](int t) {
    const Runtime::Use use(shared);
    std::vector<FloatBits> out;
    for (int i = 0; i < kRounds; i++) out.push_back(train_once(100 * t + i, 3 + i));
    return out;
  });
  CHECK(got == wanted);
}

TEST_CASE("threads that realise parts of one graph meanwhile do not disturb each other") {
  // Each stage reads stages before it, and each thread begins with another one: what is a leaf for
  // one is still to be computed for the next, and changes while graphs are looked at. Integers,
  // since which parts are computed already may change how a sum of floats is rounded.
  const auto stages = [](int round) {
    std::vector<Tensor> s{randint(-99, 99, {33}, DType::I64, random_key(round))};
    for (int i = 1; i < 12; i++) {
      Tensor next = s.back() * 3 + i;
      if (i % 3 == 0) next = next - sum(next);
      if (i % 4 == 0) next = sort(next).values;
      s.push_back(next + s[static_cast<size_t>(i / 2)]);
    }
    return s;
  };
  for (int round = 0; round < 20; round++) {
    std::vector<std::vector<int64_t>> wanted;
    for (const Tensor& s : stages(round)) wanted.push_back(s.to_vector<int64_t>());
    const std::vector<Tensor> shared = stages(round);
    const auto got = on_threads<int>([&](int t) {
      int wrong = 0;
      for (size_t i = 0; i < shared.size(); i++) {
        const size_t at = (i * 5 + static_cast<size_t>(t) * 3) % shared.size();
        wrong += (shared[at] + 1 - 1).to_vector<int64_t>() != wanted[at];
        wrong += shared[at].to_vector<int64_t>() != wanted[at];
      }
      return wrong;
    });
    CHECK(got == std::vector<int>(kThreads));
  }
}

TEST_CASE("eight threads ask one tensor for its value") {
  for (int round = 0; round < 30; round++) {
    const Tensor x = sum(exp(numbered(round, {64, 5})), 0);
    const auto got = on_threads<FloatBits>([&](int) { return float_bits_of(x); });
    for (const FloatBits& b : got) CHECK(b == got[0]);
  }
}

TEST_CASE("two runtimes in one process, on several threads each, give the same bits") {
  Runtime one(with_threads(1)), many(with_threads(4));
  const auto got = on_threads<FloatBits>([&](int t) {
    const Runtime::Use use(t % 2 ? one : many);
    FloatBits all;
    for (int64_t i = 0; i < 5; i++) {
      const FloatBits b = train_once(static_cast<int>(i), 40 + i);
      all.insert(all.end(), b.begin(), b.end());
    }
    return all;
  });
  for (const FloatBits& b : got) CHECK(b == got[0]);
}

TEST_CASE("few long rows give the same bits on any number of threads") {
  const auto all = [](int threads) {
    Runtime runtime(with_threads(threads));
    const Runtime::Use use(runtime);
    FloatBits bits;
    for (const int64_t rows : {1, 3}) {
      const Tensor x = numbered(5, {rows, 1 << 17});
      for (const Tensor& y : {softmax(x, -1), log_softmax(x, -1), logsumexp(x, {-1}),
                              to(argmax(x, 1), DType::F32), layer_norm(x, {1 << 17})}) {
        const FloatBits b = float_bits_of(y);
        bits.insert(bits.end(), b.begin(), b.end());
      }
    }
    return bits;
  };
  const FloatBits one = all(1);
  for (const int threads : {2, 3, 7}) CHECK(all(threads) == one);
}

// Whether the lanes of their sums lie along the rows is a matter of threads, and the columns of a
// matrix that is read once are shared out among them.
TEST_CASE("layers of few rows give the same bits on any number of threads") {
  const auto all = [](int threads) {
    Runtime runtime(with_threads(threads));
    const Runtime::Use use(runtime);
    FloatBits bits;
    const auto normal = [](uint64_t key, const Shape& shape) {
      return randn(shape, DType::F32, random_key(key)).realize();
    };
    const Tensor x = normal(5, {32, 234}), w = normal(6, {568, 234}), b = normal(7, {32, 568});
    const Tensor y = linear(x, w) + b;
    const Tensor once = matmul(normal(8, {32, 600}), normal(9, {600, 5000})) + normal(10, {5000});
    for (const Tensor& z : {linear(x, w), relu(y), layer_norm(y, {568}), softmax(y * 0.125, -1),
                            once, layer_norm(once, {5000}), softmax(once * 0.125, -1)}) {
      const FloatBits more = float_bits_of(z);
      bits.insert(bits.end(), more.begin(), more.end());
    }
    return bits;
  };
  const FloatBits one = all(1);
  for (const int threads : {2, 3, 7}) CHECK(all(threads) == one);
}

TEST_CASE("what one runtime has computed another reads, and it outlives the first") {
  Tensor x, y;
  {
    Runtime first(with_threads(2));
    const Runtime::Use use(first);
    x = (numbered(1, {1000}) * 2.0).realize();
    y = x + 1.0;  // still to be computed
  }
  Runtime second(with_threads(3));
  const Runtime::Use use(second);
  CHECK(float_bits_of(y - 1.0) == float_bits_of(x + 1.0 - 1.0));
  CHECK(float_bits_of(x) == float_bits_of(numbered(1, {1000}) * 2.0));
}

TEST_CASE("threads meet in a cache of plans that is too small for them") {
  Runtime runtime(with_threads(2));
  constexpr int64_t kStructures =
      300;  // more than are kept; sorting is a library step, so that no kernel is compiled
  const auto got = on_threads<int>([&](int t) {
    const Runtime::Use use(runtime);
    int wrong = 0;
    for (int64_t i = 0; i < kStructures; i++) {
      const int64_t n = 1 + (i + 17 * t) % kStructures;
      std::vector<float> values(static_cast<size_t>(n)), order;
      for (int64_t k = 0; k < n; k++) values[static_cast<size_t>(k)] = static_cast<float>(n - k);
      for (int64_t k = 0; k < n; k++) order.push_back(static_cast<float>(n - 1 - k));
      wrong += argsort(Tensor::from(values, {n})).to_vector() != order;
    }
    return wrong;
  });
  CHECK(got == std::vector<int>(kThreads));
}

TEST_CASE("threads that draw from the global generator get the keys of one thread, each once") {
  constexpr int kDraws = 50;
  std::multiset<std::vector<uint32_t>> wanted, met;
  manual_seed(5);
  for (int i = 0; i < kThreads * kDraws; i++) wanted.insert(next_key().to_vector<uint32_t>());
  manual_seed(5);
  const auto got = on_threads<std::vector<std::vector<uint32_t>>>([&](int) {
    std::vector<std::vector<uint32_t>> keys;
    for (int i = 0; i < kDraws; i++) keys.push_back(next_key().to_vector<uint32_t>());
    return keys;
  });
  for (const auto& keys : got) met.insert(keys.begin(), keys.end());
  CHECK(met == wanted);
  CHECK(std::set(wanted.begin(), wanted.end()).size() == wanted.size());
}

TEST_CASE("eight threads differentiate with respect to the same parameters and leaves") {
  for (int round = 0; round < 5; round++) {
    const auto make = [&] {
      Tensor w = numbered(round, {9, 7}),
             x = numbered(round + 50, {5, 9}) * 0.5;  // not computed yet
      w.requires_grad_();
      return std::pair(w, x);
    };
    const auto gradient = [](const std::pair<Tensor, Tensor>& p, int t) {
      const Tensor loss = sum(tanh(matmul(p.second, p.first)) * static_cast<double>(t + 1));
      const auto [dw, dx] = grad(loss, {p.first, p.second});
      realize(loss, dw, dx);
      FloatBits all = float_bits_of(dw);
      for (uint32_t b : float_bits_of(dx)) all.push_back(b);
      return all;
    };
    std::vector<FloatBits> wanted;
    const auto alone = make();
    alone.second.realize();
    for (int t = 0; t < kThreads; t++) wanted.push_back(gradient(alone, t));
    const auto shared = make();
    shared.second.realize();
    const auto got = on_threads<FloatBits>([&](int t) { return gradient(shared, t); });
    CHECK(got == wanted);
    // And where all of them find the leaf still to be computed.
    const auto lazy = make();
    on_threads<FloatBits>([&](int t) { return gradient(lazy, t); });
    CHECK(float_bits_of(lazy.second) == float_bits_of(alone.second));
  }
}

TEST_CASE("threads call captured functions, of their own and a shared one, in two runtimes") {
  Runtime one(with_threads(1)), many(with_threads(3));
  const Tensor w = numbered(3, {6, 6}).realize();
  auto shared = jit([&](const Tensor& x) { return tanh(matmul(x, w)); });
  const FloatBits wanted = float_bits_of(tanh(matmul(numbered(4, {2, 6}).realize(), w)));
  const auto got = on_threads<int>([&](int t) {
    const Runtime::Use use(t % 2 ? one : many);
    Tensor count = zeros({}).realize();
    auto mine = jit([&](const Tensor& x) {
      count += 1.0;
      return sum(matmul(x, w)) * 0.0 + count;
    });
    int wrong = 0;
    const Tensor x = numbered(4, {2, 6}).realize();
    for (int i = 1; i <= 50; i++) {
      // While functions are captured anew, w stays what it is.
      auto other = jit([&](const Tensor& y, double by) { return matmul(y, w) * by; });
      wrong += other(x, static_cast<double>(t)).shape() != Shape{2, 6};
      wrong += float_bits_of(tanh(matmul(x, w))) != wanted;
      wrong += float_bits_of(shared(x)) != wanted;
      wrong += mine(x).item<int>() != i;
    }
    return wrong;
  });
  CHECK(got == std::vector<int>(kThreads));
  CHECK(shared.count().calls == 50 * kThreads);
}

TEST_CASE("a tensor that one thread assigns to has an old or a new value on the others") {
  Tensor x = full({64}, 0.0);
  constexpr int kSteps = 200;
  const auto got = on_threads<int>([&](int t) {
    int wrong = 0;
    double last = 0;
    for (int i = 1; i <= kSteps; i++) {
      if (t == 0) {
        x.assign_(Tensor::from({static_cast<double>(i)}, {1}));
        continue;
      }
      const Tensor now = x.detach();  // x may be another by the next line
      const std::vector<double> values = (now * 1.0).to_vector<double>();
      for (double v : values) wrong += v != values[0];
      wrong += values[0] < last;
      last = values[0];
    }
    return wrong;
  });
  CHECK(got == std::vector<int>(kThreads));
  CHECK(x.to_vector()[63] == kSteps);
}

TEST_CASE("an error on one thread is that thread's alone") {
  const auto got = on_threads<int>([](int t) {
    int good = 0;
    for (int i = 0; i < 20; i++) {
      const Tensor x = numbered(i, {6});
      if (t % 2) {
        try {
          reshape(x, {5});
        } catch (const UserError&) {
          good++;
        }
      } else {
        good += float_bits_of(x + 1.0).size() == 6;
      }
    }
    return good;
  });
  CHECK(got == std::vector<int>(kThreads, 20));
}

TEST_CASE("nodes are freed whichever thread lets go last") {
  const size_t before = live_nodes();
  for (int round = 0; round < 20; round++) {
    std::vector<Tensor> held(kThreads);
    on_threads<int>([&](int t) {
      Tensor y = arange(11, DType::F32);
      for (int i = 0; i < 200; i++)
        y = y * 1.5 + static_cast<double>((i + t) % 3);  // threads meet in the same nodes
      held[static_cast<size_t>(t)] = y;
      return 0;
    });
    on_threads<int>([&](int t) {
      held[static_cast<size_t>((t + 1) % kThreads)] = Tensor();
      return 0;
    });
  }
  CHECK(live_nodes() == before);
}

#if !defined(__SANITIZE_THREAD__)  // which does not let a forked child start threads
TEST_CASE("a forked child compiles what it realises, on threads of its own") {
  Runtime runtime(with_threads(3));
  const Runtime::Use use(runtime);
  const Tensor x = arange(1000) / 1000;
  const auto sums = [&](double scale) {
    // Kernels of several shapes, some of them alike.
    Tensor all = full({}, 0.0);
    for (int64_t rows : {2, 4, 5, 8, 2}) {
      const Tensor y = contiguous(exp(reshape(x, {rows, 1000 / rows}) * scale));
      all = all + sum(softmax(y, 1) * y);
    }
    return all.item<float>();
  };
  CHECK(sums(0) == 21);  // softmax of ones is 1 in all, for each row
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(std::abs(sums(0.001) - 21) < 0.1 ? 7 : 8);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}
#endif

TEST_SUITE_END();
