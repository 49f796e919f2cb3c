// Binds C++ functions to the notation: from the type of a function follows how each argument is
// converted and how the result becomes a value, so that a row of the function table is a signature
// and a function.
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/arguments.h"
#include "core/ops_conv.h"
#include "core/ops_reduce.h"
#include "core/promotion.h"
#include "tools/notation/value.h"

namespace lazuli::notation {

/// Thrown when an argument is not of the type of its parameter.
struct BadArgument {
  size_t index;
  std::string wanted;
};

/// A function over values, one per parameter of its signature.
struct Builtin {
  std::function<Value(std::span<const Value>)> call;
  size_t arity = 0;
};

/// Conversion of a value to T: `get` is empty for a value that is no T, `wanted` says what was
/// expected.
template <typename T>
struct From;

template <>
struct From<Value> {
  static std::string wanted() { return "a value"; }
  static std::optional<Value> get(const Value& v) { return v; }
};

template <>
struct From<Tensor> {
  static std::string wanted() { return "a tensor"; }
  static std::optional<Tensor> get(const Value& v) { return to_tensor(v); }
};

template <>
struct From<bool> {
  static std::string wanted() { return "true or false"; }
  static std::optional<bool> get(const Value& v);
};

template <>
struct From<int64_t> {
  static std::string wanted() { return "an integer"; }
  static std::optional<int64_t> get(const Value& v);
};

template <>
struct From<int> {
  static std::string wanted() { return "an integer"; }
  static std::optional<int> get(const Value& v);
};

template <>
struct From<uint64_t> {
  static std::string wanted() { return "an integer"; }
  static std::optional<uint64_t> get(const Value& v);
};

template <>
struct From<uint32_t> {
  static std::string wanted() { return "an integer from 0 to 4294967295"; }
  static std::optional<uint32_t> get(const Value& v);
};

template <>
struct From<double> {
  static std::string wanted() { return "a number"; }
  static std::optional<double> get(const Value& v);
};

template <>
struct From<Scalar> {
  static std::string wanted() { return "a number"; }
  static std::optional<Scalar> get(const Value& v);
};

template <>
struct From<DType> {
  static std::string wanted() {
    return "a dtype (bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64)";
  }
  static std::optional<DType> get(const Value& v);
};

template <>
struct From<std::string> {
  static std::string wanted() { return "a word"; }
  static std::optional<std::string> get(const Value& v);
};

/// Views the word of the value, which outlives the call.
template <>
struct From<std::string_view> {
  static std::string wanted() { return "a word"; }
  static std::optional<std::string_view> get(const Value& v);
};

template <>
struct From<TensorOrScalar> {
  static std::string wanted() { return "a tensor or a number"; }
  static std::optional<TensorOrScalar> get(const Value& v);
};

/// A list or a tuple; a single item stands for a list of one.
template <typename List, typename Item>
std::optional<List> list_from(const Value& v) {
  List list;
  const auto* sequence = v.get<Sequence>();
  const std::span<const Value> items =
      sequence != nullptr ? std::span<const Value>(sequence->items) : std::span<const Value>(&v, 1);
  for (const Value& item : items) {
    auto converted = From<Item>::get(item);
    if (!converted) return std::nullopt;
    list.push_back(std::move(*converted));
  }
  return list;
}

template <>
struct From<Ints> {
  static std::string wanted() { return "an integer or a list of integers"; }
  static std::optional<Ints> get(const Value& v) { return list_from<Ints, int64_t>(v); }
};

template <>
struct From<Dims> {
  static std::string wanted() { return "a dimension, a list of dimensions or None"; }
  static std::optional<Dims> get(const Value& v);
};

template <>
struct From<Padding> {
  static std::string wanted() { return "an integer, a list of integers, valid or same"; }
  static std::optional<Padding> get(const Value& v);
};

/// A list or a tuple of two.
template <typename A, typename B>
struct From<std::pair<A, B>> {
  static std::string wanted() { return "a list of two"; }
  static std::optional<std::pair<A, B>> get(const Value& v) {
    const auto* sequence = v.get<Sequence>();
    if (sequence == nullptr || sequence->items.size() != 2) return std::nullopt;
    auto first = From<A>::get(sequence->items[0]);
    auto second = From<B>::get(sequence->items[1]);
    if (!first || !second) return std::nullopt;
    return std::pair<A, B>(std::move(*first), std::move(*second));
  }
};

template <typename T>
struct From<std::vector<T>> {
  static std::string wanted() {
    if constexpr (std::is_same_v<T, Tensor>) return "a list of tensors";
    if constexpr (std::is_same_v<T, int64_t>) return "an integer or a list of integers";
    if constexpr (std::is_same_v<T, double>) return "a number or a list of numbers";
    return "a list";
  }
  static std::optional<std::vector<T>> get(const Value& v) {
    return list_from<std::vector<T>, T>(v);
  }
};

template <typename T>
struct From<std::optional<T>> {
  static std::string wanted() { return fmt::format("{} or None", From<T>::wanted()); }
  static std::optional<std::optional<T>> get(const Value& v) {
    if (v.is_none()) return std::make_optional<std::optional<T>>(std::nullopt);
    auto inner = From<T>::get(v);
    if (!inner) return std::nullopt;
    return std::optional<T>(std::move(*inner));
  }
};

/// The words of an enumeration; specialised beside the function table.
template <typename E>
struct EnumWords;

template <typename E>
requires std::is_enum_v<E> &&(!std::is_same_v<E, DType>)struct From<E> {
  static std::string wanted() {
    std::string text = "one of";
    for (const auto& [word, value] : EnumWords<E>::kRows) text += " " + std::string(word);
    return text;
  }
  static std::optional<E> get(const Value& v) {
    const auto* written = v.get<Word>();
    if (written == nullptr) return std::nullopt;
    for (const auto& [word, value] : EnumWords<E>::kRows) {
      if (word == written->text) return value;
    }
    return std::nullopt;
  }
};

// ---- how an argument is held while the function runs

template <typename P>
struct Held {
  using type = std::remove_cvref_t<P>;
};
template <typename T>
struct HeldSpan {
  using type = std::vector<std::remove_const_t<T>>;
};
template <typename T>
struct Held<std::span<T>> : HeldSpan<T> {};
template <typename T>
struct Held<const std::span<T>&> : HeldSpan<T> {};
template <>
struct Held<std::string_view> {
  using type = std::string;
};

template <typename T>
T convert(std::span<const Value> arguments, size_t index) {
  std::optional<T> held = From<T>::get(arguments[index]);
  if (!held) throw BadArgument{index, From<T>::wanted()};
  return std::move(*held);
}

// ---- results

inline Value to_value(Value v) {
  return v;
}
inline Value to_value(const Tensor& t) {
  return Value{.data = t};
}
inline Value to_value(bool b) {
  return Value{.data = b};
}
inline Value to_value(const std::vector<Tensor>& tensors) {
  Sequence tuple{.is_tuple = true, .items = {}};
  for (const Tensor& t : tensors) tuple.items.push_back(to_value(t));
  return Value{.data = std::move(tuple)};
}
template <typename... T>
Value to_value(const std::tuple<T...>& parts) {
  Sequence tuple{.is_tuple = true, .items = {}};
  std::apply([&](const auto&... part) { (tuple.items.push_back(to_value(part)), ...); }, parts);
  return Value{.data = std::move(tuple)};
}
template <typename A, typename B>
Value to_value(const std::pair<A, B>& parts) {
  return to_value(std::tuple<A, B>(parts));
}

inline Value to_value(const ValuesIndices& r) {
  return to_value(std::pair(r.values, r.indices));
}
inline Value to_value(const SpreadMean& r) {
  return to_value(std::pair(r.spread, r.mean));
}

template <typename F, typename R, typename... P>
Builtin wrap_as(F function) {
  const auto call = [function]<size_t... I>([[maybe_unused]] std::span<const Value> arguments,
                                            std::index_sequence<I...>) {
    // Braces convert in order, so the first wrong argument is the one reported.
    std::tuple<typename Held<P>::type...> held{convert<typename Held<P>::type>(arguments, I)...};
    return to_value(function(static_cast<P>(std::get<I>(held))...));
  };
  return {[call](std::span<const Value> arguments) {
            return call(arguments, std::index_sequence_for<P...>());
          },
          sizeof...(P)};
}

/// `wrap(f)`; `wrap<Tensor(const Tensor&)>(f)` chooses one of the overloads of f.
template <typename R, typename... P>
Builtin wrap(R (*function)(P...)) {
  return wrap_as<R (*)(P...), R, P...>(function);
}
template <typename Signature>
requires std::is_function_v<Signature> Builtin wrap(Signature* function) {
  return wrap(function);
}
template <typename F, typename R, typename... P>
Builtin wrap_member(F function, R (F::*)(P...) const) {
  return wrap_as<F, R, P...>(function);
}
template <typename F>
requires std::is_class_v<F> Builtin wrap(F function) {
  return wrap_member(function, &F::operator());
}

}  // namespace lazuli::notation
