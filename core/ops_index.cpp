#include "core/ops_index.h"

#include <algorithm>
#include <variant>

#include "core/error.h"
#include "core/graph.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_movement.h"
#include "core/ops_reduce.h"
#include "core/promotion.h"

namespace lazuli {

struct Index::Value : Counted, std::variant<int64_t, Slice, NewAxis, Ellipsis, Tensor> {
  using variant::variant;
};

const Index::Value& Index::value() const {
  return *value_;
}

Index::Index(Number number) : value_(make_ref<Value>(number.value)) {}
Index::Index(Slice slice) : value_(make_ref<Value>(slice)) {}
Index::Index(NewAxis axis) : value_(make_ref<Value>(axis)) {}
Index::Index(Ellipsis rest) : value_(make_ref<Value>(rest)) {}
Index::Index(const Tensor& t) : value_(make_ref<Value>(t)) {}
Index::Index(const std::vector<int64_t>& list)
    : Index(Tensor::from(list, {static_cast<int64_t>(list.size())})) {}
namespace {

Tensor as_index(const Tensor& index) {
  return cast(index, DType::I64);
}

// Negative places count from the end.
Tensor wrapped(const Tensor& index, int64_t n) {
  if (!is_signed(index.dtype())) return as_index(index);
  const Tensor i = as_index(index);
  return where(i < 0, i + n, i);
}

// Row-major flat places of the elements that are not 0.
std::vector<int64_t> places_of_nonzero(const Tensor& x) {
  const Tensor mask = detach(cast(x, DType::Bool));
  const Ref<Storage> elements = mask.storage();
  const auto* bytes = static_cast<const uint8_t*>(elements->data());
  std::vector<int64_t> places;
  for (int64_t i = 0; i < mask.numel(); i++) {
    if (bytes[i]) places.push_back(i);
  }
  return places;
}

// Coordinates along each axis of `shape` of these flat places.
std::vector<Tensor> coordinates(const std::vector<int64_t>& places, const Shape& shape) {
  std::vector<Tensor> out;
  int64_t below = numel(shape);
  const auto n = static_cast<int64_t>(places.size());
  for (int64_t size : shape) {
    below = size == 0 ? 0 : below / size;
    std::vector<int64_t> axis;
    for (int64_t p : places) axis.push_back(p / below % size);
    out.push_back(Tensor::from(axis, {n}));
  }
  return out;
}

// ---- the items of an index

// What is done with one axis of x, after `...`, masks and None are resolved.
struct IndexedAxis {
  enum class Kind { Slice, Number, Array, New } kind;
  int64_t begin = 0, count = 0,
          step = 1;                  // Slice: the elements begin, begin + step, ...; Number: begin
  std::optional<Tensor> array = {};  // Array, and New for true and false
};

IndexedAxis slice_axis(const Slice& s, int64_t n) {
  require(s.step != 0, "index: the step of a slice is 0");
  const bool up = s.step > 0;
  const int64_t low = up ? 0 : -1, high = up ? n : n - 1;
  const auto clipped = [&](std::optional<int64_t> v, int64_t missing) {
    if (!v) return missing;
    return std::clamp(*v < 0 ? *v + n : *v, low, high);
  };
  const int64_t begin = clipped(s.begin, up ? low : high), end = clipped(s.end, up ? high : low);
  const int64_t distance = up ? end - begin : begin - end;
  const uint64_t size = up ? static_cast<uint64_t>(s.step) : 0 - static_cast<uint64_t>(s.step);
  const int64_t count =
      distance <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / size + 1);
  // One element has no distance to the next: a step of 1 keeps the arithmetic small.
  return {.kind = IndexedAxis::Kind::Slice,
          .begin = count ? begin : 0,
          .count = count,
          .step = count > 1 ? s.step : 1};
}

// Number of axes of x that an item takes.
int64_t axes_taken(const Index& item) {
  if (std::holds_alternative<NewAxis>(item.value()) ||
      std::holds_alternative<Ellipsis>(item.value()))
    return 0;
  if (const auto* t = std::get_if<Tensor>(&item.value()))
    return t->dtype() == DType::Bool ? t->dim() : 1;
  return 1;
}

IndexedAxis number_axis(int64_t i, int64_t axis, int64_t n) {
  require(i >= -n && i < n, "index: {} is out of range for dimension {} of size {}", i, axis, n);
  return {.kind = IndexedAxis::Kind::Number, .begin = i < 0 ? i + n : i};
}

// A mask stands for the coordinates of its true elements.
void add_mask(std::vector<IndexedAxis>& out, const Tensor& mask, const Shape& shape, int64_t axis) {
  const Shape m = mask.shape();
  for (size_t i = 0; i < m.size(); i++) {
    require(m[i] == shape[at(axis) + i],
            "index: the mask has shape {}, which does not match dimension {} of shape {}",
            to_string(m), axis + static_cast<int64_t>(i), to_string(shape));
  }
  const std::vector<int64_t> places = places_of_nonzero(mask);
  if (m.empty()) {  // true or false: a new axis, taken once or not at all
    out.push_back(
        {.kind = IndexedAxis::Kind::New,
         .array = Tensor(constant(0, DType::I64, {static_cast<int64_t>(places.size())}))});
    return;
  }
  for (const Tensor& c : coordinates(places, m))
    out.push_back({.kind = IndexedAxis::Kind::Array, .array = c});
}

void add_whole(std::vector<IndexedAxis>& out, const Shape& shape, int64_t first, int64_t count) {
  for (int64_t i = first; i < first + count; i++) {
    out.push_back({.kind = IndexedAxis::Kind::Slice, .count = shape[at(i)]});
  }
}

std::vector<IndexedAxis> resolve(const Shape& shape, const Indices& index) {
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t taken = 0, dots = 0;
  for (const Index& item : index) {
    taken += axes_taken(item);
    dots += std::holds_alternative<Ellipsis>(item.value());
  }
  require(dots <= 1, "index: more than one ellipsis");
  require(taken <= rank, "index: {} indices for shape {} of rank {}", taken, to_string(shape),
          rank);
  std::vector<IndexedAxis> out;
  int64_t axis = 0;
  for (const Index& item : index) {
    const Index::Value& v = item.value();
    if (std::holds_alternative<NewAxis>(v)) {
      out.push_back({.kind = IndexedAxis::Kind::New});
    } else if (std::holds_alternative<Ellipsis>(v)) {
      add_whole(out, shape, axis, rank - taken);
      axis += rank - taken;
    } else if (const auto* s = std::get_if<Slice>(&v)) {
      out.push_back(slice_axis(*s, shape[at(axis)]));
    } else if (const auto* i = std::get_if<int64_t>(&v)) {
      out.push_back(number_axis(*i, axis, shape[at(axis)]));
    } else if (const auto& t = std::get<Tensor>(v); t.dtype() == DType::Bool) {
      add_mask(out, t, shape, axis);
    } else {
      require(
          is_int(t.dtype()),
          "index: the index is {}, not an integer or bool; convert it first, as in index.to(i64)",
          name(t.dtype()));
      out.push_back({.kind = IndexedAxis::Kind::Array, .array = t});
    }
    axis += axes_taken(item);
  }
  if (dots == 0) add_whole(out, shape, axis, rank - axis);
  return out;
}

bool any_array(const std::vector<IndexedAxis>& axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [](const IndexedAxis& a) { return a.array.has_value(); });
}

