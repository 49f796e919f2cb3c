// Scans. Lines along the last axis go through registers 64 bytes at a time: inside 16 bytes in the
// way of Hillis and Steele, over these in the way of Sklansky, so that the bits are the same for
// vectors of every length; what is left of a line, and numbers of less than four bytes, one after
// the other. Lines along another axis go side by side, a stretch of each row at a time. Lines
// longer than a chunk are scanned by chunks, each from the total of those before it, so that
// threads may share a line; the chunks follow from the shape.
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

template <typename A>
constexpr int64_t kBlockOf = 64 / sizeof(A);  // elements that are in registers at once
constexpr int64_t kScanChunk = 1 << 15;       // of a line
constexpr int64_t kShortScan = 16;            // elements that are scanned one after the other
constexpr int64_t kScanGrain = 1 << 14;       // elements that are worth a thread
constexpr int64_t kFewestLines = 64, kMostLines = 1024;  // side by side
constexpr int64_t kStretch = 16;                         // lines that threads do not part

// Inlined without optimisation too: what holds wide vectors is compiled for a machine that has them
// only as a part of its caller.
#define LAZULI_INLINE [[gnu::always_inline]] inline

template <typename T>
using Total = typename Number<T>::Acc;
// Whether elements are scanned in vectors as they are stored.
template <typename T>
constexpr bool kInVectors = std::is_same_v<T, Total<T>> && sizeof(T) >= 4;

// A line in the making, a block at a time, in vectors of kBytes; after chunks that combine to
// `before`, if there are any. A piece is 16 bytes of a vector.
template <typename A, template <typename> typename Op, int kBytes>
class Blocks {
  using Vector = VectorOf<A, Op, kBytes>;
  using V = typename Vector::Type;
  using Lane = typename Vector::Lane;
  static constexpr int kLanes = Vector::kLanes, kPiece = 16 / sizeof(A);
  static constexpr int kVectors = kBlockOf<A> / kLanes;
  using Lanes = std::make_integer_sequence<int, kLanes>;
  using All = std::make_integer_sequence<int, kVectors>;
  static_assert(kVectors <= 4);

 public:
  LAZULI_INLINE explicit Blocks(const A* before) : follows_(before != nullptr) {
    const A first = before ? *before : Op<A>::kIdentity;
    for (int i = 0; i < kLanes; i++) before_[i] = static_cast<Lane>(first);
    for (int i = 0; i < kLanes; i++) identity_[i] = static_cast<Lane>(Op<A>::kIdentity);
    total_ = identity_;
  }

  // The elements at x, or those that end with it in reverse.
  template <bool kReverse>
  LAZULI_INLINE void scan(const A* x, A* out) {
    V v[kVectors], moved;
    each(All(), [&](auto i) {
      std::memcpy(&v[i], x + place<kReverse>(i), sizeof(V));
      if constexpr (kReverse) reverse(v[i], Lanes());
      from_before<1>(v[i], moved, Lanes());
      Op<A>::follow(moved, v[i]);
      if constexpr (kPiece > 2) {
        from_before<2>(v[i], moved, Lanes());
        Op<A>::follow(moved, v[i]);
      }
      if constexpr (kLanes > kPiece) {
        from_first_piece(v[i], moved, Lanes());
        Op<A>::follow(moved, v[i]);
      }
    });
    each(std::integer_sequence<int, 1, 2>(), [&](auto half) {
      each(All(), [&](auto i) {
        if constexpr ((i & half) != 0) {
          last(v[(i & -half) - 1], moved, Lanes());
          Op<A>::follow(moved, v[i]);
        }
      });
    });
    V end;  // what comes next waits for one operation alone
    last(v[kVectors - 1], end, Lanes());
    each(All(), [&](auto i) { Op<A>::follow(total_, v[i]); });
    Op<A>::follow(total_, end);
    total_ = end;
    if (!out) return;
    if (follows_) each(All(), [&](auto i) { Op<A>::follow(before_, v[i]); });
    each(All(), [&](auto i) {
      if constexpr (kReverse) reverse(v[i], Lanes());
      std::memcpy(out + place<kReverse>(i), &v[i], sizeof(V));
    });
  }
  LAZULI_INLINE A total() const { return static_cast<A>(total_[0]); }

