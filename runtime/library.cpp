#include "runtime/library.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/graph.h"

namespace lazuli {
namespace {

// The 16-bit floats as types of their own, so that templates see what they hold.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

// T as stored, Acc as computed with.
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

// Calls f.template operator()<T>() with the element type of `t`.
template <typename F>
void with_type(DType t, F&& f) {
  switch (t) {
    case DType::Bool: return f.template operator()<bool>();
    case DType::I8: return f.template operator()<int8_t>();
    case DType::I16: return f.template operator()<int16_t>();
    case DType::I32: return f.template operator()<int32_t>();
    case DType::I64: return f.template operator()<int64_t>();
    case DType::U8: return f.template operator()<uint8_t>();
    case DType::U16: return f.template operator()<uint16_t>();
    case DType::U32: return f.template operator()<uint32_t>();
    case DType::U64: return f.template operator()<uint64_t>();
    case DType::F16: return f.template operator()<Half>();
    case DType::BF16: return f.template operator()<BFloat>();
    case DType::F32: return f.template operator()<float>();
    case DType::F64: return f.template operator()<double>();
  }
}

// Integer arithmetic wraps, and Bool adds and multiplies as 0 and 1 with `!= 0`.
template <typename A>
A add(A a, A b) {
  if constexpr (std::is_same_v<A, bool>) return a || b;
  else if constexpr (std::is_integral_v<A>) return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else return a + b;
}
template <typename A>
A mul(A a, A b) {
  if constexpr (std::is_same_v<A, bool>) return a && b;
  else if constexpr (std::is_integral_v<A>) return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else return a * b;
}
template <typename A>
bool is_nan(A v) {
  if constexpr (std::is_floating_point_v<A>) return std::isnan(v);
  else return false;
}
template <typename A>
A maximum(A a, A b) {
  return is_nan(a) || a > b ? a : b;
}
template <typename A>
A minimum(A a, A b) {
  return is_nan(a) || a < b ? a : b;
}

// ---- scan
struct Lines {
  int64_t outer = 1, length = 1, inner = 1;
};
Lines lines_of(const Shape& shape, int64_t axis) {
  Lines l;
  for (int64_t a = 0; a < static_cast<int64_t>(shape.size()); a++) {
    int64_t& part = a < axis ? l.outer : a > axis ? l.inner : l.length;
    part *= shape[static_cast<size_t>(a)];
  }
  return l;
}

template <typename T, typename Op>
void scan_lines(const T* x, T* out, const Lines& l, bool reverse, ThreadPool& pool, Op op) {
  using N = Number<T>;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, l.length));
  pool.parallel_for(0, l.outer * l.inner, grain, [&](int64_t from, int64_t to, int) {
    for (int64_t line = from; line < to; line++) {
      const int64_t start = line / l.inner * l.length * l.inner + line % l.inner;
      const int64_t step = reverse ? -l.inner : l.inner;
      int64_t at = reverse ? start + (l.length - 1) * l.inner : start;
      auto acc = N::widen(x[at]);
      out[at] = x[at];
      for (int64_t k = 1; k < l.length; k++) {
        at += step;
        acc = op(acc, N::widen(x[at]));
        out[at] = N::narrow(acc);
      }
    }
  });
}

void run_scan(const Node& n, const std::vector<void*>& arrays, ThreadPool& pool) {
  if (n.numel() == 0) return;
  const Lines l = lines_of(n.shape, n.ints()[1]);
  with_type(n.dtype, [&]<typename T>() {
    using A = typename Number<T>::Acc;
    const T* x = static_cast<const T*>(arrays[0]);
    T* out = static_cast<T*>(arrays[1]);
    const bool reverse = n.ints()[2] != 0;
    switch (static_cast<ScanOp>(n.ints()[0])) {
      case ScanOp::Add: return scan_lines(x, out, l, reverse, pool, add<A>);
      case ScanOp::Mul: return scan_lines(x, out, l, reverse, pool, mul<A>);
      case ScanOp::Max: return scan_lines(x, out, l, reverse, pool, maximum<A>);
      case ScanOp::Min: return scan_lines(x, out, l, reverse, pool, minimum<A>);
    }
  });
}

