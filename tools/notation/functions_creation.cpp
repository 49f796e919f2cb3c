// Rows of the functions that make tensors from nothing.
#include "core/ops_creation.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

using std::optional;
using S = const Scalar&;

void append_value(detail::Literal& literal, size_t depth, const Value& value) {
  const auto* list = value.get<Sequence>();
  if (list == nullptr) {
    require(value.is_number() && depth == literal.shape.size(),
            "tensor: expected numbers in lists of one depth, found {}", describe(value));
    return detail::append(literal, depth, to_scalar(value));
  }
  require(literal.values.empty() || depth < literal.shape.size(),
          "tensor: expected numbers in lists of one depth, found a list beside a number");
  detail::enter_list(literal, depth, list->items.size());
  for (const Value& item : list->items) append_value(literal, depth + 1, item);
}

Tensor tensor_row(const Value& data, optional<DType> dtype) {
  detail::Literal literal;
  append_value(literal, 0, data);
  return detail::literal_tensor(literal, dtype);
}

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
      {"const_like(input, fill_value)", wrap(&const_like)},
      {"tensor(data, dtype=None)", wrap(&tensor_row)},
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
