// Memory is refused at every allocation of an action, one after another: the action fails, nothing
// has changed, and the same action then gives the bits that it would have given.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "nn/lazuli.h"
#include "tests/runtime/failing_new.h"

using namespace lazuli;

namespace {

using BitsAsNumbers = std::vector<double>;

// One thing to do, in a world made for it.
using Results = std::array<Tensor, 6>;
struct Trial {
  std::function<void(Results&)> act;
  std::function<BitsAsNumbers()> look;  // the values of all tensors that there are
};
using Make = std::function<Trial()>;

void append_bits(BitsAsNumbers& bits, const Tensor& t) {
  for (double v : t.to_vector<double>()) bits.push_back(v);
}
BitsAsNumbers bits_of(std::span<const Tensor> tensors) {
  BitsAsNumbers bits;
  for (const Tensor& t : tensors) append_bits(bits, t);
  return bits;
}
BitsAsNumbers bits_of(std::initializer_list<Tensor> tensors) {
  return bits_of(std::span(tensors.begin(), tensors.size()));
}
// With gradients; where there is none, a number that no value has.
BitsAsNumbers bits_with_gradients(const std::vector<Tensor>& tensors) {
  BitsAsNumbers bits = bits_of(std::span(tensors));
  for (const Tensor& t : tensors) {
    if (t.grad())
      append_bits(bits, *t.grad());
    else
      bits.push_back(-1e300);
  }
  return bits;
}

// The next key of the generator, which is not drawn.
BitsAsNumbers next_draw() {
  KeyDraws draws;
  return bits_of({draws.next()});
}

enum class Refused { Storage, New };

// Fails the n-th allocation of `act`. Did it fail?
bool fails(const Trial& trial, Refused what, uint64_t n, Results& results) {
  Runtime& runtime = Runtime::current();
  const auto set = [&](uint64_t at) {
    if (what == Refused::Storage)
      runtime.memory.fail_at(at);
    else
      test::fail_new_at(at);
  };
  try {
    set(n);
    trial.act(results);
    set(0);
    return false;
  } catch (const DeviceError& e) {
    set(0);
    REQUIRE(std::string(e.what()).find("a test refuses it") != std::string::npos);
  } catch (const std::bad_alloc&) {
    set(0);
    REQUIRE(what == Refused::New);
  }
  return true;
}

// `fresh`: in a runtime of its own for each failure, which has compiled nothing.
void check_failures(const Make& make, Refused what, bool fresh = false) {
  if (what == Refused::New && !test::can_fail_new()) return;
  Config config;
  config.threads = 2;
  // Whether a value was computed before it is read in a graph may change how a sum is rounded.
  struct Expected {
    BitsAsNumbers before, results, after, draw;
  } expected[2];
  const auto run_undisturbed = [&](bool looks) {
    Expected& e = expected[looks];
    manual_seed(7);
    const Trial trial = make();
    if (looks) e.before = trial.look();
    Results results;
    trial.act(results);
    e.results = bits_of(results);
    e.after = trial.look();
    e.draw = next_draw();
  };
  std::optional<Runtime> shared;
  shared.emplace(config);
  std::optional<Runtime::Use> use;
  use.emplace(*shared);
  run_undisturbed(false);
  run_undisturbed(true);
  uint64_t failures = 0;
  bool failed = true;
  for (uint64_t n = 1; failed; n += 1 + (n < 300 ? 0 : n / 50)) {
    use.reset();
    if (fresh) shared.emplace(config);
    use.emplace(*shared);
    const uint64_t held = shared->memory.stats().live;
    for (const bool looks : {false, true}) {
      INFO("allocation ", n, looks ? ", looked at between" : "");
      manual_seed(7);
      const Trial trial = make();
      Results results;
      failed = fails(trial, what, n, results);
      const Expected& e = expected[looks];
      if (failed) {
        failures++;
        if (looks) CHECK(trial.look() == e.before);
        trial.act(results);
      } else if (looks) {
        continue;  // it was not looked at before
      }
      CHECK(bits_of(results) == e.results);
      CHECK(trial.look() == e.after);
      CHECK(next_draw() == e.draw);
    }
    if (!fresh) CHECK(shared->memory.stats().live == held);
  }
  CHECK(failures > 0);
}

void check_storage(const Make& make) {
  check_failures(make, Refused::Storage);
  check_failures(make, Refused::Storage, true);
}
void check_all(const Make& make) {
  check_storage(make);
  check_failures(make, Refused::New);
}

Tensor device_numbers(int64_t n, DType dtype = DType::F32) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; i++) v.push_back(static_cast<double>((i * 37 + 11) % 64 - 32) / 32);
  return Tensor::from(v, {n}).to(dtype).realize();
}

// A small network with everything that a step changes.
struct Network {
  Tensor w = reshape(device_numbers(12), {3, 4}), b = device_numbers(4);
  Tensor x = reshape(device_numbers(15), {5, 3}).realize();
  nn::Adam adam{{w.requires_grad_(), b.requires_grad_()}, 1e-2};

