// Meanings of the operations of networks that vectors from other libraries do not pin down, and
// edges.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/gradient.h"
#include "tests/core/reference_scope.h"

using namespace lazuli;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor float_vector(const Floats& v) {
  return Tensor::from(v, {static_cast<int64_t>(v.size())});
}
Tensor index_tensor(const Ints64& v) {
  return Tensor::from(v, {static_cast<int64_t>(v.size())});
}

}  // namespace

TEST_SUITE_BEGIN("core");

TEST_CASE("products of 16-bit floats are added before they are rounded") {
  const ReferenceScope scope;
  // x * x is 1 + 2^-9 + 2^-20, of which f16 holds the first two terms.
  const Tensor a = float_vector({1 + 0x1p-10F, 1}).to(DType::F16),
               b = float_vector({1 + 0x1p-10F, -1 - 0x1p-9F}).to(DType::F16);
  CHECK(dot(a, b).dtype() == DType::F16);
  CHECK(dot(a, b).item<double>() == 0x1p-20);
  const Tensor x = reshape(a, {1, 2, 1}), w = reshape(b, {1, 2, 1});
  CHECK(conv1d(x, w).item<double>() == 0x1p-20);
  CHECK(einsum("i,i", {a, b}).item<double>() == 0x1p-20);
}

TEST_CASE("a sum over nothing is 0") {
  const ReferenceScope scope;
  CHECK(matmul(zeros({2, 0}), zeros({0, 1})).to_vector() == Floats{0, 0});
  CHECK(linear(zeros({1, 0}), zeros({2, 0}), float_vector({1, 2})).to_vector() == Floats{1, 2});
  CHECK(conv2d(zeros({0, 1, 4, 4}), zeros({1, 1, 3, 3})).shape() == Shape{0, 1, 2, 2});
}

TEST_CASE("the result of addmm ignores what beta 0 multiplies") {
  const ReferenceScope scope;
  const Tensor a = ones({1, 2}), b = ones({2, 1});
  CHECK(addmm(float_vector({static_cast<float>(kNan)}), a, b, 0).item() == 2);
  CHECK(addmm(float_vector({1}), a, b, 2, 3).item() == 8);
}

TEST_CASE("softmax of huge numbers is finite, and of nothing but -inf is NaN") {
  const ReferenceScope scope;
  const Tensor x = float_vector({1e30F, 1e30F});
  CHECK(softmax(x, 0).to_vector() == Floats{0.5F, 0.5F});
  CHECK(std::isnan(softmax(full({2}, -kInf), 0).to_vector()[0]));
  CHECK(logsumexp(full({2}, -kInf), 0).item() == -kInf);
  CHECK(logcumsumexp(float_vector({-100, 100, -100}), 0).to_vector() == Floats{-100, 100, 100});
}

TEST_CASE("a row that may attend to nothing gives 0, with a finite gradient") {
  const ReferenceScope scope;
  const Tensor q = ones({2, 3}), mask = Tensor::from({true, true, false, false}, {2, 2});
  const Tensor y = scaled_dot_product_attention(q, q, q, mask), g = grad(sum(y), q);
  CHECK(y.to_vector() == Floats{1, 1, 1, 0, 0, 0});
  for (float each : g.to_vector()) CHECK(std::isfinite(each));
}

TEST_CASE("training batch_norm moves the running statistics that all handles share") {
  const ReferenceScope scope;
  Tensor mean = zeros({1}), var = ones({1});
  const Tensor other = mean;
  const Tensor x = Tensor::from({1.0F, 3.0F}, {2, 1});
  CHECK(batch_norm(x, mean, var, {}, {}, true, 0.5, 0).to_vector() == Floats{-1, 1});
  CHECK(other.item() == 1);   // half way to 2
  CHECK(var.item() == 1.5F);  // half way to 2, the variance with n - 1
  CHECK(batch_norm(x, mean, var, {}, {}, false, 0.5, 0.75).to_vector()[1] ==
        doctest::Approx(2 / 1.5));
}

TEST_CASE("a class that does not exist counts as a loss of 0, and a mean of no loss is NaN") {
  const ReferenceScope scope;
  const Tensor x = zeros({3, 2});
  const Floats loss = cross_entropy(x, index_tensor({0, 7, -100}), {}, -100, "none").to_vector();
  CHECK(loss[0] == doctest::Approx(std::log(2.0)));
  CHECK(loss[1] == 0);
  CHECK(loss[2] == 0);
  CHECK(std::isnan(cross_entropy(x, index_tensor({-100, -100, -100})).item()));
}

