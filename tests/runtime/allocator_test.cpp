// The allocator: alignment, stagger, reuse, limits, statistics, threads.
#include "runtime/allocator.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"

using namespace lazuli;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

int64_t page_faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

std::string refusal(Allocator& allocator, size_t bytes) {
  try {
    allocator.allocate(bytes);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("blocks of every size are aligned and can be written from end to end") {
    Allocator allocator;
    std::vector<Block> blocks;
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4096},
                         size_t{100'000}, 128 * 1024 - size_t{1}, size_t{128 * 1024}, kMiB + 1,
                         2 * kMiB - 1, 2 * kMiB, 5 * kMiB + 3}) {
      blocks.push_back(allocator.allocate(bytes));
      CAPTURE(bytes);
      CHECK(blocks.back().size() == bytes);
      CHECK(blocks.back().data() != nullptr);
      CHECK(reinterpret_cast<uintptr_t>(blocks.back().data()) % 64 == 0);
      std::memset(blocks.back().data(), 0x5a, bytes);
    }
    for (const Block& block : blocks) {
      for (size_t i = 0; i < block.size(); i += 61) REQUIRE(block.data()[i] == std::byte{0x5a});
    }
  }

  TEST_CASE("large blocks start at different places in their pages") {
    Allocator allocator;
    std::vector<Block> blocks;
    std::set<uintptr_t> places;
    for (int i = 0; i < 32; ++i) {
      blocks.push_back(allocator.allocate(4 * kMiB));
      places.insert(reinterpret_cast<uintptr_t>(blocks.back().data()) % 4096);
    }
    CHECK(places.size() == 32);
  }

  TEST_CASE("blocks that share huge pages are apart, and stay when others go back to the system") {
    Allocator allocator;
    std::vector<std::optional<Block>> blocks;
    const auto size = [](size_t i) { return (128 << 10) + i * 37 % 50 * (36 << 10); };
    const auto fill = [&](size_t i) {
      if (!blocks[i]) blocks[i] = allocator.allocate(size(i));
      std::memset(blocks[i]->data(), static_cast<int>(i), blocks[i]->size());
    };
    blocks.resize(60);
    for (size_t i = 0; i < blocks.size(); i++) fill(i);
    for (size_t i = 0; i < blocks.size(); i += 3) blocks[i].reset();
    allocator.trim();
    CHECK(allocator.stats().cached == 0);
    for (size_t i = 0; i < blocks.size(); i += 3) fill(i);
    for (size_t i = 0; i < blocks.size(); i++) {
      const std::byte* const data = blocks[i]->data();
      bool own = true;
      for (size_t b = 0; b < size(i); b++) own &= data[b] == static_cast<std::byte>(i);
      CHECK(own);
    }
  }

  TEST_CASE("a freed block is used again without page faults") {
    Allocator allocator;
    const std::byte* first = nullptr;
    {
      const Block block = allocator.allocate(64 * kMiB);
      std::memset(block.data(), 1, block.size());
      first = block.data();
    }
    CHECK(allocator.stats().cached >= 64 * kMiB);
    const int64_t before = page_faults();
    const Block again = allocator.allocate(64 * kMiB - 1000);
    std::memset(again.data(), 2, again.size());
    CHECK(again.data() == first);
    CHECK(page_faults() - before < 50);
    CHECK(allocator.stats().reuses == 1);
  }

  TEST_CASE("what lies apart is in other pages than what does not, when it is used again too") {
    Allocator allocator;
    const auto page_of = [](const Block& block) {  // of 2 MiB
      return reinterpret_cast<uintptr_t>(block.data()) / (2 * kMiB);
    };
    constexpr size_t kSize = 256 << 10;
    Block array = allocator.allocate(kSize), work = allocator.allocate_apart(kSize),
          next = allocator.allocate(kSize);
    CHECK(page_of(array) == page_of(next));
    CHECK(page_of(array) != page_of(work));
    const std::byte* const at = work.data();
    work = Block();
    const Block other = allocator.allocate(kSize);
    CHECK(other.data() != at);
    CHECK(allocator.allocate_apart(kSize).data() == at);
  }

  TEST_CASE("statistics count live, cached and peak bytes") {
    Allocator allocator(100 * kMiB);
    CHECK(allocator.limit() == 100 * kMiB);
    {
      const Block a = allocator.allocate(8 * kMiB);
      const Block b = allocator.allocate(16 * kMiB);
      CHECK(allocator.stats().live == 24 * kMiB);
      CHECK(allocator.stats().cached == 0);
    }
    CHECK(allocator.stats().live == 0);
    CHECK(allocator.stats().cached == 24 * kMiB);
    CHECK(allocator.stats().peak == 24 * kMiB);
    CHECK(allocator.stats().allocations == 2);
    allocator.trim();
    CHECK(allocator.stats().cached == 0);
  }

  TEST_CASE("cached blocks make room for others, and half of the limit is kept at most") {
    Allocator allocator(100 * kMiB);
    allocator.allocate(40 * kMiB);
    CHECK(allocator.stats().cached == 40 * kMiB);
    const Block large = allocator.allocate(80 * kMiB);
    CHECK(allocator.stats().cached == 0);
    CHECK(allocator.stats().live == 80 * kMiB);
    Allocator other(100 * kMiB);
    other.allocate(60 * kMiB);
    CHECK(other.stats().cached == 0);
  }

  TEST_CASE("memory that cannot be had is an error that names the sizes, and nothing is lost") {
    Allocator allocator(100 * kMiB);
    const Block held = allocator.allocate(80 * kMiB);
    CHECK(refusal(allocator, 24 * kMiB) ==
          "memory: a value needs 24 MiB (25165824 bytes), and the limit is 100 MiB (LAZULI_MEMORY, "
          "or what the machine has); use smaller shapes or free other values, which hold 80 MiB");
    CHECK(allocator.allocate(16 * kMiB).data() != nullptr);
    Allocator smallest(1);
    CHECK(refusal(smallest, 12) ==
          "memory: a value needs 12 bytes, and the limit is 1 byte (LAZULI_MEMORY, or what the "
          "machine has); use smaller shapes or free other values, which hold 0 bytes");
    CHECK(refusal(allocator, SIZE_MAX).starts_with("memory: a value needs 2^64 bytes or more"));

    Allocator machine;
    CHECK(machine.limit() == usable_memory());
    CHECK(
        refusal(machine, size_t{10} << 40)
            .starts_with("memory: a value needs 10 TiB (10995116277760 bytes), and the limit is "));
    Allocator boundless(UINT64_MAX);
    CHECK(
        refusal(boundless, size_t{10} << 40)
            .starts_with("memory: a value needs 10 TiB (10995116277760 bytes), and the system has "
                         "only "));
    CHECK(refusal(boundless, size_t{1} << 62).starts_with("memory: a value needs 4 EiB"));
    CHECK(refusal(boundless, SIZE_MAX).starts_with("memory: a value needs 2^64 bytes or more"));
    CHECK(boundless.allocate(1000).data() != nullptr);
  }

  TEST_CASE("blocks move, and outlive their allocator") {
    std::optional<Allocator> allocator(std::in_place);
    Block block = allocator->allocate(3 * kMiB);
    std::byte* data = block.data();
    Block moved = std::move(block);
    CHECK(!block);
    CHECK(moved.data() == data);
    allocator.reset();
    std::memset(moved.data(), 3, moved.size());
    moved = Block();
    CHECK(!moved);
  }

  TEST_CASE("several threads allocate and free at once") {
    Allocator allocator;
    std::vector<std::thread> threads;
    std::vector<int> wrong(4);
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) {
          const size_t bytes = size_t(1 + (i * 7919 + t * 104729) % 300'000);
          const Block block = allocator.allocate(bytes);
          std::memset(block.data(), t, bytes);
          std::this_thread::yield();
          wrong[t] += block.data()[0] != std::byte(t) || block.data()[bytes - 1] != std::byte(t);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == std::vector<int>(4));
    CHECK(allocator.stats().live == 0);
  }
}
