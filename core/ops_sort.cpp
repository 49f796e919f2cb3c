#include "core/ops_sort.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "core/evaluate.h"
#include "core/gradient.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_movement.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

// Element `place` of axis `axis`, at the place that another tensor along it says; the axis kept as
// size 1 or dropped.
ValuesIndices taken(const Tensor& x, const Tensor& index, int64_t axis, bool keepdim) {
  const Tensor value = gather(x, axis, index);
  if (keepdim) return {value, index};
  return {squeeze(value, axis), squeeze(index, axis)};
}

void require_nonempty(std::string_view op, const Tensor& x, int64_t axis) {
  require(x.dim() == 0 || x.size(axis) > 0,
          "{}: dimension {} of shape {} is empty and has no such element", op, axis,
          to_string(x.shape()));
}

// Where the first k of the sorted elements of an axis are.
Tensor first_of(const Tensor& x, int64_t axis, bool descending, int64_t k) {
  const Tensor last = movedim(detach(x), axis, -1);
  return movedim(Tensor(argsort(last.node(), descending, k)), -1, axis);
}

ValuesIndices of_scalar(const Tensor& x) {
  return {Tensor(x.node()), Tensor(constant(0, DType::I64))};
}

}  // namespace

Tensor argsort(const Tensor& x, int64_t dim, bool descending, bool) {
  const int64_t axis = check_axis("argsort", dim, x.dim());
  if (x.dim() == 0) return Tensor(constant(0, DType::I64));
  const Tensor last = movedim(detach(x), axis, -1);
  return movedim(Tensor(argsort(last.node(), descending)), -1, axis);
}

ValuesIndices sort(const Tensor& x, int64_t dim, bool descending, bool stable) {
  const int64_t axis = check_axis("sort", dim, x.dim());
  if (x.dim() == 0) return of_scalar(x);
  const Tensor last = movedim(x, axis, -1), order = argsort(last, -1, descending, stable);
  return {movedim(gather(last, -1, order), -1, axis), movedim(order, -1, axis)};
}

Tensor msort(const Tensor& x) {
  return sort(x, 0).values;
}

ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim, bool largest, bool) {
  const int64_t axis = check_axis("topk", dim, x.dim()), n = x.dim() == 0 ? 1 : x.size(axis);
  require(k >= 0 && k <= n, "topk: k is {}, but dimension {} has {} elements", k, axis, n);
  if (x.dim() == 0)
    return k == 1 ? of_scalar(x)
                  : ValuesIndices{reshape(x, {1}), Tensor(constant(0, DType::I64, {0}))};
  const Tensor order = first_of(x, axis, largest, k);
  return {gather(x, axis, order), order};
}

ValuesIndices kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
  const int64_t axis = check_axis("kthvalue", dim, x.dim()), n = x.dim() == 0 ? 1 : x.size(axis);
  require(k >= 1 && k <= n, "kthvalue: k is {}; it must lie in [1, {}], the size of dimension {}",
          k, n, axis);
  if (x.dim() == 0) return of_scalar(x);
  return taken(x, narrow(first_of(x, axis, false, k), axis, k - 1, 1), axis, keepdim);
}

ValuesIndices median(const Tensor& x, int64_t dim, bool keepdim) {
  const int64_t axis = check_axis("median", dim, x.dim());
  require_nonempty("median", x, axis);
  if (x.dim() == 0) return of_scalar(x);
  const int64_t n = x.size(axis);
  const Tensor order = argsort(x, axis);
  if (!is_float(x.dtype())) return taken(x, narrow(order, axis, (n - 1) / 2, 1), axis, keepdim);
  // NaNs are sorted behind the numbers; the first of them is the median if there is one.
  const Tensor nans = sum(cast(isnan(detach(x)), DType::I64), axis, true);
  const Tensor place = where(nans > 0, n - nans, (n - 1) / 2);
  return taken(x, gather(order, axis, place), axis, keepdim);
}

