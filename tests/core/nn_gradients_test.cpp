// Gradients of the operations of networks against central differences in f64, along random
// directions; and the gradients of those gradients in the same way.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string_view>
#include <vector>

#include "core/gradient.h"
#include "core/node.h"
#include "tests/core/reference_scope.h"

using namespace lazuli;

namespace {

using Inputs = std::vector<Tensor>;
using TestedFunction = std::function<Tensor(const Inputs&)>;

struct GradientCase {
  std::string_view name;
  std::vector<Shape> shapes;
  TestedFunction function;
};

Tensor random(const Shape& shape, uint64_t seed) {
  Tensor x = randn(shape, DType::F64, random_key(seed));
  x.realize();
  return x;
}

// Weighted sum, so that no symmetry hides a mistake.
Tensor weighed(const Tensor& y) {
  return sum(y * random(y.shape(), 99));
}

void check_gradient(std::string_view name, const ScalarFunction& f, const Inputs& xs) {
  const std::vector<Tensor> g = grad(f(xs), std::span<const Tensor>(xs));
  constexpr double kStep = 1e-5;
  for (uint64_t direction = 0; direction < 2; direction++) {
    Inputs up, down;
    double expected = 0, size = 1;
    for (size_t i = 0; i < xs.size(); i++) {
      const Tensor v = random(xs[i].shape(), 1000 * (direction + 1) + i);
      up.push_back(xs[i] + v * kStep);
      down.push_back(xs[i] - v * kStep);
      expected += sum(g[i] * v).item<double>();
      size += sum(abs(g[i] * v)).item<double>();
    }
    const double slope = (f(up).item<double>() - f(down).item<double>()) / (2 * kStep);
    CHECK_MESSAGE(std::abs(slope - expected) < 2e-7 * size, name, ": the slope is ", slope,
                  ", the gradient says ", expected);
  }
}

Tensor places() {
  return Tensor::from({int64_t{0}, int64_t{2}, int64_t{1}, int64_t{2}}, {4});
}

const std::vector<GradientCase>& gradient_cases() {
  // clang-format off
  static const std::vector<GradientCase> kCases = {
      {"matmul", {{2, 3, 4}, {4, 2}}, [](const Inputs& x) { return matmul(x[0], x[1]); }},
      {"addmm", {{2}, {3, 4}, {4, 2}}, [](const Inputs& x) { return addmm(x[0], x[1], x[2], 0.5, 2); }},
      {"linear", {{3, 4}, {2, 4}, {2}}, [](const Inputs& x) { return linear(x[0], x[1], x[2]); }},
      {"tensordot", {{2, 3, 4}, {4, 3, 2}}, [](const Inputs& x) { return tensordot(x[0], x[1], {1, 2}, {1, 0}); }},
      {"einsum", {{3, 3}, {3, 2}, {2, 4}}, [](const Inputs& x) { return einsum("ii,ij,jk->ki", {x[0], x[1], x[2]}); }},
      {"softmax", {{3, 4}}, [](const Inputs& x) { return softmax(x[0], 1); }},
      {"log_softmax", {{3, 4}}, [](const Inputs& x) { return log_softmax(x[0], 0); }},
      {"logsumexp", {{3, 4}}, [](const Inputs& x) { return logsumexp(x[0], 1); }},
      {"logcumsumexp", {{2, 5}}, [](const Inputs& x) { return logcumsumexp(x[0], 1); }},
      {"layer_norm", {{3, 4}, {4}, {4}}, [](const Inputs& x) { return layer_norm(x[0], {4}, x[1], x[2]); }},
      {"rms_norm", {{3, 4}, {4}}, [](const Inputs& x) { return rms_norm(x[0], {4}, x[1]); }},
      {"group_norm", {{2, 4, 3}, {4}, {4}}, [](const Inputs& x) { return group_norm(x[0], 2, x[1], x[2]); }},
      {"batch_norm", {{4, 2, 3}, {2}, {2}}, [](const Inputs& x) { return batch_norm(x[0], {}, {}, x[1], x[2], true); }},
      {"instance_norm", {{2, 2, 5}}, [](const Inputs& x) { return instance_norm(x[0]); }},
      {"norm of order 2", {{3, 4}}, [](const Inputs& x) { return norm(x[0], 2, 1); }},
      {"norm of order 3", {{3, 4}}, [](const Inputs& x) { return norm(x[0], 3, 1); }},
      {"norm of order 0.5", {{3, 4}}, [](const Inputs& x) { return norm(x[0], 0.5, 0); }},
      {"normalize", {{3, 4}}, [](const Inputs& x) { return normalize(x[0]); }},
      {"cosine_similarity", {{3, 4}, {3, 4}}, [](const Inputs& x) { return cosine_similarity(x[0], x[1]); }},
      {"cdist", {{3, 4}, {2, 4}}, [](const Inputs& x) { return cdist(x[0], x[1]); }},
      {"pairwise_distance", {{3, 4}, {3, 4}}, [](const Inputs& x) { return pairwise_distance(x[0], x[1]); }},
      {"cross_entropy", {{4, 3}}, [](const Inputs& x) { return cross_entropy(x[0], places(), {}, 1, "mean", 0.1); }},
      {"cross_entropy of probabilities", {{4, 3}, {4, 3}}, [](const Inputs& x) { return cross_entropy(x[0], softmax(x[1], 1)); }},
      {"nll_loss", {{4, 3}}, [](const Inputs& x) { return nll_loss(x[0], places(), {}, -100, "none"); }},
      {"binary_cross_entropy", {{4}, {4}}, [](const Inputs& x) { return binary_cross_entropy(sigmoid(x[0]), sigmoid(x[1])); }},
      {"binary_cross_entropy_with_logits", {{4}, {4}}, [](const Inputs& x) { return binary_cross_entropy_with_logits(x[0], x[1]); }},
      {"smooth_l1_loss", {{6}, {6}}, [](const Inputs& x) { return smooth_l1_loss(x[0], x[1]); }},
      {"huber_loss", {{6}, {6}}, [](const Inputs& x) { return huber_loss(x[0], x[1], "sum", 0.7); }},
      {"kl_div", {{3, 4}, {3, 4}}, [](const Inputs& x) { return kl_div(x[0], softmax(x[1], 1), "batchmean"); }},
      {"cosine_embedding_loss", {{4, 3}, {4, 3}}, [](const Inputs& x) { return cosine_embedding_loss(x[0], x[1], Tensor::from({1, -1, 1, -1}, {4}).to(DType::F64), -0.9); }},
      {"conv1d", {{2, 2, 7}, {3, 2, 3}, {3}}, [](const Inputs& x) { return conv1d(x[0], x[1], x[2], 2, 2, 2); }},
      {"conv2d", {{2, 4, 5, 4}, {4, 2, 3, 2}, {4}}, [](const Inputs& x) { return conv2d(x[0], x[1], x[2], {1, 2}, 1, 1, 2); }},
      {"conv3d", {{1, 2, 3, 4, 3}, {2, 2, 2, 2, 2}}, [](const Inputs& x) { return conv3d(x[0], x[1], {}, 1, "same"); }},
      {"conv_transpose1d", {{1, 2, 3}, {2, 2, 3}, {2}}, [](const Inputs& x) { return conv_transpose1d(x[0], x[1], x[2], 3, 1, 2, 1, 2); }},
      {"conv_transpose2d", {{1, 2, 3, 2}, {2, 3, 2, 3}}, [](const Inputs& x) { return conv_transpose2d(x[0], x[1], {}, 2, 1, 0); }},
      {"im2col", {{1, 2, 4, 5}}, [](const Inputs& x) { return im2col(x[0], 2, 2, 1, {1, 2}); }},
      {"fold", {{1, 8, 9}}, [](const Inputs& x) { return fold(x[0], {4, 4}, 2); }},
      {"avg_pool2d", {{1, 2, 5, 4}}, [](const Inputs& x) { return avg_pool2d(x[0], 3, 2, 1, true, false); }},
      {"max_pool2d", {{1, 2, 5, 4}}, [](const Inputs& x) { return max_pool2d(x[0], {3, 2}, {1, 2}, 1, {1, 2}, true); }},
      {"max_pool3d", {{1, 2, 3, 4, 3}}, [](const Inputs& x) { return max_pool3d(x[0], 2, 1); }},
      {"adaptive_avg_pool2d", {{1, 2, 5, 4}}, [](const Inputs& x) { return adaptive_avg_pool2d(x[0], {3, 2}); }},
      {"adaptive_max_pool2d", {{1, 2, 5, 4}}, [](const Inputs& x) { return adaptive_max_pool2d(x[0], {3, 2}); }},
      {"interpolate nearest", {{1, 2, 3, 4}}, [](const Inputs& x) { return interpolate(x[0], {5, 8}); }},
      {"interpolate bilinear", {{1, 2, 3, 4}}, [](const Inputs& x) { return interpolate(x[0], {5, 3}, {}, "bilinear"); }},
      {"interpolate bicubic", {{1, 2, 3, 4}}, [](const Inputs& x) { return interpolate(x[0], {}, {1.7, 0.6}, "bicubic"); }},
      {"pixel_shuffle", {{1, 8, 2, 3}}, [](const Inputs& x) { return pixel_shuffle(x[0], 2); }},
      {"cumsum", {{3, 4}}, [](const Inputs& x) { return cumsum(x[0], 1); }},
      {"cumprod", {{3, 4}}, [](const Inputs& x) { return cumprod(x[0], 0); }},
      {"cummax", {{3, 4}}, [](const Inputs& x) { return cummax(x[0], 1).values; }},
      {"cummin", {{4, 3}}, [](const Inputs& x) { return cummin(x[0], 0).values; }},
      {"sort", {{3, 4}}, [](const Inputs& x) { return sort(x[0], 0, true).values; }},
      {"topk", {{3, 4}}, [](const Inputs& x) { return topk(x[0], 2).values; }},
      {"median", {{3, 4}}, [](const Inputs& x) { return median(x[0], 1).values + median(x[0]); }},
      {"scatter", {{6}, {3}}, [](const Inputs& x) { return scatter(x[0], 0, places()[Slice{0, 3}], x[1]); }},
      {"scatter_add", {{3}, {4}}, [](const Inputs& x) { return scatter_add(x[0], 0, places(), x[1]); }},
      {"scatter_reduce prod", {{3}, {4}}, [](const Inputs& x) { return scatter_reduce(x[0], 0, places(), x[1], "prod"); }},
      {"scatter_reduce amax", {{3}, {4}}, [](const Inputs& x) { return scatter_reduce(x[0], 0, places(), x[1], "amax", false); }},
      {"index_add", {{3, 2}, {4, 2}}, [](const Inputs& x) { return index_add(x[0], 0, places(), x[1], 0.5); }},
      {"masked_scatter", {{4}, {4}}, [](const Inputs& x) { return masked_scatter(x[0], places() == 2, x[1]); }},
      {"attention", {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}}, [](const Inputs& x) { return scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, true); }},
      {"embedding", {{3, 2}}, [](const Inputs& x) { return embedding(places(), x[0]); }},
  };
  // clang-format on
  return kCases;
}

