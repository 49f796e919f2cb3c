#include "core/evaluate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/scalar.h"

namespace lazuli {
namespace {

double evaluate_op(Op op, DType t, std::vector<double> values) {
  std::vector<uint64_t> bits;
  for (double v : values) bits.push_back(to_bits(Scalar(v), t));
  const DType out = has(op, kComparison) ? DType::Bool : t;
  return from_bits(evaluate(op, out, bits, t), out).as_double();
}

double convert(double v, DType from, DType to) {
  const uint64_t bits = to_bits(Scalar(v), from);
  return from_bits(evaluate(Op::Cast, to, {&bits, 1}, from), to).as_double();
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

TEST_SUITE_BEGIN("core");

TEST_CASE("integer division by zero is 0, and the lowest number divided by -1 is itself") {
  CHECK(evaluate_op(Op::IDiv, DType::I8, {-128, -1}) == -128);
  CHECK(evaluate_op(Op::IDiv, DType::I32, {7, 0}) == 0);
  CHECK(evaluate_op(Op::Rem, DType::I32, {7, 0}) == 0);
  CHECK(evaluate_op(Op::Rem, DType::I32, {-7, 3}) == -1);
  CHECK(std::isnan(evaluate_op(Op::Rem, DType::F32, {7, 0})));
}

TEST_CASE("shifts by the width or more, or by a negative count, leave the sign") {
  CHECK(evaluate_op(Op::Shl, DType::I32, {1, 32}) == 0);
  CHECK(evaluate_op(Op::Shr, DType::I32, {-8, 40}) == -1);
  CHECK(evaluate_op(Op::Shr, DType::U8, {200, 9}) == 0);
  CHECK(evaluate_op(Op::Shr, DType::I8, {-8, -1}) == -1);
}

TEST_CASE("maximum and minimum let NaN through and order the zeros") {
  CHECK(std::isnan(evaluate_op(Op::Max, DType::F32, {kNaN, 1})));
  CHECK(std::isnan(evaluate_op(Op::Min, DType::BF16, {1, kNaN})));
  CHECK(!std::signbit(evaluate_op(Op::Max, DType::F64, {-0.0, 0.0})));
  CHECK(std::signbit(evaluate_op(Op::Min, DType::F64, {0.0, -0.0})));
}

TEST_CASE("casts saturate, wrap and round once") {
  CHECK(convert(300, DType::F32, DType::I8) == 127);
  CHECK(convert(kNaN, DType::F32, DType::I32) == 0);
  CHECK(convert(-5, DType::F64, DType::U16) == 0);
  CHECK(convert(257, DType::I32, DType::U8) == 1);
  CHECK(convert(0.5, DType::F16, DType::Bool) == 1);
  CHECK(convert(16777217, DType::I64, DType::F32) == 16777216);
  const uint64_t all = ~uint64_t{0};
  CHECK(from_bits(evaluate(Op::Cast, DType::F64, {&all, 1}, DType::U64), DType::F64).as_double() ==
        18446744073709551616.0);
}

TEST_CASE("halves become floats and floats halves, rounded once to the nearest, ties to even") {
  CHECK(f16_to_f32(0x3c00) == 1);
  CHECK(f16_to_f32(0x7bff) == 65504);
  CHECK(f16_to_f32(0x0001) == 0x1p-24f);
  CHECK(f16_to_f32(0x83ff) == -0x1.ff8p-15f);
  CHECK(f16_to_f32(0xfc00) == -static_cast<float>(kInfinity));
  CHECK(f32_to_f16(-0.0f) == 0x8000);
  int differ = 0;
  for (uint32_t h = 0; h < 0x10000; h++) {
    const auto half = static_cast<uint16_t>(h);
    const float x = f16_to_f32(half);
    differ += std::isnan(x) ? (f32_to_f16(x) & 0x7fff) != 0x7e00 : f32_to_f16(x) != half;
    // Around each half and each middle between two, as doubles are rounded.
    const float middle = x + (f16_to_f32(static_cast<uint16_t>(h + 1)) - x) / 2;
    for (const float y : {x, middle}) {
      for (const float z : {std::nextafter(y, 0.0f), y, std::nextafter(y, 1e9f)})
        differ += f32_to_f16(z) != f64_to_f16(z);
    }
  }
  CHECK(differ == 0);
  for (const float x : {65519.996f, 65520.0f, 1e9f, 0x1p-25f, 0x1.000002p-25f, 0x1p-126f, 1e-45f})
    CHECK(f32_to_f16(x) == f64_to_f16(x));
}

TEST_CASE("rounding goes to the even neighbour and the sign of NaN is NaN") {
  CHECK(evaluate_op(Op::Round, DType::F32, {2.5}) == 2);
  CHECK(evaluate_op(Op::Round, DType::F32, {-3.5}) == -4);
  CHECK(std::isnan(evaluate_op(Op::Sign, DType::F32, {kNaN})));
  CHECK(evaluate_op(Op::Eq, DType::F32, {kNaN, kNaN}) == 0);
  CHECK(evaluate_op(Op::Ne, DType::F32, {kNaN, kNaN}) == 1);
}

TEST_CASE("digamma and lgamma are right at known points") {
  CHECK(evaluate_op(Op::Digamma, DType::F64, {1}) ==
        doctest::Approx(-0.57721566490153286).epsilon(1e-15));
  CHECK(evaluate_op(Op::Digamma, DType::F64, {-0.5}) ==
        doctest::Approx(0.036489973978576521).epsilon(1e-13));
  CHECK(evaluate_op(Op::Digamma, DType::F64, {0.0}) == -kInfinity);
  CHECK(std::isnan(evaluate_op(Op::Digamma, DType::F64, {-3})));
  CHECK(evaluate_op(Op::Lgamma, DType::F64, {0.5}) ==
        doctest::Approx(0.57236494292470009).epsilon(1e-15));
  CHECK(evaluate_op(Op::Lgamma, DType::F32, {-2}) == kInfinity);
}

TEST_CASE("a reduction of nothing is the identity of its dtype") {
  CHECK(from_bits(reduce_identity(Op::ReduceMax, DType::I8), DType::I8).as_int() == -128);
  CHECK(from_bits(reduce_identity(Op::ReduceMin, DType::F16), DType::F16).as_double() == kInfinity);
  CHECK(reduce_identity(Op::ReduceMin, DType::U64) == ~uint64_t{0});
  CHECK(reduce_identity(Op::ReduceMax, DType::Bool) == 0);
  CHECK(from_bits(reduce_identity(Op::ReduceMul, DType::BF16), DType::BF16).as_double() == 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
