#include "core/ops_creation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/ops_elementwise.h"
#include "core/ops_movement.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

// Memory of the caller.
class BlobStorage final : public Storage {
 public:
  BlobStorage(void* data, size_t bytes, Function<void(void*)> deleter)
      : data_(data), bytes_(bytes), deleter_(std::move(deleter)) {}
  ~BlobStorage() override {
    if (deleter_) deleter_(data_);
  }
  void* data() override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
  Function<void(void*)> deleter_;
};

Tensor filled(std::string_view op, const Shape& shape, const Scalar& value, DType dtype) {
  check_shape(op, shape);
  return Tensor(fresh(constant(value, dtype, shape)));
}

// ceil((end - start) / step), exact for integers.
int64_t arange_length(const Scalar& start, const Scalar& end, const Scalar& step) {
  if (!start.is_float() && !end.is_float() && !step.is_float()) {
    // The distance between two int64 fits in a uint64.
    const auto from = static_cast<uint64_t>(start.as_int()),
               to = static_cast<uint64_t>(end.as_int());
    const auto by = static_cast<uint64_t>(step.as_int());
    const uint64_t span = step.as_int() > 0 ? to - from : from - to;
    const uint64_t size = step.as_int() > 0 ? by : 0 - by;
    const uint64_t n = span / size + (span % size != 0);
    require(n <= INT64_MAX, "arange: from {} to {} by {} has more than 2^63 elements",
            start.as_int(), end.as_int(), step.as_int());
    return static_cast<int64_t>(n);
  }
  const double n = std::ceil((end.as_double() - start.as_double()) / step.as_double());
  require(n < 0x1p63, "arange: from {} to {} by {} has more than 2^63 elements", start.as_double(),
          end.as_double(), step.as_double());
  return static_cast<int64_t>(n);
}

// Number of elements on and below diagonal `offset` of a (row, col) matrix.
int64_t count_below(int64_t row, int64_t col, int64_t offset) {
  // Row r has r + offset + 1 of them, cut to [0, col]: nothing up to row `first`, all from row
  // `full` on.
  const int64_t first = std::clamp<int64_t>(-offset, 0, row);
  const int64_t full = std::clamp<int64_t>(col - offset, first, row);
  const int64_t growing = full - first;
  return growing * (first + offset + 1) + growing * (growing - 1) / 2 + (row - full) * col;
}

// Rows and columns, row by row; `lower` or upper part.
Tensor triangle_indices(std::string_view op, int64_t row, int64_t col, int64_t offset, DType dtype,
                        bool lower) {
  check_shape(op, Shape{row, col});
  // Offsets beyond the matrix mean no more than its edge.
  const int64_t o = std::clamp(offset, -row, col);
  const int64_t below = count_below(row, col, lower ? o : o - 1);
  const int64_t n = lower ? below : row * col - below;
  check_shape(op, Shape{2, n, size_of(DType::I64)});
  const Ref<Storage> storage = make_storage(2 * sizeof(int64_t) * static_cast<size_t>(n));
  auto* rows = static_cast<int64_t*>(storage->data());
  int64_t* cols = rows + n;
  for (int64_t r = lower ? std::max<int64_t>(0, -o) : 0, i = 0; i < n; r++) {
    const int64_t begin = lower ? 0 : std::clamp<int64_t>(r + o, 0, col);
    const int64_t end = lower ? std::clamp<int64_t>(r + o + 1, 0, col) : col;
    for (int64_t c = begin; c < end; c++, i++) {
      rows[i] = r;
      cols[i] = c;
    }
  }
  return cast(Tensor::from_storage(storage, {2, n}, DType::I64), dtype);
}

}  // namespace

namespace detail {

NodeRef coordinate(const Shape& shape, int64_t axis) {
  Shape aligned(shape.size(), 1);
  const int64_t n = shape[static_cast<size_t>(axis)];
  aligned[static_cast<size_t>(axis)] = n;
  return expand(reshape(iota(n), aligned), shape);
}

void enter_list(Literal& literal, size_t depth, size_t count) {
  const auto n = static_cast<int64_t>(count);
  if (depth == literal.shape.size()) literal.shape.push_back(n);
  require(literal.shape[depth] == n,
          "tensor: lists of {} and of {} elements stand side by side at depth {}; expected one "
          "length",
          literal.shape[depth], n, depth);
}

Tensor literal_tensor(const Literal& literal, std::optional<DType> dtype) {
  const auto highest =
      std::max_element(literal.values.begin(), literal.values.end(),
                       [](const Scalar& a, const Scalar& b) { return a.kind() < b.kind(); });
  const DType t = dtype.value_or(literal.values.empty() ? DType::F32 : dtype_of(*highest));
  const auto size = static_cast<size_t>(size_of(t));
  const Ref<Storage> storage = make_storage(literal.values.size() * size);
  auto* to = static_cast<char*>(storage->data());
  for (const Scalar& value : literal.values) {
    const uint64_t bits = to_bits(value, t);
    std::memcpy(to, &bits, size);
    to += size;
  }
  return Tensor::from_storage(storage, literal.shape, t);
}

}  // namespace detail

Tensor full(const Shape& shape, const Scalar& value, std::optional<DType> dtype) {
  return filled("full", shape, value, dtype.value_or(dtype_of(value)));
}
Tensor zeros(const Shape& shape, DType dtype) {
  return filled("zeros", shape, 0, dtype);
}
Tensor ones(const Shape& shape, DType dtype) {
  return filled("ones", shape, 1, dtype);
}
Tensor empty(const Shape& shape, DType dtype) {
  return filled("empty", shape, 0, dtype);
}