bool is_indexed(const IndexedAxis& a) {
  return a.array || a.kind == IndexedAxis::Kind::Number;
}

// ---- basic indexing as movement

// The slices of every axis; numbers keep an axis of size 1.
NodeRef slice_of(NodeRef x, const std::vector<IndexedAxis>& axes) {
  Ints ranges, flips;
  int64_t axis = 0;
  const auto each = [&](auto body) {
    axis = 0;
    for (const IndexedAxis& a : axes) {
      if (a.kind == IndexedAxis::Kind::New) continue;
      body(a);
      axis++;
    }
  };
  each([&](const IndexedAxis& a) {
    const int64_t n = x->shape[at(axis)], span = (a.count - 1) * a.step;
    const int64_t last = a.begin + span;
    const bool whole = a.kind == IndexedAxis::Kind::Array,
               one = a.kind == IndexedAxis::Kind::Number;
    ranges.push_back(whole ? 0 : one || a.count == 0 ? a.begin : std::min(a.begin, last));
    ranges.push_back(whole          ? n
                     : one          ? a.begin + 1
                     : a.count == 0 ? a.begin
                                    : std::max(a.begin, last) + 1);
    if (a.kind == IndexedAxis::Kind::Slice && a.step < 0) flips.push_back(axis);
  });
  x = flip(shrink(x, ranges), flips);
  each([&](const IndexedAxis& a) {
    if (a.kind != IndexedAxis::Kind::Slice || std::abs(a.step) == 1) return;
    const NodeRef spread = window(x, axis, 1, std::abs(a.step), 1);
    Shape shape = spread->shape;
    shape.pop_back();
    x = reshape(spread, shape);
  });
  return x;
}

