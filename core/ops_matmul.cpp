#include "core/ops_matmul.h"

#include <algorithm>

#include "core/error.h"
#include "core/ops_elementwise.h"
#include "core/ops_movement.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

void require_rank(std::string_view op, const Tensor& t, int64_t rank, std::string_view which) {
  require(t.dim() == rank, "{}: the {} operand must have rank {}, but its shape is {}", op, which,
          rank, to_string(t.shape()));
}

// Both operands as one dtype; PyTorch asks for equal dtypes and so does this.
void require_same_dtype(std::string_view op, const Tensor& a, const Tensor& b) {
  require(a.dtype() == b.dtype(), "{}: operands have dtypes {} and {}; convert one with .to()", op,
          name(a.dtype()), name(b.dtype()));
}

// x with its axes at the places that `labels` have in `all`, and size 1 elsewhere.
NodeRef align(const NodeRef& x, const Ints& labels, const Ints& all) {
  Ints order;
  Shape shape;
  for (int64_t label : all) {
    const auto it = std::find(labels.begin(), labels.end(), label);
    if (it == labels.end()) {
      shape.push_back(1);
      continue;
    }
    order.push_back(it - labels.begin());
    shape.push_back(x->shape[static_cast<size_t>(order.back())]);
  }
  return reshape(permute(x, order), shape);
}

}  // namespace

Tensor contract_wide(std::string_view op, const Tensor& a, const Ints& labels_a, const Tensor& b,
                     const Ints& labels_b, const Ints& out) {
  require_same_dtype(op, a, b);
  require(a.dtype() != DType::Bool,
          "{}: bools have no products; convert them first, as in x.to(i32)", op);
  const DType wide = accumulator(a.dtype());
  Ints all = out, summed;
  for (const Ints* labels : {&labels_a, &labels_b}) {
    for (int64_t l : *labels) {
      if (!contains(all, l)) all.push_back(l);
    }
  }
  check_shape(op, Shape(all.size(), 1));
  const NodeRef x = align(cast(a.node(), wide), labels_a, all),
                y = align(cast(b.node(), wide), labels_b, all);
  const Shape shape = broadcast_shapes(op, x->shape, y->shape);
  check_shape(op, shape);
  for (int64_t i = static_cast<int64_t>(out.size()); i < static_cast<int64_t>(all.size()); i++)
    summed.push_back(i);
  const NodeRef product = elementwise(Op::Mul, {expand(x, shape), expand(y, shape)});
  return Tensor(reduce(Op::ReduceAdd, product, summed));
}

Tensor contract(std::string_view op, const Tensor& a, const Ints& labels_a, const Tensor& b,
                const Ints& labels_b, const Ints& out) {
  return cast(contract_wide(op, a, labels_a, b, labels_b, out), a.dtype());
}

