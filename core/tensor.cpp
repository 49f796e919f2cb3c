#include "core/tensor.h"

#include <cstring>
#include <ostream>

#include "core/capture.h"
#include "core/error.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/promotion.h"

namespace lazuli {

namespace detail {
void refuse_moved_from() {
  user_error(
      "tensor: it was moved from and holds nothing; assign it a tensor first, or copy it instead "
      "of moving");
}
}  // namespace detail

Tensor::Tensor(NodeRef node) : buffer_(make_ref<LazyBuffer>(std::move(node))) {}

Tensor::Tensor() : Tensor(constant(Scalar(0.0), DType::F32)) {}

Tensor Tensor::from_bytes(const void* data, size_t bytes, Shape shape, DType dtype) {
  check_shape("from", shape);
  const size_t need = bytes_of(shape, dtype);
  if (need != bytes) {
    user_error("from: shape {} of {} needs {} bytes, but {} were given", to_string(shape),
               name(dtype), need, bytes);
  }
  Ref<Storage> storage = make_storage(bytes);
  if (bytes) std::memcpy(storage->data(), data, bytes);
  return from_storage(std::move(storage), std::move(shape), dtype);
}

Tensor Tensor::from_storage(Ref<Storage> storage, Shape shape, DType dtype) {
  return Tensor(lazuli::buffer(dtype, shape, std::move(storage)));
}

const Shape& TensorOrScalar::shape() const {
  static const Shape none;
  return node_ ? node_->shape : none;
}

Shape Tensor::shape() const {
  return node()->shape;
}
int64_t Tensor::dim() const {
  return node()->rank();
}
int64_t Tensor::numel() const {
  return node()->numel();
}
bool Tensor::realised() const {
  return node()->realised();
}

int64_t Tensor::size(int64_t axis) const {
  const NodeRef n = node();
  return n->shape[static_cast<size_t>(check_axis("size", axis, n->rank()))];
}

namespace {

// The value of `x` as a node of its own.
NodeRef leaf_of(const NodeRef& x, bool tracked) {
  return make({.op = Op::Fresh,
               .dtype = x->dtype,
               .arg = next_serial(),
               .src = sources(x),
               .tracked = tracked,
               .same_shape = &x->shape});
}

// A realised value keeps its history only if a gradient may still be asked through it. An assigned
// gradient leaf keeps none, but stays the node that it is while a graph made from it is alive:
// gradients find their leaf by the node. What another thread has assigned meanwhile stays.
void forget_history(const Tensor& t) {
  const NodeRef n = t.node();
  constexpr uint32_t kOwnCount = 2;  // the tensor's and the one above
  if (t.requires_grad() && n->op == Op::Fresh && n->realised() && n->count() == kOwnCount) {
    t.buffer()->rebind(buffer(n->dtype, n->shape, n->storage(), true), n);
    return;
  }
  if (!n->tracked && n->realised() && n->op != Op::Buffer) {
    t.buffer()->rebind(buffer(n->dtype, n->shape, n->storage()), n);
  }
}

}  // namespace

void realize(std::span<const Tensor> tensors) {
  std::vector<NodeRef> nodes;
  for (const Tensor& t : tensors) {
    NodeRef n = t.node();
    if (!n->realised()) nodes.push_back(std::move(n));
  }
  if (!nodes.empty()) realize_nodes(nodes);
  nodes.clear();
  for (const Tensor& t : tensors) forget_history(t);
}

const Tensor& Tensor::realize() const {
  lazuli::realize(std::span<const Tensor>(this, 1));
  return *this;
}

Ref<Storage> Tensor::storage() const {
  for (;;) {
    realize();
    if (Ref<Storage> value = node()->storage()) return value;
    // Another thread has assigned meanwhile; or there is no value while a function is captured.
    if (Capture::current()) Capture::refuse_value();
  }
}

const void* Tensor::data() const {
  return storage()->data();
}

Tensor& Tensor::requires_grad_(bool on) {
  if (on && !is_float(dtype())) {
    user_error("requires_grad_: only floating point tensors have gradients, not {}", name(dtype()));
  }
  if (on != requires_grad()) {
    // A leaf of its own: realised, unmerged, and marked, so that what follows knows to keep its
    // history.
    realize();
    const NodeRef n = node();
    buffer_->rebind(n->realised() ? lazuli::buffer(n->dtype, n->shape, n->storage(), on)
                                  : leaf_of(lazuli::detach(n), on));
    buffer_->set_requires_grad(on);
  }
  return *this;
}

std::optional<Tensor> Tensor::grad() const {
  Ref<LazyBuffer> g = buffer()->grad();
  if (!g) return std::nullopt;
  return Tensor(std::move(g));
}

void Tensor::set_grad(const std::optional<Tensor>& grad) {
  buffer()->set_grad(grad ? grad->buffer() : nullptr);
}

namespace {

Tensor& rebind(std::string_view op, Tensor& x, const Tensor& value) {
  const NodeRef old = x.node(), given = value.node();
  if (given->shape != old->shape && broadcast_shapes(op, old->shape, given->shape) != old->shape) {
    user_error("{}: a value of shape {} does not fit a tensor of shape {}", op,
               to_string(given->shape), to_string(old->shape));
  }
  NodeRef node = broadcast_node(cast(given, old->dtype), old->shape);
  // The new value is a leaf as the old one was: what made it is no part of later gradients.
  if (x.requires_grad()) node = leaf_of(lazuli::detach(node), true);
  x.buffer()->rebind(std::move(node));
  return x;
}

// Of an operator such as +=: what a conversion would cut off is refused.
Tensor& compound(std::string_view op, Tensor& x, const Tensor& value) {
  require(info(value.dtype()).kind <= info(x.dtype()).kind,
          "{}: the result is {}, which a tensor of {} cannot hold; convert the tensor first", op,
          name(value.dtype()), name(x.dtype()));
  return rebind(op, x, value);
}

}  // namespace

Tensor& Tensor::assign_(const Tensor& other) & {
  return rebind("assign_", *this, other);
}

Tensor& Tensor::operator+=(const TensorOrScalar& b) & {
  return compound("+=", *this, lazuli::add(*this, b));
}
Tensor& Tensor::operator-=(const TensorOrScalar& b) & {
  return compound("-=", *this, lazuli::sub(*this, b));
}
Tensor& Tensor::operator*=(const TensorOrScalar& b) & {
  return compound("*=", *this, lazuli::mul(*this, b));
}
Tensor& Tensor::operator/=(const TensorOrScalar& b) & {
  return compound("/=", *this, lazuli::div(*this, b));
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  return out << x.str();
}

Tensor& Tensor::set_(const std::vector<Index>& items, const TensorOrScalar& value) & {
  return assign_(setitem(*this, items, value));
}

namespace detail {

Scalar element(const void* data, DType dtype, int64_t i) {
  uint64_t bits = 0;
  const auto size = static_cast<size_t>(size_of(dtype));
  std::memcpy(&bits, static_cast<const char*>(data) + static_cast<size_t>(i) * size, size);
  return from_bits(bits, dtype);
}

void require_one_element(const Tensor& t) {
  if (t.numel() != 1) {
    user_error("item: a tensor of shape {} has {} elements, not one; index it or reduce it first",
               to_string(t.shape()), t.numel());
  }
}

}  // namespace detail

}  // namespace lazuli
