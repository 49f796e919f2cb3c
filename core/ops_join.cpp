// Joins, repeats, padding, and diagonals.
#include <algorithm>

#include "core/error.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_movement.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

// [begin, end) of one axis.
Tensor range_of(const Tensor& x, int64_t axis, int64_t begin, int64_t end) {
  return narrow(x, axis, begin, end - begin);
}

// Zeros before and after one axis.
NodeRef pad_axis(const NodeRef& x, int64_t axis, int64_t before, int64_t after) {
  Ints counts(2 * x->shape.size(), 0);
  counts[at(2 * axis)] = before;
  counts[at(2 * axis + 1)] = after;
  return pad(x, std::move(counts));
}

// True where the padding of a node of `shape` leaves its elements.
NodeRef inside(const Shape& shape, const Ints& before_after) {
  return pad(constant(true, DType::Bool, shape), before_after);
}

// The padding of each axis as pairs (before, after), first axis first.
Ints pairs_by_axis(const Tensor& x, const Ints& pad) {
  require(pad.size() % 2 == 0, "pad: {} counts were given; each axis needs two", pad.size());
  require(static_cast<int64_t>(pad.size()) <= 2 * x.dim(),
          "pad: {} counts were given for shape {}, which takes at most {}", pad.size(),
          to_string(x.shape()), 2 * x.dim());
  Ints out(at(2 * x.dim()), 0);
  for (size_t i = 0; i < pad.size() / 2; i++) {
    const size_t axis = at(x.dim()) - 1 - i;
    out[2 * axis] = pad[2 * i];
    out[2 * axis + 1] = pad[2 * i + 1];
    int64_t size = 0;
    if (__builtin_add_overflow(x.shape()[axis], pad[2 * i], &size) ||
        __builtin_add_overflow(size, pad[2 * i + 1], &size)) {
      size = INT64_MAX;
    }
    require(size >= 0, "pad: counts {} and {} cut more than dimension {} of shape {} has",
            pad[2 * i], pad[2 * i + 1], axis, to_string(x.shape()));
  }
  return out;
}

// Negative counts cut; what is left is not negative.
Tensor crop(const Tensor& x, Ints& counts) {
  Ints ranges;
  for (int64_t i = 0; i < x.dim(); i++) {
    int64_t& before = counts[at(2 * i)];
    int64_t& after = counts[at(2 * i + 1)];
    // A count may cut into the other's padding, so the range is clipped and the rest stays as
    // padding.
    const int64_t n = x.size(i), begin = std::min(n, std::max<int64_t>(0, -before));
    const int64_t end = std::max(begin, n - std::max<int64_t>(0, -after));
    if (before < 0) after -= std::max<int64_t>(0, -before - n);
    if (after < 0) before -= std::max<int64_t>(0, -after - n);
    ranges.push_back(begin);
    ranges.push_back(end);
    before = std::max<int64_t>(0, before);
    after = std::max<int64_t>(0, after);
  }
  return Tensor(shrink(x.node(), std::move(ranges)));
}

Tensor pad_constant(const Tensor& x, Ints counts, const Scalar& value) {
  const Tensor kept = crop(x, counts);
  Shape padded = kept.shape();
  for (size_t i = 0; i < padded.size(); i++) {
    // Each sum stays below 2^64, so it shows as negative where it exceeds 2^63.
    if (__builtin_add_overflow(padded[i], counts[2 * i], &padded[i]) ||
        __builtin_add_overflow(padded[i], counts[2 * i + 1], &padded[i])) {
      user_error("pad: dimension {} of shape {} would have more than 2^63 elements", i,
                 to_string(x.shape()));
    }
  }
  check_shape("pad", padded);
  const NodeRef zeros_around = pad(kept.node(), counts);
  if (to_bits(value, x.dtype()) == 0 || zeros_around == kept.node()) return Tensor(zeros_around);
  return where(Tensor(inside(kept.shape(), counts)), Tensor(zeros_around),
               Tensor(constant(value, x.dtype())));
}

