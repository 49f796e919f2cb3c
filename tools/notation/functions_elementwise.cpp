// Rows of the elementwise functions and the activations.
#include "core/ops_activation.h"
#include "core/ops_elementwise.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

using std::optional;
using T = const Tensor&;
using N = const TensorOrScalar&;

template <DType D>
Builtin cast_to() {
  return wrap([](T x) { return cast(x, D); });
}

std::vector<Function> conversions() {
  // clang-format off
  return {
      {"to(input, dtype)", wrap(&to)},
      {"half(input)", wrap(&half)},
      {"bfloat16(input)", wrap(&bfloat16)},
      {"type(input, dtype)", wrap(&to)},
      {"cast(input, dtype)", wrap<Tensor(T, DType)>(&cast)},
      {"bitcast(input, dtype)", wrap<Tensor(T, DType)>(&bitcast)},
      {"view(input, dtype)", wrap<Tensor(T, DType)>(&bitcast)},
      {"detach(input)", wrap<Tensor(T)>(&detach)},
      {"contiguous(input)", wrap<Tensor(T)>(&contiguous)},
      {"contiguous_backward(input)", wrap(&contiguous_backward)},
      {"clone(input)", wrap(&clone)},
      {"float(input)", cast_to<DType::F32>()},
      {"double(input)", cast_to<DType::F64>()},
      {"half(input)", cast_to<DType::F16>()},
      {"bfloat16(input)", cast_to<DType::BF16>()},
      {"long(input)", cast_to<DType::I64>()},
      {"int(input)", cast_to<DType::I32>()},
      {"short(input)", cast_to<DType::I16>()},
      {"char(input)", cast_to<DType::I8>()},
      {"byte(input)", cast_to<DType::U8>()},
      {"bool(input)", cast_to<DType::Bool>()},
  };
  // clang-format on
}

std::vector<Function> unary() {
  // clang-format off
  return {
      {"neg(input)", wrap(&neg)},
      {"abs(input)", wrap(&abs)},
      {"sign(input)", wrap(&sign)},
      {"square(input)", wrap(&square)},
      {"sqrt(input)", wrap(&sqrt)},
      {"rsqrt(input)", wrap(&rsqrt)},
      {"reciprocal(input)", wrap(&reciprocal)},
      {"exp(input)", wrap(&exp)},
      {"exp2(input)", wrap(&exp2)},
      {"expm1(input)", wrap(&expm1)},
      {"log(input)", wrap(&log)},
      {"log2(input)", wrap(&log2)},
      {"log10(input)", wrap(&log10)},
      {"log1p(input)", wrap(&log1p)},
      {"sin(input)", wrap(&sin)},
      {"cos(input)", wrap(&cos)},
      {"tan(input)", wrap(&tan)},
      {"asin(input)", wrap(&asin)},
      {"acos(input)", wrap(&acos)},
      {"atan(input)", wrap(&atan)},
      {"sinh(input)", wrap(&sinh)},
      {"cosh(input)", wrap(&cosh)},
      {"tanh(input)", wrap(&tanh)},
      {"asinh(input)", wrap(&asinh)},
      {"acosh(input)", wrap(&acosh)},
      {"atanh(input)", wrap(&atanh)},
      {"erf(input)", wrap(&erf)},
      {"erfc(input)", wrap(&erfc)},
      {"erfinv(input)", wrap(&erfinv)},
      {"lgamma(input)", wrap(&lgamma)},
      {"digamma(input)", wrap(&digamma)},
      {"trigamma(input)", wrap(&trigamma)},
      {"trunc(input)", wrap(&trunc)},
      {"floor(input)", wrap(&floor)},
      {"ceil(input)", wrap(&ceil)},
      {"frac(input)", wrap(&frac)},
      {"sinc(input)", wrap(&sinc)},
      {"isnan(input)", wrap(&isnan)},
      {"isinf(input)", wrap(&isinf)},
      {"isposinf(input)", wrap(&isposinf)},
      {"isneginf(input)", wrap(&isneginf)},
      {"isfinite(input)", wrap(&isfinite)},
      {"signbit(input)", wrap(&signbit)},
      {"logical_not(input)", wrap(&logical_not)},
      {"bitwise_not(input)", wrap(&bitwise_not)},
      {"round(input, decimals=0)", wrap(&round)},
      {"logit(input, eps=None)", wrap(&logit)},
      {"nan_to_num(input, nan=None, posinf=None, neginf=None)", wrap(&nan_to_num)},
  };
  // clang-format on
}

