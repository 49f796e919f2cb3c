// Random networks of matmuls, attention, norms and convolutions with their gradients: the CPU
// against the reference device, where doubles say how exact single precision can be. Functions of
// what was rounded before have continuous derivatives.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "nn/lazuli.h"
#include "runtime/runtime.h"
#include "tests/fuzz/settings.h"

namespace lazuli {
namespace {

using Tensors = std::vector<Tensor>;

class RandomNetwork {
 public:
  explicit RandomNetwork(uint64_t seed) : random_(seed) {
    rows_ = size(), columns_ = size();
    batch_ = pick(3) == 0 ? Shape{} : Shape{1 + static_cast<int64_t>(pick(5))};
  }

  // The steps of the last run, by their numbers, and the shapes that they were given.
  std::string steps;

  // Some values of the network, and the gradients of its leaves.
  Tensors run(DType dtype) {
    dtype_ = dtype;
    Shape shape = batch_;
    shape.push_back(rows_);
    shape.push_back(columns_);
    made_ = {leaf(shape)};
    const size_t count = 3 + pick(5);
    for (size_t i = 0; i < count; i++) made_.push_back(step(made_[late(made_.size())]) * 1.0);
    Tensors out{made_.back(), made_[pick(made_.size())]};
    const Tensors gradients = grad(sum(made_.back() * made_.back()), leaves_, Unused::kZeros);
    out.insert(out.end(), gradients.begin(), gradients.end());
    if (pick(3) == 0) {
      Tensor all = sum(out[0]);
      for (const Tensor& g : gradients) all = all + sum(g);
      out.push_back(all);
    }
    return out;
  }

 private:
  size_t pick(size_t n) { return static_cast<size_t>(random_() % n); }
  // Mostly one of the last of n.
  size_t late(size_t n) { return pick(4) == 0 ? pick(n) : n - 1 - std::min(n - 1, pick(2)); }
  // Lengths about those of vectors and tiles.
  int64_t size() {
    constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 31, 32, 33, 40, 65};
    return kSizes[pick(std::size(kSizes))];
  }

  // The same numbers in every dtype, of little order, so that no two sums of them are equal.
  Tensor leaf(const Shape& shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    const auto start = static_cast<int64_t>(pick(997));
    const Tensor i = arange(n) + start, integers = (i * i * 7 + i * 389) % 8191 - 4095;
    leaves_.push_back((integers.to(dtype_) / 4096.0).reshape(shape).realize());
    return leaves_.back();
  }

  bool is_leaf(const Tensor& t) const {
    for (const Tensor& l : leaves_) {
      if (l.node() == t.node()) return true;
    }
    return false;
  }

  // Where rounding may decide which of two elements is larger there is no gradient to compare.
  Tensor extreme_of(const Tensor& t, int64_t axis) const {
    const Tensor m = amax(t, {axis}, true);
    return is_leaf(t) ? m : detach(m);
  }

