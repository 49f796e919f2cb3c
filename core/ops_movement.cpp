// Views and cuts.
#include "core/ops_movement.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

// `shape` with its one -1 replaced, for n elements.
Shape inferred(std::string_view op, const Shape& from, const Shape& shape, int64_t n) {
  Shape out = shape;
  int64_t known = 1, open = -1;
  bool overflow = false;
  for (size_t i = 0; i < shape.size(); i++) {
    if (shape[i] == -1) {
      require(open < 0, "{}: shape {} has more than one -1", op, to_string(shape));
      open = static_cast<int64_t>(i);
    } else {
      require(shape[i] >= 0, "{}: negative size {} in shape {}", op, shape[i], to_string(shape));
      overflow |= __builtin_mul_overflow(known, shape[i], &known);
    }
  }
  require(shape.size() <= kMaxRank, "{}: rank {} is too high; at most {} dimensions are supported",
          op, shape.size(), kMaxRank);
  if (open >= 0) {
    require(known != 0 || overflow,
            "{}: the size of -1 is open: shape {} holds 0 elements whatever it is", op,
            to_string(shape));
    if (!overflow && n % known == 0) out[at(open)] = n / known;
  }
  if (overflow || (open >= 0 ? n % known != 0 : known != n)) {
    user_error("{}: shape {} with {} elements cannot become {}", op, to_string(from), n,
               to_string(shape));
  }
  return out;
}

// [begin, end) of one axis.
Tensor cut(const Tensor& x, int64_t axis, int64_t begin, int64_t end) {
  Ints ranges;
  for (int64_t i = 0; i < x.dim(); i++) {
    ranges.push_back(i == axis ? begin : 0);
    ranges.push_back(i == axis ? end : x.size(i));
  }
  return Tensor(shrink(x.node(), std::move(ranges)));
}

}  // namespace

// ---- views

Tensor reshape(const Tensor& x, const Shape& shape) {
  return Tensor(reshape(x.node(), inferred("reshape", x.shape(), shape, x.numel())));
}
Tensor view(const Tensor& x, const Shape& shape) {
  return Tensor(reshape(x.node(), inferred("view", x.shape(), shape, x.numel())));
}

Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim) {
  const int64_t first = check_axis("flatten", start_dim, x.dim());
  const int64_t last = check_axis("flatten", end_dim, x.dim());
  require(first <= last, "flatten: start_dim {} comes after end_dim {}", start_dim, end_dim);
  if (x.dim() == 0) return Tensor(reshape(x.node(), {1}));
  Shape shape;
  int64_t joined = 1;
  for (int64_t i = 0; i < x.dim(); i++) {
    joined *= i >= first && i <= last ? x.size(i) : 1;
    if (i == last)
      shape.push_back(joined);
    else if (i < first || i > last)
      shape.push_back(x.size(i));
  }
  return Tensor(reshape(x.node(), shape));
}

Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes) {
  const int64_t axis = check_axis("unflatten", dim, x.dim());
  require(x.dim() > 0, "unflatten: the input is a scalar; it has no axis to divide");
  require(!sizes.empty(), "unflatten: no sizes are given for dimension {}", dim);
  const Shape parts = inferred("unflatten", Shape{x.size(axis)}, sizes, x.size(axis));
  Shape shape;
  for (int64_t i = 0; i < x.dim(); i++) {
    if (i == axis)
      shape.append(parts.begin(), parts.end());
    else
      shape.push_back(x.size(i));
  }
  check_shape("unflatten", shape);
  return Tensor(reshape(x.node(), shape));
}

Tensor squeeze(const Tensor& x, const std::optional<Dims>& dims) {
  Ints axes;
  if (!dims)
    axes = check_axes("squeeze", {}, x.dim());
  else if (!dims->empty())
    axes = check_axes("squeeze", *dims, x.dim());
  Shape shape;
  for (int64_t i = 0; i < x.dim(); i++) {
    const bool listed = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!listed || x.size(i) != 1) shape.push_back(x.size(i));
  }
  return Tensor(reshape(x.node(), shape));
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  const int64_t axis = check_new_axis("unsqueeze", dim, x.dim());
  Shape shape = x.shape();
  shape.insert(shape.begin() + axis, 1);
  check_shape("unsqueeze", shape);
  return Tensor(reshape(x.node(), shape));
}

