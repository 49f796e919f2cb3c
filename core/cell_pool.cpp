#include "core/cell_pool.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

#include "core/large_pages.h"

// The address sanitizer is told which cells are free, so that it sees a use of one, and to look in
// the others for pointers, so that what a living cell holds is no leak.
#if LAZULI_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_register_root_region(address, size) ((void)(address), (void)(size))
#define __lsan_unregister_root_region(address, size) ((void)(address), (void)(size))
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace lazuli {
namespace {

constexpr size_t kSlabBytes = kLargePage;
constexpr size_t kAlignment = 16;
constexpr size_t kKeptSlabs = 128;  // empty ones: a page costs more to have again than to keep

struct FreeCell {
  FreeCell* next;
};

// Memory of the system, aligned to its own size so that a cell finds its slab by masking.
void* map_slab() {
  void* p = mmap(nullptr, 2 * kSlabBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  const auto begin = reinterpret_cast<uintptr_t>(p), aligned = (begin + kSlabBytes - 1) & ~(kSlabBytes - 1);
  if (aligned != begin) munmap(p, aligned - begin);
  const uintptr_t end = aligned + kSlabBytes, mapped = begin + 2 * kSlabBytes;
  if (end != mapped) munmap(reinterpret_cast<void*>(end), mapped - end);
  __lsan_register_root_region(reinterpret_cast<void*>(aligned), kSlabBytes);
  return reinterpret_cast<void*>(aligned);
}

}  // namespace

struct CellPool::Slab {
  Slab *next = nullptr, *previous = nullptr;  // among the open ones
  FreeCell* free = nullptr;                   // cells that came back
  char* fresh = nullptr;                      // cells from here on were never taken
  size_t used = 0;
  bool kept = false;  // empty, and counted so

  void reset() {
    free = nullptr;
    fresh = reinterpret_cast<char*>(this) + (sizeof(Slab) + kAlignment - 1) / kAlignment * kAlignment;
  }
  char* end(size_t cell_bytes) { return reinterpret_cast<char*>(this) + kSlabBytes - cell_bytes; }
  bool full(size_t cell_bytes) { return !free && fresh > end(cell_bytes); }
};

CellPool::Slab* CellPool::new_slab() {
  void* memory = map_slab();
  // A small program touches a few pages of its only slab; from the second on large pages pay.
  if (slabs_ > 0) madvise(memory, kSlabBytes, MADV_HUGEPAGE);
  slabs_++;
  auto* slab = new (memory) Slab;
  slab->reset();
  return slab;
}

void CellPool::take(void** cells, size_t count) {
  const SpinGuard lock(lock_);
  size_t taken = 0;
  try {
    for (; taken < count; taken++) cells[taken] = take_one();
  } catch (...) {
    while (taken > 0) give_one(cells[--taken]);
    throw;
  }
}

void CellPool::give(void* const* cells, size_t count) {
  const SpinGuard lock(lock_);
  for (size_t i = 0; i < count; i++) give_one(cells[i]);
}

void* CellPool::take_one() {
  if (!open_) open_ = new_slab();
  Slab* slab = open_;
  if (std::exchange(slab->kept, false)) kept_--;
  void* cell = slab->free;
  if (cell) {
    slab->free = slab->free->next;
  } else {
    cell = slab->fresh;
    slab->fresh += (cell_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  }
  ASAN_UNPOISON_MEMORY_REGION(cell, cell_bytes_);
  slab->used++;
  if (slab->full(cell_bytes_)) {
    open_ = slab->next;
    if (open_) open_->previous = nullptr;
    slab->next = nullptr;
  }
  return cell;
}

void CellPool::give_one(void* cell) {
  auto* slab = reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(cell) & ~(kSlabBytes - 1));
  const bool was_full = slab->full(cell_bytes_);
  slab->free = new (cell) FreeCell{slab->free};
  ASAN_POISON_MEMORY_REGION(slab->free + 1, cell_bytes_ - sizeof(FreeCell));
  slab->used--;
  if (was_full) {
    // Behind the slab in use, which stays the one that cells are taken from.
    Slab*& after = open_ ? open_->next : open_;
    slab->previous = open_;
    slab->next = after;
    if (after) after->previous = slab;
    after = slab;
    return;
  }
  if (slab->used > 0 || slab == open_) return;
  if (kept_ < kKeptSlabs) {
    slab->reset();
    slab->kept = true;
    kept_++;
    return;
  }
  slab->previous->next = slab->next;
  if (slab->next) slab->next->previous = slab->previous;
  slabs_--;
  ASAN_UNPOISON_MEMORY_REGION(slab, kSlabBytes);
  __lsan_unregister_root_region(slab, kSlabBytes);
  munmap(slab, kSlabBytes);
}

}  // namespace lazuli
