#include "core/shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace lazuli {

int64_t numel(std::span<const int64_t> shape) {
  // A shape without elements may have sizes whose product overflows.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

size_t bytes_of(std::span<const int64_t> shape, DType dtype) {
  size_t bytes = 0;
  const bool fits = !__builtin_mul_overflow(numel(shape), size_of(dtype), &bytes);
  return fits ? bytes : SIZE_MAX;
}

bool contains(std::span<const int64_t> list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string bytes_text(uint64_t bytes) {
  if (bytes == 1) return "1 byte";
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = double(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  const std::string number = fmt::format("{:.1f}", value);
  return fmt::format("{} {}", number.ends_with(".0") ? number.substr(0, number.size() - 2) : number,
                     kUnits[unit]);
}

std::string to_string(std::span<const int64_t> shape) {
  if (shape.size() == 1) return fmt::format("({},)", shape[0]);
  return fmt::format("({})", fmt::join(shape.begin(), shape.end(), ", "));
}

void check_shape(std::string_view op, std::span<const int64_t> shape) {
  if (shape.size() > kMaxRank) {
    user_error("{}: rank {} is too high; at most {} dimensions are supported", op, shape.size(),
               kMaxRank);
  }
  int64_t n = 1;
  bool overflow = false, zero = false;
  for (int64_t s : shape) {
    if (s < 0) user_error("{}: negative size {} in shape {}", op, s, to_string(shape));
    zero |= s == 0;
    if (s != 0) overflow |= __builtin_mul_overflow(n, s, &n);
  }
  if (overflow && !zero) {
    user_error("{}: shape {} has more than 2^63 elements", op, to_string(shape));
  }
}

int64_t check_axis(std::string_view op, int64_t axis, int64_t rank) {
  const int64_t r = std::max<int64_t>(rank, 1);
  if (axis < -r || axis >= r) {
    user_error("{}: axis {} is out of range for rank {}; it must lie in [{}, {}]", op, axis, rank,
               -r, r - 1);
  }
  return axis < 0 ? axis + r : axis;
}

int64_t check_new_axis(std::string_view op, int64_t axis, int64_t rank) {
  if (axis < -rank - 1 || axis > rank) {
    user_error(
        "{}: axis {} is no place for a new axis of a tensor of rank {}; it must lie in [{}, {}]",
        op, axis, rank, -rank - 1, rank);
  }
  return axis < 0 ? axis + rank + 1 : axis;
}

Ints check_axes(std::string_view op, std::span<const int64_t> axes, int64_t rank) {
  Ints out;
  if (axes.empty()) {
    for (int64_t i = 0; i < rank; i++) out.push_back(i);
    return out;
  }
  for (int64_t a : axes) {
    const int64_t axis = check_axis(op, a, rank);
    if (std::find(out.begin(), out.end(), axis) != out.end()) {
      user_error("{}: axis {} appears twice in {}", op, a, to_string(axes));
    }
    if (rank > 0) out.push_back(axis);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Shape broadcast_shapes(std::string_view op, std::span<const int64_t> a,
                       std::span<const int64_t> b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape out(rank);
  for (size_t i = 0; i < rank; i++) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      user_error("{}: shapes {} and {} do not broadcast: sizes {} and {} at dimension {}", op,
                 to_string(a), to_string(b), x, y, -static_cast<int64_t>(i) - 1);
    }
    out[rank - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

}  // namespace lazuli
