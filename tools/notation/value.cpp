#include "tools/notation/value.h"

#include <fmt/format.h>

#include "core/graph.h"
#include "tools/notation/ast.h"

namespace lazuli::notation {

Scalar to_scalar(const Value& value) {
  if (const auto* b = value.get<bool>()) return Scalar(*b);
  if (const auto* i = value.get<int64_t>()) return Scalar(*i);
  return Scalar(std::get<double>(value.data));
}

std::optional<Tensor> to_tensor(const Value& value) {
  if (const auto* tensor = value.get<Tensor>()) return *tensor;
  if (!value.is_number()) return std::nullopt;
  const DType dtype = value.get<bool>()      ? DType::Bool
                      : value.get<int64_t>() ? DType::I64
                                             : DType::F32;
  return Tensor(constant(to_scalar(value), dtype));
}

std::string describe(const Value& value) {
  if (value.is_none()) return "None";
  if (const auto* b = value.get<bool>()) return *b ? "true" : "false";
  if (const auto* i = value.get<int64_t>()) return fmt::format("the integer {}", *i);
  if (const auto* d = value.get<double>()) return fmt::format("the float {}", float_text(*d));
  if (const auto* word = value.get<Word>()) return fmt::format("the word '{}'", word->text);
  if (const auto* t = value.get<Tensor>()) {
    return fmt::format("a tensor {}{}", name(t->dtype()), to_string(t->shape()));
  }
  const auto& sequence = std::get<Sequence>(value.data);
  return fmt::format("a {} of {}", sequence.is_tuple ? "tuple" : "list", sequence.items.size());
}

}  // namespace lazuli::notation
