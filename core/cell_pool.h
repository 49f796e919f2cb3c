// Memory for many small objects of one size. A graph of a million nodes is taken and given back one node at a time:
// cells that lie together in the order they were taken keep walks in cache, and large pages keep them in the TLB.
#pragma once

#include <cstddef>
#include <utility>

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
    Hand& h = hand_;
    return h.count > 0 ? h.cells[--h.count] : take_more();
  }
  static void give(void* cell) {
    Hand& h = hand_;
    if (h.count == h.room) return give_more(cell);
    h.cells[h.count++] = cell;
  }

 private:
  static constexpr size_t kSome = 256;
  struct Hand {
    void* cells[2 * kSome];
    size_t count, room;  // room: 0 before the first cell and after the thread's end
    // From the start where uses after free are looked for, which the pool tells of.
    bool closed;
  };
  struct End {
    ~End() {
      Hand& h = hand_;
      h.closed = true;
      h.room = 0;
      pool().give(h.cells, std::exchange(h.count, 0));
    }
  };
  static CellPool& pool() {
    static auto* const pool = new CellPool(sizeof(T));  // outlives every static object
    return *pool;
  }

  // Whether the thread may have cells at hand.
  static bool open() {
    if (hand_.closed) return false;
    static thread_local const End end;
    hand_.room = 2 * kSome;
    return true;
  }
  [[gnu::noinline]] static void* take_more() {
    if (!open()) return pool().take();
    Hand& h = hand_;
    pool().take(h.cells + kSome, kSome);
    // They lie in the order in which they are to be taken: the last one first.
    for (size_t i = 0; i < kSome; i++) h.cells[i] = h.cells[2 * kSome - 1 - i];
    h.count = kSome;
    return h.cells[--h.count];
  }
  [[gnu::noinline]] static void give_more(void* cell) {
    if (!open()) return pool().give(cell);
    Hand& h = hand_;
    if (h.count == h.room) {
      pool().give(h.cells, kSome);
      for (size_t i = 0; i < kSome; i++) h.cells[i] = h.cells[kSome + i];
      h.count = kSome;
    }
    h.cells[h.count++] = cell;
  }

  // Without a destructor, which each use would first have to ask for.
  static inline constinit thread_local Hand hand_{{}, 0, 0, LAZULI_ASAN};
};

}  // namespace lazuli