// Shape of x[basic items]: numbers vanish, None appears.
Shape basic_shape(const NodeRef& cut, const std::vector<IndexedAxis>& axes, bool keep_numbers) {
  Shape shape;
  size_t axis = 0;
  for (const IndexedAxis& a : axes) {
    if (a.kind == IndexedAxis::Kind::New)
      shape.push_back(1);
    else if (a.kind == IndexedAxis::Kind::Number && !keep_numbers)
      axis++;
    else
      shape.push_back(cut->shape[axis++]);
  }
  return shape;
}

// The transpose of slice_of(): v stands where the slices say, zeros elsewhere in `shape`.
NodeRef placed(NodeRef v, const std::vector<IndexedAxis>& axes, const Shape& shape) {
  Ints flips, counts;
  int64_t axis = 0;
  for (const IndexedAxis& a : axes) {
    if (a.kind == IndexedAxis::Kind::New) continue;
    const int64_t n = shape[at(axis)], count = a.kind == IndexedAxis::Kind::Number ? 1 : a.count;
    const int64_t step = std::abs(a.step), span = count == 0 ? 0 : (count - 1) * step + 1;
    if (a.kind == IndexedAxis::Kind::Slice && a.step < 0) flips.push_back(axis);
    if (step > 1) {
      Shape with_place = v->shape;
      with_place.push_back(1);
      const NodeRef spread = unwindow(reshape(v, with_place), axis, span, step, 1);
      Shape without = spread->shape;
      without.pop_back();
      v = reshape(spread, without);
    }
    const int64_t before = count == 0 ? 0 : a.step < 0 ? a.begin - (span - 1) : a.begin;
    counts.push_back(before);
    counts.push_back(n - before - span);
    axis++;
  }
  // Reversed within the span, which is where v lies before it is padded.
  return pad(flip(v, flips), counts);
}

// ---- indexing by arrays

// After basic items: the arrays (numbers too) broadcast together, and where their axes stand in the
// result.
struct Advanced {
  Shape result;
  int64_t first = 0;  // the arrays' common axes begin here in the result
  int64_t common = 0;
  std::vector<std::optional<Tensor>> array;  // for each axis of the sliced tensor with None
};

Advanced plan(const NodeRef& x, const std::vector<IndexedAxis>& axes) {
  Advanced p;
  Shape common;
  int64_t first = -1, last = -1, number = 0;
  for (size_t i = 0; i < axes.size(); i++) {
    p.array.emplace_back();
    if (!is_indexed(axes[i])) continue;
    // Axes of x[...] with None keep the order of the items, so item i is axis i.
    p.array.back() =
        axes[i].array ? wrapped(*axes[i].array, x->shape[i]) : Tensor(constant(0, DType::I64));
    common = broadcast_shapes("index", common, p.array.back()->shape());
    if (first < 0) first = static_cast<int64_t>(i);
    last = static_cast<int64_t>(i);
    number++;
  }
  const bool neighbours = last - first + 1 == number;
  p.common = static_cast<int64_t>(common.size());
  for (size_t i = 0; i < axes.size(); i++) {
    if (neighbours && static_cast<int64_t>(i) == first) {
      p.first = static_cast<int64_t>(p.result.size());
      p.result.append(common.begin(), common.end());
    }
    if (!p.array[i]) p.result.push_back(x->shape[i]);
  }
  if (!neighbours) {
    Shape front = common;
    front.append(p.result.begin(), p.result.end());
    p.result = front;
  }
  check_shape("index", p.result);
  return p;
}

