#include "core/ops_scatter.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/evaluate.h"
#include "core/gradient.h"
#include "core/graph.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_movement.h"
#include "core/ops_reduce.h"
#include "core/ops_scan.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

// Row-major place in `shape` of the coordinates that `index` gives along `axis` and its own place
// gives elsewhere.
NodeRef flat_places(const Shape& shape, int64_t axis, const Tensor& index) {
  int64_t stride = 1;
  for (size_t a = at(axis) + 1; a < shape.size(); a++) stride *= shape[a];
  const int64_t size = shape[at(axis)];
  Tensor flat = index * stride;
  int64_t below = 1;
  for (size_t a = shape.size(); a-- > 0;) {
    if (a != at(axis))
      flat = flat + Tensor(detail::coordinate(index.shape(), static_cast<int64_t>(a))) * below;
    below *= shape[a];
  }
  return where((index >= 0) & (index < size), flat, -1).node();
}

// The arguments of a scatter, checked: places in the flat x, and what is written there.
struct Writes {
  NodeRef base, place;
  Tensor value;
};

Writes scattered_writes(std::string_view op, const Tensor& x, int64_t dim, const Tensor& index,
                        const TensorOrScalar& source) {
  require_integers(op, index);
  const int64_t axis = check_axis(op, dim, x.dim());
  const Tensor i = cast(index, DType::I64);
  if (source.is_tensor()) {
    require(source.tensor().dtype() == x.dtype(),
            "{}: the input is {} and the source {}; convert one with .to()", op, name(x.dtype()),
            name(source.tensor().dtype()));
  }
  if (i.numel() == 0) {
    const NodeRef none = constant(0, DType::I64, {0});
    return {x.node(), none, Tensor(constant(0, x.dtype(), {0}))};
  }
  if (x.dim() == 0) {
    require(i.dim() <= 1 && source.shape().size() <= 1,
            "{}: the input is a scalar, but the index has shape {}", op, to_string(i.shape()));
    const Tensor value = source.is_tensor() ? flatten(source.tensor())
                                            : Tensor(operand(source, x.dtype(), {i.numel()}));
    require(i.numel() <= value.numel(), "{}: the index has {} elements, the source {}", op,
            i.numel(), value.numel());
    return {x.node(), flatten(i).node(), narrow(value, 0, 0, i.numel())};
  }
  require(i.dim() == x.dim() && (!source.is_tensor() || source.tensor().dim() == x.dim()),
          "{}: the input has shape {}, the index {} and the source {}; their ranks must agree", op,
          to_string(x.shape()), to_string(i.shape()),
          to_string(source.is_tensor() ? source.shape() : i.shape()));
  Ints range;
  for (int64_t a = 0; a < x.dim(); a++) {
    require(a == axis || i.size(a) <= x.size(a),
            "{}: the index of shape {} is larger than the input of shape {} at dimension {}", op,
            to_string(i.shape()), to_string(x.shape()), a);
    if (source.is_tensor()) {
      require(i.size(a) <= source.tensor().size(a),
              "{}: the index of shape {} is larger than the source of shape {} at dimension {}", op,
              to_string(i.shape()), to_string(source.shape()), a);
    }
    range.push_back(0);
    range.push_back(i.size(a));
  }
  const Tensor value = source.is_tensor() ? Tensor(shrink(source.tensor().node(), range))
                                          : Tensor(operand(source, x.dtype(), i.shape()));
  return {x.node(), flat_places(x.shape(), axis, i), value};
}

Tensor written(const Writes& w, Combine combine) {
  return Tensor(scatter(w.base, w.place, w.value.node(), combine));
}

}  // namespace

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const TensorOrScalar& source,
               std::string_view reduce) {
  require(reduce.empty() || reduce == "add" || reduce == "multiply",
          "scatter: reduce is \"{}\"; it must be add or multiply", reduce);
  const Writes w = scattered_writes("scatter", x, dim, index, source);
  return written(w, reduce.empty() ? Combine::Set : reduce == "add" ? Combine::Add : Combine::Mul);
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  return written(scattered_writes("scatter_add", x, dim, index, source), Combine::Add);
}

