// Memory for values. Freed blocks are kept by size class and handed out again, so that a large
// result costs no page faults the second time it is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/ref.h"

namespace lazuli {

/// What an allocator holds, in bytes as rounded up to size classes.
struct MemoryStats {
  uint64_t live = 0;         ///< in blocks that someone holds
  uint64_t cached = 0;       ///< freed and kept
  uint64_t peak = 0;         ///< the most that was ever live
  uint64_t allocations = 0;  ///< calls of allocate() that gave a block
  uint64_t reuses = 0;       ///< those of them that needed no new memory
};

/// The memory that this process may use: what the machine has, or the limit of its control group if
/// that is less.
uint64_t usable_memory();

class Allocator {
 private:
  struct State;
  /// What the system gave: where it begins, how much is mapped (0: it is malloc's), and where the
  /// block starts in it.
  struct Region {
    void* base = nullptr;
    size_t mapped = 0;
    std::byte* data = nullptr;
    size_t class_bytes = 0;
    bool apart = false;
  };

 public:
  /// A piece of memory, given back to its allocator when dropped; it may outlive the allocator.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept { swap(other); }
    Block& operator=(Block&& other) noexcept {
      Block(std::move(other)).swap(*this);
      return *this;
    }
    ~Block();

    std::byte* data() const { return region_.data; }
    /// The size that was asked for.
    size_t size() const { return size_; }
    explicit operator bool() const { return region_.data != nullptr; }

    void swap(Block& other) noexcept {
      std::swap(state_, other.state_);
      std::swap(region_, other.region_);
      std::swap(size_, other.size_);
    }

   private:
    friend class Allocator;
    Ref<State> state_;
    Region region_;
    size_t size_ = 0;
  };

  /// At most `limit` bytes are live or cached at a time, and at most half of it cached; 0 means
  /// usable_memory().
  explicit Allocator(uint64_t limit = 0);

  /// A block of at least `bytes` bytes (its contents are arbitrary), aligned to 64. Blocks of 2 MiB
  /// and more lie in huge pages, if the system has them, and start at different distances from a
  /// page's start: arrays that are all aligned alike compete for the same cache sets and hold up
  /// each other's loads and stores. DeviceError, which names the sizes, if there is no such memory.
  /// Thread-safe, as everything here.
  Block allocate(size_t bytes) { return allocate(bytes, false); }
  /// The same, in no chunk of pages that has blocks of allocate(): a core that walks an array reads
  /// ahead past its end, and would take lines behind it from another core that works there.
  Block allocate_apart(size_t bytes) { return allocate(bytes, true); }

  /// What a block of so many bytes counts as, rounded up to its size class; and the largest block
  /// that counts as no more than so many.
  static uint64_t block_bytes(uint64_t bytes);
  static uint64_t largest_block(uint64_t bytes);

  /// For tests of what becomes of a failure: the n-th call of allocate() from now on fails; 0:
  /// none.
  void fail_at(uint64_t n);
  /// For checks of what is read before it is written: from now on blocks hold nothing but NaN, in
  /// floats of every width.
  void fill_with_nan();

  /// Gives cached memory back to the system.
  void trim();

  MemoryStats stats() const;
  uint64_t limit() const;

 private:
  Block allocate(size_t bytes, bool apart);

  Ref<State> state_;
};

using Block = Allocator::Block;

}  // namespace lazuli
