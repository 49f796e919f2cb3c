// Random functions of tensors whose axes follow a dimension: one capture for all sizes against
// plain calls at each. FUZZ_SEED and FUZZ_ROUNDS choose others.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/graph.h"
#include "nn/lazuli.h"
#include "runtime/device.h"
#include "runtime/jit.h"
#include "tests/fuzz/settings.h"
#include "tests/on_devices.h"

namespace lazuli {
namespace {

using Tensors = std::vector<Tensor>;

// The same function for the same seed, whatever the sizes: it asks for ranks and for which axes are
// as long as the first of `x`, never for lengths.
class RandomFunction {
 public:
  explicit RandomFunction(uint64_t seed) : seed_(seed) {}

  Tensors operator()(const Tensor& x, const Tensor& ids) const {
    std::mt19937_64 random(seed_);
    const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
    Tensors made{x};
    const int steps = 3 + static_cast<int>(pick(6));
    for (int i = 0; i < steps; i++) made.push_back(step(made[pick(made.size())], made, ids, pick));
    Tensors out{made.back()};
    if (pick(2) == 0) out.push_back(grad(sum(made.back() * made.back()), {x})[0]);
    out.push_back(made[pick(made.size())]);
    return out;
  }

 private:
  static Tensor step(const Tensor& t, const Tensors& made, const Tensor& ids, const auto& pick) {
    const int64_t rank = t.dim();
    const int64_t axis = rank > 0 ? static_cast<int64_t>(pick(static_cast<size_t>(rank))) : 0;
    const size_t kind = pick(20);
    if (rank == 0 || kind < 3) return kind == 0 ? tanh(t) : kind == 1 ? exp(t * 0.1) : t * t * 0.5;
    switch (kind) {
      case 3:
        return softmax(t, axis);
      case 4:
        return sum(t, {axis}, true) * 0.1;
      case 5:
        return mean(t, {axis}, true) + t;
      case 6:
        return amax(t, {axis}, true) - t;
      case 7:
        return transpose(t, 0, rank - 1);
      case 8:
        return unsqueeze(t, axis);
      case 9:
        return rank > 3 ? sum(t, {axis}) : t;
      case 10:
        return cumsum(tanh(t), axis) * 0.2;
      case 11:
        return t.dim() < 2 ? t : matmul(t, t.mT()) * 0.1;
      case 12:
        return t.dim() < 2 ? t : matmul(softmax(matmul(t, t.mT()), -1), t);
      case 13:
        return cat({t, t * 2.0}, axis == 0 && rank > 1 ? rank - 1 : axis);
      case 14:
        return flatten(t);
      case 15:
        return var(t, {axis}, 0.0, true) + t;
      case 16:
        return embedding(ids, ones({5, 3}) * 0.3) + sum(t) * 0.01;
      case 17:
        return pad(t, {1, 2});
      case 18:
        return select(t, axis, -1);
      default: {
        const Tensor& other = made[pick(made.size())];
        return other.shape() == t.shape() ? other + t : where(t > 0.0, t, -0.5);
      }
    }
  }

  uint64_t seed_;
};

std::string dynamic_difference(const Tensor& got, const Tensor& want) {
  if (got.shape() != want.shape()) {
    return fmt::format("shape {} for {}", to_string(got.shape()), to_string(want.shape()));
  }
  const std::vector<float> a = got.to_vector(), b = want.to_vector();
  for (size_t i = 0; i < a.size(); i++) {
    const bool equal = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!equal && !(std::abs(a[i] - b[i]) <= 1e-3f * std::max(1.0f, std::abs(b[i])))) {
      return fmt::format("element {} is {} for {}", i, a[i], b[i]);
    }
  }
  return "";
}

}  // namespace

TEST_SUITE("fuzz") {
  TEST_CASE("functions captured once for many sizes are what they are at each") {
    const uint64_t first = test::first_seed(), rounds = test::setting("FUZZ_ROUNDS", 40);
    uint64_t checked = 0;
    for (uint64_t seed = first; seed < first + rounds; seed++) {
      on_devices([&] {
        const std::string device(Runtime::current().device().name());
        const RandomFunction f(seed);
        constexpr int64_t kMost[] = {37, 70, 40, 75};  // of one class of sizes, or of two
        const int64_t most = kMost[seed / 3 % 4];
        const Dim n = dim("n", 1, most);
        const auto axis = static_cast<int64_t>(seed % 3);
        auto jitted = jit(f, {dynamic(0, axis, n), dynamic(1, 0, n)});
        manual_seed(seed);
        for (const int64_t size :
             {most, int64_t{5}, int64_t{16}, int64_t{1}, int64_t{2}, most - 1}) {
          Shape shape{4, 6, 3};
          shape[static_cast<size_t>(axis)] = size;
          const Tensor x = randn(shape).realize(), ids = (arange(size) % 5).realize();
          const std::string where = fmt::format("seed {}, {}, size {}", seed, device, size);
          Tensors got, want;
          try {
            want = f(x, ids);
            realize(want);
          } catch (const UserError&) {
            break;  // no function of these shapes
          }
          try {
            got = jitted(x, ids);
          } catch (const UserError& e) {
            INFO(where, ": ", e.what());
            CHECK(std::string(e.what()).rfind("jit: ", 0) == 0);
            break;
          }
          for (size_t i = 0; i < got.size(); i++) {
            const std::string text = dynamic_difference(got[i], want[i]);
            if (!text.empty()) FAIL_CHECK(where, ", result ", i, ": ", text);
          }
          checked++;
        }
        CHECK(jitted.count().captures <= 1);
      });
    }
    CHECK((rounds < 40 || checked > 2 * rounds));
  }
}

}  // namespace lazuli
