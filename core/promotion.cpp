#include "core/promotion.h"

#include "core/error.h"
#include "core/ops_elementwise.h"

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

struct PromotedClasses {
  ClassType with_dims, rank_0, numbers;

  void add(const TensorOrScalar& x) {
    if (const NodeRef& n = x.node()) {
      (n->shape.empty() ? rank_0 : with_dims).add(n->dtype);
    } else {
      numbers.add(dtype_of(x.scalar()));
    }
  }
  DType result() const { return combine(combine(with_dims, rank_0), numbers).dtype; }
};

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
  PromotedClasses classes;
  for (const TensorOrScalar& x : operands) classes.add(x);
  return classes.result();
}

DType result_type(const TensorOrScalar& a, const TensorOrScalar& b) {
  const NodeRef &x = a.node(), &y = b.node();
  if (x && y && x->dtype == y->dtype) return x->dtype;
  PromotedClasses classes;
  classes.add(a);
  classes.add(b);
  return classes.result();
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

Shape broadcast_shapes(std::string_view op, const TensorOrScalar& a, const TensorOrScalar& b) {
  if (a.shape().empty()) return b.shape();
  if (b.shape().empty() || a.shape() == b.shape()) return a.shape();
  Shape shape = broadcast_shapes(op, std::span<const int64_t>(a.shape()), b.shape());
  check_shape(op, shape);
  return shape;
}

NodeRef broadcast_node(NodeRef x, const Shape& shape) {
  if (x->shape == shape) return x;
  if (x->op == Op::Const) {
    return make({.op = Op::Const, .dtype = x->dtype, .arg = x->arg, .same_shape = &shape});
  }
  if (x->shape.size() == shape.size()) return expand(x, shape);
  Shape aligned(shape.size() - x->shape.size(), 1);
  aligned.append(x->shape.begin(), x->shape.end());
  return expand(reshape(x, aligned), shape);
}

NodeRef operand(TensorOrScalar x, DType dtype, const Shape& shape) {
  if (!x.is_tensor()) return constant(x.scalar(), dtype, shape);
  // Converting before repeating converts each element once.
  NodeRef n = std::move(x).node();
  if (n->dtype != dtype) n = cast(n, dtype);
  return broadcast_node(std::move(n), shape);
}

Tensor binary(std::string_view name, Op op, TensorOrScalar a, TensorOrScalar b, DType dtype) {
  const NodeRef &x = a.node(), &y = b.node();
  if (x && y && x->dtype == dtype && y->dtype == dtype && x->shape == y->shape) {
    return Tensor(elementwise(op, sources(std::move(a).node(), std::move(b).node())));
  }
  const auto result = [&](const Shape& shape) {
    return Tensor(elementwise(
        op, sources(operand(std::move(a), dtype, shape), operand(std::move(b), dtype, shape))));
  };
  // The shape of an operand lives on in what becomes of it.
  if (x && (!y || y->shape.empty())) return result(x->shape);
  if (y && (!x || x->shape.empty())) return result(y->shape);
  return result(broadcast_shapes(name, a, b));
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

void require_integers(std::string_view op, const Tensor& index) {
  if (!is_int(index.dtype())) {
    user_error("{}: the index is {}, not an integer; convert it first, as in index.to(i64)", op,
               name(index.dtype()));
  }
}

}  // namespace lazuli
