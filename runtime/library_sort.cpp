// The order of sorted lines. Elements become unsigned keys in the same order, each beside its
// place: short lines are sorted by comparing the two as one number, long ones by radix, lowest
// digit first, which keeps equals in order. The longest are cut into chunks that threads count and
// scatter side by side.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "core/large_pages.h"
#include "runtime/library.h"
#include "runtime/library_types.h"

namespace lazuli {
namespace {

constexpr int64_t kShort = 192;      // lines that are sorted by comparing
constexpr int64_t kGrain = 4096;     // elements that are worth a thread
constexpr int64_t kChunk = 1 << 17;  // of a line that several threads sort
constexpr int kDigit = 8;            // bits
constexpr size_t kBuckets = size_t{1} << kDigit;

// Bits as an unsigned number of the same size, or of 32 bits for smaller ones.
template <size_t kBytes>
using Unsigned = std::conditional_t<kBytes == 8, uint64_t, uint32_t>;

// A number whose order is that of the elements: NaNs are equal and largest, zeros are equal.
template <typename T>
Unsigned<sizeof(T)> key_of(T value) {
  using U = Unsigned<sizeof(T)>;
  constexpr int kBits = 8 * sizeof(T);
  constexpr U kSign = U{1} << (kBits - 1), kAll = kSign | (kSign - 1);
  U bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? bits ^ kSign : bits;
  } else {
    constexpr int kMantissa = std::is_same_v<T, Half>     ? 10
                              : std::is_same_v<T, BFloat> ? 7
                              : std::is_same_v<T, float>  ? 23
                                                          : 52;
    const U magnitude = bits & (kSign - 1), infinity = kSign - (U{1} << kMantissa);
    if (magnitude > infinity) return kAll;
    if (magnitude == 0) return kSign;
    return (bits & kSign) ? ~bits & kAll : bits | kSign;
  }
}

// A key of up to 32 bits above its place; a key of 64 bits, or a place that needs more than 32.
struct Narrow {
  uint64_t both;
  Narrow() = default;
  Narrow(uint64_t key, int64_t place) : both(key << 32 | static_cast<uint64_t>(place)) {}
  uint64_t key() const { return both >> 32; }
  int64_t place() const { return static_cast<int64_t>(both & 0xFFFFFFFFu); }
  friend bool operator<(const Narrow& a, const Narrow& b) { return a.both < b.both; }
};
struct Wide {
  uint64_t bits;
  int64_t at;
  Wide() = default;
  Wide(uint64_t key, int64_t place) : bits(key), at(place) {}
  uint64_t key() const { return bits; }
  int64_t place() const { return at; }
  friend bool operator<(const Wide& a, const Wide& b) {
    return a.bits != b.bits ? a.bits < b.bits : a.at < b.at;
  }
};

// Elements that are written before they are read, in large pages: a pass writes to as many places
// at once as there are buckets.
template <typename T>
class Scratch {
 public:
  explicit Scratch(int64_t size)
      : size_(static_cast<size_t>(size)), data_(LargePages<T>().allocate(size_)) {}
  ~Scratch() { LargePages<T>().deallocate(data_, size_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() { return data_; }

 private:
  size_t size_;
  T* data_;
};

// Sorts lines of `length` elements; keeps the memory for that.
template <typename Entry>
class Sorter {
 public:
  Sorter(int64_t length, ThreadPool* pool)
      : length_(length),
        pool_(pool),
        chunk_(pool ? kChunk : length),
        memory_{Scratch<Entry>(length), Scratch<Entry>(length)},
        counts_(static_cast<size_t>((length + chunk_ - 1) / chunk_)) {}

  template <typename T>
  void sort(const T* x, int64_t* order, bool descending) {
    constexpr int kBits = 8 * sizeof(T);
    using U = Unsigned<sizeof(T)>;
    const U flip = descending ? static_cast<U>(~U{0} >> (8 * sizeof(U) - kBits)) : 0;
    Entry *from = memory_[0].data(), *to = memory_[1].data();
    for_chunks([&](Counts&, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) from[i] = Entry(key_of(x[i]) ^ flip, i);
    });
    if (length_ <= kShort) {
      std::sort(from, from + length_);
    } else {
      for (int shift = 0; shift < kBits; shift += kDigit) {
        if (pass(from, to, shift)) std::swap(from, to);
      }
    }
    for_chunks([&](Counts&, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) order[i] = from[i].place();
    });
  }

