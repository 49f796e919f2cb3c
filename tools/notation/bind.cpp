#include "tools/notation/bind.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace lazuli::notation {

std::optional<bool> From<bool>::get(const Value& v) {
  if (const auto* b = v.get<bool>()) return *b;
  const auto* i = v.get<int64_t>();
  if (i != nullptr && (*i == 0 || *i == 1)) return *i == 1;
  return std::nullopt;
}

std::optional<int64_t> From<int64_t>::get(const Value& v) {
  if (const auto* i = v.get<int64_t>()) return *i;
  return std::nullopt;
}

std::optional<int> From<int>::get(const Value& v) {
  const auto wide = From<int64_t>::get(v);
  if (!wide || *wide < std::numeric_limits<int>::min() || *wide > std::numeric_limits<int>::max()) {
    return std::nullopt;
  }
  return static_cast<int>(*wide);
}

std::optional<uint64_t> From<uint64_t>::get(const Value& v) {
  const auto wide = From<int64_t>::get(v);
  if (!wide) return std::nullopt;
  return static_cast<uint64_t>(*wide);
}

std::optional<uint32_t> From<uint32_t>::get(const Value& v) {
  const auto wide = From<int64_t>::get(v);
  if (!wide || *wide < 0 || *wide > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*wide);
}

std::optional<double> From<double>::get(const Value& v) {
  if (!v.is_number()) return std::nullopt;
  return to_scalar(v).as_double();
}

std::optional<Scalar> From<Scalar>::get(const Value& v) {
  if (!v.is_number()) return std::nullopt;
  return to_scalar(v);
}

std::optional<TensorOrScalar> From<TensorOrScalar>::get(const Value& v) {
  if (v.is_number()) return TensorOrScalar(to_scalar(v));
  if (const auto* tensor = v.get<Tensor>()) return TensorOrScalar(*tensor);
  return std::nullopt;
}

std::optional<Dims> From<Dims>::get(const Value& v) {
  if (v.is_none()) return Dims();
  auto list = From<Ints>::get(v);
  if (!list) return std::nullopt;
  return Dims(std::move(*list));
}

std::optional<Padding> From<Padding>::get(const Value& v) {
  if (const auto* word = v.get<Word>()) return Padding(std::string_view(word->text));
  auto sizes = From<Sizes>::get(v);
  if (!sizes) return std::nullopt;
  return Padding(std::move(*sizes));
}

std::optional<DType> From<DType>::get(const Value& v) {
  const auto* word = v.get<Word>();
  DType dtype;
  if (word == nullptr || !parse_dtype(word->text, dtype)) return std::nullopt;
  return dtype;
}

std::optional<std::string> From<std::string>::get(const Value& v) {
  const auto* word = v.get<Word>();
  if (word == nullptr) return std::nullopt;
  return word->text;
}

std::optional<std::string_view> From<std::string_view>::get(const Value& v) {
  const auto* word = v.get<Word>();
  if (word == nullptr) return std::nullopt;
  return std::string_view(word->text);
}

}  // namespace lazuli::notation
