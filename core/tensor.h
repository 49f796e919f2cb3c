// Tensor: what a user holds. A cheap value that shares one LazyBuffer; operations only build the graph, and values are
// computed when asked for (realize, item, printing, data). Names, argument order, defaults and results are PyTorch's. The operations are
// free functions (core/ops.h); the methods here are what needs the handle itself, and one-line spellings of common operations.
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/arguments.h"
#include "core/exception.h"
#include "core/lazy_buffer.h"
#include "core/scalar.h"

namespace lazuli {

class Tensor;

namespace detail {
[[noreturn]] void refuse_moved_from();
}

class TensorOrScalar;

/// One item of an index (core/ops_index.h); a pair of results (core/ops_reduce.h).
class Index;
struct ValuesIndices;
struct Unique;

class Tensor {
 public:
  /// A rank-0 f32 zero.
  Tensor();
  explicit Tensor(NodeRef node);
  explicit Tensor(Ref<LazyBuffer> buffer) : buffer_(std::move(buffer)) {}
  Tensor(const Tensor&) = default;
  /// The other holds nothing from then on: it can be assigned a tensor, and all else is a UserError.
  Tensor(Tensor&&) = default;
  ~Tensor() = default;
  /// Only a tensor with a name can be assigned to or changed: x[3] is a value of its own, not a view, so that what
  /// x[3] = y or x[3] += y did would be lost. x.set_({3}, y) writes into x.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;
  /// A copy of `values` (row-major) as an array of `shape`; UserError if the counts differ.
  template <typename V>
  static Tensor from(std::span<const V> values, Shape shape);
  template <typename V>
  static Tensor from(std::initializer_list<V> values, Shape shape) {
    return from(std::span<const V>(values.begin(), values.size()), std::move(shape));
  }
  template <typename V>
  static Tensor from(const std::vector<V>& values, Shape shape) {
    return from(std::span<const V>(values), std::move(shape));
  }
  /// A copy of raw row-major elements; `bytes` must be what shape and dtype need.
  static Tensor from_bytes(const void* data, size_t bytes, Shape shape, DType dtype);
  /// The array is `storage` itself, not a copy.
  static Tensor from_storage(Ref<Storage> storage, Shape shape, DType dtype);

  NodeRef node() const { return buffer()->node(); }
  const Ref<LazyBuffer>& buffer() const {
    if (!buffer_) [[unlikely]] detail::refuse_moved_from();
    return buffer_;
  }

  Shape shape() const;
  DType dtype() const { return buffer()->dtype(); }
  int64_t dim() const;
  int64_t ndim() const { return dim(); }
  /// Size of one axis; negative counts from the end.
  int64_t size(int64_t axis) const;
  int64_t numel() const;
  int64_t element_size() const { return size_of(dtype()); }
  int64_t nbytes() const { return numel() * element_size(); }
  bool is_floating_point() const { return is_float(dtype()); }

  /// Computes the value now, if it is not there yet. Returns *this.
  const Tensor& realize() const;
  bool realised() const;
  /// The value of a one-element tensor, converted to V; UserError for any other number of elements.
  template <typename V = double>
  V item() const;
  /// All elements in row-major order, converted to V.
  template <typename V = float>
  std::vector<V> to_vector() const;
  /// Realises and returns the row-major elements. Valid until the tensor is assigned, by a jitted function too, or gone.
  const void* data() const;
  /// The same with a hold on them: as long as it lasts the elements stay as they are, whatever is assigned to the tensor.
  Ref<Storage> storage() const;
  /// As NumPy prints an array; realises.
  std::string str() const;

  /// Collects the derivatives of this scalar, or of `gradient` times this tensor, in .grad of the
  /// leaves below (core/gradient.h).
  void backward(const std::optional<Tensor>& gradient = {}) const;
  /// Marks a leaf whose gradient backward() collects; its descendants keep their history over realize().
  Tensor& requires_grad_(bool on = true);
  bool requires_grad() const { return buffer()->requires_grad(); }
  /// What backward() has added up; an empty optional before the first.
  std::optional<Tensor> grad() const;
  void set_grad(const std::optional<Tensor>& grad);