TEST_CASE("cross entropy does not turn masked logits into NaN") {
  const ReferenceScope scope;
  const Tensor x = Tensor::from({0.0F, static_cast<float>(-kInf)}, {1, 2});
  CHECK(cross_entropy(x, index_tensor({0})).item() == 0);
  CHECK(grad(cross_entropy(x, index_tensor({0})), x).to_vector() == Floats{0, 0});
}

TEST_CASE("an index out of range embeds to 0, and the padding row gets no gradient") {
  const ReferenceScope scope;
  const Tensor w = ones({3, 2});
  CHECK(embedding(index_tensor({2, 3, -1}), w).to_vector() == Floats{1, 1, 0, 0, 0, 0});
  CHECK(grad(sum(embedding(index_tensor({0, 1, 1}), w, 1)), w).to_vector() ==
        Floats{1, 1, 0, 0, 0, 0});
  CHECK(grad(sum(embedding(index_tensor({0, 1, 1}), w, {}, {}, 2.0, true)), w).to_vector() ==
        Floats{1, 1, 1, 1, 0, 0});
  CHECK(embedding(index_tensor({0}), w, {}, 0.5).to_vector()[0] ==
        doctest::Approx(0.5 / std::sqrt(2.0)));
}

TEST_CASE("the gradient of a maximum in a window goes to the first of equals") {
  const ReferenceScope scope;
  const Tensor x = reshape(float_vector({1, 1, 1, 0}), {1, 1, 4});
  CHECK(grad(sum(max_pool1d(x, 2)), x).to_vector() == Floats{1, 0, 1, 0});
  CHECK(grad(sum(max_pool1d(x, 3, 1, 1)), x).to_vector() == Floats{2, 1, 1, 0});
  const ValuesIndices r = max_pool1d_with_indices(full({1, 1, 3}, -kInf), 3, 3, 1);
  CHECK(r.values.to_vector() == Floats{static_cast<float>(-kInf)});
  CHECK(r.indices.to_vector<int64_t>() == Ints64{0});
}

TEST_CASE("the gradient of a running maximum goes to the last of equals, and to a NaN") {
  const ReferenceScope scope;
  const Tensor x = float_vector({1, 1, 0, 2, 2, 1});
  CHECK(grad(sum(cummax(x, 0).values), x).to_vector() == Floats{1, 2, 0, 1, 2, 0});
  CHECK(grad(sum(cummin(x, 0).values), x).to_vector() == Floats{1, 1, 4, 0, 0, 0});
  const Tensor y = float_vector({1, static_cast<float>(kNan), 2});
  CHECK(grad(sum(cummax(y, 0).values), y).to_vector() == Floats{1, 2, 0});
}

TEST_CASE("NaN is the maximum of a window, a scan and a sort") {
  const ReferenceScope scope;
  const Tensor x = float_vector({1, static_cast<float>(kNan), 2});
  CHECK(std::isnan(max_pool1d(reshape(x, {1, 1, 3}), 3).item()));
  CHECK(cummax(x, 0).indices.to_vector<int64_t>() == Ints64{0, 1, 1});
  CHECK(argsort(x).to_vector<int64_t>() == Ints64{0, 2, 1});
  CHECK(argsort(x, 0, true).to_vector<int64_t>() == Ints64{1, 2, 0});
  CHECK(std::isnan(median(x).item()));
  CHECK(searchsorted(float_vector({1, 2}), x).to_vector<int64_t>() == Ints64{0, 2, 1});
}

TEST_CASE("a mode is the smallest of the most frequent elements, at its last place") {
  const ReferenceScope scope;
  const ValuesIndices r = mode(index_tensor({3, 1, 3, 1, 2}));
  CHECK(r.values.item<int64_t>() == 1);
  CHECK(r.indices.item<int64_t>() == 3);
}

TEST_CASE("distinct slices come in order, with their places and counts") {
  const ReferenceScope scope;
  const Tensor x = Tensor::from({2, 1, 0, 5, 2, 1}, {3, 2});
  const Unique rows = unique(x, 0);
  CHECK(rows.values.to_vector<int>() == std::vector<int>{0, 5, 2, 1});
  CHECK(rows.inverse.to_vector<int64_t>() == Ints64{1, 0, 1});
  CHECK(rows.counts.to_vector<int64_t>() == Ints64{1, 2});
  const Unique all =
      unique(float_vector({static_cast<float>(kNan), 0.0F, -0.0F, static_cast<float>(kNan)}));
  CHECK(all.values.shape() == Shape{3});  // NaN differs from NaN, and 0 equals -0
  CHECK(unique(zeros({0})).values.shape() == Shape{0});
}

