// Meanings of operations that vectors from other libraries do not pin down: what is documented here
// alone, and edges.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/gradient.h"
#include "tests/core/reference_scope.h"

using namespace lazuli;

TEST_SUITE_BEGIN("core");

TEST_CASE(
    "division and remainder by an integer zero give 0, and the lowest number divided by -1 is "
    "itself") {
  const ReferenceScope scope;
  const Tensor a = Tensor::from(Ints64{7, -7, INT64_MIN}, {3});
  CHECK(floor_divide(a, 0).to_vector<int64_t>() == Ints64{0, 0, 0});
  CHECK(div(a, 0, "trunc").to_vector<int64_t>() == Ints64{0, 0, 0});
  CHECK((a % 0).to_vector<int64_t>() == Ints64{0, 0, 0});
  CHECK(floor_divide(a, -1).to_vector<int64_t>() == Ints64{-7, 7, INT64_MIN});
  CHECK((a % 4).to_vector<int64_t>() == Ints64{3, 1, 0});
  CHECK(fmod(a, 4).to_vector<int64_t>() == Ints64{3, -3, 0});
}

TEST_CASE("integer arithmetic wraps") {
  const ReferenceScope scope;
  const Tensor a = Tensor::from({int8_t{127}, int8_t{-128}}, {2});
  CHECK((a + 1).to_vector<int>() == std::vector<int>{-128, -127});
  CHECK((-a).to_vector<int>() == std::vector<int>{-127, -128});
  CHECK(abs(a).to_vector<int>() == std::vector<int>{127, -128});
  CHECK(pow(Tensor::from(Ints64{3, 2, -1}, {3}), Tensor::from(Ints64{41, 64, 63}, {3}))
            .to_vector<int64_t>() == Ints64{-420491770248316829, 0, -1});
}

TEST_CASE("operations on bools are logical") {
  const ReferenceScope scope;
  const Tensor t = ones({1}, DType::Bool), f = zeros({1}, DType::Bool);
  CHECK((t + t).dtype() == DType::Bool);
  CHECK((t + t).item<int>() == 1);
  CHECK((t * f).item<int>() == 0);
  CHECK(maximum(t, f).item<int>() == 1);
  CHECK((~t).item<int>() == 0);
  CHECK(sum(t).dtype() == DType::I64);
}

TEST_CASE("joining keeps the sign of zero, NaN and infinities") {
  const ReferenceScope scope;
  const Tensor odd = Tensor::from({-0.0, kInf, std::nan("")}, {3});
  const std::vector<double> v = cat({odd, odd, ones({1})}).to_vector<double>();
  CHECK(v.size() == 7);
  CHECK(std::signbit(v[0]));
  CHECK(std::signbit(v[3]));
  CHECK(v[4] == kInf);
  CHECK(std::isnan(v[5]));
  CHECK(v[6] == 1);
}

TEST_CASE("a reduction of nothing gives what the operation starts from") {
  const ReferenceScope scope;
  CHECK(sum(zeros({0, 3}), 0).to_vector() == Floats{0, 0, 0});
  CHECK(prod(zeros({0, 3}), 0).to_vector() == Floats{1, 1, 1});
  CHECK(all(zeros({0})).item<int>() == 1);
  CHECK(any(zeros({0})).item<int>() == 0);
  CHECK(std::isnan(mean(zeros({0})).item()));
}

TEST_CASE("rank 0 and rank 16 work") {
  const ReferenceScope scope;
  const Tensor deep = ones(Shape(16, 2)), s = scalar_tensor(2.0);
  CHECK(sum(deep).item() == 65536);
  CHECK(deep.T().shape() == Shape(16, 2));
  CHECK(deep[0].sum().item() == 32768);
  CHECK_THROWS_AS(unsqueeze(deep, 0), UserError);
  CHECK((s * s).item() == 4);
  CHECK(sum(s, 0).item() == 2);
  CHECK(max(s, 0).indices.item<int>() == 0);
  CHECK(flip(s, 0).item() == 2);
  CHECK(cat({unsqueeze(s, 0), s.reshape({1})}).shape() == Shape{2});
}

TEST_CASE("fmax and fmin pass NaN over, and share a gradient at ties") {
  const ReferenceScope scope;
  const Tensor a = tensor({0.0, 1.0, std::nan(""), 2.0}), b = tensor({0.0, 2.0, 1.0, std::nan("")});
  CHECK(fmax(a, b).to_vector() == Floats{0, 2, 1, 2});
  CHECK(grad(sum(fmax(a, b)), a).to_vector() == Floats{0.5, 0, 0, 1});
  CHECK(grad(sum(fmin(a, b)), b).to_vector() == Floats{0.5, 0, 1, 0});
}

TEST_CASE("hypot and logaddexp do not overflow on the way") {
  const ReferenceScope scope;
  CHECK(hypot(scalar_tensor(3e30), scalar_tensor(4e30)).item() == doctest::Approx(5e30));
  CHECK(hypot(scalar_tensor(0.0), scalar_tensor(0.0)).item() == 0);
  CHECK(hypot(scalar_tensor(kInf), scalar_tensor(std::nan(""))).item() == kInf);
  CHECK(logaddexp(scalar_tensor(1000.0), scalar_tensor(1000.0)).item() ==
        doctest::Approx(1000.6931));
  CHECK(logaddexp(scalar_tensor(-kInf), scalar_tensor(-kInf)).item() == -kInf);
}

