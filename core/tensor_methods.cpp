// The method spellings of operations: each calls the operation with this tensor first.
#include "core/error.h"
#include "core/ops.h"
#include "core/tensor.h"

namespace lazuli {

// ---- conversion and identity

Tensor Tensor::to(DType dtype) const {
  return lazuli::to(*this, dtype);
}
Tensor Tensor::cast(DType dtype) const {
  return lazuli::cast(*this, dtype);
}
Tensor Tensor::bitcast(DType dtype) const {
  return lazuli::bitcast(*this, dtype);
}
Tensor Tensor::detach() const {
  return lazuli::detach(*this);
}
Tensor Tensor::contiguous() const {
  return lazuli::contiguous(*this);
}
Tensor Tensor::clone() const {
  return lazuli::clone(*this);
}

// ---- unary functions

Tensor Tensor::neg() const {
  return lazuli::neg(*this);
}
Tensor Tensor::abs() const {
  return lazuli::abs(*this);
}
Tensor Tensor::sign() const {
  return lazuli::sign(*this);
}
Tensor Tensor::square() const {
  return lazuli::square(*this);
}
Tensor Tensor::sqrt() const {
  return lazuli::sqrt(*this);
}
Tensor Tensor::rsqrt() const {
  return lazuli::rsqrt(*this);
}
Tensor Tensor::reciprocal() const {
  return lazuli::reciprocal(*this);
}
Tensor Tensor::exp() const {
  return lazuli::exp(*this);
}
Tensor Tensor::exp2() const {
  return lazuli::exp2(*this);
}
Tensor Tensor::expm1() const {
  return lazuli::expm1(*this);
}
Tensor Tensor::log() const {
  return lazuli::log(*this);
}
Tensor Tensor::log2() const {
  return lazuli::log2(*this);
}
Tensor Tensor::log10() const {
  return lazuli::log10(*this);
}
Tensor Tensor::log1p() const {
  return lazuli::log1p(*this);
}
Tensor Tensor::sin() const {
  return lazuli::sin(*this);
}
Tensor Tensor::cos() const {
  return lazuli::cos(*this);
}
Tensor Tensor::tan() const {
  return lazuli::tan(*this);
}
Tensor Tensor::asin() const {
  return lazuli::asin(*this);
}
Tensor Tensor::acos() const {
  return lazuli::acos(*this);
}
Tensor Tensor::atan() const {
  return lazuli::atan(*this);
}
Tensor Tensor::sinh() const {
  return lazuli::sinh(*this);
}
Tensor Tensor::cosh() const {
  return lazuli::cosh(*this);
}
Tensor Tensor::tanh() const {
  return lazuli::tanh(*this);
}
Tensor Tensor::asinh() const {
  return lazuli::asinh(*this);
}
Tensor Tensor::acosh() const {
  return lazuli::acosh(*this);
}
Tensor Tensor::atanh() const {
  return lazuli::atanh(*this);
}
Tensor Tensor::erf() const {
  return lazuli::erf(*this);
}
Tensor Tensor::erfc() const {
  return lazuli::erfc(*this);
}
Tensor Tensor::erfinv() const {
  return lazuli::erfinv(*this);
}
Tensor Tensor::lgamma() const {
  return lazuli::lgamma(*this);
}
Tensor Tensor::digamma() const {
  return lazuli::digamma(*this);
}
Tensor Tensor::trunc() const {
  return lazuli::trunc(*this);
}
Tensor Tensor::floor() const {
  return lazuli::floor(*this);
}
Tensor Tensor::ceil() const {
  return lazuli::ceil(*this);
}
Tensor Tensor::frac() const {
  return lazuli::frac(*this);
}
Tensor Tensor::sinc() const {
  return lazuli::sinc(*this);
}
Tensor Tensor::isnan() const {
  return lazuli::isnan(*this);
}
Tensor Tensor::isinf() const {
  return lazuli::isinf(*this);
}
Tensor Tensor::isfinite() const {
  return lazuli::isfinite(*this);
}
Tensor Tensor::signbit() const {
  return lazuli::signbit(*this);
}
Tensor Tensor::logical_not() const {
  return lazuli::logical_not(*this);
}
Tensor Tensor::bitwise_not() const {
  return lazuli::bitwise_not(*this);
}
Tensor Tensor::round(int64_t decimals) const {
  return lazuli::round(*this, decimals);
}
Tensor Tensor::logit(std::optional<double> eps) const {
  return lazuli::logit(*this, eps);
}
Tensor Tensor::nan_to_num(std::optional<double> nan, std::optional<double> posinf,
                          std::optional<double> neginf) const {
  return lazuli::nan_to_num(*this, nan, posinf, neginf);
}

// ---- activations

Tensor Tensor::relu() const {
  return lazuli::relu(*this);
}
Tensor Tensor::relu6() const {
  return lazuli::relu6(*this);
}
Tensor Tensor::selu() const {
  return lazuli::selu(*this);
}
Tensor Tensor::quick_gelu() const {
  return lazuli::quick_gelu(*this);
}
Tensor Tensor::silu() const {
  return lazuli::silu(*this);
}
Tensor Tensor::swish() const {
  return lazuli::swish(*this);
}
Tensor Tensor::mish() const {
  return lazuli::mish(*this);
}
Tensor Tensor::softsign() const {
  return lazuli::softsign(*this);
}
Tensor Tensor::sigmoid() const {
  return lazuli::sigmoid(*this);
}
Tensor Tensor::logsigmoid() const {
  return lazuli::logsigmoid(*this);
}
Tensor Tensor::hardsigmoid() const {
  return lazuli::hardsigmoid(*this);
}
Tensor Tensor::hardswish() const {
  return lazuli::hardswish(*this);
}
Tensor Tensor::leaky_relu(double negative_slope) const {
  return lazuli::leaky_relu(*this, negative_slope);
}
Tensor Tensor::elu(double alpha) const {
  return lazuli::elu(*this, alpha);
}
Tensor Tensor::celu(double alpha) const {
  return lazuli::celu(*this, alpha);
}
Tensor Tensor::gelu(std::string_view approximate) const {
  return lazuli::gelu(*this, approximate);
}
Tensor Tensor::softplus(double beta, double threshold) const {
  return lazuli::softplus(*this, beta, threshold);
}
Tensor Tensor::hardtanh(double min_val, double max_val) const {
  return lazuli::hardtanh(*this, min_val, max_val);
}

// ---- binary functions

Tensor Tensor::add(const TensorOrScalar& b, const Scalar& alpha) const {
  return lazuli::add(*this, b, alpha);
}
Tensor Tensor::sub(const TensorOrScalar& b, const Scalar& alpha) const {
  return lazuli::sub(*this, b, alpha);
}
Tensor Tensor::mul(const TensorOrScalar& b) const {
  return lazuli::mul(*this, b);
}
Tensor Tensor::div(const TensorOrScalar& b, std::string_view rounding_mode) const {
  return lazuli::div(*this, b, rounding_mode);
}
Tensor Tensor::floor_divide(const TensorOrScalar& b) const {
  return lazuli::floor_divide(*this, b);
}
Tensor Tensor::remainder(const TensorOrScalar& b) const {
  return lazuli::remainder(*this, b);
}
Tensor Tensor::fmod(const TensorOrScalar& b) const {
  return lazuli::fmod(*this, b);
}
Tensor Tensor::pow(const TensorOrScalar& b) const {
  return lazuli::pow(*this, b);
}
Tensor Tensor::maximum(const TensorOrScalar& b) const {
  return lazuli::maximum(*this, b);
}
Tensor Tensor::minimum(const TensorOrScalar& b) const {
  return lazuli::minimum(*this, b);
}
Tensor Tensor::atan2(const TensorOrScalar& b) const {
  return lazuli::atan2(*this, b);
}
Tensor Tensor::hypot(const TensorOrScalar& b) const {
  return lazuli::hypot(*this, b);
}
Tensor Tensor::copysign(const TensorOrScalar& b) const {
  return lazuli::copysign(*this, b);
}
Tensor Tensor::logaddexp(const TensorOrScalar& b) const {
  return lazuli::logaddexp(*this, b);
}
Tensor Tensor::xlogy(const TensorOrScalar& b) const {
  return lazuli::xlogy(*this, b);
}
Tensor Tensor::bitwise_and(const TensorOrScalar& b) const {
  return lazuli::bitwise_and(*this, b);
}
Tensor Tensor::bitwise_or(const TensorOrScalar& b) const {
  return lazuli::bitwise_or(*this, b);
}
Tensor Tensor::bitwise_xor(const TensorOrScalar& b) const {
  return lazuli::bitwise_xor(*this, b);
}
Tensor Tensor::bitwise_left_shift(const TensorOrScalar& b) const {
  return lazuli::bitwise_left_shift(*this, b);
}
Tensor Tensor::bitwise_right_shift(const TensorOrScalar& b) const {
  return lazuli::bitwise_right_shift(*this, b);
}
Tensor Tensor::logical_and(const TensorOrScalar& b) const {
  return lazuli::logical_and(*this, b);
}
Tensor Tensor::logical_or(const TensorOrScalar& b) const {
  return lazuli::logical_or(*this, b);
}
Tensor Tensor::logical_xor(const TensorOrScalar& b) const {
  return lazuli::logical_xor(*this, b);
}
Tensor Tensor::eq(const TensorOrScalar& b) const {
  return lazuli::eq(*this, b);
}
Tensor Tensor::ne(const TensorOrScalar& b) const {
  return lazuli::ne(*this, b);
}
Tensor Tensor::lt(const TensorOrScalar& b) const {
  return lazuli::lt(*this, b);
}
Tensor Tensor::le(const TensorOrScalar& b) const {
  return lazuli::le(*this, b);
}
Tensor Tensor::gt(const TensorOrScalar& b) const {
  return lazuli::gt(*this, b);
}
Tensor Tensor::ge(const TensorOrScalar& b) const {
  return lazuli::ge(*this, b);
}
Tensor Tensor::isclose(const TensorOrScalar& b, double rtol, double atol, bool equal_nan) const {
  return lazuli::isclose(*this, b, rtol, atol, equal_nan);
}
bool Tensor::allclose(const TensorOrScalar& b, double rtol, double atol, bool equal_nan) const {
  return lazuli::allclose(*this, b, rtol, atol, equal_nan);
}
Tensor Tensor::lerp(const Tensor& end, const TensorOrScalar& weight) const {
  return lazuli::lerp(*this, end, weight);
}
Tensor Tensor::clamp(const TensorOrScalar& low, const TensorOrScalar& high) const {
  return lazuli::clamp(*this, low, high);
}
Tensor Tensor::clamp_min(const TensorOrScalar& low) const {
  return lazuli::clamp(*this, low);
}
Tensor Tensor::clamp_max(const TensorOrScalar& high) const {
  return lazuli::clamp(*this, {}, high);
}
Tensor Tensor::where(const Tensor& condition, const TensorOrScalar& other) const {
  return lazuli::where(condition, *this, other);
}
Tensor Tensor::masked_fill(const Tensor& mask, const TensorOrScalar& value) const {
  return lazuli::masked_fill(*this, mask, value);
}

// ---- movement

Tensor Tensor::reshape(const Shape& shape) const {
  return lazuli::reshape(*this, shape);
}
Tensor Tensor::view(const Shape& shape) const {
  return lazuli::view(*this, shape);
}
Tensor Tensor::view(DType dtype) const {
  return lazuli::bitcast(*this, dtype);
}
Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const {
  return lazuli::flatten(*this, start_dim, end_dim);
}
Tensor Tensor::unflatten(int64_t dim, const Shape& sizes) const {
  return lazuli::unflatten(*this, dim, sizes);
}
Tensor Tensor::squeeze() const {
  return lazuli::squeeze(*this);
}
Tensor Tensor::squeeze(const Dims& dims) const {
  return lazuli::squeeze(*this, dims);
}
Tensor Tensor::unsqueeze(int64_t dim) const {
  return lazuli::unsqueeze(*this, dim);
}
Tensor Tensor::permute(const Ints& dims) const {
  return lazuli::permute(*this, dims);
}
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const {
  return lazuli::transpose(*this, dim0, dim1);
}
Tensor Tensor::T() const {
  return lazuli::transpose_all(*this);
}
Tensor Tensor::mT() const {
  return lazuli::matrix_transpose(*this);
}
Tensor Tensor::movedim(const Dims& source, const Dims& destination) const {
  return lazuli::movedim(*this, source, destination);
}
Tensor Tensor::expand(const Shape& shape) const {
  return lazuli::expand(*this, shape);
}
Tensor Tensor::broadcast_to(const Shape& shape) const {
  return lazuli::broadcast_to(*this, shape);
}
Tensor Tensor::expand_as(const Tensor& other) const {
  return lazuli::expand_as(*this, other);
}
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return lazuli::narrow(*this, dim, start, length);
}
Tensor Tensor::select(int64_t dim, int64_t index) const {
  return lazuli::select(*this, dim, index);
}
std::vector<Tensor> Tensor::split(int64_t size, int64_t dim) const {
  return lazuli::split(*this, size, dim);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim) const {
  return lazuli::chunk(*this, chunks, dim);
}
std::vector<Tensor> Tensor::unbind(int64_t dim) const {
  return lazuli::unbind(*this, dim);
}
Tensor Tensor::unfold(int64_t dimension, int64_t size, int64_t step) const {
  return lazuli::unfold(*this, dimension, size, step);
}
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  return lazuli::diagonal(*this, offset, dim1, dim2);
}
Tensor Tensor::diag(int64_t diagonal) const {
  return lazuli::diag(*this, diagonal);
}
Tensor Tensor::repeat(const Ints& repeats) const {
  return lazuli::repeat(*this, repeats);
}
Tensor Tensor::tile(const Ints& repeats) const {
  return lazuli::tile(*this, repeats);
}
Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  return lazuli::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::flip(const Dims& dims) const {
  return lazuli::flip(*this, dims);
}
Tensor Tensor::roll(const Dims& shifts, const Dims& dims) const {
  return lazuli::roll(*this, shifts, dims);
}
Tensor Tensor::tril(int64_t diagonal) const {
  return lazuli::tril(*this, diagonal);
}
Tensor Tensor::triu(int64_t diagonal) const {
  return lazuli::triu(*this, diagonal);
}

