// Element types and operations of the library steps.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"
#include "core/scalar.h"

namespace lazuli {

// The 16-bit floats as types of their own, so that templates see what they hold.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

/// T as stored, Acc as computed with.
template <typename T>
struct Number {
  using Acc = T;
  static Acc widen(T v) { return v; }
  static T narrow(Acc v) { return v; }
};
template <>
struct Number<Half> {
  using Acc = float;
  static float widen(Half v) { return f16_to_f32(v.bits); }
  static Half narrow(float v) { return {f32_to_f16(v)}; }
};
template <>
struct Number<BFloat> {
  using Acc = float;
  static float widen(BFloat v) { return bf16_to_f32(v.bits); }
  static BFloat narrow(float v) { return {f32_to_bf16(v)}; }
};

/// Calls f.template operator()<T>() with the element type of `t`.
template <typename F>
void with_type(DType t, F&& f) {
  switch (t) {
    case DType::Bool:
      return f.template operator()<bool>();
    case DType::I8:
      return f.template operator()<int8_t>();
    case DType::I16:
      return f.template operator()<int16_t>();
    case DType::I32:
      return f.template operator()<int32_t>();
    case DType::I64:
      return f.template operator()<int64_t>();
    case DType::U8:
      return f.template operator()<uint8_t>();
    case DType::U16:
      return f.template operator()<uint16_t>();
    case DType::U32:
      return f.template operator()<uint32_t>();
    case DType::U64:
      return f.template operator()<uint64_t>();
    case DType::F16:
      return f.template operator()<Half>();
    case DType::BF16:
      return f.template operator()<BFloat>();
    case DType::F32:
      return f.template operator()<float>();
    case DType::F64:
      return f.template operator()<double>();
  }
}

// What elements are combined by: of numbers, and with the same text of vectors of them, which are
// not passed by value, for their registers may be those of the caller alone. follow(a, b): `b`
// becomes what a and b combine to, in this order. `kIdentity` leaves every value as it is, a
// negative zero too. Integers wrap.
template <typename A>
struct Sum {
  static constexpr A kIdentity = std::is_floating_point_v<A> ? A(-0.0) : A(0);
  template <typename V>
  [[gnu::always_inline]] static void follow(const V& a, V& b) {
    b = a + b;
  }
};
template <typename A>
struct Product {
  static constexpr A kIdentity = 1;
  template <typename V>
  [[gnu::always_inline]] static void follow(const V& a, V& b) {
    b = a * b;
  }
};
// The later of equals, and NaN if there is one: `a` is what was combined so far.
template <typename A>
struct Maximum {
  static constexpr A kIdentity = std::is_floating_point_v<A> ? -std::numeric_limits<A>::infinity()
                                                             : std::numeric_limits<A>::lowest();
  template <typename V>
  [[gnu::always_inline]] static void follow(const V& a, V& b) {
    b = ((a != a) | (a > b)) ? a : b;
  }
};
template <typename A>
struct Minimum {
  static constexpr A kIdentity = std::is_floating_point_v<A> ? std::numeric_limits<A>::infinity()
                                                             : std::numeric_limits<A>::max();
  template <typename V>
  [[gnu::always_inline]] static void follow(const V& a, V& b) {
    b = ((a != a) | (a < b)) ? a : b;
  }
};

/// Op<A>::follow for numbers whose arithmetic C++ widens or leaves undefined.
template <template <typename> typename Op, typename A>
A combine(A a, A b) {
  if constexpr (std::is_same_v<A, bool>) {
    int r = b;
    Op<int>::follow(int{a}, r);
    return r != 0;
  } else if constexpr (std::is_integral_v<A> && std::is_signed_v<A> &&
                       (std::is_same_v<Op<A>, Sum<A>> || std::is_same_v<Op<A>, Product<A>>)) {
    auto r = static_cast<uint64_t>(b);
    Op<uint64_t>::follow(static_cast<uint64_t>(a), r);
    return static_cast<A>(r);
  } else {
    Op<A>::follow(a, b);
    return b;
  }
}

/// Vectors of kBytes, of which every target has those of 16. Signed integers are as unsigned ones
/// in what wraps.
template <typename A, template <typename> typename Op, int kBytes>
struct VectorOf {
  static constexpr bool kWraps = std::is_same_v<Op<A>, Sum<A>> || std::is_same_v<Op<A>, Product<A>>;
  using Lane = typename std::conditional_t<kWraps && std::is_integral_v<A>, std::make_unsigned<A>,
                                           std::type_identity<A>>::type;
  typedef Lane Type __attribute__((vector_size(kBytes)));
  static constexpr int kLanes = kBytes / sizeof(A);
};

}  // namespace lazuli
