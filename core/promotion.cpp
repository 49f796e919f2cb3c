#include "core/promotion.h"

#include "core/error.h"
#include "core/ops_elementwise.h"

#include <array>

namespace lazuli {
namespace {

// One class of operands: what they promote to among themselves.
struct ClassType {
  DType dtype = DType::Bool;
  bool any = false;

  void add(DType t) {
    dtype = any ? promote(dtype, t) : t;
    any = true;
  }
};

// A lower class changes the result only by raising its category.
ClassType combine(const ClassType& higher, const ClassType& lower) {
  if (!higher.any) return lower;
  if (!lower.any || is_float(higher.dtype)) return higher;
  if (higher.dtype == DType::Bool || is_float(lower.dtype)) {
    return {promote(higher.dtype, lower.dtype), true};
  }
  return higher;
}

}  // namespace

DType dtype_of(const Scalar& s) {
  switch (s.kind()) {
    case Kind::Bool:
      return DType::Bool;
    case Kind::Int:
      return DType::I64;
    case Kind::Float:
      return DType::F32;
  }
  internal_error("a number of no category");
}

DType result_type(std::span<const TensorOrScalar> operands) {
  ClassType with_dims, rank_0, numbers;
  for (const TensorOrScalar& x : operands) {
    if (!x.is_tensor())
      numbers.add(dtype_of(x.scalar()));
    else if (x.tensor().dim() == 0)
      rank_0.add(x.tensor().dtype());
    else
      with_dims.add(x.tensor().dtype());
  }
  return combine(combine(with_dims, rank_0), numbers).dtype;
}

DType result_type(const TensorOrScalar& a, const TensorOrScalar& b) {
  const std::array<TensorOrScalar, 2> both{a, b};
  return result_type(both);
}

DType float_result_type(const TensorOrScalar& a, const TensorOrScalar& b) {
  const DType t = result_type(a, b);
  return is_float(t) ? t : DType::F32;
}

Shape broadcast_shapes(std::string_view op, std::span<const TensorOrScalar> operands) {
  Shape shape;
  for (const TensorOrScalar& x : operands) {
    if (x.is_tensor()) shape = broadcast_shapes(op, shape, x.shape());
  }
  check_shape(op, shape);
  return shape;
}

NodeRef broadcast_node(const NodeRef& x, const Shape& shape) {
  if (x->shape == shape) return x;
  if (x->op == Op::Const) {
    return make({.op = Op::Const, .dtype = x->dtype, .shape = shape, .arg = x->arg});
  }
  Shape aligned(shape.size() - x->shape.size(), 1);
  aligned.append(x->shape.begin(), x->shape.end());
  return expand(reshape(x, std::move(aligned)), shape);
}

NodeRef operand(const TensorOrScalar& x, DType dtype, const Shape& shape) {
  if (!x.is_tensor()) return constant(x.scalar(), dtype, shape);
  // Converting before repeating converts each element once.
  return broadcast_node(cast(x.tensor().node(), dtype), shape);
}

Tensor binary(std::string_view name, Op op, const TensorOrScalar& a, const TensorOrScalar& b,
              DType dtype) {
  const std::array<TensorOrScalar, 2> both{a, b};
  const Shape shape = broadcast_shapes(name, both);
  return Tensor(elementwise(op, {operand(a, dtype, shape), operand(b, dtype, shape)}));
}

Tensor to_float(const Tensor& x) {
  return is_float(x.dtype()) ? x : Tensor(cast(x.node(), DType::F32));
}

void require_float(std::string_view op, const Tensor& x) {
  if (!is_float(x.dtype())) {
    user_error("{}: the input is {}, not a float; convert it first, as in x.to(f32)", op,
               name(x.dtype()));
  }
}

}  // namespace lazuli