// One axis continued by its own elements: mirrored, held or wrapped around.
Tensor continued(const Tensor& x, std::string_view mode, int64_t axis, int64_t before,
                 int64_t after) {
  const int64_t n = x.size(axis);
  std::vector<Tensor> parts;
  if (mode == "replicate") {
    require(n > 0, "pad: dimension {} of shape {} is empty; there is nothing to replicate", axis,
            to_string(x.shape()));
    Shape left = x.shape(), right = x.shape();
    left[at(axis)] = before;
    right[at(axis)] = after;
    parts = {expand(range_of(x, axis, 0, 1), left), x, expand(range_of(x, axis, n - 1, n), right)};
  } else if (mode == "reflect") {
    require(before < n && after < n,
            "pad: counts {} and {} are too large to reflect dimension {} of shape {}; at most {}",
            before, after, axis, to_string(x.shape()), n - 1);
    parts = {flip(range_of(x, axis, 1, before + 1), axis), x,
             flip(range_of(x, axis, n - 1 - after, n - 1), axis)};
  } else {
    require(before <= n && after <= n,
            "pad: counts {} and {} are too large to wrap dimension {} of shape {}; at most {}",
            before, after, axis, to_string(x.shape()), n);
    parts = {range_of(x, axis, n - before, n), x, range_of(x, axis, 0, after)};
  }
  return cat(parts, axis);
}

// Row and column of each element of the last two axes: whether column - row compares with
// `diagonal` as asked.
Tensor triangle(std::string_view op, const Tensor& x, int64_t diagonal, bool lower) {
  require(x.dim() >= 2, "{}: the input has shape {}; it needs at least two axes", op,
          to_string(x.shape()));
  const Shape last{x.size(-2), x.size(-1)};
  const Tensor row(detail::coordinate(last, 0)), col(detail::coordinate(last, 1));
  const Tensor keep = lower ? col <= row + diagonal : col >= row + diagonal;
  return where(keep, x, Tensor(constant(0, x.dtype())));
}

}  // namespace

// ---- joins and repeats

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  require(!tensors.empty(), "cat: no tensors are given");
  std::vector<Tensor> parts;
  std::vector<TensorOrScalar> operands(tensors.begin(), tensors.end());
  const DType dtype = result_type(operands);
  for (const Tensor& t : tensors) {
    require(t.dim() > 0, "cat: a scalar cannot be joined; reshape it to (1,) or use stack");
    if (t.shape() != Shape{0}) parts.push_back(cast(t, dtype));
  }
  if (parts.empty()) return cast(tensors[0], dtype);
  const int64_t axis = check_axis("cat", dim, parts[0].dim());
  int64_t total = 0;
  for (const Tensor& t : parts) {
    bool fits = t.dim() == parts[0].dim();
    for (int64_t i = 0; fits && i < t.dim(); i++) fits = i == axis || t.size(i) == parts[0].size(i);
    if (!fits) {
      user_error("cat: shapes {} and {} differ outside dimension {}", to_string(parts[0].shape()),
                 to_string(t.shape()), axis);
    }
    if (__builtin_add_overflow(total, t.size(axis), &total)) {
      user_error("cat: dimension {} would have more than 2^63 elements", axis);
    }
  }
  Shape shape = parts[0].shape();
  shape[at(axis)] = total;
  check_shape("cat", shape);
  // Each part padded to the whole, chosen where the axis says so: neither a sum (which would lose
  // -0) nor a copy.
  const NodeRef place = detail::coordinate(shape, axis);
  int64_t end = total;
  NodeRef out;
  for (size_t i = parts.size(); i-- > 0;) {
    const int64_t n = parts[i].size(axis), begin = end - n;
    if (n > 0) {
      const NodeRef part = pad_axis(parts[i].node(), axis, begin, total - end);
      out = out ? elementwise(
                      Op::Where,
                      {elementwise(Op::Lt, {place, constant(end, DType::I64, shape)}), part, out})
                : part;
    }
    end = begin;
  }
  return out ? Tensor(out) : Tensor(constant(0, dtype, shape));
}
Tensor concat(const std::vector<Tensor>& tensors, int64_t dim) {
  return cat(tensors, dim);
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  require(!tensors.empty(), "stack: no tensors are given");
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) {
    if (t.shape() != tensors[0].shape()) {
      user_error("stack: shapes {} and {} differ", to_string(tensors[0].shape()),
                 to_string(t.shape()));
    }
    parts.push_back(unsqueeze(t, check_new_axis("stack", dim, t.dim())));
  }
  return cat(parts, check_axis("stack", dim, parts[0].dim()));
}