namespace {

struct Reduction {
  std::string_view name;
  Combine combine;
  Op op;  // whose identity starts it
};
constexpr std::array<Reduction, 5> kReductions{{
    {"sum", Combine::Add, Op::ReduceAdd},
    {"mean", Combine::Add, Op::ReduceAdd},
    {"prod", Combine::Mul, Op::ReduceMul},
    {"amax", Combine::Max, Op::ReduceMax},
    {"amin", Combine::Min, Op::ReduceMin},
}};

const Reduction& find_reduction(std::string_view name) {
  for (const Reduction& r : kReductions) {
    if (r.name == name) return r;
  }
  user_error("scatter_reduce: reduce is \"{}\"; it must be sum, prod, mean, amax or amin", name);
}

Tensor full_of(const Tensor& like, const Scalar& value, DType dtype) {
  return Tensor(constant(value, dtype, like.shape()));
}

// Products whose gradient is right where factors are 0: the product of the others.
Tensor product_written(const Writes& w) {
  const Tensor base(w.base);
  if (!is_float(base.dtype())) return written(w, Combine::Mul);
  const Tensor value = written({detach(base).node(), w.place, detach(w.value)}, Combine::Mul);
  const NodeRef place = w.place;
  const Tensor factors = w.value;
  return custom_vjp(
      value, {base, factors}, [base, factors, place](const Tensor& g) -> std::vector<Tensor> {
        const auto at_places = [&](const Tensor& t) {
          return Tensor(
              gather(reshape(t.node(), {t.numel()}), std::span<const NodeRef>(&place, 1)));
        };
        const auto scattered = [&](const Tensor& from, const Tensor& values, Combine how) {
          return Tensor(scatter(from.node(), place, values.node(), how));
        };
        const Tensor base_zero = base == 0, factor_zero = factors == 0;
        const DType t = base.dtype();
        const Tensor zeros = scattered(cast(base_zero, t), cast(factor_zero, t), Combine::Add);
        const Tensor rest =
            scattered(where(base_zero, 1.0, base), where(factor_zero, 1.0, factors), Combine::Mul);
        // With one zero, the product of the others goes to it alone; with two, nothing goes
        // anywhere.
        const auto share = [](const Tensor& zero, const Tensor& x, const Tensor& zeros_there,
                              const Tensor& rest_there) {
          return where(zero, where(zeros_there == 1, rest_there, 0.0),
                       where(zeros_there == 0, rest_there / where(zero, 1.0, x), 0.0));
        };
        return {g * share(base_zero, base, zeros, rest),
                at_places(g) * share(factor_zero, factors, at_places(zeros), at_places(rest))};
      });
}

}  // namespace

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                      std::string_view reduce, bool include_self) {
  const Reduction& r = find_reduction(reduce);
  Writes w = scattered_writes("scatter_reduce", x, dim, index, source);
  const NodeRef base = w.base;
  const auto marked = [&](const Scalar& before, const Scalar& there, Combine how) {
    return Tensor(scatter(full_of(x, before, DType::I64).node(), w.place,
                          full_of(w.value, there, DType::I64).node(), how));
  };
  if (!include_self) {
    const Tensor touched = marked(0, 1, Combine::Set) != 0;
    const Scalar identity = from_bits(reduce_identity(r.op, x.dtype()), x.dtype());
    w.base = where(touched, full_of(x, identity, x.dtype()), x).node();
  }
  if (reduce == "prod") return product_written(w);
  const Tensor total = written(w, r.combine);
  if (reduce != "mean") return total;
  const Tensor count = marked(include_self ? 1 : 0, 1, Combine::Add);
  const Tensor by = cast(where(count < 1, 1, count), x.dtype());
  return is_float(x.dtype()) ? total / by : floor_divide(total, by);
}

// ---- slices