  /// Rebinds this handle, and all copies of it, to the value of `other`, broadcast and converted to this shape and dtype. Tensors computed
  /// before keep the old value: graphs are values, so no order of reads and writes can go wrong.
  Tensor& assign_(const Tensor& other) &;
  /// Rebinds to this value with `value`, broadcast and converted, at x[items]: a.set_({Slice{1}}, a.index({Slice{{}, -1}})) is right.
  Tensor& set_(const std::vector<Index>& items, const TensorOrScalar& value) &;

  /// assign_(*this + b), and so on. UserError where the result has a higher kind of dtype (a float
  /// for an integer), as in PyTorch.
  Tensor& operator+=(const TensorOrScalar& b) &;
  Tensor& operator-=(const TensorOrScalar& b) &;
  Tensor& operator*=(const TensorOrScalar& b) &;
  Tensor& operator/=(const TensorOrScalar& b) &;

#include "core/tensor_methods.inc"

 private:
  Ref<LazyBuffer> buffer_;
};

/// Prints x.str(); realises.
std::ostream& operator<<(std::ostream& out, const Tensor& x);

/// Either a tensor or a number, as the operand of an operation; numbers promote weakly. Of a tensor
/// it is the value at that time, which later assignments do not change.
class TensorOrScalar {
 public:
  TensorOrScalar(const Tensor& tensor) : node_(tensor.node()) {}
  TensorOrScalar(const Scalar& number) : number_(number) {}
  template <typename T>
    requires std::is_arithmetic_v<T>
  TensorOrScalar(T number) : number_(number) {}

  bool is_tensor() const { return node_ != nullptr; }
  Tensor tensor() const { return Tensor(node_); }
  /// The tensor's node; null for a number.
  const NodeRef& node() const& { return node_; }
  NodeRef node() && { return std::move(node_); }
  const Scalar& scalar() const { return number_; }
  /// The tensor's shape; () for a number.
  const Shape& shape() const;

 private:
  NodeRef node_;
  Scalar number_ = 0;
};

/// Computes all of them together, so that they share kernels.
void realize(std::span<const Tensor> tensors);
template <typename... T>
void realize(const Tensor& first, const T&... rest) {
  const Tensor all[] = {first, rest...};
  realize(std::span<const Tensor>(all));
}

// ---- implementation of the templates

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::Bool;
  else if constexpr (std::is_same_v<T, float>) return DType::F32;
  else if constexpr (std::is_same_v<T, double>) return DType::F64;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
    return sizeof(T) == 1 ? DType::I8 : sizeof(T) == 2 ? DType::I16 : sizeof(T) == 4 ? DType::I32 : DType::I64;
  else
    return sizeof(T) == 1 ? DType::U8 : sizeof(T) == 2 ? DType::U16 : sizeof(T) == 4 ? DType::U32 : DType::U64;
}

template <typename V>
Tensor Tensor::from(std::span<const V> values, Shape shape) {
  return from_bytes(values.data(), values.size() * sizeof(V), std::move(shape), dtype_of<V>());
}

namespace detail {
/// Element i of the realised array at `data`.
Scalar element(const void* data, DType dtype, int64_t i);
void require_one_element(const Tensor& t);
}  // namespace detail

template <typename V>
V Tensor::item() const {
  detail::require_one_element(*this);
  const Scalar s = detail::element(storage()->data(), dtype(), 0);
  if constexpr (std::is_floating_point_v<V>) return static_cast<V>(s.as_double());
  else return static_cast<V>(s.as_int());
}

template <typename V>
std::vector<V> Tensor::to_vector() const {
  const Ref<Storage> value = storage();
  const void* p = value->data();
  std::vector<V> out;
  out.reserve(static_cast<size_t>(numel()));
  for (int64_t i = 0; i < numel(); i++) {
    const Scalar s = detail::element(p, dtype(), i);
    out.push_back(std::is_floating_point_v<V> ? static_cast<V>(s.as_double())
                                              : static_cast<V>(s.as_int()));
  }
  return out;
}

}  // namespace lazuli
