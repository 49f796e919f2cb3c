#include "runtime/allocator.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/shape.h"
#include "runtime/round_up.h"

namespace lazuli {
namespace {

constexpr size_t kBlockAlignment = 64;
constexpr size_t kMapFrom = size_t{128} << 10;  // smaller blocks come from malloc
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunk = 8 * kHugePage;  // of which blocks that fill no huge page are cut
constexpr size_t kAskFrom = size_t{64}
                            << 20;  // new blocks of this size must be available, not just promised

constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // beyond this, sums of sizes would overflow

// Start offsets of mapped blocks: multiples of 9 cache lines, which meet each of the 64 lines of a
// page once.
constexpr size_t kStagger = 9 * kBlockAlignment;
constexpr size_t kStaggers = 64;

// Memory that lies in huge pages if the system has them, a multiple of their size; null if there is
// none.
std::byte* map_huge(size_t bytes) {
  // The system aligns to small pages: map more, and give back the ends.
  void* base =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(base);
  const size_t before = -reinterpret_cast<uintptr_t>(start) % kHugePage;
  if (before > 0) munmap(start, before);
  start += before;
  munmap(start + bytes, kHugePage - before);
  madvise(start, bytes, MADV_HUGEPAGE);  // where it is refused, small pages do
  return start;
}

// Eight classes to each doubling, so that at most an eighth of a block is unused.
size_t class_step(size_t bytes) {
  return std::max(kBlockAlignment, std::bit_floor(bytes) / 8);
}

size_t size_class(size_t bytes) {
  return round_up(std::max(bytes, size_t{1}), class_step(bytes));
}

uint64_t control_group_limit() {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    uint64_t value = 0;
    if (std::ifstream(path) >> value) least = std::min(least, value);  // "max" is no number
  }
  return least;
}

// What the system could still give, with what it would have to swap out; the most there is if it
// does not say.
uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  uint64_t sum = 0;
  bool is_known = false;
  for (std::string rest; file >> name >> kib; std::getline(file, rest)) {
    if (name == "MemAvailable:" || name == "SwapFree:") sum += kib << 10;
    is_known = is_known || name == "MemAvailable:";
  }
  return is_known ? sum : std::numeric_limits<uint64_t>::max();
}

}  // namespace

uint64_t usable_memory() {
  static const uint64_t bytes = [] {
    const auto pages = static_cast<uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L));
    const auto page = static_cast<uint64_t>(std::max(sysconf(_SC_PAGESIZE), 0L));
    return std::min(pages * page, control_group_limit());
  }();
  return bytes;
}

struct Allocator::State : Counted {
  explicit State(uint64_t limit) : limit(limit) {}
  ~State() override { drop_cached(); }

  // The caller of the functions below holds the lock, where others can have the allocator.

  void drop_cached() {
    for (auto& [bytes, list] : free) {
      for (const Region& region : list) give(region);
    }
    free.clear();
    stats.cached = 0;
    for (Chunk& chunk : chunks) drop(chunk);
  }

  // What is left of a huge mapping.
  struct Chunk {
    std::byte* start = nullptr;
    size_t left = 0;
  };

  static void drop(Chunk& chunk) {
    if (chunk.left > 0) munmap(chunk.start, chunk.left);
    chunk.left = 0;
  }

  // Pages of a chunk: a huge page is touched once for all the blocks that lie in it, which costs a
  // tenth of touching their small pages. What is left of the chunk counts as no memory in use: it
  // is less than a huge page that has been touched.
  static std::byte* cut(Chunk& chunk, size_t bytes) {
    if (chunk.left < bytes) {
      drop(chunk);
      chunk.start = map_huge(kChunk);
      if (chunk.start == nullptr) {
        void* alone =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return alone == MAP_FAILED ? nullptr : static_cast<std::byte*>(alone);
      }
      chunk.left = kChunk;
    }
    chunk.left -= bytes;
    return std::exchange(chunk.start, chunk.start + bytes);
  }

  // A cached region of the class, or one without data.
  Region take_cached(size_t class_bytes, bool apart) {
    const auto found = free.find(FreeKey{class_bytes, apart});
    if (found == free.end() || found->second.empty()) return {};
    const Region region = found->second.back();
    found->second.pop_back();
    stats.cached -= class_bytes;
    ++stats.reuses;
    return region;
  }