  Tensor step(const Tensor& t) {
    const int64_t rank = t.dim(), last = t.size(-1);
    const auto axis = static_cast<int64_t>(pick(static_cast<size_t>(rank)));
    const size_t kind = pick(28);
    steps += fmt::format(" {}{}", kind, to_string(t.shape()));
    switch (kind) {
      case 0:
        return tanh(t);
      case 1:
        return gelu(t);
      case 2:
        return relu(t) * t;
      case 3:
        return softmax(t, axis);
      case 4:
        return log_softmax(t, axis) * 0.1;
      case 5:
        return layer_norm(t, {last}, leaf({last}), leaf({last}), 0.1);
      case 6:
        return rms_norm(t, {last}, leaf({last}), 0.1);
      case 7:
        return mean(t, {axis}, true) + t;
      case 8:
        return t - extreme_of(t, axis);
      case 9:
        return transpose(t, -1, -2);
      case 10:
      case 11: {
        const int64_t n = size();
        return linear(t, leaf({n, last}), leaf({n})) / std::sqrt(static_cast<double>(last));
      }
      case 12: {
        const int64_t n = size();
        return matmul(leaf({n, t.size(-2)}), t) / std::sqrt(static_cast<double>(t.size(-2)));
      }
      case 13:
        return matmul(softmax(matmul(t, t.mT()), -1), t);
      case 14:
        return scaled_dot_product_attention(t, t, t, {}, 0.0, true);
      case 15: {
        const Tensor kv = linear(t, leaf({2 * last, last})) / std::sqrt(static_cast<double>(last));
        return scaled_dot_product_attention(t, kv.narrow(-1, 0, last), kv.narrow(-1, last, last),
                                            {}, 0.0, pick(2) == 0) +
               t;
      }
      case 16:
        return matmul(exp(t * 0.1), t.mT()) * 0.1;
      case 17:
        return cat({t, t * 2.0}, axis);
      case 18:
        return pad(t, {1, 2});
      case 19:
        return flip(t, {axis}) * t;
      case 20:
        return cumsum(t, axis) * 0.2;
      case 21:
        return rank != 3 ? t * sigmoid(t)
                         : conv1d(t, leaf({5, t.size(1), 3}) * 0.2, leaf({5}), 1, 1);
      case 22:
        return var(t, {axis}, 0.0, true) + t;
      case 23:
        return rank != 3 ? t : conv1d(t, leaf({7, t.size(1), 3}) * 0.2, {}, 2, 2);
      case 24: {
        const int64_t kernel = 1 + static_cast<int64_t>(pick(5));
        return rank != 3 ? t
                         : conv_transpose1d(t, leaf({t.size(1), 4, kernel}) * 0.2, leaf({4}),
                                            2 + static_cast<int64_t>(pick(2)));
      }
      case 25: {
        if (rank != 3) return t;
        const Tensor image = unsqueeze(t, 0);
        const Tensor pooled = is_leaf(t) ? max_pool2d(image, 3, 2, 1) : avg_pool2d(image, 3, 2, 1);
        return squeeze(conv2d(pooled, leaf({6, t.size(0), 3, 3}) * 0.2, {}, 2, 1), 0);
      }
      case 26: {
        if (rank != 3) return t;
        const int64_t groups = t.size(0) % 2 == 0 ? 2 : 1, rows = 1 + static_cast<int64_t>(pick(3)),
                      columns = 1 + static_cast<int64_t>(pick(3));
        const Tensor weight = leaf({t.size(0), 2, rows, columns}) * 0.2;
        const Ints stride{1 + static_cast<int64_t>(pick(2)), 2},
            padding{(rows - 1) / 2, (columns - 1) / 2};
        return squeeze(conv_transpose2d(unsqueeze(t, 0), weight, {}, stride, padding, 0, groups),
                       0);
      }
      default: {
        for (size_t i = made_.size(); i-- > 0;) {
          if (made_[i].shape() == t.shape() && pick(2) == 0) return made_[i] + t;
        }
        return where(t > 0.0, t * t, t * t * -0.5);
      }
    }
  }

  std::mt19937_64 random_;
  int64_t rows_ = 0, columns_ = 0;
  Shape batch_;
  DType dtype_ = DType::F32;
  Tensors made_, leaves_;
};

std::vector<std::vector<double>> values_of(uint64_t seed, const char* device, DType dtype,
                                           std::string& steps, int threads = 1) {
  Config config;
  config.device = device;
  config.threads = threads;
  Runtime runtime(config);
  runtime.memory.fill_with_nan();
  const Runtime::Use use(runtime);
  RandomNetwork network(seed);
  Tensors tensors = network.run(dtype);
  steps = network.steps;
  realize(tensors);
  std::vector<std::vector<double>> out;
  for (const Tensor& t : tensors) out.push_back(t.to_vector<double>());
  return out;
}

// The largest difference, and the largest value.
std::pair<double, double> largest(const std::vector<double>& got, const std::vector<double>& want) {
  double difference = 0, value = 0;
  for (size_t i = 0; i < want.size(); i++) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    difference = std::max(difference, std::abs(got[i] - want[i]));
    if (std::isnan(got[i]) != std::isnan(want[i])) difference = INFINITY;
    value = std::max(value, std::abs(want[i]));
  }
  return {difference, value};
}

}  // namespace

TEST_SUITE("fuzz") {
  TEST_CASE("random networks and their gradients are on the cpu what doubles say" *
            doctest::skip(!LAZULI_LLVM)) {
    const uint64_t first = test::first_seed();
    const test::FuzzTime time(0.2);
    uint64_t seed = first;
    for (; time.left(); seed++) {
      std::string steps;
      const auto exact = values_of(seed, "reference", DType::F64, steps);
      const auto single = values_of(seed, "reference", DType::F32, steps);
      const auto got = values_of(seed, "cpu", DType::F32, steps);
      REQUIRE(got.size() == exact.size());
      for (size_t i = 0; i < got.size(); i++) {
        REQUIRE(got[i].size() == exact[i].size());
        const auto [error, value] = largest(got[i], exact[i]);
        const double bound = 1e-5 * std::max(1.0, value) + 30 * largest(single[i], exact[i]).first;
        INFO("FUZZ_SEED=", seed, " result ", i, " of ", got.size(), ":", steps);
        CHECK(error <= bound);
      }
      if (seed % 4 == 0) {
        INFO("FUZZ_SEED=", seed, " on 3 threads:", steps);
        CHECK(values_of(seed, "cpu", DType::F32, steps, 3) == got);
      }
    }
    MESSAGE(fmt::format("{} networks from FUZZ_SEED={}", seed - first, first));
  }
}

}  // namespace lazuli
