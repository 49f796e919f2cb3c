#include "tools/notation/index.h"

#include <optional>

#include "core/error.h"
#include "core/ops_index.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

Slice to_slice(const SliceBounds& bounds) {
  Slice slice;
  if (bounds.has_start) slice.begin = bounds.start;
  if (bounds.has_stop) slice.end = bounds.stop;
  slice.step = bounds.step;
  return slice;
}

/// The elements of a nested list, row by row, and its shape; false if it is ragged or holds
/// anything but integers and bools.
bool flatten_list(const Value& value, size_t depth, Shape& shape, std::vector<int64_t>& elements,
                  bool& bools) {
  if (const auto* list = value.get<Sequence>()) {
    const auto size = static_cast<int64_t>(list->items.size());
    if (depth == shape.size() && elements.empty()) shape.push_back(size);
    if (depth >= shape.size() || shape[depth] != size) return false;
    for (const Value& item : list->items) {
      if (!flatten_list(item, depth + 1, shape, elements, bools)) return false;
    }
    return true;
  }
  const auto* flag = value.get<bool>();
  const auto* integer = value.get<int64_t>();
  if (depth != shape.size() || (flag == nullptr && integer == nullptr)) return false;
  if (!elements.empty() && bools != (flag != nullptr)) return false;
  bools = flag != nullptr;
  elements.push_back(flag != nullptr ? static_cast<int64_t>(*flag) : *integer);
  return true;
}

Tensor list_tensor(const Value& list) {
  Shape shape;
  std::vector<int64_t> elements;
  bool bools = false;
  const bool regular = flatten_list(list, 0, shape, elements, bools);
  require(regular && static_cast<int64_t>(elements.size()) == numel(shape),
          "an index is {}; expected a list of integers or of bools, all rows of one length",
          describe(list));
  const Tensor tensor = Tensor::from(elements, shape);
  return bools ? Tensor(cast(tensor.node(), DType::Bool)) : tensor;
}

Index to_index(const IndexPart& part) {
  if (const auto* bounds = std::get_if<SliceBounds>(&part)) return to_slice(*bounds);
  if (std::holds_alternative<EllipsisPart>(part)) return kEllipsis;
  const Value& value = std::get<Value>(part);
  if (value.is_none()) return kNewAxis;
  if (const auto* integer = value.get<int64_t>()) return *integer;
  if (const auto* tensor = value.get<Tensor>()) return *tensor;
  if (const auto* flag = value.get<bool>()) return Tensor(constant(Scalar(*flag), DType::Bool));
  if (value.get<Sequence>()) return list_tensor(value);
  if (const auto* word = value.get<Word>()) {
    throw UndeclaredWord(word->text, value.place);
  }
  user_error("an index is {}; expected an integer, a slice, a tensor, a list, None or ...",
             describe(value));
}

Value sequence_element(const Sequence& sequence, std::span<const IndexPart> parts) {
  const char* const kind = sequence.is_tuple ? "tuple" : "list";
  const Value* const value = parts.size() == 1 ? std::get_if<Value>(&parts[0]) : nullptr;
  const int64_t* const index = value != nullptr ? value->get<int64_t>() : nullptr;
  require(index != nullptr, "a {} is indexed by one integer, as in (a, b)[0]", kind);
  const auto size = static_cast<int64_t>(sequence.items.size());
  require(*index >= -size && *index < size, "the index {} is out of range for a {} of {}", *index,
          kind, size);
  return sequence.items[static_cast<size_t>(*index < 0 ? *index + size : *index)];
}

}  // namespace

Value index_value(const Value& object, std::span<const IndexPart> parts) {
  if (const auto* sequence = object.get<Sequence>()) return sequence_element(*sequence, parts);
  const auto* tensor = object.get<Tensor>();
  if (tensor == nullptr) {
    if (const auto* word = object.get<Word>()) {
      throw UndeclaredWord(word->text, object.place);
    }
    user_error("{} cannot be indexed; expected a tensor or a tuple", describe(object));
  }
  Indices index;
  for (const IndexPart& part : parts) index.push_back(to_index(part));
  return Value{.data = getitem(*tensor, index)};
}

}  // namespace lazuli::notation