  // A new region from the system, or one without data.
  Region take(size_t class_bytes, bool apart) {
    if (stats.live + stats.cached + class_bytes > limit) drop_cached();
    if (class_bytes >= kAskFrom && available_memory() < class_bytes) {
      drop_cached();
      if (available_memory() < class_bytes) return {};
    }
    Region region = map(class_bytes, apart);
    if (region.data == nullptr && stats.cached > 0) {
      drop_cached();
      region = map(class_bytes, apart);
    }
    return region;
  }

  Region map(size_t class_bytes, bool apart) {
    if (class_bytes < kMapFrom) {
      void* base = std::aligned_alloc(kBlockAlignment, class_bytes);
      return {base, 0, static_cast<std::byte*>(base), class_bytes, apart};
    }
    const size_t stagger = next_stagger++ % kStaggers * kStagger;
    const bool is_huge = class_bytes >= kHugePage;
    const size_t page = is_huge ? kHugePage : static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t wanted = round_up(class_bytes + stagger, page);
    std::byte* const start = is_huge ? map_huge(wanted) : cut(chunks[apart ? 1 : 0], wanted);
    if (start == nullptr) return {};
    return {start, wanted, start + stagger, class_bytes, apart};
  }

  static void give(const Region& region) {
    if (region.mapped == 0) {
      std::free(region.base);
    } else {
      munmap(region.base, region.mapped);
    }
  }

  const uint64_t limit;
  std::mutex mutex;
  using FreeKey = std::pair<size_t, bool>;  // size class, and whether apart
  std::map<FreeKey, std::vector<Region>> free;
  size_t next_stagger = 0;
  Chunk chunks[2];        // of arrays, and of what lies apart from them
  uint64_t fails_at = 0;  // counts down
  bool fills = false;
  MemoryStats stats;
};

Allocator::Allocator(uint64_t limit)
    : state_(make_ref<State>(std::min(limit != 0 ? limit : usable_memory(), kMostBytes))) {}

uint64_t Allocator::block_bytes(uint64_t bytes) {
  return bytes > kMostBytes ? bytes : size_class(bytes);
}

uint64_t Allocator::largest_block(uint64_t bytes) {
  return bytes / class_step(bytes) * class_step(bytes);
}

Block Allocator::allocate(size_t bytes, bool apart) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  const auto refuse = [&](const std::string& why) {
    constexpr size_t kBeyond = std::numeric_limits<size_t>::max();  // see bytes_of()
    device_error(
        "memory: a value needs {}, and {}; use smaller shapes or free other values, which hold {}",
        bytes == kBeyond ? "2^64 bytes or more"
        : bytes < 1024   ? bytes_text(bytes)
                         : fmt::format("{} ({} bytes)", bytes_text(bytes), bytes),
        why, bytes_text(state.stats.live));
  };
  if (state.fails_at > 0 && --state.fails_at == 0) refuse("a test refuses it");
  // The first test keeps the rounding from overflowing.
  const size_t class_bytes = bytes > state.limit ? 0 : size_class(bytes);
  if (bytes > state.limit || state.stats.live + class_bytes > state.limit) {
    refuse("the limit is " + bytes_text(state.limit) + " (LAZULI_MEMORY, or what the machine has)");
  }

  Block block;
  block.region_ = state.take_cached(class_bytes, apart);
  if (!block) block.region_ = state.take(class_bytes, apart);
  if (!block) refuse("the system has only " + bytes_text(available_memory()) + " left");
  block.state_ = state_;
  block.size_ = bytes;
  state.stats.live += class_bytes;
  state.stats.peak = std::max(state.stats.peak, state.stats.live);
  ++state.stats.allocations;
  if (state.fills) std::memset(block.data(), 0xff, bytes);
  return block;
}

Allocator::Block::~Block() {
  if (region_.data == nullptr) return;
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  state.stats.live -= region_.class_bytes;
  if (state.stats.cached + region_.class_bytes > state.limit / 2) {
    State::give(region_);
    return;
  }
  try {
    state.free[State::FreeKey{region_.class_bytes, region_.apart}].push_back(region_);
    state.stats.cached += region_.class_bytes;
  } catch (const std::bad_alloc&) {
    State::give(region_);
  }
}

void Allocator::fill_with_nan() {
  const std::lock_guard lock(state_->mutex);
  state_->fills = true;
}

void Allocator::fail_at(uint64_t n) {
  const std::lock_guard lock(state_->mutex);
  state_->fails_at = n;
}

void Allocator::trim() {
  const std::lock_guard lock(state_->mutex);
  state_->drop_cached();
}

MemoryStats Allocator::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

uint64_t Allocator::limit() const {
  return state_->limit;
}

}  // namespace lazuli