// ---- indexing

Tensor Tensor::operator[](const Index& item) const {
  return lazuli::getitem(*this, {item});
}
Tensor Tensor::index(const std::vector<Index>& items) const {
  return lazuli::getitem(*this, items);
}
Tensor Tensor::gather(int64_t dim, const Tensor& index) const {
  return lazuli::gather(*this, dim, index);
}
Tensor Tensor::take_along_dim(const Tensor& index, std::optional<int64_t> dim) const {
  return lazuli::take_along_dim(*this, index, dim);
}
Tensor Tensor::index_select(int64_t dim, const Tensor& index) const {
  return lazuli::index_select(*this, dim, index);
}
Tensor Tensor::masked_select(const Tensor& mask) const {
  return lazuli::masked_select(*this, mask);
}
Tensor Tensor::nonzero() const {
  return lazuli::nonzero(*this);
}

// ---- reductions

Tensor Tensor::sum(const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return lazuli::sum(*this, dims, keepdim, dtype);
}
Tensor Tensor::prod(const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return lazuli::prod(*this, dims, keepdim, dtype);
}
Tensor Tensor::mean(const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return lazuli::mean(*this, dims, keepdim, dtype);
}
Tensor Tensor::amax(const Dims& dims, bool keepdim) const {
  return lazuli::amax(*this, dims, keepdim);
}
Tensor Tensor::amin(const Dims& dims, bool keepdim) const {
  return lazuli::amin(*this, dims, keepdim);
}
Tensor Tensor::any(const Dims& dims, bool keepdim) const {
  return lazuli::any(*this, dims, keepdim);
}
Tensor Tensor::all(const Dims& dims, bool keepdim) const {
  return lazuli::all(*this, dims, keepdim);
}
Tensor Tensor::max() const {
  return lazuli::max(*this);
}
Tensor Tensor::min() const {
  return lazuli::min(*this);
}
ValuesIndices Tensor::max(int64_t dim, bool keepdim) const {
  return lazuli::max(*this, dim, keepdim);
}
ValuesIndices Tensor::min(int64_t dim, bool keepdim) const {
  return lazuli::min(*this, dim, keepdim);
}
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim) const {
  return lazuli::argmax(*this, dim, keepdim);
}
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim) const {
  return lazuli::argmin(*this, dim, keepdim);
}
Tensor Tensor::var(const Dims& dims, double correction, bool keepdim) const {
  return lazuli::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Dims& dims, double correction, bool keepdim) const {
  return lazuli::std(*this, dims, correction, keepdim);
}

