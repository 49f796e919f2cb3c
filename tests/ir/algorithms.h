// Algorithms of the kernel families, without any loop decision, and the check of a lowered kernel
// against them.
#pragma once

#include <string>
#include <vector>

#include "ir/kernel.h"
#include "ir/target.h"

namespace lazuli::test {

/// exp((x + b[j]) * y) / (1 + y*y) + x over rows and columns.
Kernel chain(int64_t rows, int64_t columns, DType t = DType::F32);
Kernel softmax(int64_t rows, int64_t columns);
Kernel layer_norm(int64_t rows, int64_t columns);
/// dx, dw and db; the rows in chunks, whose partial column sums a second phase adds.
Kernel layer_norm_backward(int64_t rows, int64_t columns, int64_t chunk);
/// a (or its transpose) times b (or its transpose), and bias and a sigmoid unit if `epilogue`.
Kernel matmul(int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool epilogue,
              DType t = DType::F32);
/// A product of narrow numbers, converted to what they are summed in.
struct Product {
  int64_t m, n, k;
  DType a, b, sum;
  bool a_transposed = false, b_transposed = false;
};
Kernel wide_product(const Product& p);
Kernel conv3x3(int64_t in, int64_t out, int64_t height, int64_t width);
Kernel attention(int64_t heads, int64_t length, int64_t width, bool causal);
/// Loss of every row and the gradient of their mean.
Kernel cross_entropy(int64_t rows, int64_t columns);
Kernel column_sum(int64_t rows, int64_t columns, DType t = DType::F32);
/// The largest or smallest element of every column, and the row that it stands in; in floats, 7 is
/// NaN and 6 infinite.
Kernel column_extremes(int64_t rows, int64_t columns, DType t = DType::F32,
                       Op reduce = Op::ReduceMax);
Kernel total_sum(int64_t n, DType t = DType::F32);
Kernel transpose(int64_t rows, int64_t columns, bool staged);

/// Fills arguments with reproducible values, runs the lowered kernel in the program interpreter
/// with one and with several workers, evaluates the algorithm directly, and returns "" or what
/// differs.
std::string difference(const Kernel& kernel, const Target& target);
/// The same against `algorithm`, what the kernel was before steps of its schedule rewrote it.
std::string difference(const Kernel& kernel, const Target& target, const Kernel& algorithm);

}  // namespace lazuli::test