Inputs inputs_of(const GradientCase& c) {
  Inputs xs;
  for (size_t i = 0; i < c.shapes.size(); i++) xs.push_back(random(c.shapes[i], 10 + i));
  return xs;
}

}  // namespace

TEST_SUITE_BEGIN("core");

TEST_CASE("gradients of the operations of networks are their slopes") {
  const ReferenceScope scope;
  for (const GradientCase& c : gradient_cases()) {
    check_gradient(
        c.name, [&](const Inputs& xs) { return weighed(c.function(xs)); }, inputs_of(c));
  }
}

TEST_CASE("equal softmaxes are one node, and have one gradient") {
  const ReferenceScope scope;
  const Tensor x = randn({3, 4}, DType::F64);
  const Tensor y = softmax(x, 1);
  CHECK(y.node().get() == softmax(x, -1).node().get());
  CHECK(y.node().get() != softmax(x, 0).node().get());
  const Tensor slope = grad(sum(square(softmax(x, 1))), y);
  CHECK(max(abs(slope - 2 * y)).item<double>() < 1e-15);
}

TEST_CASE("gradients of those gradients are their slopes") {
  const ReferenceScope scope;
  for (const GradientCase& c : gradient_cases()) {
    const ScalarFunction slope = [&](const Inputs& xs) {
      const std::vector<Tensor> g =
          grad(weighed(exp(c.function(xs) * 0.1)), std::span<const Tensor>(xs));
      Tensor total = weighed(g[0]);
      for (size_t i = 1; i < g.size(); i++) total = total + weighed(g[i]);
      return total;
    };
    check_gradient(c.name, slope, inputs_of(c));
  }
}

TEST_SUITE_END();
