#include "core/large_pages.h"

#include <array>
#include <bit>
#include <mutex>

namespace lazuli {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMostKept = 0;  // so that a use after free is seen
#else
constexpr size_t kMostKept = size_t{128} << 20;
#endif

// Blocks of the same power of two, whose pages are there already.
struct Kept {
  std::mutex mutex;
  std::array<std::vector<void*>, 64> blocks;
  size_t bytes = 0;
};

Kept& kept() {
  static Kept* const k = new Kept;  // outlives every static that gives memory back
  return *k;
}

size_t size_class(size_t bytes) {
  return static_cast<size_t>(std::bit_width(bytes - 1));
}

}  // namespace

void* take_large(size_t bytes) {
  const size_t order = size_class(bytes), whole = size_t{1} << order;
  {
    Kept& k = kept();
    const std::lock_guard lock(k.mutex);
    std::vector<void*>& blocks = k.blocks[order];
    if (!blocks.empty()) {
      void* const p = blocks.back();
      blocks.pop_back();
      k.bytes -= whole;
      return p;
    }
  }
  void* const p = ::operator new(whole, std::align_val_t{kLargePage});
  madvise(p, whole, MADV_HUGEPAGE);
  return p;
}

void give_large(void* p, size_t bytes) {
  const size_t order = size_class(bytes), whole = size_t{1} << order;
  {
    Kept& k = kept();
    const std::lock_guard lock(k.mutex);
    if (k.bytes + whole <= kMostKept) {
      k.blocks[order].push_back(p);
      k.bytes += whole;
      return;
    }
  }
  ::operator delete(p, std::align_val_t{kLargePage});
}

}  // namespace lazuli