// ---- argsort
template <typename T>
void sort_line(const T* x, int64_t* order, int64_t length, bool descending) {
  using N = Number<T>;
  std::iota(order, order + length, 0);
  // NaN is larger than everything; equal elements keep their order, in descending order too.
  auto before = [](auto a, auto b) { return !is_nan(a) && (is_nan(b) || a < b); };
  std::stable_sort(order, order + length, [&](int64_t a, int64_t b) {
    const auto p = N::widen(x[a]), q = N::widen(x[b]);
    return descending ? before(q, p) : before(p, q);
  });
}

void run_argsort(const Node& n, const std::vector<void*>& arrays, ThreadPool& pool) {
  if (n.numel() == 0) return;
  const int64_t length = n.shape.back(), lines = n.numel() / length;
  with_type(n.src[0]->dtype, [&]<typename T>() {
    const T* x = static_cast<const T*>(arrays[0]);
    auto* out = static_cast<int64_t*>(arrays[1]);
    const int64_t grain = std::max<int64_t>(1, 4096 / length);
    pool.parallel_for(0, lines, grain, [&](int64_t from, int64_t to, int) {
      for (int64_t i = from; i < to; i++) {
        sort_line(x + i * length, out + i * length, length, n.integer() != 0);
      }
    });
  });
}

// ---- scatter
// Elements are combined in the order of their index, one after the other: the same bits whatever the number of threads.
template <typename T, typename Op>
void scatter_into(T* out, int64_t size, const int64_t* index, const T* value, int64_t count, Op op) {
  using N = Number<T>;
  using A = typename N::Acc;
  if constexpr (std::is_same_v<T, A>) {
    for (int64_t i = 0; i < count; i++) {
      if (index[i] >= 0 && index[i] < size) out[index[i]] = op(out[index[i]], value[i]);
    }
  } else {  // 16-bit floats are summed in f32
    std::vector<A> wide(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; i++) wide[static_cast<size_t>(i)] = N::widen(out[i]);
    for (int64_t i = 0; i < count; i++) {
      if (index[i] < 0 || index[i] >= size) continue;
      A& cell = wide[static_cast<size_t>(index[i])];
      cell = op(cell, N::widen(value[i]));
    }
    for (int64_t i = 0; i < size; i++) out[i] = N::narrow(wide[static_cast<size_t>(i)]);
  }
}

void run_scatter(const Node& n, const std::vector<void*>& arrays) {
  const int64_t size = n.numel(), count = n.src[1]->numel();
  if (size == 0) return;
  std::memcpy(arrays[3], arrays[0], static_cast<size_t>(size) * static_cast<size_t>(size_of(n.dtype)));
  const auto* index = static_cast<const int64_t*>(arrays[1]);
  with_type(n.dtype, [&]<typename T>() {
    using A = typename Number<T>::Acc;
    T* out = static_cast<T*>(arrays[3]);
    const T* value = static_cast<const T*>(arrays[2]);
    switch (static_cast<Combine>(n.integer())) {
      case Combine::Set: return scatter_into(out, size, index, value, count, [](A, A v) { return v; });
      case Combine::Add: return scatter_into(out, size, index, value, count, add<A>);
      case Combine::Mul: return scatter_into(out, size, index, value, count, mul<A>);
      case Combine::Max: return scatter_into(out, size, index, value, count, maximum<A>);
      case Combine::Min: return scatter_into(out, size, index, value, count, minimum<A>);
    }
  });
}

}  // namespace

void run_library_step(const Node& node, const std::vector<void*>& arrays, ThreadPool& pool) {
  switch (node.op) {
    case Op::Scan: return run_scan(node, arrays, pool);
    case Op::ArgSort: return run_argsort(node, arrays, pool);
    case Op::Scatter: return run_scatter(node, arrays);
    default: internal_error(fmt::format("library: {} is no library step", name(node.op)));
  }
}

}  // namespace lazuli
