#include "core/large_pages.h"

#include <sys/mman.h>

#include <array>
#include <bit>
#include <mutex>

namespace lazuli {
namespace {

constexpr size_t kMostKept = LAZULI_ASAN ? 0 : size_t{128} << 20;

// Blocks that came back, whose pages are there already: a list for each power of two, linked
// through the blocks.
struct Kept {
  std::mutex mutex;
  std::array<void*, 64> first{};
  size_t bytes = 0;
};

Kept& kept() {
  static Kept* const k = new Kept;  // outlives every static that gives memory back
  return *k;
}

// What is taken for `bytes`: a power of two where it may be kept.
size_t size_of_block(size_t bytes) {
  return bytes <= kMostKept ? std::bit_ceil(bytes) : bytes;
}

size_t order_of(size_t block) {
  return static_cast<size_t>(std::countr_zero(block));
}

}  // namespace

void* take_large(size_t bytes) {
  const size_t block = size_of_block(bytes);
  if (block <= kMostKept) {
    Kept& k = kept();
    const std::lock_guard lock(k.mutex);
    void*& first = k.first[order_of(block)];
    if (void* const p = first) {
      first = *static_cast<void**>(p);
      k.bytes -= block;
      return p;
    }
  }
  void* const p = ::operator new (block, std::align_val_t{kLargePage});
  madvise(p, block / kLargePage * kLargePage, MADV_HUGEPAGE);
  return p;
}

void give_large(void* p, size_t bytes) noexcept {
  const size_t block = size_of_block(bytes);
  if (block <= kMostKept) {
    Kept& k = kept();
    const std::lock_guard lock(k.mutex);
    if (k.bytes + block <= kMostKept) {
      void*& first = k.first[order_of(block)];
      *static_cast<void**>(p) = first;
      first = p;
      k.bytes += block;
      return;
    }
  }
  ::operator delete (p, std::align_val_t{kLargePage});
}

}  // namespace lazuli
