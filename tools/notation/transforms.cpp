// Rows of the derivatives, and vmap.
#include "tools/notation/transforms.h"

#include "core/error.h"
#include "core/gradient.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

using Tensors = std::vector<Tensor>;

/// One tensor for one input, else a tuple.
Value one_or_tuple(const Tensors& tensors) {
  return tensors.size() == 1 ? to_value(tensors[0]) : to_value(tensors);
}

void require_inputs(std::string_view name, const Tensors& xs) {
  require(!xs.empty(), "{}: no tensor is given to differentiate by; expected {}(y, x)", name, name);
}

// Nothing is realised on the way here, so what is not used has zeros for good reasons.
Value grad_row(const Tensor& y, const Tensors& xs) {
  require_inputs("grad", xs);
  return one_or_tuple(grad(y, xs, Unused::kZeros));
}

Value value_and_grad_row(const Tensor& y, const Tensors& xs) {
  require_inputs("value_and_grad", xs);
  return Value{.data = Sequence{true, {to_value(y), one_or_tuple(grad(y, xs, Unused::kZeros))}}};
}

Value vjp_row(const Tensors& ys, const Tensors& xs, const Tensors& vs) {
  require_inputs("vjp", xs);
  require(ys.size() == vs.size(), "vjp: {} results and {} cotangents; expected one for each result",
          ys.size(), vs.size());
  return one_or_tuple(vjp(ys, xs, vs, Unused::kZeros));
}

Tensor jvp_row(const Tensor& y, const Tensors& xs, const Tensors& tangents) {
  require_inputs("jvp", xs);
  require(xs.size() == tangents.size(),
          "jvp: {} inputs and {} tangents; expected one for each input", xs.size(),
          tangents.size());
  return jvp(y, xs, tangents);
}

void collect(const Value& value, Tensors& tensors) {
  if (const auto* sequence = value.get<Sequence>()) {
    for (const Value& item : sequence->items) collect(item, tensors);
    return;
  }
  const std::optional<Tensor> tensor = to_tensor(value);
  require(tensor.has_value(), "vmap: the expression is {}; expected a tensor or a tuple of tensors",
          describe(value));
  tensors.push_back(*tensor);
}

}  // namespace

std::vector<Function> transform_functions() {
  return {
      {"grad(y, *x)", wrap(&grad_row)},
      {"value_and_grad(y, *x)", wrap(&value_and_grad_row)},
      {"vjp(y, x, v)", wrap(&vjp_row)},
      {"jvp(y, x, v)", wrap(&jvp_row)},
  };
}

Value vmap_value(const std::function<Value(std::span<const Tensor>)>& body,
                 const Tensors& batches) {
  bool is_tuple = false;
  const auto one_example = [&](const Tensors& rows) {
    const Value value = body(rows);
    is_tuple = value.get<Sequence>() != nullptr;
    Tensors results;
    collect(value, results);
    return results;
  };
  const Tensors results = vmap(one_example, batches);
  return is_tuple ? to_value(results) : to_value(results.at(0));
}

}  // namespace lazuli::notation
