// Scans. Lines along the last axis go through registers sixteen elements at a time, in the way of
// Hillis and Steele inside a vector; those along another axis side by side, a vector of lines at a
// time. Lines longer than a chunk are scanned by chunks, each from the total of those before it, so
// that threads may share a line; the chunks follow from the shape.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/graph.h"
#include "runtime/library.h"
#include "runtime/library_types.h"

namespace lazuli {
namespace {

constexpr int64_t kBlock = 16;       // elements that are in registers at once
constexpr int64_t kChunk = 1 << 15;  // of a line
constexpr int64_t kShort = 16;       // elements that are scanned one after the other
constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread
constexpr int64_t kTileLines = 64;   // side by side

/// Vectors of 16 bytes, which every target has; signed integers as unsigned ones, which wrap.
template <typename A, bool kWraps>
struct VectorOf {
  using Lane = typename std::conditional_t<kWraps && std::is_integral_v<A>, std::make_unsigned<A>,
                                           std::type_identity<A>>::type;
  typedef Lane Type __attribute__((vector_size(16)));
  static constexpr int kLanes = 16 / sizeof(A);
};

// The lanes of v moved up by one; the first one from `fill`.
template <typename V, int... kLane>
V shifted_by_one(V fill, V v, std::integer_sequence<int, kLane...>) {
  // In two steps, each one instruction of the oldest vector unit.
  const V up = __builtin_shufflevector(v, v, (kLane > 0 ? kLane - 1 : 0)...);
  return __builtin_shufflevector(up, fill, (kLane > 0 ? kLane : sizeof...(kLane))...);
}
template <typename V, int... kLane>
V shifted_by_two(V fill, V v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(fill, v, (static_cast<int>(sizeof...(kLane)) - 2 + kLane)...);
}
template <typename V, int... kLane>
V last_lane(V v, std::integer_sequence<int, kLane...>) {
  constexpr int kLast = sizeof...(kLane) - 1;
  return __builtin_shufflevector(v, v, (kLast + 0 * kLane)...);
}
template <typename V, int... kLane>
V reversed(V v, std::integer_sequence<int, kLane...>) {
  constexpr int kLast = sizeof...(kLane) - 1;
  return __builtin_shufflevector(v, v, (kLast - kLane)...);
}

// A line in the making, kBlock elements at a time, after chunks that combine to `before`.
template <typename A, template <typename> typename Op>
class Blocks {
  static constexpr bool kWraps = std::is_same_v<Op<A>, Sum<A>> || std::is_same_v<Op<A>, Product<A>>;
  using Vector = VectorOf<A, kWraps>;
  using V = typename Vector::Type;
  using Lane = typename Vector::Lane;
  using Lanes = std::make_integer_sequence<int, Vector::kLanes>;
  static constexpr int kVectors = kBlock / Vector::kLanes;

 public:
  explicit Blocks(A before) : before_(splat(before)) {}

  // The elements at x, or those that end with it in reverse.
  template <bool kReverse>
  void scan(const A* x, A* out) {
    V v[kVectors];
    for (int i = 0; i < kVectors; i++) {
      std::memcpy(&v[i], x + place<kReverse>(i), sizeof(V));
      if (kReverse) v[i] = reversed(v[i], Lanes());
      v[i] = Op<A>::apply(shifted_by_one(identity_, v[i], Lanes()), v[i]);
      if constexpr (Vector::kLanes > 2) {
        v[i] = Op<A>::apply(shifted_by_two(identity_, v[i], Lanes()), v[i]);
      }
    }
    for (int i = 1; i < kVectors; i++) v[i] = Op<A>::apply(last_lane(v[i - 1], Lanes()), v[i]);
    for (V& y : v) y = Op<A>::apply(total_, y);
    total_ = last_lane(v[kVectors - 1], Lanes());
    if (!out) return;
    for (int i = 0; i < kVectors; i++) {
      v[i] = Op<A>::apply(before_, v[i]);
      if (kReverse) v[i] = reversed(v[i], Lanes());
      std::memcpy(out + place<kReverse>(i), &v[i], sizeof(V));
    }
  }
  A total() const { return static_cast<A>(total_[0]); }

 private:
  static V splat(A value) {
    V v;
    for (int i = 0; i < Vector::kLanes; i++) v[i] = static_cast<Lane>(value);
    return v;
  }
  template <bool kReverse>
  static int place(int vector) {
    return kReverse ? -(vector + 1) * Vector::kLanes + 1 : vector * Vector::kLanes;
  }

