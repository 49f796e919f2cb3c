// Denormals, infinities and NaN through kernels over rows, as the reference device has them.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/ops_elementwise.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "tests/ir/run_plan.h"
#include "tools/notation/notation.h"

namespace lazuli {
namespace {

#if LAZULI_LLVM

constexpr float kFloatInf = std::numeric_limits<float>::infinity();
constexpr float kFloatNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = 3e-41f, kLargest = std::numeric_limits<float>::max();

// Ordinary numbers, but for what is put at the beginning, the end and between.
std::vector<float> row(int64_t width, const std::vector<float>& special) {
  std::vector<float> r(static_cast<size_t>(width));
  for (size_t i = 0; i < r.size(); i++) r[i] = std::sin(0.7f * static_cast<float>(i)) * 3;
  const size_t places[] = {0, r.size() - 1, r.size() / 2};
  for (size_t k = 0; k < special.size(); k++) r[places[k]] = special[k];
  return r;
}

const std::vector<std::vector<float>> kSpecial = {{kFloatNan},
                                                  {0, kFloatNan},
                                                  {0, 0, kFloatNan},
                                                  {kFloatInf},
                                                  {0, kFloatInf, 0},
                                                  {-kFloatInf},
                                                  {0, -kFloatInf, -kFloatInf},
                                                  {kFloatInf, -kFloatInf},
                                                  {kFloatInf, kFloatNan, -kFloatInf},
                                                  {kDenormal, -kDenormal, 1e-45f},
                                                  {kLargest, 1, 2},
                                                  {-kLargest, 0, -0.0f},
                                                  {200, -200, 90},
                                                  {-87.5f, -103, -110}};

Tensor special_rows(int64_t width) {
  std::vector<float> all;
  for (const auto& s : kSpecial) {
    const std::vector<float> r = row(width, s);
    all.insert(all.end(), r.begin(), r.end());
  }
  for (const float value : {-kFloatInf, kFloatInf, kFloatNan, kDenormal, 0.0f, -0.0f, 1e-20f}) {
    all.insert(all.end(), static_cast<size_t>(width), value);
  }
  return Tensor::from(all, {static_cast<int64_t>(all.size()) / width, width});
}

bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= 1e-5 * std::max(std::fabs(a), std::fabs(b)) + 1e-44;
}

TEST_SUITE_BEGIN("ops");

TEST_CASE("kernels over rows keep denormals, infinities and NaN as the reference device does") {
  const char* const expressions[] = {"softmax(x:f32[{}], -1)",
                                     "log_softmax(x:f32[{}], -1)",
                                     "logsumexp(x:f32[{}], -1)",
                                     "softmin(x:f32[{}], -1)",
                                     "amax(x:f32[{}], 1)",
                                     "amin(x:f32[{}], 1)",
                                     "argmax(x:f32[{}], 1)",
                                     "argmin(x:f32[{}], 1)",
                                     "max(x:f32[{}], 1)",
                                     "min(x:f32[{}], 1)",
                                     "argmax(contiguous(permute(x:f32[{}], [1, 0])), 0)",
                                     "min(contiguous(permute(x:f32[{}], [1, 0])), 0)",
                                     "cummax(x:f32[{}], 1)",
                                     "cummin(x:f32[{}], 1)",
                                     "any(x:f32[{}] > 0, 1)",
                                     "all(x:f32[{}] == x, 1)",
                                     "relu(x:f32[{}]) * 2",
                                     "x:f32[{}] * 1.0",
                                     "exp(x:f32[{}] - amax(x, 1, true))",
                                     "exp(-0.5 * x:f32[{}] * x)",
                                     "exp(-abs(x:f32[{}]))",
                                     "tanh(x:f32[{}])",
                                     "sigmoid(x:f32[{}])",
                                     "silu(x:f32[{}])",
                                     "gelu(x:f32[{}], approximate=tanh)",
                                     "sort(x:f32[{}], 1)",
                                     "norm(x:f32[{}], inf, 1)",
                                     "sum(x:f32[{}] * 1e-10, 1)"};
  constexpr int64_t kInChunks = 1 << 17;
  for (const int64_t width : {int64_t{5}, int64_t{8}, int64_t{67}, int64_t{1030}, kInChunks}) {
    const Tensor x = special_rows(width);
    for (const char* form : expressions) {
      std::string text = form;
      if (width == kInChunks && !text.starts_with("softmax") && !text.starts_with("log")) continue;
      text.replace(text.find("{}"), 2, std::to_string(x.shape()[0]) + "," + std::to_string(width));
      INFO(text);
      std::vector<std::vector<std::vector<double>>> values;
      for (const char* device : {"reference", "cpu"}) {
        std::vector<NodeRef> roots;
        for (const Tensor& t :
             notation::evaluate_program(notation::parse(text), {{"x", x}}, {}).tensors) {
          roots.push_back(t.to(DType::F64).node());
        }
        Runtime::current().device(device).realize(roots);
        auto& list = values.emplace_back();
        for (const NodeRef& r : roots) {
          const auto* const p = static_cast<const double*>(r->storage()->data());
          list.emplace_back(p, p + r->numel());
          r->set_storage(nullptr);
        }
      }
      for (size_t k = 0; k < values[0].size(); k++) {
        size_t wrong = 0;
        std::string first;
        for (size_t i = 0; i < values[0][k].size(); i++) {
          if (same(values[0][k][i], values[1][k][i])) continue;
          if (wrong++ == 0) {
            first = std::to_string(i) + ": " + std::to_string(values[1][k][i]) + " for " +
                    std::to_string(values[0][k][i]);
          }
        }
        CHECK_MESSAGE(wrong == 0, wrong, " elements differ, the first ", first);
      }
    }
  }
}

TEST_CASE(
    "numbers become integers in vectors as they do one by one: cut off, saturated, 0 for a NaN") {
  std::vector<double> values{0.0,  -0.0,  0.3,       -0.3,       0.99999,  -0.99999,
                             1e30, -1e30, kFloatInf, -kFloatInf, kFloatNan};
  for (const int bits : {7, 8, 15, 16, 31, 32, 63, 64}) {
    const double end = std::ldexp(1, bits);
    for (const double by : {-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5}) {
      values.insert(values.end(), {end + by, -end + by});
    }
    for (const double far : {0.0, 2 * end}) {
      const auto next =
          static_cast<double>(std::nextafter(static_cast<float>(end), static_cast<float>(far)));
      values.insert(values.end(),
                    {next, -next, std::nextafter(end, far), -std::nextafter(end, far)});
    }
  }
  const Tensor x = Tensor::from(values, {static_cast<int64_t>(values.size())});
  for (const DType from : {DType::F64, DType::F32, DType::F16}) {
    for (const DType to : {DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32,
                           DType::I64, DType::U64}) {
      CAPTURE(name(from));
      CAPTURE(name(to));
      std::vector<std::vector<std::byte>> results;
      for (const char* device : {"reference", "cpu"}) {
        const NodeRef root = x.to(from).to(to).node();
        Runtime::current().device(device).realize({&root, 1});
        const auto* const p = static_cast<const std::byte*>(root->storage()->data());
        results.emplace_back(p, p + values.size() * static_cast<size_t>(size_of(to)));
        root->set_storage(nullptr);
      }
      CHECK(results[0] == results[1]);
    }
  }
}

TEST_CASE("the larger and the smaller of anything and a number, which may stand first or last") {
  std::vector<float> values{kFloatNan, kFloatInf, -kFloatInf, 0,          -0.0f,
                            1,         -1,        kDenormal,  -kDenormal, kLargest};
  values.resize(70, kFloatNan);  // whole vectors, and what is left
  const Tensor x = Tensor::from(values, {70});
  for (const DType dtype : {DType::F32, DType::F64, DType::F16, DType::BF16}) {
    for (const double number :
         {1.0, -1.0, 0.0, -0.0, double{kFloatInf}, -double{kFloatInf}, double{kFloatNan}}) {
      CAPTURE(name(dtype));
      CAPTURE(number);
      const Tensor y = x.to(dtype);
      for (const Tensor& t :
           {maximum(y, number), maximum(number, y), minimum(y, number), minimum(number, y)}) {
        std::vector<std::vector<double>> results;
        for (const char* device : {"reference", "cpu"}) {
          const NodeRef root = t.node();
          Runtime::current().device(device).realize({&root, 1});
          results.push_back(Tensor(root).to_vector<double>());
          root->set_storage(nullptr);
        }
        for (size_t i = 0; i < results[0].size(); i++) CHECK(same(results[0][i], results[1][i]));
      }
    }
  }
}

TEST_CASE("an exponential has the same bits in whole vectors and in what is left of an array") {
  const auto bits_on_cpu = [](const Tensor& t) {
    const NodeRef root = t.node();
    Runtime::current().device("cpu").realize({&root, 1});
    std::vector<uint32_t> bits;
    for (const float x : Tensor(root).to_vector<float>())
      bits.push_back(std::bit_cast<uint32_t>(x));
    return bits;
  };
  std::vector<float> values = row(64, {-103.5f, 88.7f, -0.03f});
  const std::vector<uint32_t> want = bits_on_cpu(exp(Tensor::from(values, {64})));
  for (size_t n = 1; n < 48; n++) {
    CAPTURE(n);
    const std::vector<float> first(values.begin(), values.begin() + static_cast<ptrdiff_t>(n));
    const std::vector<uint32_t> got =
        bits_on_cpu(exp(Tensor::from(first, {static_cast<int64_t>(n)})));
    CHECK(got == std::vector<uint32_t>(want.begin(), want.begin() + static_cast<ptrdiff_t>(n)));
  }
}

TEST_CASE("a quotient with nothing beside it stands beside zeros") {
  const Tensor a = Tensor::from<float>({7}, {1}), b = Tensor::from<float>({4}, {1});
  const auto total = [&](const char* text) {
    return notation::evaluate(notation::parse(text), {{"a", a}, {"b", b}})[0].item();
  };
  CHECK(total("sum(pad(a:f32[1] / b:f32[1], [0, 2]))") == 1.75);
  CHECK(total("sum(pad(fmod(a:f32[1], b:f32[1]), [0, 2]))") == 3);
}

TEST_SUITE_END();

#endif

}  // namespace
}  // namespace lazuli
