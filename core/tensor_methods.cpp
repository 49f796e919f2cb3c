// The method spellings of operations: each calls the operation with this tensor first.
#include "core/gradient.h"
#include "core/ops.h"
#include "core/tensor.h"

namespace lazuli {
namespace {

// What the parameters are, in the rows below.
using X = const Tensor&;
using Other = const TensorOrScalar&;
using Number = const Scalar&;
using Int = int64_t;
using List = const Ints&;  // sizes of a shape, or axes
using Axes = const Dims&;
using Word = std::string_view;
using MaybeInt = std::optional<int64_t>;
using MaybeReal = std::optional<double>;
using MaybeType = std::optional<DType>;
using MaybeTensor = const std::optional<Tensor>&;
using Both = ValuesIndices;
using Tensors = std::vector<Tensor>;
using Ranges = const std::vector<std::pair<int64_t, int64_t>>&;

}  // namespace

// One row: the result, the name, the types of the further parameters.
// clang-format off
#define METHOD0(R, NAME) R Tensor::NAME() const { return lazuli::NAME(*this); }
#define METHOD1(R, NAME, A) R Tensor::NAME(A a) const { return lazuli::NAME(*this, a); }
#define METHOD2(R, NAME, A, B) \
  R Tensor::NAME(A a, B b) const { return lazuli::NAME(*this, a, b); }
#define METHOD3(R, NAME, A, B, C) \
  R Tensor::NAME(A a, B b, C c) const { return lazuli::NAME(*this, a, b, c); }
#define METHOD4(R, NAME, A, B, C, D) \
  R Tensor::NAME(A a, B b, C c, D d) const { return lazuli::NAME(*this, a, b, c, d); }
#define METHOD5(R, NAME, A, B, C, D, E) \
  R Tensor::NAME(A a, B b, C c, D d, E e) const { return lazuli::NAME(*this, a, b, c, d, e); }

// ---- conversion and identity
METHOD0(Tensor, half) METHOD0(Tensor, bfloat16)
METHOD1(Tensor, to, DType) METHOD1(Tensor, cast, DType) METHOD1(Tensor, bitcast, DType)
METHOD0(Tensor, detach) METHOD0(Tensor, contiguous) METHOD0(Tensor, contiguous_backward)
METHOD0(Tensor, clone)

// ---- unary functions
METHOD0(Tensor, neg) METHOD0(Tensor, abs) METHOD0(Tensor, sign) METHOD0(Tensor, square)
METHOD0(Tensor, sqrt) METHOD0(Tensor, rsqrt) METHOD0(Tensor, reciprocal) METHOD0(Tensor, exp)
METHOD0(Tensor, exp2) METHOD0(Tensor, expm1) METHOD0(Tensor, log) METHOD0(Tensor, log2)
METHOD0(Tensor, log10) METHOD0(Tensor, log1p) METHOD0(Tensor, sin) METHOD0(Tensor, cos)
METHOD0(Tensor, tan) METHOD0(Tensor, asin) METHOD0(Tensor, acos) METHOD0(Tensor, atan)
METHOD0(Tensor, sinh) METHOD0(Tensor, cosh) METHOD0(Tensor, tanh) METHOD0(Tensor, asinh)
METHOD0(Tensor, acosh) METHOD0(Tensor, atanh) METHOD0(Tensor, erf) METHOD0(Tensor, erfc)
METHOD0(Tensor, erfinv) METHOD0(Tensor, lgamma) METHOD0(Tensor, digamma) METHOD0(Tensor, trunc)
METHOD0(Tensor, floor) METHOD0(Tensor, ceil) METHOD0(Tensor, frac) METHOD0(Tensor, sinc)
METHOD0(Tensor, isnan) METHOD0(Tensor, isinf) METHOD0(Tensor, isfinite) METHOD0(Tensor, signbit)
METHOD0(Tensor, logical_not) METHOD0(Tensor, bitwise_not) METHOD0(Tensor, trigamma)
METHOD0(Tensor, isposinf) METHOD0(Tensor, isneginf)
METHOD1(Tensor, round, Int)
METHOD1(Tensor, logit, MaybeReal)
METHOD3(Tensor, nan_to_num, MaybeReal, MaybeReal, MaybeReal)

// ---- activations
METHOD0(Tensor, relu) METHOD0(Tensor, relu6) METHOD0(Tensor, selu) METHOD0(Tensor, quick_gelu)
METHOD0(Tensor, silu) METHOD0(Tensor, swish) METHOD0(Tensor, mish) METHOD0(Tensor, softsign)
METHOD0(Tensor, sigmoid) METHOD0(Tensor, logsigmoid) METHOD0(Tensor, hardsigmoid)
METHOD0(Tensor, hardswish)
METHOD1(Tensor, leaky_relu, double) METHOD1(Tensor, elu, double) METHOD1(Tensor, celu, double)
METHOD1(Tensor, gelu, Word)
METHOD2(Tensor, softplus, double, double) METHOD2(Tensor, hardtanh, double, double)

// ---- binary functions
METHOD2(Tensor, add, Other, Number) METHOD2(Tensor, sub, Other, Number)
METHOD1(Tensor, mul, Other) METHOD1(Tensor, true_divide, Other) METHOD1(Tensor, mod, Other)
METHOD1(Tensor, fmax, Other) METHOD1(Tensor, fmin, Other) METHOD1(Tensor, logaddexp2, Other)
METHOD2(Tensor, div, Other, Word)
METHOD1(Tensor, floor_divide, Other) METHOD1(Tensor, remainder, Other) METHOD1(Tensor, fmod, Other)
METHOD1(Tensor, pow, Other) METHOD1(Tensor, maximum, Other) METHOD1(Tensor, minimum, Other)
METHOD1(Tensor, atan2, Other) METHOD1(Tensor, hypot, Other) METHOD1(Tensor, copysign, Other)
METHOD1(Tensor, logaddexp, Other) METHOD1(Tensor, xlogy, Other) METHOD1(Tensor, bitwise_and, Other)
METHOD1(Tensor, bitwise_or, Other) METHOD1(Tensor, bitwise_xor, Other)
METHOD1(Tensor, bitwise_left_shift, Other) METHOD1(Tensor, bitwise_right_shift, Other)
METHOD1(Tensor, logical_and, Other) METHOD1(Tensor, logical_or, Other) METHOD1(Tensor, logical_xor, Other)
METHOD1(Tensor, eq, Other) METHOD1(Tensor, ne, Other) METHOD1(Tensor, lt, Other) METHOD1(Tensor, le, Other)
METHOD1(Tensor, gt, Other) METHOD1(Tensor, ge, Other)
METHOD4(Tensor, isclose, Other, double, double, bool)
METHOD4(bool, allclose, Other, double, double, bool)
METHOD2(Tensor, lerp, X, Other)
METHOD3(Tensor, addcmul, X, X, Number) METHOD3(Tensor, addcdiv, X, X, Number)
METHOD2(Tensor, clamp, Other, Other) METHOD2(Tensor, clip, Other, Other) METHOD2(Tensor, masked_fill, X, Other)

// ---- movement
METHOD1(Tensor, reshape, List) METHOD1(Tensor, view, List)
METHOD2(Tensor, flatten, Int, Int)
METHOD2(Tensor, unflatten, Int, List)
METHOD0(Tensor, squeeze)
METHOD1(Tensor, squeeze, Axes)
METHOD1(Tensor, unsqueeze, Int)
METHOD1(Tensor, permute, List)
METHOD2(Tensor, transpose, Int, Int)
METHOD2(Tensor, movedim, Axes, Axes)
METHOD1(Tensor, expand, List) METHOD1(Tensor, broadcast_to, List)
METHOD1(Tensor, expand_as, X)
METHOD3(Tensor, narrow, Int, Int, Int)
METHOD2(Tensor, select, Int, Int)
METHOD1(Tensor, shrink, Ranges) METHOD1(Tensor, shrink_to, List) METHOD1(Tensor, pad_to, List)
METHOD3(Tensor, pad, List, Word, Number)
METHOD2(Tensors, split, Int, Int) METHOD2(Tensors, chunk, Int, Int)
METHOD1(Tensors, unbind, Int)
METHOD3(Tensor, unfold, Int, Int, Int) METHOD3(Tensor, diagonal, Int, Int, Int)
METHOD3(Tensor, diag_embed, Int, Int, Int)
METHOD1(Tensor, diag, Int)
METHOD1(Tensor, repeat, List) METHOD1(Tensor, tile, List)
METHOD2(Tensor, repeat_interleave, Int, MaybeInt)
METHOD1(Tensor, flip, Axes)
METHOD2(Tensor, roll, Axes, Axes)
METHOD1(Tensor, tril, Int) METHOD1(Tensor, triu, Int)

// ---- indexing
METHOD2(Tensor, gather, Int, X)
METHOD2(Tensor, take_along_dim, X, MaybeInt)
METHOD2(Tensor, index_select, Int, X)
METHOD1(Tensor, masked_select, X) METHOD1(Tensor, take, X) METHOD1(Tensor, one_hot, Int)
METHOD0(Tensor, nonzero)

// ---- reductions
METHOD3(Tensor, sum, Axes, bool, MaybeType) METHOD3(Tensor, prod, Axes, bool, MaybeType)
METHOD3(Tensor, mean, Axes, bool, MaybeType) METHOD3(Tensor, nansum, Axes, bool, MaybeType)
METHOD1(Tensor, count_nonzero, Axes)
METHOD2(Tensor, amax, Axes, bool) METHOD2(Tensor, amin, Axes, bool)
METHOD2(Tensor, any, Axes, bool) METHOD2(Tensor, all, Axes, bool)
METHOD0(Tensor, max) METHOD0(Tensor, min)
METHOD2(Both, max, Int, bool) METHOD2(Both, min, Int, bool)
METHOD2(Tensor, argmax, MaybeInt, bool) METHOD2(Tensor, argmin, MaybeInt, bool)
METHOD3(Tensor, var, Axes, double, bool) METHOD3(Tensor, std, Axes, double, bool)

// ---- matrix products and the softmax family
METHOD1(Tensor, matmul, X) METHOD1(Tensor, dot, X)
METHOD2(Tensor, softmax, Int, MaybeType) METHOD2(Tensor, log_softmax, Int, MaybeType)
METHOD2(Tensor, softmin, Int, MaybeType) METHOD2(Tensor, logsumexp, Axes, bool)
METHOD1(Tensor, mm, X) METHOD1(Tensor, bmm, X) METHOD1(Tensor, mv, X) METHOD1(Tensor, outer, X)
METHOD4(Tensor, addmm, X, X, Number, Number) METHOD4(Tensor, baddbmm, X, X, Number, Number)

// ---- norms, scans and orders
METHOD4(Tensor, norm, double, Axes, bool, MaybeType)
METHOD1(Tensor, logcumsumexp, Int)
METHOD2(Tensor, cumsum, Int, MaybeType) METHOD2(Tensor, cumprod, Int, MaybeType)
METHOD1(Both, cummax, Int) METHOD1(Both, cummin, Int)
METHOD3(Both, sort, Int, bool, bool)
METHOD3(Tensor, argsort, Int, bool, bool)
METHOD4(Both, topk, Int, Int, bool, bool)
METHOD3(Both, kthvalue, Int, Int, bool)
METHOD0(Tensor, median) METHOD0(Tensor, msort)
METHOD2(Both, median, Int, bool) METHOD2(Both, mode, Int, bool)
METHOD1(Unique, unique, MaybeInt)

// ---- writes at indices
METHOD4(Tensor, scatter, Int, X, Other, Word)
METHOD3(Tensor, scatter_add, Int, X, X)
METHOD5(Tensor, scatter_reduce, Int, X, X, Word, bool)
METHOD4(Tensor, index_add, Int, X, X, Number)
METHOD3(Tensor, index_copy, Int, X, X)
METHOD3(Tensor, index_fill, Int, X, Other)
METHOD2(Tensor, masked_scatter, X, X)
METHOD2(Tensor, bincount, MaybeTensor, Int)
METHOD3(Tensor, histc, Int, double, double)

// ---- gradients
METHOD1(void, backward, MaybeTensor)

// ---- spellings that differ from the operation's

Tensor Tensor::clamp_min(Other low) const { return lazuli::clamp(*this, low); }
Tensor Tensor::clamp_max(Other high) const { return lazuli::clamp(*this, {}, high); }
Tensor Tensor::where(X condition, Other other) const { return lazuli::where(condition, *this, other); }
Tensor Tensor::view(DType dtype) const { return lazuli::bitcast(*this, dtype); }
Tensor Tensor::T() const { return transpose_all(*this); }
Tensor Tensor::mT() const { return matrix_transpose(*this); }
Tensor Tensor::operator[](const Index& item) const { return getitem(*this, {item}); }
Tensor Tensor::index(const std::vector<Index>& items) const { return getitem(*this, items); }
#undef METHOD0
#undef METHOD1
#undef METHOD2
#undef METHOD3
#undef METHOD4
#undef METHOD5
// clang-format on

}  // namespace lazuli