TEST_CASE("writes out of range write nothing") {
  const ReferenceScope scope;
  const Tensor x = zeros({2}), i = index_tensor({1, 2, -1});
  CHECK(scatter(x, 0, i, float_vector({1, 2, 3})).to_vector() == Floats{0, 1});
  CHECK(scatter_add(x, 0, i, float_vector({1, 2, 3})).to_vector() == Floats{0, 1});
  CHECK(index_add(x, 0, i, float_vector({1, 2, 3})).to_vector() == Floats{0, 1});
  CHECK(masked_scatter(x, Tensor::from({true, true}, {2}), float_vector({5})).to_vector() ==
        Floats{5, 0});
}

TEST_CASE("the last of several writes to one element wins") {
  const ReferenceScope scope;
  CHECK(scatter(zeros({1}), 0, index_tensor({0, 0}), float_vector({1, 2})).to_vector() ==
        Floats{2});
}

TEST_CASE("labels of einsum may repeat, broadcast and stand for axes between") {
  const ReferenceScope scope;
  const Tensor x = reshape(arange(0.0, 9.0), {3, 3});
  CHECK(einsum("ii", {x}).item() == 12);
  CHECK(einsum("ii->i", {x}).to_vector() == Floats{0, 4, 8});
  CHECK(einsum("ij,j", {x, ones({1})}).to_vector() == Floats{3, 12, 21});
  CHECK(einsum("...j->...", {x}).to_vector() == Floats{3, 12, 21});
  CHECK(einsum("a b, b c, c d -> a d", {ones({2, 3}), ones({3, 4}), ones({4, 1})}).to_vector() ==
        Floats{12, 12});
}

TEST_CASE("vmap goes through products, convolutions, norms and orders") {
  const ReferenceScope scope;
  const Tensor x = randn({3, 2, 5, 4}, DType::F32, random_key(1)),
               w = randn({3, 2, 2, 2}, DType::F32, random_key(2));
  const auto same = [](const Tensor& a, const Tensor& b) { return allclose(a, b, 1e-5, 1e-6); };
  CHECK(same(vmap([&](const Tensor& v) { return conv2d(v, w, {}, 1, 1); }, x),
             conv2d(x, w, {}, 1, 1)));
  CHECK(same(vmap([](const Tensor& v) { return softmax(v, -1); }, x), softmax(x, -1)));
  CHECK(same(vmap([](const Tensor& v) { return layer_norm(v, {4}); }, x), layer_norm(x, {4})));
  CHECK(same(vmap([](const Tensor& v) { return sort(v, -1).values; }, x), sort(x, -1).values));
  CHECK(same(vmap([](const Tensor& v) { return cumsum(v, 0); }, x), cumsum(x, 1)));
  CHECK(same(vmap([](const Tensor& v) { return max_pool2d(v, 2); }, x), max_pool2d(x, 2)));
  CHECK(same(vmap([](const Tensor& v) { return matmul(matrix_transpose(v), v); }, x),
             matmul(matrix_transpose(x), x)));
}

TEST_CASE("gradients pass functions of the user's own inside vmap") {
  const ReferenceScope scope;
  const Tensor x = randn({3, 4}, DType::F32, random_key(1)),
               w = randn({3, 4}, DType::F32, random_key(2));
  // The square, with three times its gradient.
  const Tensor y = vmap(
      [](const Tensor& v) {
        return custom_vjp(v * v, {v}, [v](const Tensor& g) { return std::vector<Tensor>{g * v * 6.0}; });
      },
      x);
  CHECK(allclose(y, x * x, 1e-6, 0));
  CHECK(allclose(vjp(y, std::vector<Tensor>{x}, w)[0], w * x * 6.0, 1e-6, 1e-6));
  const Tensor z = vmap(
      [](const Tensor& v) {
        return checkpoint([](const std::vector<Tensor>& in) { return sin(in[0]) * sum(in[0]); }, {v});
      },
      x);
  const Tensor plain = vmap([](const Tensor& v) { return sin(v) * sum(v); }, x);
  CHECK(allclose(vjp(z, std::vector<Tensor>{x}, w)[0], vjp(plain, std::vector<Tensor>{x}, w)[0], 1e-5, 1e-6));
}

TEST_SUITE_END();