Tensor median(const Tensor& x) {
  if (x.numel() == 0) {
    require(is_float(x.dtype()), "median: the input of shape {} is empty and has no median",
            to_string(x.shape()));
    return Tensor(constant(std::numeric_limits<double>::quiet_NaN(), x.dtype()));
  }
  const Tensor value = median(flatten(x), 0).values;
  if (!is_float(x.dtype())) return value;
  // Without an index to say which, all equals share the gradient.
  return custom_vjp(value, {x}, [x, value](const Tensor& g) -> std::vector<Tensor> {
    const Tensor v = detach(value), equals = cast((x == v) | (isnan(x) & isnan(v)), x.dtype());
    return {g * equals / sum(equals)};
  });
}

ValuesIndices mode(const Tensor& x, int64_t dim, bool keepdim) {
  const int64_t axis = check_axis("mode", dim, x.dim());
  require_nonempty("mode", x, axis);
  if (x.dim() == 0) return of_scalar(x);
  const int64_t n = x.size(axis);
  const ValuesIndices s = sort(detach(x), axis);
  // In sorted order equals are neighbours: an element's rank in its run grows to the run's length.
  const Tensor place(detail::coordinate(x.shape(), axis));
  const Tensor head = narrow(s.values, axis, 0, 1);
  const Tensor before = cat({head, narrow(s.values, axis, 0, n - 1)}, axis);
  const Tensor starts = where(s.values != before, place, 0);
  const Tensor rank = place - Tensor(scan(starts.node(), ScanOp::Max, axis));
  const Tensor best = argmax(rank, axis, true);
  return taken(x, gather(s.indices, axis, best), axis, keepdim);
}

// ---- binary search

namespace {

// The index of each line of `sequence` (all axes but the last) for every element of `shape`.
std::vector<NodeRef> line_index(const Tensor& sequence, const Shape& shape, const Tensor& place) {
  std::vector<NodeRef> index;
  for (int64_t a = 0; a + 1 < sequence.dim(); a++) index.push_back(detail::coordinate(shape, a));
  index.push_back(place.node());
  return index;
}

Tensor search(const Tensor& sequence, const Tensor& values, bool right,
              const std::optional<Tensor>& sorter) {
  const Shape shape = values.shape();
  const int64_t n = sequence.size(-1);
  Tensor low(constant(0, DType::I64, shape)), high(constant(n, DType::I64, shape));
  for (int64_t left = n; left > 0; left /= 2) {
    const Tensor open = low < high, middle = div(low + high, 2, "trunc");
    Tensor place = middle;
    if (sorter) place = Tensor(gather(sorter->node(), line_index(*sorter, shape, place)));
    const Tensor element(gather(sequence.node(), line_index(sequence, shape, place)));
    // NaN stands behind everything.
    Tensor before = right ? element <= values : element < values;
    if (is_float(values.dtype())) {
      const Tensor nan = isnan(values);
      before = right ? before | nan : before | (nan & ~isnan(element));
    }
    const Tensor up = open & before, down = open & ~before;
    low = where(up, middle + 1, low);
    high = where(down, middle, high);
  }
  return low;
}

}  // namespace

