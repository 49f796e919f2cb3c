// Rows of the functions that move, reduce and index arrays.
#include "core/error.h"
#include "core/ops_index.h"
#include "core/ops_movement.h"
#include "core/ops_reduce.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

using std::optional;
using T = const Tensor&;
using Tensors = std::vector<Tensor>;

Tensor matrix_or_vector_transpose(const Tensor& x) {
  require(x.dim() <= 2, "t: the tensor has {} dimensions; expected 2 at most, or use .mT", x.dim());
  return transpose_all(x);
}

Tensor pad_or_zero(const Tensor& x, const Ints& counts, const std::string& mode,
                   optional<Scalar> value) {
  return pad(x, counts, mode, value.value_or(Scalar(0.0)));
}

std::vector<Function> movement() {
  // clang-format off
  return {
      {"reshape(input, *shape)", wrap<Tensor(T, const Shape&)>(&reshape)},
      {"view(input, *shape)", wrap<Tensor(T, const Shape&)>(&view)},
      {"flatten(input, start_dim=0, end_dim=-1)", wrap(&flatten)},
      {"unflatten(input, dim, sizes)", wrap(&unflatten)},
      {"squeeze(input, dim=None)", wrap(&squeeze)},
      {"unsqueeze(input, dim)", wrap(&unsqueeze)},
      {"permute(input, *dims)", wrap<Tensor(T, const Ints&)>(&permute)},
      {"transpose(input, dim0, dim1)", wrap(&transpose)},
      {"swapaxes(input, dim0, dim1)", wrap(&transpose)},
      {"swapdims(input, dim0, dim1)", wrap(&transpose)},
      {"T(input)", wrap(&transpose_all)},
      {"mT(input)", wrap(&matrix_transpose)},
      {"transpose_all(input)", wrap(&transpose_all)},
      {"matrix_transpose(input)", wrap(&matrix_transpose)},
      {"t(input)", wrap(&matrix_or_vector_transpose)},
      {"movedim(input, source, destination)", wrap(&movedim)},
      {"moveaxis(input, source, destination)", wrap(&movedim)},
      {"expand(input, *size)", wrap<Tensor(T, const Shape&)>(&expand)},
      {"broadcast_to(input, *size)", wrap(&broadcast_to)},
      {"pad_to(input, *shape)", wrap(&pad_to)},
      {"shrink_to(input, *shape)", wrap(&shrink_to)},
      {"expand_as(input, other)", wrap(&expand_as)},
      {"broadcast_tensors(*tensors)", wrap(&broadcast_tensors)},
      {"narrow(input, dim, start, length)", wrap(&narrow)},
      {"select(input, dim, index)", wrap(&select)},
      {"shrink(input, ranges)", wrap<Tensor(T, const std::vector<std::pair<int64_t, int64_t>>&)>(&shrink)},
      {"split(input, split_size_or_sections, dim=0)", wrap<Tensors(T, int64_t, int64_t)>(&split)},
      {"split(input, split_size_or_sections, dim=0)", wrap<Tensors(T, const Ints&, int64_t)>(&split)},
      {"chunk(input, chunks, dim=0)", wrap(&chunk)},
      {"unbind(input, dim=0)", wrap(&unbind)},
      {"unfold(input, dimension, size, step)", wrap(&unfold)},
      {"diagonal(input, offset=0, dim1=0, dim2=1)", wrap(&diagonal)},
      {"cat(tensors, dim=0)", wrap(&cat)},
      {"concat(tensors, dim=0)", wrap(&concat)},
      {"stack(tensors, dim=0)", wrap(&stack)},
      {"repeat(input, *repeats)", wrap(&repeat)},
      {"tile(input, *dims)", wrap(&tile)},
      {"repeat_interleave(input, repeats, dim=None)", wrap<Tensor(T, int64_t, optional<int64_t>)>(&repeat_interleave)},
      {"repeat_interleave(input, repeats, dim=None)", wrap<Tensor(T, T, optional<int64_t>)>(&repeat_interleave)},
      {"pad(input, pad, mode=constant, value=None)", wrap(&pad_or_zero)},
      {"flip(input, *dims)", wrap<Tensor(T, const Dims&)>(&flip)},
      {"roll(input, shifts, dims=None)", wrap(&roll)},
      {"diag(input, diagonal=0)", wrap(&diag)},
      {"diag_embed(input, offset=0, dim1=-2, dim2=-1)", wrap(&diag_embed)},
      {"tril(input, diagonal=0)", wrap(&tril)},
      {"triu(input, diagonal=0)", wrap(&triu)},
      {"rearrange(input, pattern, **sizes)", wrap(&rearrange)},
  };
  // clang-format on
}

