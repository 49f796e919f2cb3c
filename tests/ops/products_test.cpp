// Products of narrow numbers, which are packed and summed several at a time: the CPU against the
// reference device.
#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "core/graph.h"
#include "core/ops.h"
#include "runtime/device.h"
#include "runtime/runtime.h"

namespace lazuli {
namespace {

// Every third element is the least or the greatest of its dtype.
Tensor random_array(DType t, const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  const auto size = static_cast<size_t>(size_of(t));
  const int bits = 8 * size_of(t);
  const int64_t lo = is_signed(t) ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t hi = lo + (int64_t{1} << bits) - 1;
  auto storage = make_storage(static_cast<size_t>(numel(shape)) * size);
  for (int64_t i = 0; i < numel(shape); i++) {
    const uint32_t r = random();
    const int64_t v =
        r % 3 == 0 ? (r % 4 ? lo : hi) : lo + static_cast<int64_t>(random()) % (hi - lo);
    const Scalar x =
        is_float(t) ? Scalar((static_cast<double>(r % 4001) - 2000) / 1024) : Scalar(v);
    const uint64_t word = to_bits(x, t);
    std::memcpy(static_cast<char*>(storage->data()) + static_cast<size_t>(i) * size, &word, size);
  }
  return Tensor(buffer(t, shape, storage));
}

std::vector<uint64_t> realised_bits(const char* device, const Tensor& x) {
  const NodeRef& n = x.node();
  Runtime::current().device(device).realize(std::span<const NodeRef>(&n, 1));
  std::vector<uint64_t> out(static_cast<size_t>(n->numel()));
  const auto size = static_cast<size_t>(size_of(n->dtype));
  for (size_t i = 0; i < out.size(); i++) {
    std::memcpy(&out[i], static_cast<char*>(n->storage()->data()) + i * size, size);
  }
  n->set_storage(nullptr);
  return out;
}

// The largest difference between the devices, as a part of 1 + |value|.
double product_difference(const Tensor& x) {
  const std::vector<uint64_t> want = realised_bits("reference", x), got = realised_bits("cpu", x);
  double worst = 0;
  for (size_t i = 0; i < want.size(); i++) {
    const double a = from_bits(got[i], x.dtype()).as_double();
    const double b = from_bits(want[i], x.dtype()).as_double();
    worst = std::max(worst, std::fabs(a - b) / (1 + std::fabs(b)));
  }
  return worst;
}

struct DTypePair {
  DType a, b, sum;
};

TEST_SUITE("ops") {
  TEST_CASE("products of narrow integers are exact for all sizes and transposes" *
            doctest::skip(!LAZULI_LLVM)) {
    constexpr DType i8 = DType::I8, u8 = DType::U8, i16 = DType::I16, i32 = DType::I32;
    const DTypePair pairs[] = {{i8, i8, i32},   {u8, i8, i32}, {u8, u8, i32},
                               {i16, i16, i32}, {i8, i8, i8},  {i16, i16, i16}};
    uint32_t seed = 0;
    const auto check = [&](int64_t m, int64_t n, int64_t k) {
      const DTypePair& p = pairs[++seed % std::size(pairs)];
      const bool ta = seed / 6 % 2, tb = seed / 12 % 2;
      const Tensor a = random_array(p.a, ta ? Shape{k, m} : Shape{m, k}, seed);
      const Tensor b = random_array(p.b, tb ? Shape{n, k} : Shape{k, n}, seed + 1000);
      const Tensor x = a.to(p.sum), y = b.to(p.sum);
      INFO(m, " ", n, " ", k, " ", ta, " ", tb, " ", std::string(name(p.a)), " ",
           std::string(name(p.b)), " ", std::string(name(p.sum)));
      CHECK(product_difference(matmul(ta ? x.mT() : x, tb ? y.mT() : y)) == 0);
    };
    for (int64_t i = 1; i <= 40; i++) {
      check(i, 33, 21);
      check(19, i, 22);
      check(13, 24, i);
      check(i, 41 - i, (7 * i) % 40 + 1);
      check(41 - i, i, i);
    }
    for (int i = 0; i < 24; i++) check(70, 65, 130);
  }

  TEST_CASE("contractions of narrow numbers with an epilogue, a batch or windows" *
            doctest::skip(!LAZULI_LLVM)) {
    constexpr DType i8 = DType::I8, i32 = DType::I32;
    const Tensor a = random_array(i8, {3, 20, 37}, 1).to(i32),
                 b = random_array(i8, {3, 37, 40}, 2).to(i32);
    CHECK(product_difference(matmul(a, b)) == 0);
    CHECK(product_difference(matmul(a, narrow(b, 0, 1, 1)) + 3) == 0);
    // A quantised layer, with zero points.
    CHECK(product_difference(matmul(a - 3, b + 128)) == 0);
    const Tensor scale = random_array(DType::F32, {40}, 3);
    CHECK(product_difference(relu(matmul(a, b).to(DType::F32) * scale)) < 1e-6);
    CHECK(product_difference(clamp(matmul(a, b) / 1000, -128, 127).to(i8)) == 0);
    const Tensor x = random_array(i8, {2, 12, 18, 20}, 4).to(i32),
                 w = random_array(i8, {24, 12, 3, 3}, 5).to(i32);
    CHECK(product_difference(conv2d(x, w)) == 0);
    CHECK(product_difference(conv2d(x.to(i8), w.to(i8), std::nullopt, 1, 1)) == 0);
    CHECK(product_difference(conv2d(x, w, std::nullopt, 1, 1)) == 0);
    CHECK(product_difference(conv2d(x, w, std::nullopt, 2, 1)) == 0);
  }

  TEST_CASE("products of 16-bit floats are summed in f32 and rounded once" *
            doctest::skip(!LAZULI_LLVM)) {
    for (const DType t : {DType::BF16, DType::F16}) {
      for (const int64_t n : {5, 16, 33, 40}) {
        for (const bool transposed : {false, true}) {
          const Tensor a = random_array(t, {17, 3 * n}, 1);
          const Tensor b = random_array(t, transposed ? Shape{n, 3 * n} : Shape{3 * n, n}, 2);
          const Tensor y = transposed ? b.mT() : b;
          INFO(std::string(name(t)), " ", n, " ", transposed);
          CHECK(product_difference(matmul(a, y)) <= (t == DType::BF16 ? 1.0 / 128 : 1.0 / 1024));
          CHECK(product_difference(matmul(a.to(DType::F32), y.to(DType::F32))) <= 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lazuli
