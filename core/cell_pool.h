// Memory for many small objects of one size. A graph of a million nodes is taken and given back one node at a time:
// cells that lie together in the order they were taken keep walks in cache, and large pages keep them in the TLB.
#pragma once

#include <cstddef>
#include <mutex>

namespace lazuli {

/// Cells of one size, cut from slabs of 2 MiB. Slabs whose cells have all come back are kept for the next graph, up to
/// 256 MiB of them; the others are returned to the system. Thread-safe.
class CellPool {
 public:
  explicit CellPool(size_t cell_bytes) : cell_bytes_(cell_bytes) {}
  CellPool(const CellPool&) = delete;
  CellPool& operator=(const CellPool&) = delete;

  /// Memory for one object, aligned to 16 bytes; std::bad_alloc if the system has none.
  void* take();
  /// Gives back what take() returned.
  void give(void* cell);

 private:
  struct Slab;
  Slab* new_slab();

  std::mutex mutex_;
  const size_t cell_bytes_;
  Slab* open_ = nullptr;  // slabs that have a free cell, the one in use first
  size_t slabs_ = 0, kept_ = 0;
};

}  // namespace lazuli