std::vector<Function> binary_and_ternary() {
  // clang-format off
  return {
      {"add(input, other, alpha=1)", wrap(&add)},
      {"sub(input, other, alpha=1)", wrap(&sub)},
      {"div(input, other, rounding_mode=None)", wrap([](N a, N b, optional<std::string> rounding) { return div(a, b, rounding.value_or("")); })},
      {"mul(input, other)", wrap(&mul)},
      {"true_divide(input, other)", wrap(&true_divide)},
      {"floor_divide(input, other)", wrap(&floor_divide)},
      {"remainder(input, other)", wrap(&remainder)},
      {"mod(input, other)", wrap(&mod)},
      {"fmod(input, other)", wrap(&fmod)},
      {"pow(input, other)", wrap(&pow)},
      {"maximum(input, other)", wrap(&maximum)},
      {"minimum(input, other)", wrap(&minimum)},
      {"fmax(input, other)", wrap(&fmax)},
      {"fmin(input, other)", wrap(&fmin)},
      {"atan2(input, other)", wrap(&atan2)},
      {"hypot(input, other)", wrap(&hypot)},
      {"copysign(input, other)", wrap(&copysign)},
      {"logaddexp(input, other)", wrap(&logaddexp)},
      {"logaddexp2(input, other)", wrap(&logaddexp2)},
      {"xlogy(input, other)", wrap(&xlogy)},
      {"bitwise_and(input, other)", wrap(&bitwise_and)},
      {"bitwise_or(input, other)", wrap(&bitwise_or)},
      {"bitwise_xor(input, other)", wrap(&bitwise_xor)},
      {"bitwise_left_shift(input, other)", wrap(&bitwise_left_shift)},
      {"bitwise_right_shift(input, other)", wrap(&bitwise_right_shift)},
      {"lshift(input, other)", wrap(&lshift)},
      {"rshift(input, other)", wrap(&rshift)},
      {"eq(input, other)", wrap(&eq)},
      {"ne(input, other)", wrap(&ne)},
      {"lt(input, other)", wrap(&lt)},
      {"le(input, other)", wrap(&le)},
      {"gt(input, other)", wrap(&gt)},
      {"ge(input, other)", wrap(&ge)},
      {"logical_and(input, other)", wrap(&logical_and)},
      {"logical_or(input, other)", wrap(&logical_or)},
      {"logical_xor(input, other)", wrap(&logical_xor)},
      {"isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=false)", wrap(&isclose)},
      {"allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=false)", wrap(&allclose)},
      {"where(condition, input, other)", wrap<Tensor(T, const TensorOrScalar&, const TensorOrScalar&)>(&where)},
      {"lerp(input, end, weight)", wrap(&lerp)},
      {"clamp(input, min=None, max=None)", wrap(&clamp)},
      {"clip(input, min=None, max=None)", wrap(&clip)},
      {"addcmul(input, tensor1, tensor2, value=1)", wrap(&addcmul)},
      {"addcdiv(input, tensor1, tensor2, value=1)", wrap(&addcdiv)},
  };
  // clang-format on
}

std::vector<Function> activations() {
  // clang-format off
  return {
      {"relu(input)", wrap(&relu)},
      {"relu6(input)", wrap(&relu6)},
      {"leaky_relu(input, negative_slope=0.01)", wrap(&leaky_relu)},
      {"prelu(input, weight)", wrap(&prelu)},
      {"elu(input, alpha=1.0)", wrap(&elu)},
      {"celu(input, alpha=1.0)", wrap(&celu)},
      {"selu(input)", wrap(&selu)},
      {"gelu(input, approximate=none)", wrap(&gelu)},
      {"quick_gelu(input)", wrap(&quick_gelu)},
      {"silu(input)", wrap(&silu)},
      {"swish(input)", wrap(&swish)},
      {"mish(input)", wrap(&mish)},
      {"softplus(input, beta=1.0, threshold=20.0)", wrap(&softplus)},
      {"softsign(input)", wrap(&softsign)},
      {"softshrink(input, lambd=0.5)", wrap(&softshrink)},
      {"hardshrink(input, lambd=0.5)", wrap(&hardshrink)},
      {"tanhshrink(input)", wrap(&tanhshrink)},
      {"threshold(input, threshold, value)", wrap(&threshold)},
      {"sigmoid(input)", wrap(&sigmoid)},
      {"logsigmoid(input)", wrap(&logsigmoid)},
      {"hardsigmoid(input)", wrap(&hardsigmoid)},
      {"hardswish(input)", wrap(&hardswish)},
      {"hardtanh(input, min_val=-1.0, max_val=1.0)", wrap(&hardtanh)},
      {"glu(input, dim=-1)", wrap(&glu)},
  };
  // clang-format on
}

}  // namespace

std::vector<Function> elementwise_functions() {
  return join_rows({conversions(), unary(), binary_and_ternary(), activations()});
}

}  // namespace lazuli::notation
