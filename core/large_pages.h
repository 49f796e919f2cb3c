// Memory of large arrays that live as long as one pass. The first touch of a page costs about as
// much as a hundred loads, and a table of a million entries misses the TLB at every look: pages of
// 2 MiB spare both.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

// Whether uses after free are looked for: g++ tells of it by a macro, clang by a feature.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LAZULI_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define LAZULI_ASAN 1
#endif
#ifndef LAZULI_ASAN
#define LAZULI_ASAN 0
#endif

namespace lazuli {

inline constexpr size_t kLargePage = size_t{2} << 20;

/// At least `bytes`, of kLargePage or more, in large pages; std::bad_alloc if there are none. What
/// is given back is kept for the next pass, up to 128 MiB in the process. Thread-safe.
void* take_large(size_t bytes);
/// Gives back what take_large(bytes) returned.
void give_large(void* p, size_t bytes) noexcept;

/// An allocator that asks for large pages where an array is as long as one.
template <typename T>
struct LargePages {
  using value_type = T;
  LargePages() = default;
  template <typename U>
  LargePages(const LargePages<U>&) {}

  T* allocate(size_t n) {
    const size_t bytes = n * sizeof(T);
    return static_cast<T*>(bytes < kLargePage ? ::operator new(bytes) : take_large(bytes));
  }
  void deallocate(T* p, size_t n) {
    const size_t bytes = n * sizeof(T);
    bytes < kLargePage ? ::operator delete(p) : give_large(p, bytes);
  }
  friend bool operator==(const LargePages&, const LargePages&) { return true; }
};

/// A vector that may hold something for each node of a large graph.
template <typename T>
using PassVector = std::vector<T, LargePages<T>>;

}  // namespace lazuli
