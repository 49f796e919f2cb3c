// Reductions over one, several or all axes. An empty list of dims means all, as in PyTorch.
#pragma once

#include <optional>

#include "core/arguments.h"
#include "core/tensor.h"

namespace lazuli {

/// What max(x, dim), sort, topk and their like return: elements and where they come from (I64).
struct ValuesIndices {
  Tensor values, indices;
};

/// Sum; integers and bools add up in i64 unless a dtype is given, f16 and bf16 in f32 before they
/// are rounded.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
           std::optional<DType> dtype = {});
/// Sum with NaN counted as 0.
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
              std::optional<DType> dtype = {});
/// Product; integers and bools multiply in i64 unless a dtype is given.
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
            std::optional<DType> dtype = {});
/// Floats only: convert integers first, or give a dtype.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
            std::optional<DType> dtype = {});

/// The largest element; the gradient is shared evenly among equals.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// The smallest element; the gradient is shared evenly among equals.
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// amax of the whole tensor.
Tensor max(const Tensor& x);
/// amin of the whole tensor.
Tensor min(const Tensor& x);
/// Along one axis with the place of the first of equals, which takes the whole gradient. NaN is the
/// largest and smallest.
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
/// The smallest elements, in the same way.
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim = false);
/// Another name of maximum.
Tensor max(const Tensor& a, const Tensor& b);
/// Another name of minimum.
Tensor min(const Tensor& a, const Tensor& b);
/// Place of the first largest element along `dim`, or in the flat tensor; I64.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
/// Place of the first smallest element along `dim`, or in the flat tensor; I64.
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);

/// Whether an element is not 0; bool, but u8 for u8.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Whether no element is 0; bool, but u8 for u8.
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// How many elements are not 0; I64.
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});

/// Mean of the squared distances from the mean, with n - correction in place of n; two passes.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
/// Its square root; the gradient at 0 is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);

/// What var_mean and std_mean return: the variance or the standard deviation, and the mean.
struct SpreadMean {
  Tensor spread, mean;
};
/// var and the mean, which is computed once.
SpreadMean var_mean(const Tensor& x, const Dims& dims = {}, double correction = 1,
                    bool keepdim = false);
/// std and the mean, which is computed once.
SpreadMean std_mean(const Tensor& x, const Dims& dims = {}, double correction = 1,
                    bool keepdim = false);

}  // namespace lazuli
