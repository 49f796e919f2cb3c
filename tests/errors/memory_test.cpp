// Memory that cannot be had, gradients that do not exist, data that does not fit: the exact texts,
// and that every tensor is as usable afterwards as before.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <vector>

#include "core/graph.h"
#include "nn/lazuli.h"

using namespace lazuli;

namespace {

// A reference device that may use 1 GiB, or less.
class SmallMachine {
 public:
  explicit SmallMachine(uint64_t memory = uint64_t{1} << 30)
      : runtime_(config(memory)), use_(runtime_) {}

 private:
  static Config config(uint64_t memory) {
    Config config;
    config.device = "reference";
    config.memory = memory;
    return config;
  }

  Runtime runtime_;
  Runtime::Use use_;
};

}  // namespace

TEST_SUITE_BEGIN("errors");

TEST_CASE("memory that cannot be had is refused with its size, the limit and the way out") {
  const SmallMachine machine;
  const Tensor huge = ones({int64_t{5} << 39});
  CHECK_THROWS_WITH_AS(
      huge.realize(),
      "memory: a value needs 10 TiB (10995116277760 bytes), and the limit is 1 GiB (LAZULI_MEMORY, "
      "or what "
      "the machine has); use smaller shapes or free other values, which hold 0 bytes",
      DeviceError);
  CHECK(!huge.realised());
  CHECK((ones({3}) + 1).str() == "[2. 2. 2.]");
  CHECK_THROWS_AS(nonzero(huge), DeviceError);
  CHECK_THROWS_AS(tril_indices(int64_t{1} << 20, int64_t{1} << 20), DeviceError);
  CHECK_THROWS_AS(repeat_interleave(ones({2}), Tensor::from({int64_t{1}, int64_t{1} << 50}, {2})),
                  DeviceError);
  CHECK_THROWS_AS(interpolate(ones({1, 1, 7}), {1 << 30}, {}, "nearest"), DeviceError);
  CHECK_THROWS_AS(interpolate(ones({1, 1, 7}), {1 << 30}, {}, "linear"), DeviceError);
}

TEST_CASE("sizes whose bytes are more than 2^64 are refused, not taken modulo that") {
  const SmallMachine reference;
  const auto refused = [](const Tensor& x) {
    CHECK_THROWS_WITH_AS(Tensor(x).realize(),
                         "memory: a value needs 2^64 bytes or more, and the limit is 1 GiB (LAZULI_MEMORY, or what the machine has); use smaller shapes or "
                         "free other values, which hold 64 bytes",
                         DeviceError);
  };
  const Tensor last = Tensor::from({(int64_t{1} << 61) - 1}, {1});
  refused(ones({int64_t{1} << 61}, DType::F64));
  refused(one_hot(last, int64_t{1} << 61));
  refused(bincount(last));
}

TEST_CASE("a product of matrices needs no room for all the products of its elements") {
  const SmallMachine machine(uint64_t{1} << 20);  // all of them would take 4 MB
  const Tensor x = ones({100, 100});
  CHECK(x.matmul(x).sum().item() == 1e6);
  CHECK_THROWS_AS((x.unsqueeze(2) * x).realize(), DeviceError);
}

TEST_CASE("a part of an array holds no more than itself") {
  const SmallMachine machine;
  const Tensor x = arange(12).reshape({4, 3}).realize();
  const Tensor head = x.narrow(0, 0, 2).realize();
  CHECK(head.node()->storage()->bytes() == 48);
  CHECK(head.str() == "[[0 1 2]\n [3 4 5]]");
}

TEST_CASE("an assignment that fails leaves the tensor as it was") {
  const SmallMachine machine;
  Tensor x = arange(3);
  CHECK_THROWS_AS(x.set_({3}, 1), UserError);
  CHECK_THROWS_AS(x.assign_(ones({2})), UserError);
  CHECK(x.str() == "[0 1 2]");
}

TEST_CASE("a tensor assigned to itself is a new value, not a cycle") {
  const SmallMachine machine;
  Tensor x = arange(3), y = x + 1;
  x.assign_(y);
  y.assign_(x + y);
  x.assign_(x + y);
  CHECK(x.str() == "[3 6 9]");
  CHECK(y.str() == "[2 4 6]");
}