// ---- matrix products and the softmax family

Tensor Tensor::matmul(const Tensor& other) const {
  return lazuli::matmul(*this, other);
}
Tensor Tensor::dot(const Tensor& other) const {
  return lazuli::dot(*this, other);
}
Tensor Tensor::softmax(int64_t dim, std::optional<DType> dtype) const {
  return lazuli::softmax(*this, dim, dtype);
}
Tensor Tensor::log_softmax(int64_t dim, std::optional<DType> dtype) const {
  return lazuli::log_softmax(*this, dim, dtype);
}
Tensor Tensor::logsumexp(const Dims& dims, bool keepdim) const {
  return lazuli::logsumexp(*this, dims, keepdim);
}

// ---- in-place

Tensor& Tensor::assign_(const Tensor& other) {
  const NodeRef old = node();
  if (broadcast_shapes("assign_", old->shape, other.shape()) != old->shape) {
    user_error("assign_: a value of shape {} does not fit a tensor of shape {}",
               to_string(other.shape()), to_string(old->shape));
  }
  NodeRef value = operand(other, old->dtype, old->shape);
  if (requires_grad()) {
    // The new value is a leaf as the old one was: what made it is no part of later gradients.
    value = make({.op = Op::Fresh,
                  .dtype = old->dtype,
                  .shape = old->shape,
                  .arg = next_serial(),
                  .src = {lazuli::detach(value)},
                  .tracked = true});
  }
  buffer_->rebind(std::move(value));
  return *this;
}