NodeRef gathered(const NodeRef& x, const Advanced& p) {
  std::vector<NodeRef> index;
  int64_t axis = 0;
  for (const std::optional<Tensor>& array : p.array) {
    if (array) {
      // The common axes at their place in the result, 1 elsewhere.
      Shape aligned(p.result.size(), 1);
      const Shape a = array->shape();
      for (size_t i = 0; i < a.size(); i++) aligned[at(p.first + p.common) - a.size() + i] = a[i];
      index.push_back(expand(reshape(array->node(), aligned), p.result));
    } else {
      if (axis == p.first) axis += p.common;
      index.push_back(detail::coordinate(p.result, axis++));
    }
  }
  return gather(x, index);
}

NodeRef get(const NodeRef& x, const std::vector<IndexedAxis>& axes) {
  const bool advanced = any_array(axes);
  const NodeRef cut = slice_of(x, axes);
  const NodeRef basic = reshape(cut, basic_shape(cut, axes, advanced));
  check_shape("index", basic->shape);
  if (!advanced) return basic;
  return gathered(basic, plan(basic, axes));
}

}  // namespace

Tensor getitem(const Tensor& x, const Indices& index) {
  const Shape shape = x.shape();
  return Tensor(get(x.node(), resolve(shape, index)));
}

Tensor setitem(const Tensor& x, const Indices& index, const TensorOrScalar& value) {
  const NodeRef base = x.node();
  if (const auto* mask = index.size() == 1 ? std::get_if<Tensor>(&index[0].value()) : nullptr;
      mask && mask->dtype() == DType::Bool && mask->shape() == base->shape &&
      value.shape().empty()) {
    return masked_fill(x, *mask, value);  // no need to know where the mask holds
  }
  const std::vector<IndexedAxis> axes = resolve(base->shape, index);
  const auto fitted = [&](const Shape& view) {
    Shape from = value.shape();
    // NumPy lets a value have leading axes of size 1 more than its place.
    Tensor v = value.is_tensor() ? value.tensor() : Tensor(constant(value.scalar(), base->dtype));
    while (from.size() > view.size() && from[0] == 1) from.erase(from.begin());
    v = Tensor(reshape(v.node(), from));
    if (broadcast_shapes("set_", view, from) != view) {
      user_error("set_: a value of shape {} does not fit the place of shape {}",
                 to_string(value.shape()), to_string(view));
    }
    return operand(v, base->dtype, view);
  };
  if (any_array(axes)) {
    // The flat place of each element of the view, by the same indexing of the row-major numbers.
    const NodeRef numbers = reshape(iota(base->numel()), base->shape);
    NodeRef places = get(numbers, axes);
    // An index out of range reads 0 there; it must write nothing.
    const NodeRef valid = get(constant(true, DType::Bool, base->shape), axes);
    const NodeRef v = fitted(places->shape);
    places = elementwise(Op::Where, {valid, places, constant(-1, DType::I64, places->shape)});
    return Tensor(scatter(base, places, v, Combine::Set));
  }
  const NodeRef cut = slice_of(base, axes);
  const NodeRef v = reshape(fitted(basic_shape(cut, axes, false)), cut->shape);
  const NodeRef there = placed(constant(true, DType::Bool, cut->shape), axes, base->shape);
  return Tensor(elementwise(Op::Where, {there, placed(v, axes, base->shape), base}));
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  require_integers("gather", index);
  const int64_t axis = check_axis("gather", dim, x.dim());
  const Tensor i = as_index(index);
  if (x.dim() == 0) {
    require(i.dim() <= 1, "gather: the index of a scalar has shape {}; it can have one axis",
            to_string(i.shape()));
    return reshape(gather(reshape(x, {1}), 0, reshape(i, {i.numel()})), i.shape());
  }
  require(i.dim() == x.dim() || i.numel() == 0,
          "gather: the index has shape {}, but the input {}; their ranks must agree",
          to_string(i.shape()), to_string(x.shape()));
  if (i.numel() == 0) return Tensor(constant(0, x.dtype(), i.shape()));
  std::vector<NodeRef> place;
  for (int64_t a = 0; a < x.dim(); a++) {
    require(a == axis || i.size(a) <= x.size(a),
            "gather: the index of shape {} is larger than the input of shape {} at dimension {}",
            to_string(i.shape()), to_string(x.shape()), a);
    place.push_back(a == axis ? i.node() : detail::coordinate(i.shape(), a));
  }
  return Tensor(gather(x.node(), place));
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim) {
  require_integers("take_along_dim", index);
  if (!dim) return gather(flatten(x), 0, wrapped(flatten(index), x.numel()));
  const int64_t axis = check_axis("take_along_dim", *dim, x.dim());
  require(index.dim() == x.dim(),
          "take_along_dim: the index has shape {}, but the input {}; their ranks must agree",
          to_string(index.shape()), to_string(x.shape()));
  if (x.dim() == 0) return gather(x, 0, index);
  Shape a = x.shape(), b = index.shape();
  a[at(axis)] = b[at(axis)] = 1;
  Shape source = broadcast_shapes("take_along_dim", a, b), target = source;
  source[at(axis)] = x.size(axis);
  target[at(axis)] = index.size(axis);
  return gather(expand(x, source), axis, expand(wrapped(index, x.size(axis)), target));
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  require_integers("index_select", index);
  const int64_t axis = check_axis("index_select", dim, x.dim());
  require(index.dim() <= 1, "index_select: the index has shape {}; it must have one axis",
          to_string(index.shape()));
  if (x.dim() == 0) return Tensor(reshape(gather(reshape(x, {1}), 0, flatten(index)).node(), {}));
  Shape shape = x.shape();
  shape[at(axis)] = index.numel();
  check_shape("index_select", shape);
  Shape aligned(shape.size(), 1);
  aligned[at(axis)] = index.numel();
  return gather(x, axis, Tensor(expand(reshape(as_index(index).node(), aligned), shape)));
}

