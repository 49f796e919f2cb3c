// Scatter: elements are combined in the order of their index, one after the other, so that the bits
// do not depend on threads. Each thread takes the elements that fall into its part of the result.
// Rows of neighbours, as of an embedding, come with the place of their first element.
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/graph.h"
#include "runtime/library.h"
#include "runtime/library_types.h"

namespace lazuli {
namespace {

constexpr int64_t kScatterGrain = 1 << 14;  // elements that are worth a thread

// The later of two values.
template <typename A>
struct Later {
  template <typename V>
  static void follow(const V&, V&) {}
};

// Combines elements that lie beside each other; of T as it is, in vectors.
template <template <typename> typename Op, typename T>
[[gnu::always_inline]] inline void combine_row(T* out, const T* values, int64_t length) {
  int64_t i = 0;
  if constexpr (!std::is_same_v<T, bool>) {
    using V = VectorOf<T, Op, 16>;
    for (; i + V::kLanes <= length; i += V::kLanes) {
      typename V::Type so_far, with;
      std::memcpy(&so_far, out + i, sizeof so_far);
      std::memcpy(&with, values + i, sizeof with);
      Op<T>::follow(so_far, with);
      std::memcpy(out + i, &with, sizeof with);
    }
  }
  for (; i < length; i++) out[i] = combine<Op>(out[i], values[i]);
}

// Rows of neighbouring elements, and where each goes.
template <typename T>
struct ScatteredRows {
  const int64_t* first;
  const T* values;
  int64_t count, length;

  // Calls f(place - begin, values, length) for what falls into [begin, end).
  template <typename F>
  void each(int64_t begin, int64_t end, F&& f) const {
    const auto size = static_cast<uint64_t>(end - begin);
    if (length == 1) {
      for (int64_t i = 0; i < count; i++) {
        const uint64_t at = static_cast<uint64_t>(first[i]) - static_cast<uint64_t>(begin);
        if (at < size) f(static_cast<int64_t>(at), values + i, 1);
      }
      return;
    }
    for (int64_t i = 0; i < count; i++) {
      if (first[i] < 0 || first[i] >= end) continue;
      const int64_t from = std::max(begin, first[i]), to = std::min(end, first[i] + length);
      if (from < to) f(from - begin, values + i * length + (from - first[i]), to - from);
    }
  }
};

// What falls into [begin, end).
template <typename T, template <typename> typename Op>
void scatter_range(T* out, int64_t begin, int64_t end, const ScatteredRows<T>& rows) {
  using N = Number<T>;
  using A = typename N::Acc;
  out += begin;
  if constexpr (std::is_same_v<Op<A>, Later<A>>) {
    rows.each(begin, end, [&](int64_t at, const T* v, int64_t n) { std::copy_n(v, n, out + at); });
  } else if constexpr (std::is_same_v<T, A>) {
    rows.each(begin, end,
              [&](int64_t at, const T* v, int64_t n) { combine_row<Op>(out + at, v, n); });
  } else {  // 16-bit floats are summed in f32
    const int64_t size = end - begin;
    const auto wide = std::make_unique_for_overwrite<A[]>(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; i++) wide[i] = N::widen(out[i]);
    rows.each(begin, end, [&](int64_t at, const T* v, int64_t n) {
      for (int64_t i = 0; i < n; i++) wide[at + i] = combine<Op>(wide[at + i], N::widen(v[i]));
    });
    for (int64_t i = 0; i < size; i++) out[i] = N::narrow(wide[i]);
  }
}

}  // namespace

void run_scatter(const Node& n, std::span<void* const> arrays, ThreadPool& pool) {
  const int64_t size = n.numel(), rows = n.src[1]->numel(), count = n.src[2]->numel();
  if (size == 0) return;
  // Every part looks at every index: more parts than threads would be work for nothing.
  const int64_t parts = count < kScatterGrain ? 1 : std::min<int64_t>(pool.size(), size);
  with_type(n.dtype, [&]<typename T>() {
    T* out = static_cast<T*>(arrays[3]);
    const ScatteredRows<T> all{static_cast<const int64_t*>(arrays[1]),
                               static_cast<const T*>(arrays[2]), rows, rows > 0 ? count / rows : 1};
    const auto run = [&]<template <typename> typename Op>() {
      pool.parallel_for(0, parts, 1, [&](int64_t part, int64_t, int) {
        const int64_t begin = size * part / parts, end = size * (part + 1) / parts;
        if (out != arrays[0]) {
          std::memcpy(out + begin, static_cast<const T*>(arrays[0]) + begin,
                      static_cast<size_t>(end - begin) * sizeof(T));
        }
        scatter_range<T, Op>(out, begin, end, all);
      });
    };
    switch (static_cast<Combine>(n.integer())) {
      case Combine::Set:
        return run.template operator()<Later>();
      case Combine::Add:
        return run.template operator()<Sum>();
      case Combine::Mul:
        return run.template operator()<Product>();
      case Combine::Max:
        return run.template operator()<Maximum>();
      case Combine::Min:
        return run.template operator()<Minimum>();
    }
  });
}

}  // namespace lazuli
