// Shapes and the other short integer lists of the graph, and the checks on them that every op
// shares.
#pragma once

#include <string>

#include "core/dtype.h"
#include "core/small_vector.h"

namespace lazuli {

using Ints = SmallVector<int64_t, 4>;
using Shape = SmallVector<int64_t, 4>;

inline constexpr int kMaxRank = 16;
/// Kernels index with signed 64-bit integers; no array has more elements than this.
inline constexpr int64_t kMaxElements = INT64_MAX;

/// Number of elements. Shapes inside the graph are checked, so this cannot overflow.
int64_t numel(std::span<const int64_t> shape);

/// "1.5 MiB", "64 bytes": a number of bytes, to a tenth of its unit.
std::string bytes_text(uint64_t bytes);

/// Bytes of an array; the most that a size_t holds where they would be more, which no memory
/// grants.
size_t bytes_of(std::span<const int64_t> shape, DType dtype);

/// Is `value` one of the list?
bool contains(std::span<const int64_t> list, int64_t value);

/// "(2, 3)", "(2,)", "()": as Python prints a tuple.
std::string to_string(std::span<const int64_t> shape);

/// Raises UserError with `op` as its prefix if a size is negative, the rank exceeds kMaxRank or the
/// element count 2^63.
void check_shape(std::string_view op, std::span<const int64_t> shape);

/// `axis` in [-rank, rank) as an index in [0, rank); UserError otherwise. A rank of 0 accepts -1
/// and 0, as PyTorch does.
int64_t check_axis(std::string_view op, int64_t axis, int64_t rank);
/// The same for a new axis of a tensor that has `rank` axes: one more place than there are axes.
int64_t check_new_axis(std::string_view op, int64_t axis, int64_t rank);

/// Distinct axes, sorted; an empty list means all of them.
Ints check_axes(std::string_view op, std::span<const int64_t> axes, int64_t rank);

/// The shape that both broadcast to under NumPy's rules; UserError if there is none.
Shape broadcast_shapes(std::string_view op, std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace lazuli