Tensor& Tensor::set_(const std::vector<Index>& items, const TensorOrScalar& value) {
  return assign_(setitem(*this, items, value));
}

// ---- products, the rest

Tensor Tensor::mm(const Tensor& other) const {
  return lazuli::mm(*this, other);
}
Tensor Tensor::bmm(const Tensor& other) const {
  return lazuli::bmm(*this, other);
}
Tensor Tensor::mv(const Tensor& vec) const {
  return lazuli::mv(*this, vec);
}
Tensor Tensor::outer(const Tensor& vec) const {
  return lazuli::outer(*this, vec);
}
Tensor Tensor::addmm(const Tensor& a, const Tensor& b, const Scalar& beta,
                     const Scalar& alpha) const {
  return lazuli::addmm(*this, a, b, beta, alpha);
}
Tensor Tensor::baddbmm(const Tensor& a, const Tensor& b, const Scalar& beta,
                       const Scalar& alpha) const {
  return lazuli::baddbmm(*this, a, b, beta, alpha);
}

// ---- norms, scans and orders

Tensor Tensor::norm(double p, const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return lazuli::norm(*this, p, dims, keepdim, dtype);
}
Tensor Tensor::logcumsumexp(int64_t dim) const {
  return lazuli::logcumsumexp(*this, dim);
}
Tensor Tensor::cumsum(int64_t dim, std::optional<DType> dtype) const {
  return lazuli::cumsum(*this, dim, dtype);
}
Tensor Tensor::cumprod(int64_t dim, std::optional<DType> dtype) const {
  return lazuli::cumprod(*this, dim, dtype);
}
ValuesIndices Tensor::cummax(int64_t dim) const {
  return lazuli::cummax(*this, dim);
}
ValuesIndices Tensor::cummin(int64_t dim) const {
  return lazuli::cummin(*this, dim);
}
ValuesIndices Tensor::sort(int64_t dim, bool descending, bool stable) const {
  return lazuli::sort(*this, dim, descending, stable);
}
Tensor Tensor::argsort(int64_t dim, bool descending, bool stable) const {
  return lazuli::argsort(*this, dim, descending, stable);
}
ValuesIndices Tensor::topk(int64_t k, int64_t dim, bool largest, bool sorted) const {
  return lazuli::topk(*this, k, dim, largest, sorted);
}
ValuesIndices Tensor::kthvalue(int64_t k, int64_t dim, bool keepdim) const {
  return lazuli::kthvalue(*this, k, dim, keepdim);
}
Tensor Tensor::median() const {
  return lazuli::median(*this);
}
ValuesIndices Tensor::median(int64_t dim, bool keepdim) const {
  return lazuli::median(*this, dim, keepdim);
}
ValuesIndices Tensor::mode(int64_t dim, bool keepdim) const {
  return lazuli::mode(*this, dim, keepdim);
}
Unique Tensor::unique(std::optional<int64_t> dim) const {
  return lazuli::unique(*this, dim);
}

