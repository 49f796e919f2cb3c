// Memory for many small objects of one size. A graph of a million nodes is taken and given back one node at a time:
// cells that lie together in the order they were taken keep walks in cache, and large pages keep them in the TLB.
#pragma once

#include <cstddef>

#include "core/large_pages.h"
#include "core/spin_lock.h"

namespace lazuli {

/// Cells of one size, cut from slabs of 2 MiB. Slabs whose cells have all come back are kept for the next graph, up to
/// 256 MiB of them; the others are returned to the system. Thread-safe.
class CellPool {
 public:
  explicit CellPool(size_t cell_bytes) : cell_bytes_(cell_bytes) {}
  CellPool(const CellPool&) = delete;
  CellPool& operator=(const CellPool&) = delete;

  /// Memory for `count` objects, aligned to 16 bytes; std::bad_alloc if the system has none.
  void take(void** cells, size_t count);
  void* take() {
    void* cell = nullptr;
    take(&cell, 1);
    return cell;
  }
  /// Gives back what take() returned.
  void give(void* const* cells, size_t count);
  void give(void* cell) { give(&cell, 1); }

 private:
  struct Slab;
  Slab* new_slab();
  void* take_one();
  void give_one(void* cell);

  SpinLock lock_;
  const size_t cell_bytes_;
  Slab* open_ = nullptr;  // slabs that have a free cell, the one in use first
  size_t slabs_ = 0, kept_ = 0;
};

/// Cells of the size of a T: each thread has some at hand, so that most are had and given back
/// without the lock of their pool, and returns them when it ends.
template <typename T>
class Cells {
 public:
  static void* take() {
    if (closed_) return pool().take();
    Hand& h = hand_;
    if (h.count == 0) {
      pool().take(h.cells + kSome, kSome);
      // They lie in the order in which they are to be taken: the last one first.
      for (size_t i = 0; i < kSome; i++) h.cells[i] = h.cells[2 * kSome - 1 - i];
      h.count = kSome;
    }
    return h.cells[--h.count];
  }
  static void give(void* cell) {
    if (closed_) return pool().give(cell);
    Hand& h = hand_;
    h.cells[h.count++] = cell;
    if (h.count < 2 * kSome) return;
    pool().give(h.cells, kSome);
    for (size_t i = 0; i < kSome; i++) h.cells[i] = h.cells[kSome + i];
    h.count = kSome;
  }

 private:
  static constexpr size_t kSome = 128;
  struct Hand {
    void* cells[2 * kSome];
    size_t count = 0;
    ~Hand() {
      closed_ = true;
      pool().give(cells, count);
    }
  };
  static CellPool& pool() {
    static auto* const pool = new CellPool(sizeof(T));  // outlives every static object
    return *pool;
  }

  static inline thread_local Hand hand_;
  // Whether the thread ends: no member of what is destroyed then. From the start where uses after
  // free are looked for, which the pool tells of.
  static inline constinit thread_local bool closed_ = LAZULI_ASAN;
};

}  // namespace lazuli