Tensor from_blob(void* data, const Shape& shape, DType dtype, Function<void(void*)> deleter) {
  check_shape("from_blob", shape);
  const size_t bytes = bytes_of(shape, dtype);
  require(data != nullptr || bytes == 0,
          "from_blob: no memory is given for shape {} of {}, which needs {} bytes",
          to_string(shape), name(dtype), bytes);
  require(reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(size_of(dtype)) == 0,
          "from_blob: elements of {} must lie at multiples of {} bytes; copy them with "
          "Tensor::from_bytes",
          name(dtype), size_of(dtype));
  return Tensor::from_storage(make_ref<BlobStorage>(data, bytes, std::move(deleter)), shape, dtype);
}

Tensor scalar_tensor(const Scalar& value, std::optional<DType> dtype) {
  return filled("scalar_tensor", {}, value, dtype.value_or(dtype_of(value)));
}

Tensor full_like(const Tensor& x, const Scalar& value, std::optional<DType> dtype) {
  return filled("full_like", x.shape(), value, dtype.value_or(x.dtype()));
}
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype) {
  return full_like(x, 0, dtype);
}
Tensor ones_like(const Tensor& x, std::optional<DType> dtype) {
  return full_like(x, 1, dtype);
}
Tensor empty_like(const Tensor& x, std::optional<DType> dtype) {
  return full_like(x, 0, dtype);
}

Tensor const_like(const Tensor& x, const Scalar& value) {
  return Tensor(constant(value, x.dtype(), x.shape()));
}

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step,
              std::optional<DType> dtype) {
  const double from = start.as_double(), to = end.as_double(), by = step.as_double();
  require(std::isfinite(from) && std::isfinite(to) && !std::isnan(by),
          "arange: from {} to {} by {} is not finite", from, to, by);
  require(by != 0, "arange: the step is 0");
  require(by > 0 ? to >= from : to <= from,
          "arange: a step of {} does not lead from {} to {}; give the step the other sign", by,
          from, to);
  const bool integers = !start.is_float() && !end.is_float() && !step.is_float();
  const DType out = dtype.value_or(integers ? DType::I64 : DType::F32);
  const int64_t n = arange_length(start, end, step);
  // Floats are computed in f64 and rounded once, so that a long range does not drift.
  const DType wide = is_float(out) && !integers ? DType::F64 : DType::I64;
  const Shape shape{n};
  const Scalar first = wide == DType::I64 ? Scalar(start.as_int()) : start;
  const Scalar stride = wide == DType::I64 ? Scalar(step.as_int()) : step;
  NodeRef x = cast(iota(n), wide);
  if (stride.as_double() != 1) x = elementwise(Op::Mul, {x, constant(stride, wide, shape)});
  if (first.as_double() != 0) x = elementwise(Op::Add, {x, constant(first, wide, shape)});
  return Tensor(fresh(cast(x, out)));
}

Tensor arange(const Scalar& end, std::optional<DType> dtype) {
  return arange(0, end, 1, dtype);
}

Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, DType dtype) {
  require(steps >= 0, "linspace: the number of steps is {}; it cannot be negative", steps);
  if (steps == 0) return zeros({0}, dtype);
  const DType wide = is_float(dtype) ? accumulator(dtype) : DType::F32;
  const Tensor first(constant(start, wide)), last(constant(end, wide));
  if (steps == 1) return Tensor(fresh(reshape(cast(first, dtype).node(), {1})));
  const Tensor i(cast(iota(steps), wide)),
      back(cast((Tensor(iota(steps)) * -1 + (steps - 1)).node(), wide));
  const Tensor step = (last - first) / static_cast<double>(steps - 1);
  const Tensor x = where(Tensor(iota(steps)) < steps / 2, first + step * i, last - step * back);
  return Tensor(fresh(cast(x, dtype).node()));
}

Tensor eye(int64_t n, std::optional<int64_t> m, DType dtype) {
  const Shape shape{n, m.value_or(n)};
  check_shape("eye", shape);
  const NodeRef same =
      elementwise(Op::Eq, {detail::coordinate(shape, 0), detail::coordinate(shape, 1)});
  return Tensor(fresh(cast(same, dtype)));
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, std::string_view indexing) {
  require(!tensors.empty(), "meshgrid: no tensors are given");
  require(indexing == "ij" || indexing == "xy", "meshgrid: indexing is \"{}\"; it must be ij or xy",
          indexing);
  Shape shape;
  for (const Tensor& t : tensors) {
    require(t.dim() <= 1, "meshgrid: a tensor of shape {} is not rank 0 or 1",
            to_string(t.shape()));
    require(t.dtype() == tensors[0].dtype(),
            "meshgrid: the tensors have dtypes {} and {}; convert one", name(tensors[0].dtype()),
            name(t.dtype()));
    shape.push_back(t.numel());
  }
  check_shape("meshgrid", shape);
  std::vector<Tensor> out;
  for (size_t i = 0; i < tensors.size(); i++) {
    Shape aligned(shape.size(), 1);
    aligned[i] = shape[i];
    Tensor grid(expand(reshape(tensors[i].node(), aligned), shape));
    out.push_back(indexing == "xy" && shape.size() >= 2 ? transpose(grid, 0, 1) : grid);
  }
  return out;
}

Tensor tril_indices(int64_t row, int64_t col, int64_t offset, DType dtype) {
  return triangle_indices("tril_indices", row, col, offset, dtype, true);
}
Tensor triu_indices(int64_t row, int64_t col, int64_t offset, DType dtype) {
  return triangle_indices("triu_indices", row, col, offset, dtype, false);
}

}  // namespace lazuli