Tensor searchsorted(const Tensor& sorted_sequence, const TensorOrScalar& values, bool out_int32,
                    bool right, std::optional<std::string_view> side,
                    const std::optional<Tensor>& sorter) {
  constexpr std::string_view kOp = "searchsorted";
  require(!side || *side == "left" || *side == "right",
          "{}: side is \"{}\"; it must be left or right", kOp, side.value_or(""));
  require(!(right && side && *side == "left"),
          "{}: right is true but side is left; give one of them", kOp);
  const Tensor& s = sorted_sequence;
  require(s.dim() >= 1, "{}: the sequence is a scalar; it needs an axis", kOp);
  const Tensor v = values.is_tensor() ? values.tensor()
                                      : Tensor(constant(values.scalar(), result_type(s, values)));
  const Shape a = s.shape(), b = v.shape();
  const bool lines_agree = a.size() == b.size() && std::equal(a.begin(), a.end() - 1, b.begin());
  require(a.size() == 1 || lines_agree,
          "{}: the sequences have shape {} and the values {}; all but the last size must agree",
          kOp, to_string(a), to_string(b));
  require(!sorter || (sorter->shape() == a && is_int(sorter->dtype())),
          "{}: the sorter is {} of shape {}; it must be integers of the sequence's shape {}", kOp,
          name(sorter ? sorter->dtype() : DType::I64), to_string(sorter ? sorter->shape() : a),
          to_string(a));
  const DType t = promote(s.dtype(), v.dtype());
  std::optional<Tensor> order;
  if (sorter) order = cast(*sorter, DType::I64);
  const Tensor found =
      search(detach(cast(s, t)), detach(cast(v, t)), right || side == "right", order);
  return out_int32 ? cast(found, DType::I32) : found;
}

Tensor bucketize(const TensorOrScalar& x, const Tensor& boundaries, bool out_int32, bool right) {
  require(boundaries.dim() == 1, "bucketize: the boundaries have shape {}; they must be a vector",
          to_string(boundaries.shape()));
  return searchsorted(boundaries, x, out_int32, right);
}

// ---- unique

namespace {

// Slices of a realised array, compared element by element.
class Slices {
 public:
  explicit Slices(const Tensor& x)
      : data_(static_cast<const char*>(x.data())),
        dtype_(x.dtype()),
        length_(x.size(0) == 0 ? 0 : x.numel() / x.size(0)) {}

  bool less(int64_t a, int64_t b) const {
    for (int64_t i = 0; i < length_; i++) {
      const uint64_t x = element(a, i), y = element(b, i);
      if (sorts_before(x, y, dtype_)) return true;
      if (sorts_before(y, x, dtype_)) return false;
    }
    return false;
  }
  bool equal(int64_t a, int64_t b) const {
    for (int64_t i = 0; i < length_; i++) {
      const uint64_t bits[] = {element(a, i), element(b, i)};
      if (!evaluate(Op::Eq, DType::Bool, bits, dtype_)) return false;
    }
    return true;
  }

 private:
  uint64_t element(int64_t slice, int64_t i) const {
    uint64_t bits = 0;
    const auto size = static_cast<size_t>(size_of(dtype_));
    std::memcpy(&bits, data_ + static_cast<size_t>(slice * length_ + i) * size, size);
    return bits;
  }

  const char* data_;
  DType dtype_;
  int64_t length_;
};

}  // namespace

Unique unique(const Tensor& x, std::optional<int64_t> dim) {
  const bool flat = !dim || x.dim() == 0;
  const int64_t axis = flat ? 0 : check_axis("unique", *dim, x.dim());
  const Tensor lines = flat ? flatten(x) : contiguous(movedim(x, axis, 0));
  const int64_t n = lines.size(0);
  const Tensor keep = detach(lines);
  const Slices slices(keep);
  std::vector<int64_t> order, first, counts;
  // Equal slices stay in order by their places, so that the first of them stands for all.
  if (keep.dim() == 1) {
    order = argsort(keep).to_vector<int64_t>();
  } else {
    order.resize(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return slices.less(a, b); });
  }
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); i++) {
    if (i == 0 || !slices.equal(order[i - 1], order[i])) {
      first.push_back(order[i]);
      counts.push_back(0);
    }
    counts.back()++;
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(first.size()) - 1;
  }
  const auto number = static_cast<int64_t>(first.size());
  const Tensor places = Tensor::from(first, {number}), back = Tensor::from(inverse, {n});
  return {index_select(flat ? lines : x, axis, places), flat ? reshape(back, x.shape()) : back,
          Tensor::from(counts, {number})};
}

}  // namespace lazuli
