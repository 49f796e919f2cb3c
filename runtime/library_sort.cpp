// Sorted lines, and their order. Elements become unsigned keys in the same order, for the order
// each beside its place: short lines are sorted by comparing the two as one number, long ones by
// radix, lowest digit first, which keeps equals in order. The longest are cut into chunks that
// threads count and scatter side by side. The first few of a line are found without sorting it.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "core/large_pages.h"
#include "runtime/library.h"
#include "runtime/library_types.h"

namespace lazuli {
namespace {

constexpr int64_t kShortSort = 192;      // lines that are sorted by comparing
constexpr int64_t kSortGrain = 4096;     // elements that are worth a thread
constexpr int64_t kSortChunk = 1 << 17;  // of a line that several threads sort
constexpr int64_t kLong = 4096;         // lines that are worth clearing tables of kWide bits
constexpr int kNarrow = 8, kWide = 11;  // bits of a digit

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
    // Without a branch on the sign, which cannot be foreseen: negatives are turned over.
    const U turned = (bits ^ ((U{0} - (bits >> (kBits - 1))) | kSign)) & kAll;
    const U number = magnitude == 0 ? kSign : turned;
    return magnitude > infinity ? kAll : number;
  }
}

// The element of a key, and whether all elements of that key are the same bits: zeros are of either
// sign, and NaNs differ in their mantissas.
template <typename T>
T value_of_key(Unsigned<sizeof(T)> key) {
  using U = Unsigned<sizeof(T)>;
  constexpr U kSign = U{1} << (8 * sizeof(T) - 1);
  if constexpr (std::is_integral_v<T>) {
    if (std::is_signed_v<T>) key ^= kSign;
  } else {
    key ^= ((key >> (8 * sizeof(T) - 1)) - 1) | kSign;
  }
  T value;
  std::memcpy(&value, &key, sizeof(T));
  return value;
}
template <typename T>
bool is_unique(Unsigned<sizeof(T)> key, T value) {
  const T back = value_of_key<T>(key);
  return std::memcmp(&back, &value, sizeof(T)) == 0;
}

// What keys are combined with by Xor so that they ascend.
template <typename T>
Unsigned<sizeof(T)> flip_of(bool descending) {
  using U = Unsigned<sizeof(T)>;
  return descending ? static_cast<U>(~U{0} >> (8 * (sizeof(U) - sizeof(T)))) : 0;
}

// A key alone.
template <typename U>
struct Bare {
  U bits;
  Bare() = default;
  Bare(U key, int64_t) : bits(key) {}
  U key() const { return bits; }
  friend bool operator<(const Bare& a, const Bare& b) { return a.bits < b.bits; }
};
// A key of up to 32 bits above its place; a key of 64 bits, or a place that needs more than 32.
struct Narrow {
  uint64_t both;
  Narrow() = default;
  Narrow(uint64_t key, int64_t place) : both(key << 32 | static_cast<uint64_t>(place)) {}
  uint32_t key() const { return static_cast<uint32_t>(both >> 32); }
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

// Moves entries [first, last) to where tables say that those of each digit begin and end. From both
// sides at once: an entry waits for the one before it of the same digit, but the two sides do not
// wait for each other, and both keep equals in order.
template <int kDigit, typename Entry, typename Place>
void distribute(const Entry* from, Entry* to, int64_t first, int64_t last, int shift, Place* begin,
                Place* end) {
  const auto digit = [&](const Entry& e) { return e.key() >> shift & ((1u << kDigit) - 1); };
  for (; last - first >= 2; first++) {
    const Entry a = from[first], b = from[--last];
    to[begin[digit(a)]++] = a;
    to[--end[digit(b)]] = b;
  }
  if (first < last) to[begin[digit(from[first])]] = from[first];
}

// Sorts `n` entries by the low kBits of their keys, and returns which of the two arrays has them.
template <int kDigit, int kBits, typename Entry>
Entry* radix_sort(Entry* from, Entry* to, uint32_t n) {
  constexpr size_t kBuckets = size_t{1} << kDigit, kDigits = (kBits + kDigit - 1) / kDigit;
  const auto digit = [](const Entry& e, size_t d) {
    return e.key() >> (kDigit * d) & (kBuckets - 1);
  };
  std::array<std::array<uint32_t, kBuckets>, kDigits> counts{};
  for (uint32_t i = 0; i < n; i++) {
#pragma GCC unroll 8
    for (size_t d = 0; d < kDigits; d++) counts[d][digit(from[i], d)]++;
  }
  for (size_t d = 0; d < kDigits; d++) {
    if (counts[d][digit(from[0], d)] == n) continue;  // all have the same
    std::array<uint32_t, kBuckets> begin, end;
    uint32_t place = 0;
    for (size_t k = 0; k < kBuckets; k++) {
      begin[k] = place;
      end[k] = place += counts[d][k];
    }
    distribute<kDigit>(from, to, 0, n, kDigit * static_cast<int>(d), begin.data(), end.data());
    std::swap(from, to);
  }
  return from;
}

// Sorts lines of `length` elements; keeps the memory for that.
template <typename Entry>
class Sorter {
 public:
  /// On the threads of `pool`, or of less than 2^32 elements on one.
  Sorter(int64_t length, ThreadPool* pool)
      : length_(length),
        pool_(pool),
        memory_{Scratch<Entry>(length), Scratch<Entry>(length)},
        chunks_(pool ? static_cast<size_t>((length + kSortChunk - 1) / kSortChunk) : 0) {}