 private:
  using Counts = std::array<int64_t, kBuckets>;

  // fn(counts, begin, end) for each chunk, on the threads of the pool if there is one.
  template <typename F>
  void for_chunks(F&& fn) {
    const auto chunk = [&](int64_t c, int64_t, int) {
      fn(counts_[static_cast<size_t>(c)], c * chunk_, std::min(length_, (c + 1) * chunk_));
    };
    pool_ ? pool_->parallel_for(0, static_cast<int64_t>(counts_.size()), 1, chunk) : chunk(0, 1, 0);
  }

  static size_t digit(const Entry& e, int shift) { return e.key() >> shift & (kBuckets - 1); }

  // Moves the elements to `to`, by one digit; false if all have the same one and nothing is moved.
  bool pass(const Entry* from, Entry* to, int shift) {
    for_chunks([&](Counts& counts, int64_t begin, int64_t end) {
      // Neighbours often have the same digit, and an addition waits for the last one to its place.
      std::array<uint32_t, kBuckets> even{}, odd{};
      int64_t i = begin;
      for (; i + 2 <= end; i += 2) {
        even[digit(from[i], shift)]++;
        odd[digit(from[i + 1], shift)]++;
      }
      if (i < end) even[digit(from[i], shift)]++;
      for (size_t k = 0; k < kBuckets; k++) counts[k] = int64_t{even[k]} + odd[k];
    });
    // Where each chunk's elements of a bucket begin: after those of smaller buckets, and of the
    // same one in earlier chunks.
    int64_t begin = 0;
    for (size_t bucket = 0; bucket < kBuckets; bucket++) {
      const int64_t before = begin;
      for (Counts& counts : counts_) begin += std::exchange(counts[bucket], begin);
      if (begin - before == length_) return false;
    }
    for_chunks([&](Counts& counts, int64_t first, int64_t end) {
      Counts next = counts;
      for (int64_t i = first; i < end; i++) to[next[digit(from[i], shift)]++] = from[i];
    });
    return true;
  }

  int64_t length_;
  ThreadPool* pool_;
  int64_t chunk_;
  Scratch<Entry> memory_[2];
  std::vector<Counts> counts_;
};

template <typename Entry, typename T>
void sort_lines(const T* x, int64_t* order, int64_t lines, int64_t length, bool descending,
                ThreadPool& pool) {
  constexpr int64_t kMostAlone = 1 << 30;  // chunks are counted in 32 bits
  if ((lines < pool.size() && length > kChunk) || length > kMostAlone) {
    Sorter<Entry> sorter(length, &pool);
    for (int64_t i = 0; i < lines; i++) sorter.sort(x + i * length, order + i * length, descending);
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / length);
  pool.parallel_for(0, lines, grain, [&](int64_t from, int64_t to, int) {
    Sorter<Entry> sorter(length, nullptr);
    for (int64_t i = from; i < to; i++) {
      sorter.sort(x + i * length, order + i * length, descending);
    }
  });
}

}  // namespace

void run_argsort(const Node& n, std::span<void* const> arrays, ThreadPool& pool) {
  if (n.numel() == 0) return;
  const int64_t length = n.shape.back(), lines = n.numel() / length;
  const bool descending = n.integer() != 0;
  with_type(n.src[0]->dtype, [&]<typename T>() {
    const T* x = static_cast<const T*>(arrays[0]);
    auto* order = static_cast<int64_t*>(arrays[1]);
    if (sizeof(T) <= 4 && length <= int64_t{UINT32_MAX}) {
      sort_lines<Narrow>(x, order, lines, length, descending, pool);
    } else {
      sort_lines<Wide>(x, order, lines, length, descending, pool);
    }
  });
}

}  // namespace lazuli