TEST_CASE("gelu's approximation vanishes where its sigmoid would be denormal, and nowhere before") {
  const ReferenceScope scope;
  for (const DType dtype : {DType::F32, DType::F64}) {
    const bool wide = dtype == DType::F64;
    const double just = wide ? -21.05 : -9.99, below = wide ? -21.06 : -10.01;
    const Tensor x = Tensor::from<double>({-1e30, -30, below, just, 0, 20}, {6});
    const std::vector<double> y = gelu(x.to(dtype), "tanh").to_vector<double>();
    for (size_t i = 0; i < 3; i++) CHECK((y[i] == 0 && std::signbit(y[i])));
    CHECK(y[3] < -(wide ? 1e-303 : 1.2e-38));
    CHECK(y[4] == 0);
    CHECK(y[5] == 20);
    const std::vector<double> special =
        gelu(Tensor::from<double>({-INFINITY, NAN, INFINITY}, {3}).to(dtype), "tanh")
            .to_vector<double>();
    CHECK(std::isnan(special[0]));  // as in PyTorch
    CHECK(std::isnan(special[1]));
    CHECK(special[2] == INFINITY);
  }
}

TEST_CASE("gradients of activations stay finite far from zero") {
  const ReferenceScope scope;
  const Tensor x = Tensor::from({-1000.0f, -100.0f, 0.0f, 100.0f, 1000.0f}, {5});
  for (Tensor (*f)(const Tensor&) :
       {sigmoid, silu, mish, logsigmoid, selu, softsign, hardswish, tanh, relu}) {
    CHECK(isfinite(grad(sum(f(x)), x)).all().item<int>() == 1);
  }
  CHECK(isfinite(grad(sum(elu(x)), x)).all().item<int>() == 1);
  CHECK(isfinite(grad(sum(softplus(x)), x)).all().item<int>() == 1);
  CHECK(isfinite(grad(sum(gelu(x, "tanh")), x)).all().item<int>() == 1);
  CHECK(grad(sum(sigmoid(x)), x).to_vector()[2] == 0.25f);
  CHECK(grad(sum(logsigmoid(x)), x).to_vector()[2] == 0.5f);
}

TEST_CASE("erfinv undoes erf, in f32 and f64") {
  const ReferenceScope scope;
  for (const DType t : {DType::F32, DType::F64}) {
    const Tensor y = linspace(-2.5, 2.5, 101, t);
    const double bound = t == DType::F32 ? 2e-4 : 1e-13;
    CHECK(amax(abs(erfinv(erf(y)) - y)).item() < bound);
  }
  CHECK(erfinv(scalar_tensor(1.0)).item() == kInf);
  CHECK(erfinv(scalar_tensor(-1.0)).item() == -kInf);
  CHECK(std::isnan(erfinv(scalar_tensor(1.5)).item()));
}

TEST_CASE("bits are read as a wider and a narrower type, lowest part first") {
  const ReferenceScope scope;
  const Tensor x = Tensor::from({uint32_t{0x04030201}, uint32_t{0x08070605}}, {2});
  CHECK(bitcast(x, DType::U8).to_vector<int>() == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(bitcast(bitcast(x, DType::U8), DType::U32).to_vector<uint32_t>() ==
        x.to_vector<uint32_t>());
  CHECK(bitcast(bitcast(ones({2}, DType::F64), DType::I16), DType::F64).to_vector() ==
        Floats{1, 1});
}

TEST_CASE("a tensor is cut and padded to a shape") {
  const ReferenceScope scope;
  const Tensor x = arange(1, 7).reshape({2, 3});
  CHECK(shrink_to(x, {1, -1}).str() == "[[1 2 3]]");
  CHECK(pad_to(x, {-1, 4}).str() == "[[1 2 3 0]\n [4 5 6 0]]");
  CHECK(shrink_to(pad_to(x, {5, 5}), {2, 3}).to_vector<int>() == x.to_vector<int>());
  CHECK_THROWS_WITH_AS(shrink_to(x, {3, 3}), "shrink_to: shape (3, 3) does not lie inside (2, 3)",
                       UserError);
  CHECK_THROWS_WITH_AS(pad_to(x, {1, 3}), "pad_to: shape (1, 3) does not hold (2, 3)", UserError);
  CHECK(amax(abs(scaled_uniform({10, 10}))).item() <= 0.1);
}

TEST_CASE("axes are rearranged by a pattern") {
  const ReferenceScope scope;
  const Tensor x = arange(24).reshape({2, 3, 4});
  CHECK(rearrange(x, "a b c -> c b a").to_vector<int>() == x.T().to_vector<int>());
  CHECK(rearrange(x, "a b (c d) -> (a d) b c 1", {{"d", 2}}).shape() == Shape{4, 3, 2, 1});
  CHECK(rearrange(x, "... c -> c ...").shape() == Shape{4, 2, 3});
  CHECK(rearrange(x, "a ... -> (a ...)").to_vector<int>() == flatten(x).to_vector<int>());
  CHECK(rearrange(rearrange(x, "a b c -> (a b) c"), "(a b) c -> a b c", {{"a", 2}})
            .to_vector<int>() == x.to_vector<int>());
}

TEST_CASE("a chain of 300,000 operations is built and freed") {
  Tensor x = zeros({4});
  for (int i = 0; i < 150000; i++) x = x * 2 + 1;
  CHECK(x.shape() == Shape{4});
}

TEST_SUITE_END();