namespace {

// Indices of a vector and the source of index_add and its like, as those of a scatter.
Writes slice_writes(std::string_view op, const Tensor& x, int64_t dim, const Tensor& index,
                    const Tensor& source) {
  require_integers(op, index);
  const int64_t axis = check_axis(op, dim, x.dim());
  require(index.dim() <= 1, "{}: the index has shape {}; it must be a vector", op,
          to_string(index.shape()));
  if (x.dim() == 0) {
    require(source.numel() == index.numel(), "{}: {} indices for a source of shape {}", op,
            index.numel(), to_string(source.shape()));
    return scattered_writes(op, x, 0, flatten(index), flatten(source));
  }
  Shape want = x.shape();
  want[at(axis)] = index.numel();
  const Tensor s = source.dim() == 0 && numel(want) == 1 ? reshape(source, want) : source;
  require(s.shape() == want,
          "{}: the source has shape {}, but the input of shape {} and {} indices ask for {}", op,
          to_string(s.shape()), to_string(x.shape()), index.numel(), to_string(want));
  Shape aligned(want.size(), 1);
  aligned[at(axis)] = index.numel();
  return scattered_writes(op, x, axis, Tensor(expand(reshape(index.node(), aligned), want)), s);
}

}  // namespace

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                 const Scalar& alpha) {
  const bool scaled = alpha.as_double() != 1;
  return written(slice_writes("index_add", x, dim, index,
                              scaled ? cast(source * alpha, source.dtype()) : source),
                 Combine::Add);
}

Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  return written(slice_writes("index_copy", x, dim, index, source), Combine::Set);
}

Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const TensorOrScalar& value) {
  require(value.shape().empty(), "index_fill: the value has shape {}; it must be a scalar",
          to_string(value.shape()));
  const int64_t axis = check_axis("index_fill", dim, x.dim());
  Shape shape = x.shape();
  if (x.dim() > 0)
    shape[at(axis)] = index.numel();
  else
    shape = {index.numel()};
  return index_copy(x, dim, index, Tensor(operand(value, x.dtype(), shape)));
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  require(mask.dtype() == DType::Bool,
          "masked_scatter: the mask is {}, not bool; compare it first, as in mask != 0",
          name(mask.dtype()));
  require(source.dtype() == x.dtype(),
          "masked_scatter: the input is {} and the source {}; convert one with .to()",
          name(x.dtype()), name(source.dtype()));
  const Shape shape = broadcast_shapes("masked_scatter", x.shape(), mask.shape());
  const Tensor all(broadcast_node(x.node(), shape)), holds(broadcast_node(mask.node(), shape));
  const Tensor place = cumsum(flatten(holds), 0) - 1;
  const NodeRef index = reshape(place, shape).node();
  return where(holds, Tensor(gather(flatten(source).node(), std::span<const NodeRef>(&index, 1))),
               all);
}

// ---- counts

Tensor bincount(const Tensor& x, const std::optional<Tensor>& weights, int64_t minlength) {
  require(x.dim() == 1 && is_int(x.dtype()),
          "bincount: the input is {} of shape {}; it must be a vector of integers", name(x.dtype()),
          to_string(x.shape()));
  require(minlength >= 0, "bincount: minlength is {}; it cannot be negative", minlength);
  require(!weights || weights->shape() == x.shape(),
          "bincount: the weights have shape {}, the input {}",
          to_string(weights ? weights->shape() : Shape{}), to_string(x.shape()));
  const Tensor i = cast(detach(x), DType::I64);
  int64_t size = minlength;
  if (x.numel() > 0) {
    const int64_t low = min(i).item<int64_t>();
    require(low >= 0, "bincount: the input has the negative number {}", low);
    const int64_t high = max(i).item<int64_t>();
    require(high < INT64_MAX, "bincount: number {} needs 2^63 counts, one more than there can be", high);
    size = std::max(size, high + 1);
  }
  const DType t = !weights ? DType::I64 : weights->dtype() == DType::F32 ? DType::F32 : DType::F64;
  const Tensor value = weights ? cast(*weights, t) : full_of(i, 1, t);
  return Tensor(scatter(constant(0, t, {size}), i.node(), value.node(), Combine::Add));
}

Tensor histc(const Tensor& x, int64_t bins, double min, double max) {
  require_float("histc", x);
  require(bins > 0, "histc: bins is {}; it must be positive", bins);
  require(min <= max, "histc: min {} exceeds max {}", min, max);
  if (x.numel() == 0) return Tensor(constant(0, x.dtype(), {bins}));
  const DType t = accumulator(x.dtype());
  const Tensor v = cast(flatten(detach(x)), t);
  Tensor low(constant(min, t)), high(constant(max, t));
  if (min == max) {
    // The data's range, widened by 1 on both sides if it is a single number.
    if (min == 0) {
      low = amin(v);
      high = amax(v);
    }
    const Tensor single = low == high;
    low = where(single, low - 1, low);
    high = where(single, high + 1, high);
  }
  const Tensor scaled = (v - low) / (high - low) * static_cast<double>(bins);
  const Tensor bin = minimum(cast(scaled, DType::I64), bins - 1);
  const Tensor place = where((v >= low) & (v <= high), bin, -1);
  const Tensor counts(scatter(constant(0, DType::I64, {bins}), place.node(),
                              full_of(place, 1, DType::I64).node(), Combine::Add));
  return cast(counts, x.dtype());
}

}  // namespace lazuli
