// Update: a box of an array, written over. What is around it is copied only where the result is not
// to lie in the memory of the array itself.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "runtime/library.h"

namespace lazuli {
namespace {

constexpr int64_t kGrainBytes = 1 << 18;  // that are worth a thread

void copy_by_threads(std::byte* to, const std::byte* from, int64_t bytes, ThreadPool& pool) {
  const int64_t parts = (bytes + kGrainBytes - 1) / kGrainBytes;
  pool.parallel_for(0, parts, 1, [&](int64_t first, int64_t last, int) {
    const int64_t begin = first * kGrainBytes, end = std::min(last * kGrainBytes, bytes);
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

void run_update(const Node& n, std::span<void* const> arrays, ThreadPool& pool) {
  const auto* base = static_cast<const std::byte*>(arrays[0]);
  const auto* value = static_cast<const std::byte*>(arrays[1]);
  auto* out = static_cast<std::byte*>(arrays[n.src.size()]);
  const int64_t size = size_of(n.dtype);
  if (out != base) copy_by_threads(out, base, n.numel() * size, pool);
  const Shape& box = n.src[1]->shape;
  if (numel(box) == 0) return;

  // The last axes of the box that follow each other in memory are one run of bytes; the others
  // count runs.
  size_t outer = box.size();
  int64_t run = size, below = size, start = 0;
  bool whole = true;
  for (size_t k = box.size(); k-- > 0;) {
    int64_t begin = n.ints()[k];
    if (begin < 0) begin = *static_cast<const int64_t*>(arrays[static_cast<size_t>(1 - begin)]);
    ensure(begin >= 0 && begin + box[k] <= n.shape[k], "update: range");
    start += begin * below;
    if (whole) {
      run *= box[k];
      outer = k;
    }
    whole = whole && box[k] == n.shape[k];
    below *= n.shape[k];
  }
  const int64_t runs = numel(box) * size / run;
  const auto place = [&](int64_t i) {
    int64_t at = start, stride = size;
    for (size_t k = box.size(); k-- > 0;) {
      if (k < outer) {
        at += i % box[k] * stride;
        i /= box[k];
      }
      stride *= n.shape[k];
    }
    return at;
  };
  if (runs == 1) return copy_by_threads(out + start, value, run, pool);
  pool.parallel_for(0, runs, std::max<int64_t>(kGrainBytes / run, 1),
                    [&](int64_t first, int64_t last, int) {
                      for (int64_t i = first; i < last; i++) {
                        std::memcpy(out + place(i), value + i * run, static_cast<size_t>(run));
                      }
                    });
}

}  // namespace lazuli