Tensor take(const Tensor& x, const Tensor& index) {
  require_integers("take", index);
  return getitem(flatten(x), {index});
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  require(mask.dtype() == DType::Bool,
          "masked_select: the mask is {}, not bool; compare it first, as in mask != 0",
          name(mask.dtype()));
  const Shape shape = broadcast_shapes("masked_select", x.shape(), mask.shape());
  check_shape("masked_select", shape);
  const std::vector<int64_t> places = places_of_nonzero(Tensor(broadcast_node(mask.node(), shape)));
  const auto n = static_cast<int64_t>(places.size());
  const Tensor flat(reshape(broadcast_node(x.node(), shape), {numel(shape)}));
  return gather(flat, 0, Tensor::from(places, {n}));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const TensorOrScalar& value) {
  require(mask.dtype() == DType::Bool,
          "masked_fill: the mask is {}, not bool; compare it first, as in mask != 0",
          name(mask.dtype()));
  require(!value.is_tensor() || value.tensor().dim() == 0,
          "masked_fill: the value has shape {}; it must be a scalar", to_string(value.shape()));
  return where(mask, Tensor(operand(value, x.dtype(), {})), x);
}

Tensor nonzero(const Tensor& x) {
  const std::vector<Tensor> axes = nonzero_as_tuple(x);
  if (x.dim() == 0) return Tensor(constant(0, DType::I64, {axes[0].numel(), 0}));
  return stack(axes, 1);
}

std::vector<Tensor> nonzero_as_tuple(const Tensor& x) {
  const std::vector<int64_t> places = places_of_nonzero(x);
  return coordinates(places, x.dim() == 0 ? Shape{1} : x.shape());
}

std::vector<Tensor> where(const Tensor& condition) {
  return nonzero_as_tuple(condition);
}

Tensor one_hot(const Tensor& x, int64_t num_classes) {
  require_integers("one_hot", x);
  if (num_classes == -1) {
    require(x.numel() > 0,
            "one_hot: the number of classes of an empty input is open; give num_classes");
    const int64_t last = max(x).item<int64_t>();
    require(last < INT64_MAX, "one_hot: index {} needs 2^63 classes, one more than there can be", last);
    num_classes = last + 1;
  }
  require(num_classes > 0, "one_hot: the number of classes is {}; it must be positive",
          num_classes);
  Shape shape = x.shape();
  shape.push_back(num_classes);
  check_shape("one_hot", shape);
  return cast(unsqueeze(as_index(x), -1) == Tensor(iota(num_classes)), DType::I64);
}

}  // namespace lazuli