 private:
  // Written out, so that vectors are in registers.
  template <int... i, typename F>
  LAZULI_INLINE static void each(std::integer_sequence<int, i...>, const F& f) {
    (f(std::integral_constant<int, i>()), ...);
  }
  template <bool kReverse>
  LAZULI_INLINE static int place(int vector) {
    return kReverse ? -(vector + 1) * kLanes + 1 : vector * kLanes;
  }
  // In each piece of `to` the elements kBy places before, at first identities. By one in two steps,
  // each one instruction of the oldest vector unit.
  template <int kBy, int... kLane>
  LAZULI_INLINE void from_before(const V& v, V& to, std::integer_sequence<int, kLane...>) const {
    if constexpr (kBy == 1) {
      to = __builtin_shufflevector(v, v, (kLane % kPiece > 0 ? kLane - 1 : kLane)...);
      to = __builtin_shufflevector(to, identity_, (kLane % kPiece > 0 ? kLane : kLanes + kLane)...);
    } else {
      to = __builtin_shufflevector(v, identity_,
                                   (kLane % kPiece < kBy ? kLanes + kLane : kLane - kBy)...);
    }
  }
  template <int... kLane>
  LAZULI_INLINE void from_first_piece(const V& v, V& to,
                                      std::integer_sequence<int, kLane...>) const {
    static_assert(kLanes <= 2 * kPiece);
    to = __builtin_shufflevector(v, identity_, (kLane < kPiece ? kLanes + kLane : kPiece - 1)...);
  }
  template <int... kLane>
  LAZULI_INLINE static void last(const V& v, V& to, std::integer_sequence<int, kLane...>) {
    to = __builtin_shufflevector(v, v, (kLanes - 1 + 0 * kLane)...);
  }
  template <int... kLane>
  LAZULI_INLINE static void reverse(V& v, std::integer_sequence<int, kLane...>) {
    v = __builtin_shufflevector(v, v, (kLanes - 1 - kLane)...);
  }

  const bool follows_;
  V identity_, before_;
  V total_;  // of this chunk so far, in all lanes
};

template <typename T, template <typename> typename Op, bool kReverse, int kBytes>
LAZULI_INLINE Total<T> scan_blocks(const T* x, T* out, int64_t count, const Total<T>* before) {
  using N = Number<T>;
  using A = Total<T>;
  constexpr int kStep = kReverse ? -1 : 1;
  A total = Op<A>::kIdentity;
  int64_t i = 0;
  if constexpr (sizeof(A) >= 4) {
    constexpr int64_t kBlock = kBlockOf<A>;
    Blocks<A, Op, kBytes> blocks(before);
    for (; i + kBlock <= count; i += kBlock) {
      if constexpr (std::is_same_v<T, A>) {
        blocks.template scan<kReverse>(x + i * kStep, out ? out + i * kStep : nullptr);
      } else {
        A values[kBlock];
        for (int64_t k = 0; k < kBlock; k++) values[k] = N::widen(x[(i + k) * kStep]);
        blocks.template scan<false>(values, values);
        for (int64_t k = 0; out && k < kBlock; k++) out[(i + k) * kStep] = N::narrow(values[k]);
      }
    }
    total = blocks.total();
  }
  for (; i < count; i++) {
    total = combine<Op>(total, N::widen(x[i * kStep]));
    if (out) out[i * kStep] = N::narrow(before ? combine<Op>(*before, total) : total);
  }
  return total;
}

#if defined(__x86_64__)
template <typename A, template <typename> typename Op, bool kReverse>
__attribute__((target("avx2"))) A scan_wide_blocks(const A* x, A* out, int64_t count,
                                                   const A* before) {
  return scan_blocks<A, Op, kReverse, 32>(x, out, count, before);
}
#endif