  /// done(i, entry) for the entries in order; of elements that are not unique, if those are
  /// refused, nothing, and false.
  template <typename T, typename Done>
  bool sort(const T* x, bool descending, bool unique, Done&& done) {
    constexpr int kBits = 8 * sizeof(T);
    using U = Unsigned<sizeof(T)>;
    const U flip = flip_of<T>(descending);
    Entry *from = memory_[0].data(), *to = memory_[1].data();
    std::atomic<bool> refused = false;
    for_chunks([&](size_t, int64_t begin, int64_t end) {
      bool all_unique = true;
      for (int64_t i = begin; i < end; i++) {
        const U key = key_of(x[i]);
        from[i] = Entry(key ^ flip, i);
        if (unique) all_unique &= is_unique(key, x[i]);
      }
      if (!all_unique) refused = true;
    });
    if (refused) return false;
    const auto n = static_cast<uint32_t>(length_);
    if (length_ <= kShortSort) {
      std::sort(from, from + length_);
    } else if (!pool_) {
      from = length_ < kLong ? radix_sort<kNarrow, kBits>(from, to, n)
                             : radix_sort<kWide, kBits>(from, to, n);
    } else {
      for (int shift = 0; shift < kBits; shift += kNarrow) {
        if (pass(from, to, shift)) std::swap(from, to);
      }
    }
    for_chunks([&](size_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) done(i, from[i]);
    });
    return true;
  }

 private:
  // Where a chunk's elements of each digit begin and end.
  struct Chunk {
    std::array<int64_t, size_t{1} << kNarrow> begin, end;
  };

  // fn(chunk, begin, end) for each chunk, on the threads of the pool; or for the whole.
  template <typename F>
  void for_chunks(F&& fn) {
    if (!pool_) return fn(0, 0, length_);
    pool_->parallel_for(0, static_cast<int64_t>(chunks_.size()), 1, [&](int64_t c, int64_t, int) {
      fn(static_cast<size_t>(c), c * kSortChunk, std::min(length_, (c + 1) * kSortChunk));
    });
  }

  // Moves the elements to `to`, by one digit; false if all have the same one and nothing is moved.
  bool pass(const Entry* from, Entry* to, int shift) {
    constexpr size_t kBuckets = size_t{1} << kNarrow;
    for_chunks([&](size_t c, int64_t begin, int64_t end) {
      // Neighbours often have the same digit, and an addition waits for the last one to its place.
      std::array<uint32_t, kBuckets> even{}, odd{};
      const auto digit = [&](int64_t i) { return from[i].key() >> shift & (kBuckets - 1); };
      for (int64_t i = begin; i < end; i++) (i % 2 ? odd : even)[digit(i)]++;
      for (size_t k = 0; k < kBuckets; k++) chunks_[c].end[k] = int64_t{even[k]} + odd[k];
    });
    // After the elements of smaller digits, and of the same one in earlier chunks.
    int64_t place = 0;
    for (size_t k = 0; k < kBuckets; k++) {
      const int64_t before = place;
      for (Chunk& c : chunks_) {
        c.begin[k] = place;
        c.end[k] = place += c.end[k];
      }
      if (place - before == length_) return false;
    }
    for_chunks([&](size_t c, int64_t begin, int64_t end) {
      Chunk& places = chunks_[c];
      distribute<kNarrow>(from, to, begin, end, shift, places.begin.data(), places.end.data());
    });
    return true;
  }

