// The handle: assignment in place, methods, gradient leaves that are assigned.
#include <doctest/doctest.h>

#include <sstream>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/gradient.h"
#include "core/graph.h"
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

template <typename T>
concept Addable = requires(T&& x) { std::forward<T>(x) += 1; };

TEST_CASE("what an operation returns is a value of its own, also where it changes nothing") {
  const Tensor x = Tensor::from({1.0, 2.0}, {2}), s = Tensor::from({3.0}, {}), i = arange(3);
  const Tensor b = i > 1;
  const Tensor image = ones({1, 1, 2, 2});
  for (const auto& [before, after] : std::vector<std::pair<Tensor, Tensor>>{
           {x, pow(x, 1.0)}, {x, flip(x, {})}, {x, dropout(x, 0.5, false)}, {x, dropout(x, 0.0)},
           {x, reshape(x, {2})}, {x, permute(x, {0})}, {x, expand(x, {2})}, {x, getitem(x, {})},
           {x, x.detach()}, {x, x.contiguous()}, {x, x.clone()}, {x, squeeze(x)}, {x, +1.0 * x},
           {x, movedim(x, {}, {})}, {x, where(x > 0, x, x)}, {x, cat({x})}, {x, repeat(x, {1})},
           {s, permute(s, {})}, {s, transpose(s, 0, 0)}, {s, roll(s, 1)}, {s, sum(s)},
           {s, max(s, 0).values}, {s, cummax(s, 0).values}, {s, sort(s).values}, {s, flatten(s)},
           {i, floor(i)}, {i, round(i)}, {i, nan_to_num(i)}, {b, abs(b)}, {b, sign(b)},
           {image, interpolate(image, {2, 2})}})
    CHECK(before.buffer() != after.buffer());
}

TEST_CASE("integers are read as numbers of any type, whatever their sign") {
  const std::vector<int64_t> values{-8, 3, INT64_MIN, INT64_MAX};
  CHECK(Tensor::from(values, {4}).to_vector<double>() == std::vector<double>{-8, 3, -0x1p63, 0x1p63});
  CHECK(Tensor::from(values, {4}).to_vector<float>() == std::vector<float>{-8, 3, -0x1p63f, 0x1p63f});
  CHECK(Tensor::from<int8_t>({-8}, {}).item<double>() == -8);
  const Tensor large = Tensor::from<uint64_t>({UINT64_MAX}, {});
  CHECK(large.item<double>() == 0x1p64);
  // As a constant of the graph, too.
  CHECK(full({}, UINT64_MAX, DType::F64).item<double>() == 0x1p64);
  CHECK(full({}, UINT64_MAX, DType::F32).item<float>() == 0x1p64f);
}

TEST_CASE("a tensor that was moved from says so, and can be assigned to") {
  Tensor x = ones({2});
  const Tensor y = std::move(x);
  const std::string text =
      "tensor: it was moved from and holds nothing; assign it a tensor first, or copy it instead of moving";
  CHECK_THROWS_WITH_AS(x + 1, text.c_str(), UserError);
  CHECK_THROWS_WITH_AS(1 + x, text.c_str(), UserError);
  CHECK_THROWS_WITH_AS(y + x, text.c_str(), UserError);
  CHECK_THROWS_WITH_AS(x.str(), text.c_str(), UserError);
  CHECK_THROWS_WITH_AS(x.shape(), text.c_str(), UserError);
  CHECK_THROWS_WITH_AS(x.dtype(), text.c_str(), UserError);
  CHECK_THROWS_WITH_AS(x.requires_grad_(), text.c_str(), UserError);
  CHECK_THROWS_WITH_AS(x.grad(), text.c_str(), UserError);
  CHECK_THROWS_WITH_AS(x.assign_(y), text.c_str(), UserError);
  CHECK_THROWS_WITH_AS(realize(y, x), text.c_str(), UserError);
  x = y;
  CHECK(x.to_vector() == std::vector<float>{1, 1});
}