// `count` elements from x on, or down to the first in reverse, after what combines to `before`;
// null: there is nothing before. Returns their own combination; without `out` that is all.
template <typename T, template <typename> typename Op, bool kReverse>
Total<T> scan_chunk([[maybe_unused]] bool wide, const T* x, T* out, int64_t count,
                    const Total<T>* before) {
  using A = Total<T>;
#if defined(__x86_64__)
  if constexpr (kInVectors<T>) {
    if (wide) return scan_wide_blocks<A, Op, kReverse>(x, out, count, before);
  }
#endif
  return scan_blocks<T, Op, kReverse, 16>(x, out, count, before);
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

// Dense lines of few elements, one after the other.
template <typename T, template <typename> typename Op, bool kReverse>
void scan_short(const T* x, T* out, int64_t lines, int64_t length) {
  using N = Number<T>;
  for (int64_t line = 0; line < lines; line++, x += length, out += length) {
    Total<T> total = Op<Total<T>>::kIdentity;
    for (int64_t k = 0; k < length; k++) {
      const int64_t at = kReverse ? length - 1 - k : k;
      total = combine<Op>(total, N::widen(x[at]));
      out[at] = N::narrow(total);
    }
  }
}

// The elements of a line lie next to each other.
template <typename T, template <typename> typename Op, bool kReverse>
void scan_dense(const T* x, T* out, const Lines& l, bool wide, ThreadPool& pool) {
  using A = Total<T>;
  const int64_t chunks = (l.length + kScanChunk - 1) / kScanChunk;
  const auto begin = [&](int64_t line, int64_t chunk) {
    const int64_t at = chunk * kScanChunk;
    return line * l.length + (kReverse ? l.length - 1 - at : at);
  };
  const auto size = [&](int64_t chunk) {
    return std::min(kScanChunk, l.length - chunk * kScanChunk);
  };
  if (l.outer >= pool.size() || chunks == 1) {
    const int64_t grain = std::max<int64_t>(1, kScanGrain / l.length);
    pool.parallel_for(0, l.outer, grain, [&](int64_t from, int64_t to, int) {
      if (l.length <= kShortScan) {
        scan_short<T, Op, kReverse>(x + from * l.length, out + from * l.length, to - from,
                                    l.length);
        return;
      }
      for (int64_t line = from; line < to; line++) {
        const int64_t first = begin(line, 0);
        A before = scan_chunk<T, Op, kReverse>(wide, x + first, out + first, size(0), nullptr);
        for (int64_t c = 1; c < chunks; c++) {
          const int64_t at = begin(line, c);
          const A total = scan_chunk<T, Op, kReverse>(wide, x + at, out + at, size(c), &before);
          before = combine<Op>(before, total);
        }
      }
    });
    return;
  }
  const auto before = std::make_unique<A[]>(static_cast<size_t>(chunks));
  for (int64_t line = 0; line < l.outer; line++) {
    pool.parallel_for(0, chunks, 1, [&](int64_t c, int64_t, int) {
      before[c] = scan_chunk<T, Op, kReverse>(wide, x + begin(line, c), nullptr, size(c), nullptr);
    });
    A sum = Op<A>::kIdentity;
    for (int64_t c = 0; c < chunks; c++) {
      const A total = std::exchange(before[c], sum);
      sum = combine<Op>(sum, total);
    }
    pool.parallel_for(0, chunks, 1, [&](int64_t c, int64_t, int) {
      const int64_t at = begin(line, c);
      scan_chunk<T, Op, kReverse>(wide, x + at, out + at, size(c), c > 0 ? &before[c] : nullptr);
    });
  }
}

// As many elements of a row as fill vectors from i on; returns the first that is left.
template <typename V, typename O, typename A>
LAZULI_INLINE int64_t scan_row_part(const A* before, const A* x, A* out, int64_t i, int64_t width) {
  constexpr int64_t kLanes = sizeof(V) / sizeof(A);
  for (; i + kLanes <= width; i += kLanes) {
    V total, v;
    std::memcpy(&total, before + i, sizeof(V));
    std::memcpy(&v, x + i, sizeof(V));
    O::follow(total, v);
    std::memcpy(out + i, &v, sizeof(V));
  }
  return i;
}

// `count` elements of `width` lines next to each other, `step` from one to the next of a line. What
// came out for one is what comes before the next.
template <typename A, template <typename> typename Op, int kBytes>
LAZULI_INLINE void scan_rows(const A* x, A* out, int64_t count, int64_t step, int64_t width) {
  std::memcpy(out, x, static_cast<size_t>(width) * sizeof(A));
  for (int64_t k = 1; k < count; k++) {
    const A* const before = out;
    x += step;
    out += step;
    int64_t i = 0;
    if constexpr (kBytes > 16) {
      i = scan_row_part<typename VectorOf<A, Op, kBytes>::Type, Op<A>>(before, x, out, i, width);
    }
    i = scan_row_part<typename VectorOf<A, Op, 16>::Type, Op<A>>(before, x, out, i, width);
    for (; i < width; i++) out[i] = combine<Op>(before[i], x[i]);
  }
}

#if defined(__x86_64__)
template <typename A, template <typename> typename Op>
__attribute__((target("avx2"))) void scan_wide_rows(const A* x, A* out, int64_t count, int64_t step,
                                                    int64_t width) {
  scan_rows<A, Op, 32>(x, out, count, step, width);
}
#endif

// Lines next to each other: wide stretches of rows, which memory reads ahead.
template <typename T, template <typename> typename Op>
void scan_abreast(const T* x, T* out, const Lines& l, bool reverse, [[maybe_unused]] bool wide,
                  ThreadPool& pool) {
  using N = Number<T>;
  using A = Total<T>;
  const auto parts = [](int64_t n, int64_t of) { return (n + of - 1) / of; };
  const int64_t fewest = std::max(parts(l.inner, kMostLines), parts(pool.size(), l.outer));
  const int64_t lines =
      std::clamp(parts(parts(l.inner, fewest), kStretch) * kStretch, kFewestLines, kMostLines);
  const int64_t tiles = parts(l.inner, lines);
  const int64_t grain = std::max<int64_t>(1, kScanGrain / (l.length * std::min(l.inner, lines)));
  const int64_t step = reverse ? -l.inner : l.inner;
  pool.parallel_for(0, l.outer * tiles, grain, [&](int64_t from, int64_t to, int) {
    for (int64_t tile = from; tile < to; tile++) {
      const int64_t first = tile % tiles * lines, width = std::min(lines, l.inner - first);
      const int64_t start =
          (tile / tiles * l.length + (reverse ? l.length - 1 : 0)) * l.inner + first;
      if constexpr (std::is_same_v<T, A> && !std::is_same_v<T, bool>) {
#if defined(__x86_64__)
        if (wide) {
          scan_wide_rows<A, Op>(x + start, out + start, l.length, step, width);
          continue;
        }
#endif
        scan_rows<A, Op, 16>(x + start, out + start, l.length, step, width);
      } else {
        A totals[kMostLines];
        std::fill_n(totals, width, Op<A>::kIdentity);
        for (int64_t k = 0; k < l.length; k++) {
          const int64_t at = start + k * step;
          for (int64_t i = 0; i < width; i++) {
            totals[i] = combine<Op>(totals[i], N::widen(x[at + i]));
            out[at + i] = N::narrow(totals[i]);
          }
        }
      }
    }
  });
}

}  // namespace

void run_scan(const Node& n, std::span<void* const> arrays, ThreadPool& pool, bool wide) {
#if defined(__x86_64__)
  wide = wide && __builtin_cpu_supports("avx2");
#endif
  if (n.numel() == 0) return;
  const Lines l = lines_of(n.shape, n.ints()[1]);
  const bool reverse = n.ints()[2] != 0;
  with_type(n.dtype, [&]<typename T>() {
    const auto run = [&]<template <typename> typename Op>() {
      const T* x = static_cast<const T*>(arrays[0]);
      T* out = static_cast<T*>(arrays[1]);
      if (l.inner > 1) return scan_abreast<T, Op>(x, out, l, reverse, wide, pool);
      reverse ? scan_dense<T, Op, true>(x, out, l, wide, pool)
              : scan_dense<T, Op, false>(x, out, l, wide, pool);
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
