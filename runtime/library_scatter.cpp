// Scatter: elements are combined in the order of their index, one after the other, so that the bits
// do not depend on threads. Each thread takes the elements that fall into its part of the result.
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/graph.h"
#include "runtime/library.h"
#include "runtime/library_types.h"

namespace lazuli {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread

// The later of two values.
template <typename A>
struct Later {
  template <typename V>
  static V apply(V, V b) {
    return b;
  }
};

// Elements whose index lies in [begin, end).
template <typename T, template <typename> typename Op>
void scatter_range(T* out, int64_t begin, int64_t end, const int64_t* index, const T* value,
                   int64_t count) {
  using N = Number<T>;
  using A = typename N::Acc;
  const auto size = static_cast<uint64_t>(end - begin);
  const auto each = [&](auto&& fn) {
    for (int64_t i = 0; i < count; i++) {
      const uint64_t at = static_cast<uint64_t>(index[i]) - static_cast<uint64_t>(begin);
      if (at < size) fn(at, value[i]);
    }
  };
  out += begin;
  if constexpr (std::is_same_v<Op<A>, Later<A>>) {
    each([&](uint64_t at, T v) { out[at] = v; });
  } else if constexpr (std::is_same_v<T, A>) {
    each([&](uint64_t at, T v) { out[at] = combine<Op>(out[at], v); });
  } else {  // 16-bit floats are summed in f32
    const auto wide = std::make_unique_for_overwrite<A[]>(size);
    for (uint64_t i = 0; i < size; i++) wide[i] = N::widen(out[i]);
    each([&](uint64_t at, T v) { wide[at] = combine<Op>(wide[at], N::widen(v)); });
    for (uint64_t i = 0; i < size; i++) out[i] = N::narrow(wide[i]);
  }
}

}  // namespace

void run_scatter(const Node& n, std::span<void* const> arrays, ThreadPool& pool) {
  const int64_t size = n.numel(), count = n.src[1]->numel();
  if (size == 0) return;
  // Every part looks at every index: more parts than threads would be work for nothing.
  const int64_t parts = count < kGrain ? 1 : std::min<int64_t>(pool.size(), size);
  const auto* index = static_cast<const int64_t*>(arrays[1]);
  with_type(n.dtype, [&]<typename T>() {
    T* out = static_cast<T*>(arrays[3]);
    const T* value = static_cast<const T*>(arrays[2]);
    const auto run = [&]<template <typename> typename Op>() {
      pool.parallel_for(0, parts, 1, [&](int64_t part, int64_t, int) {
        const int64_t begin = size * part / parts, end = size * (part + 1) / parts;
        if (out != arrays[0]) {
          std::memcpy(out + begin, static_cast<const T*>(arrays[0]) + begin,
                      static_cast<size_t>(end - begin) * sizeof(T));
        }
        scatter_range<T, Op>(out, begin, end, index, value, count);
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