namespace {

// a @ b, not rounded to a 16-bit dtype yet.
Tensor product(std::string_view op, const Tensor& a, const Tensor& b) {
  const Shape sa = a.shape(), sb = b.shape();
  if (sa.empty() || sb.empty()) {
    user_error("{}: operands of shapes {} and {}; both need at least one dimension", op,
               to_string(sa), to_string(sb));
  }
  const int64_t ka = sa.back(), kb = sb.size() == 1 ? sb[0] : sb[sb.size() - 2];
  if (ka != kb) {
    const bool b_fits = sb.size() >= 2 && sb.back() == ka;
    const bool a_fits = sa.size() >= 2 && sa[sa.size() - 2] == kb;
    user_error("{}: inner sizes differ: {} @ {} has {} and {}{}", op, to_string(sa), to_string(sb),
               ka, kb,
               b_fits   ? "; did you mean b.mT()?"
               : a_fits ? "; did you mean a.mT()?"
                        : "");
  }
  for (size_t i = 3; i <= std::min(sa.size(), sb.size()); i++) {
    const int64_t m = sa[sa.size() - i], n = sb[sb.size() - i];
    require(m == n || m == 1 || n == 1,
            "{}: the batches of {} and {} do not broadcast: sizes {} and {} at dimension -{}", op,
            to_string(sa), to_string(sb), m, n, i);
  }
  // Labels: batches count from the right as -1, -2, ...; m, n and k are 0, 1, 2.
  Ints la, lb, out;
  const auto batches = [](const Shape& s) {
    return std::max<int64_t>(0, static_cast<int64_t>(s.size()) - 2);
  };
  for (int64_t i = batches(sa); i > 0; i--) la.push_back(-i);
  for (int64_t i = batches(sb); i > 0; i--) lb.push_back(-i);
  for (int64_t i = std::max(batches(sa), batches(sb)); i > 0; i--) out.push_back(-i);
  if (sa.size() > 1) {
    la.push_back(0);
    out.push_back(0);
  }
  la.push_back(2);
  lb.push_back(2);
  if (sb.size() > 1) {
    lb.push_back(1);
    out.push_back(1);
  }
  return contract_wide(op, a, la, b, lb, out);
}

void require_matrices(std::string_view op, const Tensor& a, const Tensor& b) {
  require_rank(op, a, 2, "first");
  require_rank(op, b, 2, "second");
}

void require_batches(std::string_view op, const Tensor& a, const Tensor& b) {
  require_rank(op, a, 3, "first");
  require_rank(op, b, 3, "second");
  require(a.size(0) == b.size(0), "{}: batch sizes differ: {} and {}", op, a.size(0), b.size(0));
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  return cast(product("matmul", a, b), a.dtype());
}

Tensor mm(const Tensor& a, const Tensor& b) {
  require_matrices("mm", a, b);
  return cast(product("mm", a, b), a.dtype());
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  require_batches("bmm", a, b);
  return cast(product("bmm", a, b), a.dtype());
}

Tensor mv(const Tensor& a, const Tensor& v) {
  require_rank("mv", a, 2, "first");
  require_rank("mv", v, 1, "second");
  return cast(product("mv", a, v), a.dtype());
}

Tensor dot(const Tensor& a, const Tensor& b) {
  require_rank("dot", a, 1, "first");
  require_rank("dot", b, 1, "second");
  return cast(product("dot", a, b), a.dtype());
}

Tensor outer(const Tensor& a, const Tensor& b) {
  require_rank("outer", a, 1, "first");
  require_rank("outer", b, 1, "second");
  return mul(unsqueeze(a, 1), unsqueeze(b, 0));
}

namespace {

// beta * x + alpha * product, rounded once; beta of 0 ignores x, NaN and all, as in PyTorch.
Tensor scaled_sum(std::string_view op, const Tensor& x, const Tensor& product, const Scalar& beta,
                  const Scalar& alpha) {
  const Tensor scaled = alpha.as_double() == 1 ? product : mul(product, alpha);
  require(broadcast_shapes(op, x.shape(), product.shape()) == product.shape(),
          "{}: the summand of shape {} does not broadcast to the product's shape {}", op,
          to_string(x.shape()), to_string(product.shape()));
  if (beta.as_double() == 0) return cast(scaled, x.dtype());
  const Tensor y = cast(x, product.dtype());
  return cast(add(beta.as_double() == 1 ? y : mul(y, beta), scaled), x.dtype());
}

}  // namespace

Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  require_matrices("addmm", a, b);
  require_same_dtype("addmm", x, a);
  return scaled_sum("addmm", x, product("addmm", a, b), beta, alpha);
}

Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta,
               const Scalar& alpha) {
  require_batches("baddbmm", a, b);
  require_same_dtype("baddbmm", x, a);
  return scaled_sum("baddbmm", x, product("baddbmm", a, b), beta, alpha);
}

Tensor linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  require(weight.dim() == 2 || weight.dim() == 1,
          "linear: the weight must have rank 1 or 2, but its shape is {}",
          to_string(weight.shape()));
  require(x.dim() >= 1 && x.size(-1) == weight.size(-1),
          "linear: the input of shape {} has {} features, but the weight of shape {} takes {}",
          to_string(x.shape()), x.dim() >= 1 ? x.size(-1) : 0, to_string(weight.shape()),
          weight.size(-1));
  const Tensor y = product("linear", x, weight.dim() == 2 ? transpose(weight, 0, 1) : weight);
  if (!bias) return cast(y, x.dtype());
  require_same_dtype("linear", x, *bias);
  return cast(add(y, cast(*bias, y.dtype())), x.dtype());
}

Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims) {
  require(dims >= 0 && dims <= a.dim() && dims <= b.dim(),
          "tensordot: dims is {}, but shapes {} and {} have ranks {} and {}", dims,
          to_string(a.shape()), to_string(b.shape()), a.dim(), b.dim());
  Ints da, db;
  for (int64_t i = 0; i < dims; i++) {
    da.push_back(a.dim() - dims + i);
    db.push_back(i);
  }
  return tensordot(a, b, da, db);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const Ints& dims_a, const Ints& dims_b) {
  require(dims_a.size() == dims_b.size(),
          "tensordot: {} axes of the first operand are paired with {} of the second", dims_a.size(),
          dims_b.size());
  Ints la, lb, out;
  for (int64_t i = 0; i < a.dim(); i++) la.push_back(i);
  for (int64_t i = 0; i < b.dim(); i++) lb.push_back(a.dim() + i);
  Ints summed;
  for (size_t i = 0; i < dims_a.size(); i++) {
    const int64_t x = check_axis("tensordot", dims_a[i], a.dim()),
                  y = check_axis("tensordot", dims_b[i], b.dim());
    require(a.size(x) == b.size(y), "tensordot: axis {} of {} has size {}, axis {} of {} has {}", x,
            to_string(a.shape()), a.size(x), y, to_string(b.shape()), b.size(y));
    lb[static_cast<size_t>(y)] = x;
    summed.push_back(x);
  }
  for (int64_t l : la) {
    if (!contains(summed, l)) out.push_back(l);
  }
  for (int64_t l : lb) {
    if (!contains(summed, l)) out.push_back(l);
  }
  return contract("tensordot", a, la, b, lb, out);
}

}  // namespace lazuli
