// Arrays as text: what NumPy 2 prints for the same elements.
#include "core/graph.h"
#include "core/print.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/ops.h"

using namespace lazuli;

namespace {

template <typename V>
std::string text(const std::vector<V>& values, const Shape& shape) {
  return print_array(values.data(), dtype_of<V>(), shape);
}

constexpr float kPrintedInf = std::numeric_limits<float>::infinity();

}  // namespace

TEST_SUITE_BEGIN("core");

TEST_CASE("floats are aligned at the point, with the digits they need") {
  CHECK(text<float>({1, 2.5f, -3.25f, 100}, {4}) == "[  1.     2.5   -3.25 100.  ]");
  CHECK(text<float>({1.0f / 3, 2.0f / 3}, {2}) == "[0.33333334 0.6666667 ]");
  CHECK(text<double>({1.0 / 3, 1}, {2, 1}) == "[[0.33333333]\n [1.        ]]");
  CHECK(text<float>({0, -0.0f}, {2}) == "[ 0. -0.]");
}

TEST_CASE("large ranges are printed with exponents") {
  CHECK(text<float>({1e-5f, 1}, {2}) == "[1.e-05 1.e+00]");
  CHECK(text<double>({1e100, 1}, {2}) == "[1.e+100 1.e+000]");
  CHECK(text<float>({1234567.0f, 0.5f}, {2}) == "[1.234567e+06 5.000000e-01]");
}

TEST_CASE("infinities and NaN keep the columns") {
  CHECK(text<float>({1, kPrintedInf, std::nanf("")}, {3}) == "[ 1. inf nan]");
  CHECK(text<float>({1.5f, -kPrintedInf}, {2}) == "[ 1.5 -inf]");
  CHECK(text<float>({std::nanf("")}, {1}) == "[nan]");
}

TEST_CASE("integers and bools are aligned to the right") {
  CHECK(text<int64_t>({1, -20, 300}, {3}) == "[  1 -20 300]");
  CHECK(print_array("\1\0", DType::Bool, {2}) == "[ True False]");
  CHECK(print_array("\1\1", DType::Bool, {2}) == "[ True  True]");
  CHECK(text<uint64_t>({~uint64_t{0}}, {1}) == "[18446744073709551615]");
}

TEST_CASE("a scalar has no brackets and all its digits") {
  CHECK(text<float>({1}, {}) == "1.0");
  CHECK(text<double>({1.0 / 3}, {}) == "0.3333333333333333");
  CHECK(text<float>({1e20f}, {}) == "1e+20");
  CHECK(text<int32_t>({-7}, {}) == "-7");
}

TEST_CASE("higher ranks are separated by empty lines, and nothing is printed as []") {
  CHECK(text<int32_t>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}) ==
        "[[[1 2]\n  [3 4]]\n\n [[5 6]\n  [7 8]]]");
  CHECK(text<float>({}, {0, 3}) == "[]");
}

TEST_CASE("long rows wrap and long axes are shortened") {
  std::vector<int64_t> v(1001);
  for (size_t i = 0; i < v.size(); i++) v[i] = static_cast<int64_t>(i);
  CHECK(text<int64_t>(v, {1001}) == "[   0    1    2 ...  998  999 1000]");
  v.resize(30);
  CHECK(text<int64_t>(v, {30}) ==
        "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n 24 25 26 27 28 "
        "29]");
}

TEST_CASE("16-bit floats are printed with the fewest digits that name them") {
  CHECK(Tensor(constant(0.1, DType::F16, {2})).str() == "[0.1 0.1]");
  CHECK(Tensor(constant(1.0 / 3, DType::BF16, {})).str() == "0.334");
}

TEST_SUITE_END();