  Tensor loss() { return mean(square(dropout(tanh(matmul(x, w) + b), 0.25))); }
  BitsAsNumbers look() {
    BitsAsNumbers bits = bits_with_gradients(adam.tensors());
    append_bits(bits, x);
    bits.push_back(adam.learning_rate());
    return bits;
  }
};

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("failing: one realize, of kernels with arrays between them") {
    check_all([] {
      const Tensor x = device_numbers(600), y = contiguous(exp(x)) * sum(x);
      const Tensor z = softmax(reshape(cumsum(contiguous(y + 1.0), 0), {20, 30}), -1);
      return Trial{[=](Results& r) { r[0] = z.realize(); }, [=] { return bits_of({x}); }};
    });
  }

  TEST_CASE("failing: several values together") {
    check_all([] {
      const Tensor x = device_numbers(600), a = exp(x), b = sum(a), c = sort(a * 2.0).values;
      return Trial{[=](Results& r) {
                     realize(a, b, c);
                     r = {a, b, c};
                   },
                   [=] { return bits_of({x}); }};
    });
  }

  TEST_CASE("failing: library steps") {
    check_all([] {
      const Tensor x = device_numbers(300), order = argsort(x);
      Tensor y = zeros({300});
      return Trial{[=](Results& r) mutable {
                     r[0] = cumsum(sort(x).values, 0).realize();
                     r[1] = setitem(y, {order}, x).realize();
                     r[2] = cummax(x, 0).values.realize();
                     r[3] = nonzero(x > 0).realize();
                     r[4] = unique(x).values.realize();
                   },
                   [=] {
                     return bits_of({x, y});
                   }};
    });
  }

  TEST_CASE("failing: assignments, and what is computed for a mask") {
    check_all([] {
      Tensor x = device_numbers(60);
      const Tensor part = x * 1.0;
      return Trial{[=](Results& r) mutable {
                     Tensor y = x.clone();
                     y.set_({y > 0.5}, -1);
                     y += masked_select(part, part > 0.9)[0];
                     r[0] = y.realize();
                     x.assign_(y);
                   },
                   [=] {
                     return bits_of({x, part});
                   }};
    });
  }

  TEST_CASE("failing: a replay that changes tensors whose array or node others hold") {
    check_all([] {
      Tensor alone = device_numbers(50), shown = device_numbers(50), read = device_numbers(50);
      auto f = jit([=](const Tensor& x) mutable {
        alone += x;
        shown *= x;
        read -= x;
        return std::array<Tensor, 2>{sum(alone), reshape(shown, {5, 10})};
      });
      const Tensor given = device_numbers(50);
      const auto kept = f(given);
      const Tensor later = read * 2.0;
      return Trial{[=](Results& r) mutable {
                     const auto got = f(given);
                     std::copy(got.begin(), got.end(), r.begin());
                   },
                   [=] {
                     return bits_of({alone, shown, read, kept[1], later});
                   }};
    });
  }

  TEST_CASE("failing: a function that is captured, then replayed") {
    const auto make = [](bool captured) {
      return [captured] {
        Tensor state = device_numbers(50), given = device_numbers(50), count = zeros({}).realize();
        auto f = jit([=](Tensor x) mutable {
          count += 1.0;
          state.assign_(state + rand({50}) + x);
          x *= 2.0;
          return std::array<Tensor, 3>{sum(state), sort(state).values, reshape(state, {5, 10})};
        });
        if (captured) f(given);
        return Trial{[=](Results& r) mutable {
                       const auto got = f(given);
                       std::copy(got.begin(), got.end(), r.begin());
                     },
                     [=] {
                       return bits_of({state, given, count});
                     }};
      };
    };
    check_all(make(false));
    check_all(make(true));
    check_all([] {
      Tensor state = device_numbers(50);
      state.requires_grad_();
      auto f = jit([=](const Tensor& x) { return grad(sum(square(state) * x), state); });
      const Tensor given = device_numbers(50);
      return Trial{[=](Results& r) mutable { r[0] = f(given); },
                   [=] {
                     return bits_with_gradients({state, given});
                   }};
    });
  }

  TEST_CASE("failing: a function of sizes that change, whose results are copied out of rooms") {
    for (const bool known : {false, true}) {
      check_all([known] {
        Tensor state = device_numbers(8), count = zeros({}).realize();
        auto f = jit(
            [=](const Tensor& x) mutable {
              count += 1.0;
              state += sum(x, {1});
              return std::vector<Tensor>{x * 2.0, sum(state)};
            },
            {dynamic(0, 1, dim("n", 1, 12))});
        const Tensor x = reshape(device_numbers(40), {8, 5}).realize();
        f(reshape(device_numbers(56), {8, 7}));
        if (known) f(x);
        return Trial{[=](Results& r) mutable {
                       const auto got = f(x);
                       std::copy(got.begin(), got.end(), r.begin());
                     },
                     [=] {
                       return bits_of({state, count, x});
                     }};
      });
    }
  }

  TEST_CASE("failing: backward, and gradients that are added to") {
    check_failures(
        [] {
          const auto net = std::make_shared<Network>();
          backward(net->loss());
          const Tensor loss = net->loss();
          return Trial{[=](Results&) { backward(loss); }, [=] { return net->look(); }};
        },
        Refused::New);
    // With values asked for in the middle.
    check_all([] {
      Tensor x = device_numbers(20);
      x.requires_grad_();
      const Tensor loss = sum(custom_vjp(x * 2.0, {x}, [=](const Tensor& g) {
        return std::vector<Tensor>{g * sum(x.detach() * g).item()};
      }));
      backward(sum(x));
      return Trial{[=](Results&) { backward(loss); }, [=] { return bits_with_gradients({x}); }};
    });
  }

  TEST_CASE("failing: a step of an optimizer") {
    for (const bool first : {true, false}) {
      check_all([first] {
        const auto net = std::make_shared<Network>();
        if (!first) net->adam.step(net->loss());
        const Tensor loss = net->loss();
        return Trial{[=](Results& r) {
                       net->adam.step(loss);
                       r[0] = loss;
                     },
                     [=] { return net->look(); }};
      });
    }
    check_all([] {
      const auto net = std::make_shared<Network>();
      return Trial{[=](Results&) { net->adam.set_learning_rate(0.5); },
                   [=] { return net->look(); }};
    });
    // One that makes arrays while it builds its graph, and leaves a parameter out.
    check_all([] {
      Tensor a = device_numbers(5), b = device_numbers(4), c = device_numbers(3);
      for (Tensor* t : {&a, &b, &c}) t->requires_grad_();
      const auto sgd = std::make_shared<nn::SGD>(std::vector<Tensor>{a, b, c}, 0.5,
                                                 nn::SGDOptions{.momentum = 0.5, .dampening = 0.5});
      backward(sum(a * a) + sum(c));
      return Trial{[=](Results&) { sgd->step(); },
                   [=] { return bits_with_gradients(sgd->tensors()); }};
    });
  }

  TEST_CASE("failing: a step that is captured, then replayed") {
    enum class Path { First, InPlace, Shared };
    for (const Path path : {Path::First, Path::InPlace, Path::Shared}) {
      for (const bool keeps_gradients : {false, true}) {
        CAPTURE(static_cast<int>(path));
        CAPTURE(keeps_gradients);
        check_all([=] {
          const auto net = std::make_shared<Network>();
          auto step = jit([=](const Tensor& scale) {
            const Tensor loss = net->loss() * scale;
            net->adam.zero_grad();
            backward(loss);
            net->adam.step();
            if (!keeps_gradients) net->adam.zero_grad();
            return std::array<Tensor, 2>{loss, sum(abs(net->w))};
          });
          const Tensor scale = full({}, 2.0).realize();
          if (path != Path::First) {
            // Twice: the second finds gradients, and a function is captured for each case.
            step(scale);
            step(scale);
          }
          // Graphs that hold what is to change, and an assigned parameter.
          std::vector<Tensor> users;
          if (path == Path::Shared) {
            for (const Tensor& t : net->adam.tensors()) users.push_back(t.detach() * 2.0);
            net->b.assign_(device_numbers(4) * 0.5);
          }
          return Trial{[=](Results& r) mutable {
                         const auto got = step(scale);
                         std::copy(got.begin(), got.end(), r.begin());
                       },
                       [=] {
                         BitsAsNumbers bits = net->look();
                         for (const Tensor& t : users) append_bits(bits, t);
                         return bits;
                       }};
        });
      }
    }
  }

  TEST_CASE("failing: keys and leaves of gradients") {
    check_all([] {
      const Tensor x = device_numbers(10);
      return Trial{[=](Results& r) { r[0] = next_key(); }, [=] { return bits_of({x}); }};
    });
    check_all([] {
      const Tensor x = device_numbers(10);
      Tensor y = x * 2.0;
      return Trial{[=](Results& r) mutable {
                     y.requires_grad_();
                     r[0] = y;
                   },
                   [=] {
                     return bits_with_gradients({x, y});
                   }};
    });
  }

  TEST_CASE("failing: reading and writing files") {
    const auto folder = std::filesystem::temp_directory_path() / "lazuli_failure_test";
    std::filesystem::create_directories(folder);
    const std::string npy = folder / "a.npy", npz = folder / "b.npz";
    save_npy(npy, device_numbers(500));
    save_npz(npz, {{"x", device_numbers(300)}, {"y", device_numbers(7, DType::I32)}});
    const auto nothing = [] { return BitsAsNumbers{}; };
    check_all([=] { return Trial{[=](Results& r) { r[0] = load_npy(npy); }, nothing}; });
    check_all([=] {
      return Trial{[=](Results& r) {
                     const NamedTensors all = load_npz(npz);
                     r = {all[0].second, all[1].second};
                   },
                   nothing};
    });
    check_all([=] {
      const Tensor x = device_numbers(40), y = x * 2.0;
      return Trial{[=](Results& r) {
                     save_npz(npz, {{"y", y}});
                     r[0] = load_npz(npz)[0].second;
                   },
                   [=] { return bits_of({x}); }};
    });
    std::filesystem::remove_all(folder);
  }
}