  int64_t length_;
  ThreadPool* pool_;
  Scratch<Entry> memory_[2];
  std::vector<Chunk> chunks_;
};

// sort_line(sorter, line) for each line.
template <typename Entry, typename F>
void for_lines(int64_t lines, int64_t length, ThreadPool& pool, F&& sort_line) {
  if ((lines < pool.size() && length > kSortChunk) || length > int64_t{UINT32_MAX}) {
    Sorter<Entry> sorter(length, &pool);
    for (int64_t i = 0; i < lines; i++) sort_line(sorter, i);
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kSortGrain / length);
  pool.parallel_for(0, lines, grain, [&](int64_t from, int64_t to, int) {
    Sorter<Entry> sorter(length, nullptr);
    for (int64_t i = from; i < to; i++) sort_line(sorter, i);
  });
}

// write(line, i, place) for the places of each line in order.
template <typename T, typename Write>
void order_lines(const T* x, int64_t lines, int64_t length, bool descending, ThreadPool& pool,
                 Write&& write) {
  const auto sort_line = [&](auto& sorter, int64_t line) {
    sorter.sort(x + line * length, descending, false,
                [&](int64_t i, const auto& entry) { write(line, i, entry.place()); });
  };
  if (sizeof(T) <= 4 && length <= int64_t{UINT32_MAX}) {
    for_lines<Narrow>(lines, length, pool, sort_line);
  } else {
    for_lines<Wide>(lines, length, pool, sort_line);
  }
}

// Whether x may come before `limit`; of floats, which are compared as they are, since that takes
// less than their keys do, NaN may.
template <typename T>
bool may_precede(T x, T limit, bool descending) {
  if constexpr (std::is_arithmetic_v<T>) {
    return descending ? !(x <= limit) : !(limit <= x);
  } else {
    return true;
  }
}

constexpr int64_t kBlock = 32;  // elements that are looked at before any of them

// Whether any of up to kBlock elements may. They are counted, and a whole block by a number that is
// known, so that the compiler takes vectors of them.
template <typename T>
bool any_may_precede(const T* x, int64_t n, T limit, bool descending) {
  const auto count = [&](auto before, int64_t end) {
    int found = 0;
    for (int64_t i = 0; i < end; i++) found += before(x[i]);
    return found;
  };
  const auto larger = [&](T v) { return may_precede(v, limit, true); };
  const auto smaller = [&](T v) { return may_precede(v, limit, false); };
  const auto in_all = [&](auto before) {
    return (n == kBlock ? count(before, kBlock) : count(before, n)) > 0;
  };
  return descending ? in_all(larger) : in_all(smaller);
}

// The first `count` of a line in order: whatever is before the last of those found so far joins
// them. A few are kept in order, each put in its place; of more, when they are twice as many, half
// are dropped. Of equals the first are kept, since later ones are not before them.
template <typename Entry, typename T>
void find_first(const T* x, int64_t length, bool descending, size_t count,
                std::vector<Entry>& found) {
  constexpr size_t kFew = 32;
  using U = Unsigned<sizeof(T)>;
  const U flip = flip_of<T>(descending);
  const bool few = count <= kFew;
  found.clear();
  bool full = false;
  Entry last;
  const auto keep_best = [&] {
    if (found.size() < count) return;
    const auto end = found.begin() + static_cast<std::ptrdiff_t>(count);
    if (!few) std::nth_element(found.begin(), end - 1, found.end());
    found.erase(end, found.end());
    last = found.back();
    full = true;
  };
  for (int64_t begin = 0; begin < length; begin += kBlock) {
    const int64_t n = std::min(kBlock, length - begin);
    if (full && !any_may_precede(x + begin, n, x[last.place()], descending)) continue;
    for (int64_t i = begin; i < begin + n; i++) {
      if (full && !may_precede(x[i], x[last.place()], descending)) continue;
      const U key = key_of(x[i]) ^ flip;
      if (full && key >= last.key()) continue;
      const Entry entry(key, i);
      if (few) {
        found.insert(std::upper_bound(found.begin(), found.end(), entry), entry);
        keep_best();
      } else {
        found.push_back(entry);
        if (found.size() >= 2 * count) keep_best();
      }
    }
  }
  if (few) return;
  keep_best();
  std::sort(found.begin(), found.end());
}

