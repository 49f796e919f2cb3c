// The handle: assignment in place, methods, gradient leaves that are assigned.
#include <doctest/doctest.h>

#include <vector>

#include "core/gradient.h"
#include "tests/core/reference_scope.h"

using namespace lazuli;
using Floats = std::vector<float>;

TEST_SUITE_BEGIN("core");

TEST_CASE("assignment is seen by all copies of a handle and by nothing computed before") {
  const ReferenceScope scope;
  Tensor a = arange(3, DType::F32);
  const Tensor copy = a, before = a * 10;
  a.assign_(a + 1);
  CHECK(copy.to_vector() == Floats{1, 2, 3});
  CHECK(before.to_vector() == Floats{0, 10, 20});
}

TEST_CASE("assignment broadcasts and converts to the shape and dtype that are there") {
  const ReferenceScope scope;
  Tensor a = zeros({2, 2}, DType::I32);
  a.assign_(Tensor::from({1.9f, -1.9f}, {2}));
  CHECK(a.dtype() == DType::I32);
  CHECK(a.to_vector<int>() == std::vector<int>{1, -1, 1, -1});
}

TEST_CASE("an assignment into a view of what it reads is right") {
  const ReferenceScope scope;
  Tensor a = arange(6, DType::F32);
  a.set_({Slice{1}}, a.index({Slice{{}, -1}}));
  CHECK(a.to_vector() == Floats{0, 0, 1, 2, 3, 4});
  a.set_({Slice{{}, {}, -1}}, a);
  CHECK(a.to_vector() == Floats{4, 3, 2, 1, 0, 0});
}

TEST_CASE("an assigned gradient leaf is a leaf again, before and after it is realised") {
  const ReferenceScope scope;
  Tensor w = Tensor::from({1.0f, 2.0f}, {2}).requires_grad_();
  for (const bool realise_first : {false, true}) {
    backward(sum(w * w));
    const Tensor step = *w.grad();
    w.set_grad(std::nullopt);
    w.assign_(w - step * 0.25);
    if (realise_first) w.realize();
    CHECK(w.requires_grad());
  }
  CHECK(w.to_vector() == Floats{0.25f, 0.5f});
  backward(sum(w * w));
  CHECK(w.grad()->to_vector() == Floats{0.5f, 1.0f});
}

TEST_CASE(
    "a leaf that is realised between the forward and the backward pass still gets its gradient") {
  const ReferenceScope scope;
  Tensor w = ones({2}).requires_grad_();
  w.assign_(w * 3);
  const Tensor loss = sum(w * w);
  w.realize();
  CHECK(loss.item() == 18);
  CHECK(grad(loss, w).to_vector() == Floats{6, 6});
  backward(loss);
  CHECK(w.grad()->to_vector() == Floats{6, 6});
}

TEST_CASE("a leaf that is assigned and realised again and again keeps no history") {
  const ReferenceScope scope;
  Tensor w = ones({2}).requires_grad_();
  const auto step = [&] {
    backward(sum(w * w));
    w.assign_(w - *w.grad() * 0.1);
    w.set_grad(std::nullopt);
    w.realize();
  };
  step();
  const size_t nodes = live_nodes();
  for (int i = 0; i < 20; i++) step();
  CHECK(live_nodes() == nodes);
}

TEST_CASE("two equal tensors made by the user are distinct gradient targets") {
  const ReferenceScope scope;
  const Tensor a = zeros({2}), b = zeros({2});
  const Tensor y = sum(a * 2 + b * 3);
  CHECK(grad(y, a).to_vector() == Floats{2, 2});
  CHECK(grad(y, b).to_vector() == Floats{3, 3});
}

TEST_CASE("methods are the operations with the tensor as first argument") {
  const ReferenceScope scope;
  const Tensor x = arange(6, DType::F32).reshape({2, 3});
  CHECK(x.T().shape() == Shape{3, 2});
  CHECK(x.sum(0).to_vector() == Floats{3, 5, 7});
  CHECK(x.sum({}).item() == 15);
  CHECK(x.sum({0, 1}, true).shape() == Shape{1, 1});
  CHECK(x[1].to_vector() == Floats{3, 4, 5});
  CHECK(x.index({kEllipsis, -1}).to_vector() == Floats{2, 5});
  CHECK(x.max(1).indices.to_vector<int>() == std::vector<int>{2, 2});
  CHECK((-x).relu().sum().item() == 0);
  CHECK(x.pow(2).mean().item() == doctest::Approx(55.0 / 6));
  CHECK(x.matmul(x.mT()).to_vector() == Floats{5, 14, 14, 50});
  CHECK(x.clamp(1, 4).to_vector() == Floats{1, 1, 2, 3, 4, 4});
  CHECK(x.to(DType::I8).dtype() == DType::I8);
  CHECK(x.str() == "[[0. 1. 2.]\n [3. 4. 5.]]");
}

TEST_SUITE_END();