// ---- writes at indices

Tensor Tensor::scatter(int64_t dim, const Tensor& index, const TensorOrScalar& source,
                       std::string_view reduce) const {
  return lazuli::scatter(*this, dim, index, source, reduce);
}
Tensor Tensor::scatter_add(int64_t dim, const Tensor& index, const Tensor& source) const {
  return lazuli::scatter_add(*this, dim, index, source);
}
Tensor Tensor::scatter_reduce(int64_t dim, const Tensor& index, const Tensor& source,
                              std::string_view reduce, bool include_self) const {
  return lazuli::scatter_reduce(*this, dim, index, source, reduce, include_self);
}
Tensor Tensor::index_add(int64_t dim, const Tensor& index, const Tensor& source,
                         const Scalar& alpha) const {
  return lazuli::index_add(*this, dim, index, source, alpha);
}
Tensor Tensor::index_copy(int64_t dim, const Tensor& index, const Tensor& source) const {
  return lazuli::index_copy(*this, dim, index, source);
}
Tensor Tensor::index_fill(int64_t dim, const Tensor& index, const TensorOrScalar& value) const {
  return lazuli::index_fill(*this, dim, index, value);
}
Tensor Tensor::masked_scatter(const Tensor& mask, const Tensor& source) const {
  return lazuli::masked_scatter(*this, mask, source);
}
Tensor Tensor::bincount(const std::optional<Tensor>& weights, int64_t minlength) const {
  return lazuli::bincount(*this, weights, minlength);
}
Tensor Tensor::histc(int64_t bins, double min, double max) const {
  return lazuli::histc(*this, bins, min, max);
}

}  // namespace lazuli
