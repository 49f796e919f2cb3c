// Integers over all of their range, wraps and signs included: the CPU against the reference,
// exactly.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/runtime.h"
#include "tools/notation/notation.h"

namespace lazuli::notation {
namespace {

// {0}: the dtype of the inputs, {1}: another integer dtype.
constexpr std::string_view kOfOne[] = {
    "x:{0}[37,65]~bits + y:{0}[37,65]~bits",
    "x:{0}[37,65]~bits * y:{0}[37,65]~bits - y",
    "x:{0}[37,65]~bits // y:{0}[37,65]~bits",
    "x:{0}[37,65]~bits % y:{0}[37,65]~bits",
    "(x:{0}[37,65]~bits & y:{0}[37,65]~bits) ^ (x | 5)",
    "(x:{0}[37,65]~bits >> 3) + (x << 2)",
    "where(x:{0}[37,65]~bits < y:{0}[37,65]~bits, maximum(x, y), -x)",
    "(abs(x:{0}[37,65]~bits), sign(x), clamp(x, 3, 77), pow(x, 3))",
    "(sum(x:{0}[37,65]~bits), sum(x, 0), sum(x, 1), prod(x, 1))",
    "(max(x:{0}[37,65]~bits, 0), min(x), argmax(x, 1), argmin(x, 0))",
    "(cumsum(x:{0}[37,65]~bits, 1), sort(x, 1)[0], topk(x, 5)[0])",
    "(x:{0}[37,65]~bits.to(f32) * 0.5, x.to(f16), x.to(bf16), x.to(f64), x.to(bool))",
    "x:{0}[37,65]~bits @ y:{0}[65,41]~bits",
    "x:{0}[37,65]~bits @ y:{0}[41,65]~bits.T",
    "x:{0}[65,37]~bits.T @ y:{0}[65,41]~bits",
    "x:{0}[300]~bits @ y:{0}[300,7]~bits",
    "conv2d(x:{0}[2,3,17,19]~bits, w:{0}[5,3,3,3]~bits)",
};
constexpr std::string_view kOfTwo[] = {
    "(x:{0}[37,65]~bits.to({1}), (x.to({1}) * 3).to({0}), sum(x.to({1}), 1))",
    "x:{0}[33,100]~bits.to({1}) @ y:{1}[100,40]~bits",
    "x:{0}[33,100]~bits.to(i32) @ y:{1}[40,100]~bits.to(i32).T",
};
constexpr std::string_view kIntegers[] = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};

// The bits of the elements of each result, floats as f64.
std::vector<std::vector<uint64_t>> values_on(const std::string& device, const std::string& text) {
  Config config;
  config.device = device;
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  const Program program = parse(text);
  std::vector<std::vector<uint64_t>> values;
  for (const Tensor& t : evaluate(program, bind_inputs(program, {}))) {
    std::vector<uint64_t>& bits = values.emplace_back();
    if (is_float(t.dtype())) {
      for (const double v : t.to_vector<double>()) bits.push_back(std::bit_cast<uint64_t>(v));
    } else if (t.dtype() == DType::U64) {
      bits = t.to_vector<uint64_t>();
    } else {
      for (const int64_t v : t.to_vector<int64_t>()) bits.push_back(static_cast<uint64_t>(v));
    }
  }
  return values;
}

void check(const std::string& text) {
  CAPTURE(text);
  CHECK(values_on("cpu", text) == values_on("reference", text));
}

TEST_SUITE_BEGIN("tools");

TEST_CASE("integers of any value are on the CPU what they are on the reference") {
  for (const std::string_view x : kIntegers) {
    for (const std::string_view text : kOfOne) check(fmt::format(fmt::runtime(text), x));
    for (const std::string_view y : kIntegers) {
      for (const std::string_view text : kOfTwo) check(fmt::format(fmt::runtime(text), x, y));
    }
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli::notation
