// Rows of the functions that make tensors from nothing.
#include "core/ops_creation.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

using std::optional;
using S = const Scalar&;

std::vector<Function> creation() {
  // clang-format off
  return {
      {"full(size, fill_value, dtype=None)", wrap(&full)},
      {"zeros(*size, dtype=f32)", wrap(&zeros)},
      {"ones(*size, dtype=f32)", wrap(&ones)},
      {"empty(*size, dtype=f32)", wrap(&empty)},
      {"scalar_tensor(s, dtype=None)", wrap(&scalar_tensor)},
      {"full_like(input, fill_value, dtype=None)", wrap(&full_like)},
      {"zeros_like(input, dtype=None)", wrap(&zeros_like)},
      {"ones_like(input, dtype=None)", wrap(&ones_like)},
      {"empty_like(input, dtype=None)", wrap(&empty_like)},
      {"arange(end, dtype=None)", wrap<Tensor(S, optional<DType>)>(&arange)},
      {"arange(start, end, step=1, dtype=None)", wrap<Tensor(S, S, S, optional<DType>)>(&arange)},
      {"linspace(start, end, steps, dtype=f32)", wrap(&linspace)},
      {"eye(n, m=None, dtype=f32)", wrap(&eye)},
      {"meshgrid(*tensors, indexing=ij)", wrap(&meshgrid)},
      {"tril_indices(row, col, offset=0, dtype=i64)", wrap(&tril_indices)},
      {"triu_indices(row, col, offset=0, dtype=i64)", wrap(&triu_indices)},
  };
  // clang-format on
}

}  // namespace

std::vector<Function> creation_functions() {
  return creation();
}

}  // namespace lazuli::notation