Tensor repeat(const Tensor& x, const Ints& repeats) {
  const int64_t added = static_cast<int64_t>(repeats.size()) - x.dim();
  require(added >= 0, "repeat: {} counts were given for shape {}; each axis needs one",
          repeats.size(), to_string(x.shape()));
  require(repeats.size() <= kMaxRank,
          "repeat: rank {} is too high; at most {} dimensions are supported", repeats.size(),
          kMaxRank);
  Shape out;
  for (size_t i = 0; i < repeats.size(); i++) {
    const int64_t axis = static_cast<int64_t>(i) - added, n = axis < 0 ? 1 : x.size(axis);
    check_shape("repeat", Shape{repeats[i], n});
    out.push_back(repeats[i] * n);
  }
  check_shape("repeat", out);
  Shape start(at(added), 1);
  const Shape own = x.shape();
  start.append(own.begin(), own.end());
  // Axis by axis, so that the rank on the way exceeds the result's by one at most.
  NodeRef y = reshape(x.node(), start);
  for (size_t i = 0; i < repeats.size(); i++) {
    if (repeats[i] == 1) continue;
    Shape split = y->shape;
    split.insert(split.begin() + i, 1);
    Shape wide = split;
    wide[i] = repeats[i];
    Shape joined = y->shape;
    joined[i] = out[i];
    y = reshape(expand(reshape(y, split), wide), joined);
  }
  return Tensor(y);
}

Tensor tile(const Tensor& x, const Ints& repeats) {
  Ints all(at(std::max<int64_t>(0, x.dim() - static_cast<int64_t>(repeats.size()))), 1);
  all.append(repeats.begin(), repeats.end());
  return repeat(x, all);
}

Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
  require(repeats >= 0, "repeat_interleave: the count is {}; it cannot be negative", repeats);
  const Tensor v = dim ? x : flatten(x);
  const int64_t axis = check_axis("repeat_interleave", dim.value_or(0), v.dim());
  if (v.dim() == 0) return repeat_interleave(flatten(v), repeats, 0);
  Shape split = v.shape(), out = v.shape();
  check_shape("repeat_interleave", Shape{out[at(axis)], repeats});
  out[at(axis)] *= repeats;
  check_shape("repeat_interleave", out);
  split.insert(split.begin() + axis + 1, 1);
  Shape wide = split;
  wide[at(axis) + 1] = repeats;
  return Tensor(reshape(expand(reshape(v.node(), split), wide), out));
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim) {
  require(is_int(repeats.dtype()), "repeat_interleave: the counts are {}, not integers",
          name(repeats.dtype()));
  require(repeats.dim() <= 1, "repeat_interleave: the counts have shape {}; one axis is needed",
          to_string(repeats.shape()));
  const Tensor v = dim ? x : flatten(x);
  const int64_t axis = check_axis("repeat_interleave", dim.value_or(0), v.dim());
  const std::vector<int64_t> counts = repeats.to_vector<int64_t>();
  if (counts.size() == 1) return repeat_interleave(v, counts[0], axis);
  require(v.dim() > 0 && static_cast<int64_t>(counts.size()) == v.size(axis),
          "repeat_interleave: {} counts were given for dimension {} of shape {}", counts.size(),
          axis, to_string(v.shape()));
  int64_t total = 0;
  for (int64_t c : counts) {
    require(c >= 0, "repeat_interleave: the count is {}; it cannot be negative", c);
    if (__builtin_add_overflow(total, c, &total)) total = INT64_MAX;
  }
  check_shape("repeat_interleave", Shape{total, size_of(DType::I64)});
  const Ref<Storage> storage = make_storage(sizeof(int64_t) * at(total));
  auto* place = static_cast<int64_t*>(storage->data());
  for (size_t i = 0; i < counts.size(); i++)
    place = std::fill_n(place, counts[i], static_cast<int64_t>(i));
  return index_select(v, axis, Tensor::from_storage(storage, {total}, DType::I64));
}

Tensor pad(const Tensor& x, const Ints& pad, std::string_view mode, const Scalar& value) {
  Ints counts = pairs_by_axis(x, pad);
  if (mode == "constant") return pad_constant(x, std::move(counts), value);
  require(mode == "reflect" || mode == "replicate" || mode == "circular",
          "pad: mode is \"{}\"; it must be constant, reflect, replicate or circular", mode);
  Tensor y = crop(x, counts);
  for (int64_t axis = 0; axis < x.dim(); axis++) {
    const int64_t before = counts[at(2 * axis)], after = counts[at(2 * axis + 1)];
    if (before || after) y = continued(y, mode, axis, before, after);
  }
  return y;
}