  const V identity_ = splat(Op<A>::kIdentity);
  const V before_;
  V total_ = identity_;  // of this chunk so far
};

// Small integers: their scans are one addition an element.
template <typename A, template <typename> typename Op>
requires(sizeof(A) < 4) class Blocks<A, Op> {
 public:
  explicit Blocks(A before) : before_(before) {}
  template <bool kReverse>
  void scan(const A* x, A* out) {
    for (int i = 0; i < kBlock; i++) {
      const int at = kReverse ? -i : i;
      total_ = combine<Op>(total_, x[at]);
      if (out) out[at] = combine<Op>(before_, total_);
    }
  }
  A total() const { return total_; }

 private:
  const A before_;
  A total_ = Op<A>::kIdentity;
};

// `count` elements from x on, or down to the first in reverse, after what combines to `before`.
// Returns their own combination; without `out` that is all.
template <typename T, template <typename> typename Op, bool kReverse,
          typename A = typename Number<T>::Acc>
A scan_chunk(const T* x, T* out, int64_t count, A before) {
  using N = Number<T>;
  constexpr int kStep = kReverse ? -1 : 1;
  if (count <= kShort) {
    A total = Op<A>::kIdentity;
    for (int64_t i = 0; i < count; i++) {
      total = combine<Op>(total, N::widen(x[i * kStep]));
      if (out) out[i * kStep] = N::narrow(combine<Op>(before, total));
    }
    return total;
  }
  Blocks<A, Op> blocks(before);
  int64_t i = 0;
  if constexpr (std::is_same_v<T, A>) {
    for (; i + kBlock <= count; i += kBlock) {
      blocks.template scan<kReverse>(x + i * kStep, out ? out + i * kStep : nullptr);
    }
  }
  for (; i < count; i += kBlock) {
    A values[kBlock];
    const int64_t here = std::min(kBlock, count - i);
    for (int64_t k = 0; k < kBlock; k++) {
      values[k] = k < here ? N::widen(x[(i + k) * kStep]) : Op<A>::kIdentity;
    }
    blocks.template scan<false>(values, values);
    for (int64_t k = 0; out && k < here; k++) out[(i + k) * kStep] = N::narrow(values[k]);
  }
  return blocks.total();
}

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

// The elements of a line lie next to each other.
template <typename T, template <typename> typename Op, bool kReverse>
void scan_dense(const T* x, T* out, const Lines& l, ThreadPool& pool) {
  using A = typename Number<T>::Acc;
  const int64_t chunks = (l.length + kChunk - 1) / kChunk;
  const auto begin = [&](int64_t line, int64_t chunk) {
    const int64_t at = chunk * kChunk;
    return line * l.length + (kReverse ? l.length - 1 - at : at);
  };
  const auto size = [&](int64_t chunk) { return std::min(kChunk, l.length - chunk * kChunk); };
  if (l.outer >= pool.size() || chunks == 1) {
    const int64_t grain = std::max<int64_t>(1, kGrain / l.length);
    pool.parallel_for(0, l.outer, grain, [&](int64_t from, int64_t to, int) {
      for (int64_t line = from; line < to; line++) {
        A before = Op<A>::kIdentity;
        for (int64_t c = 0; c < chunks; c++) {
          const int64_t at = begin(line, c);
          const A total = scan_chunk<T, Op, kReverse>(x + at, out + at, size(c), before);
          before = combine<Op>(before, total);
        }
      }
    });
    return;
  }
  const auto before = std::make_unique<A[]>(static_cast<size_t>(chunks));
  for (int64_t line = 0; line < l.outer; line++) {
    pool.parallel_for(0, chunks, 1, [&](int64_t c, int64_t, int) {
      before[c] =
          scan_chunk<T, Op, kReverse>(x + begin(line, c), nullptr, size(c), Op<A>::kIdentity);
    });
    A sum = Op<A>::kIdentity;
    for (int64_t c = 0; c < chunks; c++) {
      const A total = std::exchange(before[c], sum);
      sum = combine<Op>(sum, total);
    }
    pool.parallel_for(0, chunks, 1, [&](int64_t c, int64_t, int) {
      const int64_t at = begin(line, c);
      scan_chunk<T, Op, kReverse>(x + at, out + at, size(c), before[c]);
    });
  }
}

// Lines next to each other.
template <typename T, template <typename> typename Op>
void scan_abreast(const T* x, T* out, const Lines& l, bool reverse, ThreadPool& pool) {
  using N = Number<T>;
  const int64_t tiles = (l.inner + kTileLines - 1) / kTileLines;
  const int64_t grain = std::max<int64_t>(1, kGrain / (l.length * std::min(l.inner, kTileLines)));
  pool.parallel_for(0, l.outer * tiles, grain, [&](int64_t from, int64_t to, int) {
    for (int64_t tile = from; tile < to; tile++) {
      const int64_t first = tile % tiles * kTileLines,
                    width = std::min(kTileLines, l.inner - first);
      const int64_t start = tile / tiles * l.length * l.inner + first;
      typename N::Acc sums[kTileLines];
      std::fill_n(sums, kTileLines, Op<typename N::Acc>::kIdentity);
      for (int64_t k = 0; k < l.length; k++) {
        const int64_t at = start + (reverse ? l.length - 1 - k : k) * l.inner;
        for (int64_t i = 0; i < width; i++) {
          sums[i] = combine<Op>(sums[i], N::widen(x[at + i]));
          out[at + i] = N::narrow(sums[i]);
        }
      }
    }
  });
}

}  // namespace

void run_scan(const Node& n, std::span<void* const> arrays, ThreadPool& pool) {
  if (n.numel() == 0) return;
  const Lines l = lines_of(n.shape, n.ints()[1]);
  const bool reverse = n.ints()[2] != 0;
  with_type(n.dtype, [&]<typename T>() {
    const auto run = [&]<template <typename> typename Op>() {
      const T* x = static_cast<const T*>(arrays[0]);
      T* out = static_cast<T*>(arrays[1]);
      if (l.inner > 1) return scan_abreast<T, Op>(x, out, l, reverse, pool);
      reverse ? scan_dense<T, Op, true>(x, out, l, pool)
              : scan_dense<T, Op, false>(x, out, l, pool);
    };
    switch (static_cast<ScanOp>(n.ints()[0])) {
      case ScanOp::Add:
        return run.template operator()<Sum>();
      case ScanOp::Mul:
        return run.template operator()<Product>();
      case ScanOp::Max:
        return run.template operator()<Maximum>();
      case ScanOp::Min:
        return run.template operator()<Minimum>();
    }
  });
}

}  // namespace lazuli