Tensor permute(const Tensor& x, const Ints& dims) {
  require(static_cast<int64_t>(dims.size()) == x.dim(),
          "permute: the order {} does not name each of the {} axes of shape {}", to_string(dims),
          x.dim(), to_string(x.shape()));
  if (x.dim() == 0) return Tensor(x.node());
  Ints order;
  for (int64_t d : dims) {
    const int64_t axis = check_axis("permute", d, x.dim());
    require(std::find(order.begin(), order.end(), axis) == order.end(),
            "permute: axis {} appears twice in {}", d, to_string(dims));
    order.push_back(axis);
  }
  return Tensor(permute(x.node(), std::move(order)));
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  const int64_t a = check_axis("transpose", dim0, x.dim()),
                b = check_axis("transpose", dim1, x.dim());
  if (x.dim() == 0) return Tensor(x.node());
  Ints order(at(x.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[at(a)], order[at(b)]);
  return Tensor(permute(x.node(), std::move(order)));
}

Tensor transpose_all(const Tensor& x) {
  Ints order(at(x.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::reverse(order.begin(), order.end());
  return Tensor(permute(x.node(), std::move(order)));
}

Tensor matrix_transpose(const Tensor& x) {
  require(x.dim() >= 2, "mT: the input has shape {}; it needs at least two axes",
          to_string(x.shape()));
  return transpose(x, -2, -1);
}

Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  const Ints &from = source.list(), &to = destination.list();
  require(from.size() == to.size(), "movedim: {} axes cannot move to {} places", from.size(),
          to.size());
  if (from.empty() || x.dim() == 0) return Tensor(x.node());
  check_axes("movedim", from, x.dim());
  check_axes("movedim", to, x.dim());
  Ints order(at(x.dim()), -1);
  std::vector<bool> used(at(x.dim()), false);
  for (size_t i = 0; i < from.size(); i++) {
    const int64_t f = check_axis("movedim", from[i], x.dim());
    order[at(check_axis("movedim", to[i], x.dim()))] = f;
    used[at(f)] = true;
  }
  int64_t next = 0;
  for (int64_t& o : order) {
    if (o >= 0) continue;
    while (used[at(next)]) next++;
    o = next++;
  }
  return Tensor(permute(x.node(), std::move(order)));
}

Tensor expand(const Tensor& x, const Shape& shape) {
  const int64_t added = static_cast<int64_t>(shape.size()) - x.dim();
  require(added >= 0, "expand: shape {} has fewer axes than {}", to_string(shape),
          to_string(x.shape()));
  Shape out = shape;
  for (size_t i = 0; i < shape.size(); i++) {
    const int64_t axis = static_cast<int64_t>(i) - added;
    if (shape[i] == -1) {
      require(axis >= 0, "expand: -1 in {} stands for a new axis, whose size must be given",
              to_string(shape));
      out[i] = x.size(axis);
    } else if (axis >= 0 && x.size(axis) != 1 && x.size(axis) != shape[i]) {
      user_error("expand: shape {} cannot become {}: size {} at dimension {} is not 1",
                 to_string(x.shape()), to_string(shape), x.size(axis), axis);
    }
  }
  check_shape("expand", out);
  return Tensor(broadcast_node(x.node(), out));
}
Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  return expand(x, shape);
}
Tensor expand_as(const Tensor& x, const Tensor& other) {
  return expand(x, other.shape());
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors) {
  Shape shape;
  for (const Tensor& t : tensors) shape = broadcast_shapes("broadcast_tensors", shape, t.shape());
  check_shape("broadcast_tensors", shape);
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.emplace_back(broadcast_node(t.node(), shape));
  return out;
}

// ---- cuts

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const int64_t axis = check_axis("narrow", dim, x.dim());
  require(x.dim() > 0, "narrow: the input is a scalar; it has no axis to cut");
  const int64_t n = x.size(axis);
  const int64_t begin = start < 0 ? start + n : start;
  require(begin >= 0 && length >= 0 && begin <= n && length <= n - begin,
          "narrow: start {} and length {} do not fit dimension {} of shape {}", start, length, axis,
          to_string(x.shape()));
  return cut(x, axis, begin, begin + length);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  const int64_t axis = check_axis("select", dim, x.dim());
  require(x.dim() > 0, "select: the input is a scalar; it has no axis to select from");
  const int64_t n = x.size(axis);
  require(index >= -n && index < n, "select: index {} is out of range for dimension {} of size {}",
          index, axis, n);
  const int64_t i = index < 0 ? index + n : index;
  Shape shape = x.shape();
  shape.erase(shape.begin() + axis);
  return Tensor(reshape(cut(x, axis, i, i + 1).node(), shape));
}

Tensor shrink(const Tensor& x, const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  require(static_cast<int64_t>(ranges.size()) == x.dim(),
          "shrink: {} ranges were given for shape {}", ranges.size(), to_string(x.shape()));
  Ints flat;
  for (int64_t i = 0; i < x.dim(); i++) {
    const auto [begin, end] = ranges[at(i)];
    require(0 <= begin && begin <= end && end <= x.size(i),
            "shrink: range [{}, {}) does not fit dimension {} of shape {}", begin, end, i,
            to_string(x.shape()));
    flat.push_back(begin);
    flat.push_back(end);
  }
  return Tensor(shrink(x.node(), std::move(flat)));
}

