// Sums of products: matrix products and their relatives. In the graph each is a ReduceAdd of a Mul
// of two operands that were only moved, which is how the scheduler knows a contraction.
#pragma once

#include <optional>
#include <string_view>

#include "core/arguments.h"
#include "core/tensor.h"

namespace lazuli {

/// As torch.matmul: (m, k) @ (k, n), vectors on either side, leading dimensions broadcast as
/// batches.
Tensor matmul(const Tensor& a, const Tensor& b);
/// (m, k) @ (k, n), no broadcasting.
Tensor mm(const Tensor& a, const Tensor& b);
/// (b, m, k) @ (b, k, n), no broadcasting.
Tensor bmm(const Tensor& a, const Tensor& b);
/// (m, k) @ (k,).
Tensor mv(const Tensor& a, const Tensor& v);
/// (k,) . (k,), a scalar.
Tensor dot(const Tensor& a, const Tensor& b);
/// (m,) x (n,) -> (m, n).
Tensor outer(const Tensor& a, const Tensor& b);
/// beta * x + alpha * (a @ b).
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta = 1,
             const Scalar& alpha = 1);
/// The same over batches.
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta = 1,
               const Scalar& alpha = 1);
/// x (..., in) times the transpose of weight (out, in), plus bias (out,).
Tensor linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias = {});
/// Sums over the last `dims` axes of a and the first of b.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2);
/// Sums over axes of a paired with axes of b.
Tensor tensordot(const Tensor& a, const Tensor& b, const Ints& dims_a, const Ints& dims_b);
/// Sum over all axes not kept of the product of two operands whose axes are given labels: the
/// general contraction. Equal labels in a and b are the same axis; `out` lists the labels kept, in
/// order. Labels are distinct within an operand.
Tensor contract(std::string_view op, const Tensor& a, const Ints& labels_a, const Tensor& b,
                const Ints& labels_b, const Ints& out);
/// The same, still in the dtype that it was summed in: f32 for the 16-bit floats.
Tensor contract_wide(std::string_view op, const Tensor& a, const Ints& labels_a, const Tensor& b,
                     const Ints& labels_b, const Ints& out);

}  // namespace lazuli
