// What a mix of operands becomes: PyTorch's type promotion and NumPy's broadcasting, applied to
// graph nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>

#include "core/graph.h"
#include "core/tensor.h"

namespace lazuli {

/// A size, or the number of an axis, for the containers' operator[].
inline size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

namespace detail {
inline constexpr double kInf = std::numeric_limits<double>::infinity();
}

/// The dtype of a tensor made of one number: bool, i64 or f32, as PyTorch's defaults.
DType dtype_of(const Scalar& number);

using Operands = std::initializer_list<TensorOrScalar>;

/// result_type, but f32 if the operands are all integers or bools: for functions whose results are
/// fractions.
DType float_result_type(const TensorOrScalar& a, const TensorOrScalar& b);

/// The shape that all operands broadcast to; UserError naming `op` if there is none.
Shape broadcast_shapes(std::string_view op, std::span<const TensorOrScalar> operands);
/// The same of two.
Shape broadcast_shapes(std::string_view op, const TensorOrScalar& a, const TensorOrScalar& b);

/// `x` converted to `dtype` and broadcast to `shape`, which it must broadcast to. A number becomes
/// a constant.
NodeRef operand(TensorOrScalar x, DType dtype, const Shape& shape);

/// `x` repeated along new leading axes and axes of size 1; the shapes are known to fit.
NodeRef broadcast_node(NodeRef x, const Shape& shape);

/// The two operands converted to `dtype` and broadcast together, and the op on them.
Tensor binary(std::string_view name, Op op, TensorOrScalar a, TensorOrScalar b, DType dtype);

/// `x` as floats: integers and bools become f32.
Tensor to_float(const Tensor& x);

/// UserError naming `op` unless `x` is of a float dtype.
void require_float(std::string_view op, const Tensor& x);
/// UserError naming `op` unless `index` is of an integer dtype.
void require_integers(std::string_view op, const Tensor& index);

/// `body(x)` computed in f32 for a 16-bit float, and rounded once at the end; as it is for the
/// other dtypes.
template <typename Body>
Tensor in_wide(const Tensor& x, Body body);

// ---- implementation of the template

template <typename Body>
Tensor in_wide(const Tensor& x, Body body) {
  const DType dtype = x.dtype(), wide = accumulator(dtype);
  if (wide == dtype) return body(x);
  const Tensor y = body(Tensor(cast(x.node(), wide)));
  return Tensor(cast(y.node(), y.dtype() == wide ? dtype : y.dtype()));
}

}  // namespace lazuli