// write(line, i, place) for the first `count` places of each line in order.
template <typename T, typename Write>
void begin_lines(const T* x, int64_t lines, int64_t length, int64_t count, bool descending,
                 ThreadPool& pool, Write&& write) {
  const auto run = [&]<typename Entry>(Entry) {
    const int64_t grain = std::max<int64_t>(1, kSortGrain / length);
    pool.parallel_for(0, lines, grain, [&](int64_t from, int64_t to, int) {
      std::vector<Entry> found;
      for (int64_t line = from; line < to; line++) {
        find_first(x + line * length, length, descending, static_cast<size_t>(count), found);
        for (int64_t i = 0; i < count; i++) {
          write(line, i, found[static_cast<size_t>(i)].place());
        }
      }
    });
  };
  sizeof(T) <= 4 && length <= int64_t{UINT32_MAX} ? run(Narrow()) : run(Wide());
}

// The sorted lines themselves. Keys alone are half as much to move, but do not tell equal elements
// of different bits apart: a line that has such is sorted by its order.
template <typename T>
void sort_lines(const T* x, T* sorted, int64_t lines, int64_t length, bool descending,
                ThreadPool& pool) {
  using U = Unsigned<sizeof(T)>;
  const U flip = flip_of<T>(descending);
  std::vector<char> by_order(static_cast<size_t>(lines));
  for_lines<Bare<U>>(lines, length, pool, [&](auto& sorter, int64_t line) {
    T* const out = sorted + line * length;
    by_order[static_cast<size_t>(line)] = !sorter.sort(
        x + line * length, descending, true,
        [&](int64_t i, const Bare<U>& e) { out[i] = value_of_key<T>(e.key() ^ flip); });
  });
  for (int64_t line = 0; line < lines; line++) {
    int64_t end = line;
    while (end < lines && by_order[static_cast<size_t>(end)]) end++;
    if (end == line) continue;
    const T* const from = x + line * length;
    T* const out = sorted + line * length;
    order_lines(from, end - line, length, descending, pool,
                [&](int64_t k, int64_t i, int64_t place) {
                  out[k * length + i] = from[k * length + place];
                });
    line = end;
  }
}

}  // namespace

void run_argsort(const Node& n, std::span<void* const> arrays, ThreadPool& pool) {
  if (n.numel() == 0) return;
  constexpr int64_t kPart = 32;  // of a line that is less than sorting it
  const int64_t length = n.src[0]->shape.back(), count = n.shape.back();
  const int64_t lines = n.numel() / count;
  const bool descending = n.integer() != 0, few = count <= length / kPart;
  with_type(n.src[0]->dtype, [&]<typename T>() {
    const auto* x = static_cast<const T*>(arrays[0]);
    auto* order = static_cast<int64_t*>(arrays[1]);
    const auto write = [&](int64_t line, int64_t i, int64_t place) {
      if (i < count) order[line * count + i] = place;
    };
    few ? begin_lines(x, lines, length, count, descending, pool, write)
        : order_lines(x, lines, length, descending, pool, write);
  });
}

void run_sort(const Node& n, std::span<void* const> arrays, ThreadPool& pool) {
  if (n.numel() == 0) return;
  const int64_t length = n.shape.back(), lines = n.numel() / length;
  with_type(n.dtype, [&]<typename T>() {
    sort_lines(static_cast<const T*>(arrays[0]), static_cast<T*>(arrays[1]), lines, length,
               n.integer() != 0, pool);
  });
}

}  // namespace lazuli