Tensor flip(const Tensor& x, const Dims& dims) {
  if (dims.empty()) return Tensor(x.node());
  return Tensor(flip(x.node(), check_axes("flip", dims, x.dim())));
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  const Ints& by = shifts.list();
  if (dims.empty()) {
    require(by.size() == 1, "roll: {} shifts were given without dims; one moves the flat tensor",
            by.size());
    if (x.dim() == 0) return Tensor(x.node());
    return Tensor(reshape(roll(flatten(x), by[0], 0).node(), x.shape()));
  }
  require(by.size() == dims.list().size(), "roll: {} shifts were given for {} dims", by.size(),
          dims.list().size());
  Tensor y = x;
  for (size_t i = 0; i < by.size(); i++) {
    const int64_t axis = check_axis("roll", dims.list()[i], x.dim());
    const int64_t n = x.dim() == 0 ? 1 : x.size(axis);
    if (n <= 1) continue;
    const int64_t shift = ((by[i] % n) + n) % n;
    if (shift != 0)
      y = cat({range_of(y, axis, n - shift, n), range_of(y, axis, 0, n - shift)}, axis);
  }
  return y;
}

// ---- matrices and triangles

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t a = check_axis("diagonal", dim1, x.dim()),
                b = check_axis("diagonal", dim2, x.dim());
  require(x.dim() >= 2, "diagonal: the input has shape {}; it needs at least two axes",
          to_string(x.shape()));
  require(a != b, "diagonal: dimensions {} and {} are the same axis", dim1, dim2);
  Tensor m = movedim(x, {a, b}, {-2, -1});
  const int64_t rows = m.size(-2), cols = m.size(-1), r = m.dim() - 2;
  const int64_t row = std::clamp<int64_t>(-std::max(offset, -rows), 0, rows);
  const int64_t col = std::clamp<int64_t>(offset, 0, cols);
  const int64_t k = std::min(rows - row, cols - col);
  m = range_of(range_of(m, r, row, row + k), r + 1, col, col + k);
  // Row-major, element i of the diagonal is at i * (k + 1): the first column once rows are k + 1
  // long.
  Shape lead(x.shape().size() - 2), flat, wide;
  for (int64_t i = 0; i < r; i++) lead[at(i)] = m.size(i);
  flat = lead;
  flat.push_back(k * k);
  wide = lead;
  wide.push_back(k);
  Shape out = wide;
  wide.push_back(k + 1);
  const NodeRef padded = pad_axis(reshape(m.node(), flat), r, 0, k);
  return Tensor(reshape(range_of(Tensor(reshape(padded, wide)), r + 1, 0, 1).node(), out));
}

Tensor diag(const Tensor& x, int64_t diagonal) {
  require(x.dim() == 1 || x.dim() == 2,
          "diag: the input has shape {}; it must have one or two axes", to_string(x.shape()));
  return x.dim() == 1 ? diag_embed(x, diagonal) : lazuli::diagonal(x, diagonal);
}

Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  require(x.dim() >= 1, "diag_embed: the input is a scalar; it needs at least one axis");
  const int64_t rank = x.dim() + 1;
  const int64_t a = check_axis("diag_embed", dim1, rank), b = check_axis("diag_embed", dim2, rank);
  require(a != b, "diag_embed: dimensions {} and {} are the same axis", dim1, dim2);
  const int64_t k = x.size(-1), before = std::max<int64_t>(0, -offset),
                after = std::max<int64_t>(0, offset);
  const int64_t n = k + before + after;
  Shape shape = x.shape();
  shape.back() = n;
  shape.push_back(n);
  check_shape("diag_embed", shape);
  // Row i holds x[i - before] at column i + offset.
  const NodeRef rows = pad_axis(x.node(), x.dim() - 1, before, after);
  const Shape matrix{n, n};
  const Tensor on =
      Tensor(detail::coordinate(matrix, 0)) + offset == Tensor(detail::coordinate(matrix, 1));
  const Tensor full = where(on, unsqueeze(Tensor(rows), -1), Tensor(constant(0, x.dtype())));
  return movedim(full, {-2, -1}, {a, b});
}

Tensor tril(const Tensor& x, int64_t diagonal) {
  return triangle("tril", x, diagonal, true);
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  return triangle("triu", x, diagonal, false);
}

}  // namespace lazuli