Tensor shrink_to(const Tensor& x, const Shape& shape) {
  require(static_cast<int64_t>(shape.size()) == x.dim(),
          "shrink_to: {} does not name each axis of {}", to_string(shape), to_string(x.shape()));
  Ints ranges;
  for (int64_t i = 0; i < x.dim(); i++) {
    const int64_t n = shape[at(i)] == -1 ? x.size(i) : shape[at(i)];
    require(n >= 0 && n <= x.size(i), "shrink_to: shape {} does not lie inside {}",
            to_string(shape), to_string(x.shape()));
    ranges.push_back(0);
    ranges.push_back(n);
  }
  return Tensor(shrink(x.node(), std::move(ranges)));
}

Tensor pad_to(const Tensor& x, const Shape& shape) {
  require(static_cast<int64_t>(shape.size()) == x.dim(), "pad_to: {} does not name each axis of {}",
          to_string(shape), to_string(x.shape()));
  Ints counts;
  Shape out = shape;
  for (int64_t i = 0; i < x.dim(); i++) {
    if (out[at(i)] == -1) out[at(i)] = x.size(i);
    require(out[at(i)] >= x.size(i), "pad_to: shape {} does not hold {}", to_string(shape),
            to_string(x.shape()));
    counts.push_back(0);
    counts.push_back(out[at(i)] - x.size(i));
  }
  check_shape("pad_to", out);
  return Tensor(pad(x.node(), std::move(counts)));
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  const int64_t axis = check_axis("split", dim, x.dim());
  require(x.dim() > 0, "split: the input is a scalar; it has no axis to split");
  const int64_t n = x.size(axis);
  require(size > 0 || (size == 0 && n == 0),
          "split: a size of {} cannot divide dimension {} of size {}", size, axis, n);
  if (n == 0) return {x};
  std::vector<Tensor> out;
  for (int64_t i = 0; i < n; i += size) {
    out.push_back(cut(x, axis, i, size < n - i ? i + size : n));
    if (size >= n - i) break;
  }
  return out;
}

std::vector<Tensor> split(const Tensor& x, const Ints& sizes, int64_t dim) {
  const int64_t axis = check_axis("split", dim, x.dim());
  require(x.dim() > 0, "split: the input is a scalar; it has no axis to split");
  int64_t sum = 0;
  for (int64_t s : sizes) {
    require(s >= 0 && !__builtin_add_overflow(sum, s, &sum), "split: sizes {} are not possible",
            to_string(sizes));
  }
  require(sum == x.size(axis), "split: sizes {} add up to {}, but dimension {} has size {}",
          to_string(sizes), sum, axis, x.size(axis));
  std::vector<Tensor> out;
  int64_t begin = 0;
  for (int64_t s : sizes) {
    out.push_back(cut(x, axis, begin, begin + s));
    begin += s;
  }
  return out;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  require(chunks > 0, "chunk: the number of chunks is {}; it must be positive", chunks);
  const int64_t axis = check_axis("chunk", dim, x.dim());
  require(x.dim() > 0, "chunk: the input is a scalar; it has no axis to divide");
  const int64_t n = x.size(axis);
  if (n == 0) return std::vector<Tensor>(at(chunks), x);
  return split(x, (n - 1) / chunks + 1, axis);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  const int64_t axis = check_axis("unbind", dim, x.dim());
  require(x.dim() > 0, "unbind: the input is a scalar; it has no axis to unbind");
  std::vector<Tensor> out;
  for (int64_t i = 0; i < x.size(axis); i++) out.push_back(select(x, axis, i));
  return out;
}

Tensor unfold(const Tensor& x, int64_t dimension, int64_t size, int64_t step) {
  const int64_t axis = check_axis("unfold", dimension, x.dim());
  require(step > 0, "unfold: the step is {}; it must be positive", step);
  const int64_t n = x.dim() == 0 ? 1 : x.size(axis);
  require(size >= 0 && size <= n, "unfold: windows of {} do not fit dimension {} of size {}", size,
          axis, n);
  if (x.dim() == 0) return narrow(reshape(x, {1}), 0, 0, size);
  Shape shape = x.shape();
  shape.push_back(size);
  check_shape("unfold", shape);
  if (size > 0) return Tensor(window(x.node(), axis, size, step, 1));
  shape[at(axis)] = n / step + 1;
  return Tensor(constant(0, x.dtype(), shape));
}

}  // namespace lazuli