TEST_CASE("data of another size than its shape is refused") {
  CHECK_THROWS_WITH_AS(Tensor::from({1.0f, 2.0f}, {3}),
                       "from: shape (3,) of f32 needs 12 bytes, but 8 were given", UserError);
  CHECK_THROWS_WITH_AS(Tensor::from({1.0f, 2.0f}, {-3}), "from: negative size -3 in shape (-3,)",
                       UserError);
  CHECK_THROWS_WITH_AS(zeros({2}).size(1),
                       "size: axis 1 is out of range for rank 1; it must lie in [-1, 0]",
                       UserError);
}

TEST_CASE("gradients that do not exist are refused") {
  const SmallMachine machine;
  const Tensor x = zeros({2}), i = zeros({2}, DType::I32);
  CHECK_THROWS_WITH_AS(grad(sum(x.to(DType::I32)), x),
                       "grad: the result has dtype i64; only floating point results have gradients",
                       UserError);
  CHECK_THROWS_WITH_AS(grad(sum(i.to(DType::F32)), i),
                       "grad: input 0 has dtype i32; only floating point tensors have gradients",
                       UserError);
  CHECK_THROWS_WITH_AS(grad(x * 2, x),
                       "grad: the result has shape (2,), not one element; reduce it to a scalar, "
                       "or use vjp with a cotangent",
                       UserError);
  CHECK_THROWS_WITH_AS(backward(x * 2),
                       "backward: the result has shape (2,), not one element; give a gradient of "
                       "that shape, or reduce it to "
                       "a scalar",
                       UserError);
  CHECK_THROWS_WITH_AS(backward(sum(x)),
                       "backward: no tensor below the result requires a gradient; call "
                       "requires_grad_() on the inputs first",
                       UserError);
  const Tensor realised = sum(x * 2).realize();
  CHECK_THROWS_WITH_AS(grad(realised, x),
                       "grad: the result is an array whose history was dropped when it was "
                       "realised; take gradients before "
                       "realize(), or call requires_grad_() on the inputs first",
                       UserError);
  CHECK(grad(sum(x * 2), x).str() == "[2. 2.]");
}

TEST_CASE("a gradient by what the result is not made of") {
  const Tensor x = ones({2}), a = ones({3});
  const char* message =
      "the result is not made of input 1, of shape (3,). If that was realised or assigned to "
      "since, "
      "or an array between them was realised, take gradients before, or call requires_grad_() on "
      "the inputs first; if it is meant, Unused::kZeros gives zeros";
  const Tensor y = sum(x * x);
  CHECK_THROWS_WITH_AS(grad(y, {x, a}), fmt::format("grad: {}", message).c_str(), UserError);
  CHECK_THROWS_WITH_AS(vjp(y, std::vector{x, a}, ones({})), fmt::format("vjp: {}", message).c_str(),
                       UserError);
  const auto f = [](const std::vector<Tensor>& t) { return sum(t[0] * t[0]); };
  CHECK_THROWS_WITH_AS(value_and_grad(f, {x, a}), fmt::format("grad: {}", message).c_str(),
                       UserError);
  const auto [dx, da] = grad(y, {x, a}, Unused::kZeros);
  CHECK(dx.str() == "[2. 2.]");
  CHECK(da.str() == "[0. 0. 0.]");
  CHECK(value_and_grad(f, {x, a}, Unused::kZeros).second[1].str() == "[0. 0. 0.]");
  // Of one result of several it is enough; and behind what has no gradient there are zeros.
  CHECK(vjp(std::vector{y, sum(a)}, std::vector{x, a}, std::vector{ones({}), ones({})})[1].str() ==
        "[1. 1. 1.]");
  CHECK(grad(sum(detach(x)), x).str() == "[0. 0.]");
  CHECK(grad(sum(x), zeros({0})).numel() == 0);  // no elements, no part of a result
  // An array that was printed between them.
  const Tensor square = x * x;
  CHECK(square.str() == "[1. 1.]");
  CHECK_THROWS_AS(grad(sum(square * square), x), UserError);
  CHECK(grad(sum(square * square), x, Unused::kZeros).str() == "[0. 0.]");
  const Tensor kept = ones({2}).requires_grad_(), cube = kept * kept * kept;
  CHECK(cube.str() == "[1. 1.]");
  CHECK(grad(sum(cube), kept).str() == "[3. 3.]");
}

TEST_SUITE_END();
