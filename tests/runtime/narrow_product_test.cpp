// Products of narrow numbers on the CPU, around the sizes of vectors and tile registers.
#include <doctest/doctest.h>

#include <vector>

#include "core/ops.h"
#include "core/tensor.h"
#include "runtime/device.h"

namespace lazuli {
namespace {

// Whole numbers from -8 to 7, of which sums are exact.
Tensor whole_matrix(int64_t rows, int64_t columns, int64_t seed, DType dtype) {
  const Tensor n = arange(rows * columns) * 7919 + seed;
  return (remainder(n, 16) - 8).reshape({rows, columns}).to(dtype);
}

TEST_SUITE("runtime") {
  TEST_CASE("products of bf16 and of bytes are exact where their sums are, at every edge") {
    for (const int64_t m : {1, 4, 15, 17, 33}) {
      for (const int64_t n : {15, 32, 47, 65}) {
        for (const int64_t k : {31, 32, 65, 130}) {
          const Tensor a = whole_matrix(m, k, 3, DType::I32), b = whole_matrix(k, n, 5, DType::I32);
          const std::vector<int32_t> want = matmul(a, b).to_vector<int32_t>();
          INFO(m, " ", n, " ", k);
          const Tensor bytes = matmul(a.to(DType::I8).contiguous().to(DType::I32),
                                      b.to(DType::I8).contiguous().to(DType::I32));
          CHECK(bytes.to_vector<int32_t>() == want);
          const Tensor unsigned_bytes = matmul((a + 8).to(DType::U8).contiguous().to(DType::I32),
                                               b.to(DType::I8).contiguous().to(DType::I32));
          CHECK(unsigned_bytes.to_vector<int32_t>() == matmul(a + 8, b).to_vector<int32_t>());
          const Tensor halves = matmul(a.to(DType::BF16).contiguous().to(DType::F32),
                                       b.to(DType::BF16).contiguous().to(DType::F32));
          CHECK(halves.to(DType::I32).to_vector<int32_t>() == want);
          const Tensor turned =
              matmul(a.to(DType::BF16).transpose(0, 1).contiguous().transpose(0, 1).to(DType::F32),
                     b.to(DType::BF16).transpose(0, 1).contiguous().transpose(0, 1).to(DType::F32));
          CHECK(relu(turned + 1).to(DType::I32).to_vector<int32_t>() ==
                relu(matmul(a, b) + 1).to_vector<int32_t>());
        }
      }
    }
  }
}

}  // namespace
}  // namespace lazuli
