// What mixes of dtypes become: PyTorch's rules, and the ones for pairs that PyTorch leaves out.
#include <doctest/doctest.h>

#include <array>

#include "core/ops.h"
#include "core/promotion.h"

using namespace lazuli;

namespace {
Tensor vector_of(DType t) {
  return zeros({2}, t);
}
Tensor scalar(DType t) {
  return zeros({}, t);
}
}  // namespace

TEST_SUITE_BEGIN("core");

TEST_CASE(
    "a tensor with axes wins over a scalar tensor, and both over a number, within a category") {
  CHECK(result_type(vector_of(DType::U8), scalar(DType::I64)) == DType::U8);
  CHECK(result_type(vector_of(DType::F16), scalar(DType::F64)) == DType::F16);
  CHECK(result_type(vector_of(DType::I32), scalar(DType::F64)) == DType::F64);
  CHECK(result_type(vector_of(DType::I32), 2.5) == DType::F32);
  CHECK(result_type(vector_of(DType::BF16), 2) == DType::BF16);
  CHECK(result_type(vector_of(DType::Bool), 2) == DType::I64);
  CHECK(result_type(vector_of(DType::I16), true) == DType::I16);
  CHECK(result_type(scalar(DType::I8), 2) == DType::I8);
  CHECK(result_type(scalar(DType::Bool), 2.0) == DType::F32);
}

TEST_CASE("two tensors with axes promote to the smallest type of the lattice that holds both") {
  CHECK(result_type(vector_of(DType::U8), vector_of(DType::I8)) == DType::I16);
  CHECK(result_type(vector_of(DType::F16), vector_of(DType::BF16)) == DType::F32);
  CHECK(result_type(vector_of(DType::I64), vector_of(DType::F16)) == DType::F16);
  CHECK(result_type(vector_of(DType::U32), vector_of(DType::I32)) == DType::I64);
  CHECK(result_type(vector_of(DType::U64), vector_of(DType::I64)) == DType::F32);
}

TEST_CASE("the quotient of integers is f32, and sums of integers are i64") {
  CHECK((vector_of(DType::I32) / 2).dtype() == DType::F32);
  CHECK((vector_of(DType::I64) / vector_of(DType::I64)).dtype() == DType::F32);
  CHECK(sum(vector_of(DType::U8)).dtype() == DType::I64);
  CHECK(sum(vector_of(DType::F16)).dtype() == DType::F16);
  CHECK(sum(vector_of(DType::Bool), {}, false, DType::I32).dtype() == DType::I32);
}

TEST_CASE("shapes broadcast from the last axis, and numbers to any shape") {
  CHECK((zeros({3, 1, 2}) + zeros({4, 1})).shape() == Shape{3, 4, 2});
  CHECK((zeros({0, 3}) + 1).shape() == Shape{0, 3});
  CHECK((zeros({0, 3}) * zeros({1, 3})).shape() == Shape{0, 3});
  CHECK((2 - zeros({})).shape() == Shape{});
}

TEST_SUITE_END();
