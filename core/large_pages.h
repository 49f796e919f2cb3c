// Memory of large arrays that live as long as one pass. The first touch of a page costs about as much as a hundred loads,
// and a table of a million entries misses the TLB at every look: pages of 2 MiB spare both.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace lazuli {

inline constexpr size_t kLargePage = size_t{2} << 20;

/// An allocator that asks for large pages where an array is as long as one.
template <typename T>
struct LargePages {
  using value_type = T;
  LargePages() = default;
  template <typename U>
  LargePages(const LargePages<U>&) {}

  T* allocate(size_t n) {
    const size_t bytes = n * sizeof(T);
    if (bytes < kLargePage) return static_cast<T*>(::operator new(bytes));
    void* p = ::operator new(bytes, std::align_val_t{kLargePage});
    madvise(p, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
    return static_cast<T*>(p);
  }
  void deallocate(T* p, size_t n) {
    if (n * sizeof(T) < kLargePage) return ::operator delete(p);
    ::operator delete(p, std::align_val_t{kLargePage});
  }
  friend bool operator==(const LargePages&, const LargePages&) { return true; }
};

/// A vector that may hold something for each node of a large graph.
template <typename T>
using PassVector = std::vector<T, LargePages<T>>;

}  // namespace lazuli