TEST_CASE("what has no name cannot be assigned to, since nothing would see it") {
  static_assert(std::is_assignable_v<Tensor&, Tensor> && Addable<Tensor&>);
  static_assert(!std::is_assignable_v<Tensor, Tensor> && !Addable<Tensor>);  // x[3] = y, x[3] += 1
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

TEST_CASE("a value that another thread has assigned since is not taken back") {
  for (const bool is_leaf : {false, true}) {
    Tensor x = Tensor::from({1.0, 2.0}, {2}), y = Tensor::from({3.0, 4.0}, {2});
    if (is_leaf) x.requires_grad_();
    const NodeRef before = x.node();
    const auto value = [&](const Tensor& t) {
      return buffer(t.dtype(), {2}, t.storage(), is_leaf);
    };
    const NodeRef assigned = value(y);
    x.buffer()->rebind(assigned, before);
    CHECK(x.node() == assigned);
    x.buffer()->rebind(value(x), before);
    CHECK(x.node() == assigned);
    CHECK((gradient_leaf(assigned) != nullptr) == is_leaf);
    CHECK(gradient_leaf(before) == nullptr);
  }
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
  CHECK(x.mod(4).to_vector() == Floats{0, 1, 2, 3, 0, 1});
  CHECK((-x).mod(4).to_vector() == Floats{0, 3, 2, 1, 0, 3});
  CHECK(x.clip(1, 4).pad({1, 0}).to_vector() == Floats{0, 1, 1, 2, 0, 3, 4, 4});
  CHECK(x.count_nonzero().item() == 5);
  CHECK(x.shrink({{0, 1}, {1, 3}}).addcmul(x[1][0], x[0][1], 2).to_vector() == Floats{7, 8});
  CHECK(const_like(x.to(DType::I8), 2.9).to_vector() == Floats{2, 2, 2, 2, 2, 2});
  CHECK(x.ndim() == 2);
  CHECK(x.element_size() == 4);
  CHECK(x.is_floating_point());
}

TEST_CASE("sums and products of several tensors, and casts by name") {
  const ReferenceScope scope;
  const Tensor a = tensor({1, 2}), b = tensor({3.5, 4.0}), c = tensor({2});
  CHECK(usum(a, b, c).to_vector() == std::vector<float>{6.5, 8});
  CHECK(uprod(a, b, c).to_vector() == std::vector<float>{7, 16});
  CHECK(usum(a).to_vector() == a.to_vector());
  CHECK(b.half().dtype() == DType::F16);
  CHECK(b.bfloat16().dtype() == DType::BF16);
}

TEST_CASE("a tensor prints into a stream as its text") {
  const ReferenceScope scope;
  std::ostringstream out;
  out << "x = " << arange(3) << '\n';
  CHECK(out.str() == "x = [0 1 2]\n");
}

TEST_CASE("numbers in braces make a tensor, with PyTorch's dtypes") {
  const ReferenceScope scope;
  CHECK(tensor({1.f, 2.f}).to_vector() == Floats{1, 2});
  CHECK(tensor({1.5, 2.5}).dtype() == DType::F32);
  CHECK(tensor({1, 2}).dtype() == DType::I64);
  CHECK(tensor({true, false}).dtype() == DType::Bool);
  CHECK(tensor({1, 0.5, 2.f}).to_vector() == Floats{1, 0.5, 2});
  CHECK(tensor(2.5).shape().empty());
  CHECK(tensor(2.5).item() == 2.5);
  CHECK(tensor(3).dtype() == DType::I64);
  CHECK(tensor({0.1}, DType::F64).item() == 0.1);
  const Tensor matrix = tensor({{1, 2, 3}, {4, 5, 6}}, DType::F32);
  CHECK(matrix.shape() == Shape{2, 3});
  CHECK(matrix.to_vector() == Floats{1, 2, 3, 4, 5, 6});
  CHECK(tensor({{{1}, {2}}}).shape() == Shape{1, 2, 1});
}

TEST_CASE("compound assignment changes all copies of a handle and keeps shape and dtype") {
  const ReferenceScope scope;
  Tensor a = arange(3, DType::F32);
  const Tensor copy = a, before = a * 10;
  a += 1;
  a *= a;
  a -= tensor({0, 0, 1});
  a /= 2;
  CHECK(copy.to_vector() == Floats{0.5f, 2, 4});
  CHECK(before.to_vector() == Floats{0, 10, 20});
  Tensor n = arange(3);
  n += 1;
  CHECK(n.dtype() == DType::I64);
  CHECK(n.to_vector() == Floats{1, 2, 3});
}

TEST_CASE("backward is a method too, and gradients pass what is stored on their way") {
  const ReferenceScope scope;
  const Tensor w = tensor({1.f, 2.f}).requires_grad_();
  (w * w).contiguous_backward().sum().backward();
  CHECK(w.grad()->to_vector() == Floats{2, 4});
  (w * 3).backward(tensor({1.f, 10.f}));
  CHECK(w.grad()->to_vector() == Floats{5, 34});
}

TEST_CASE("a list of one input has a list of one gradient") {
  const ReferenceScope scope;
  const Tensor w = tensor({1.f, 2.f});
  const auto list = grad(sum(w * w), {w});
  CHECK(list.size() == 1);
  CHECK(list[0].to_vector() == Floats{2, 4});
  const auto [dw] = grad(sum(w), {w});
  CHECK(dw.to_vector() == Floats{1, 1});
}

TEST_SUITE_END();