std::vector<Function> reductions() {
  // clang-format off
  return {
      {"sum(input, dim=None, keepdim=false, dtype=None)", wrap(&sum)},
      {"nansum(input, dim=None, keepdim=false, dtype=None)", wrap(&nansum)},
      {"prod(input, dim=None, keepdim=false, dtype=None)", wrap(&prod)},
      {"mean(input, dim=None, keepdim=false, dtype=None)", wrap(&mean)},
      {"amax(input, dim=None, keepdim=false)", wrap(&amax)},
      {"amin(input, dim=None, keepdim=false)", wrap(&amin)},
      {"max(input)", wrap<Tensor(T)>(&max)},
      {"max(input, dim, keepdim=false)", wrap<ValuesIndices(T, int64_t, bool)>(&max)},
      {"max(input, other)", wrap<Tensor(T, T)>(&max)},
      {"min(input)", wrap<Tensor(T)>(&min)},
      {"min(input, dim, keepdim=false)", wrap<ValuesIndices(T, int64_t, bool)>(&min)},
      {"min(input, other)", wrap<Tensor(T, T)>(&min)},
      {"argmax(input, dim=None, keepdim=false)", wrap(&argmax)},
      {"argmin(input, dim=None, keepdim=false)", wrap(&argmin)},
      {"any(input, dim=None, keepdim=false)", wrap(&any)},
      {"all(input, dim=None, keepdim=false)", wrap(&all)},
      {"count_nonzero(input, dim=None)", wrap(&count_nonzero)},
      {"var(input, dim=None, correction=1, keepdim=false)", wrap(&var)},
      {"var(input, unbiased)", wrap([](T x, bool unbiased) { return var(x, {}, unbiased ? 1 : 0); })},
      {"std(input, dim=None, correction=1, keepdim=false)", wrap(&std)},
      {"std(input, unbiased)", wrap([](T x, bool unbiased) { return std(x, {}, unbiased ? 1 : 0); })},
      {"var_mean(input, dim=None, correction=1, keepdim=false)", wrap(&var_mean)},
      {"var_mean(input, unbiased)", wrap([](T x, bool unbiased) { return var_mean(x, {}, unbiased ? 1 : 0); })},
      {"std_mean(input, dim=None, correction=1, keepdim=false)", wrap(&std_mean)},
      {"std_mean(input, unbiased)", wrap([](T x, bool unbiased) { return std_mean(x, {}, unbiased ? 1 : 0); })},
  };
  // clang-format on
}

std::vector<Function> indexing() {
  // clang-format off
  return {
      {"gather(input, dim, index)", wrap<Tensor(T, int64_t, T)>(&gather)},
      {"take_along_dim(input, indices, dim=None)", wrap(&take_along_dim)},
      {"index_select(input, dim, index)", wrap(&index_select)},
      {"take(input, index)", wrap(&take)},
      {"masked_select(input, mask)", wrap(&masked_select)},
      {"masked_fill(input, mask, value)", wrap(&masked_fill)},
      {"nonzero(input, as_tuple=false)", wrap([](T x, bool as_tuple) { return as_tuple ? to_value(nonzero_as_tuple(x)) : to_value(nonzero(x)); })},
      {"nonzero_as_tuple(input)", wrap(&nonzero_as_tuple)},
      {"where(condition)", wrap<Tensors(T)>(&where)},
      {"one_hot(input, num_classes=-1)", wrap(&one_hot)},
  };
  // clang-format on
}

}  // namespace

std::vector<Function> array_functions() {
  return join_rows({movement(), reductions(), indexing()});
}

}  // namespace lazuli::notation
