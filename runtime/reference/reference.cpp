#include "runtime/reference/reference.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/evaluate.h"
#include "core/graph.h"
#include "core/lazy_buffer.h"
#include "core/topology.h"
#include "runtime/device.h"
#include "runtime/storage.h"

namespace lazuli {
namespace {

using Index = std::vector<int64_t>;

// A dense row-major array under construction, or a view of a realised one.
class Array {
 public:
  Array() = default;
  Array(DType dtype, Shape shape)
      : dtype_(dtype),
        shape_(std::move(shape)),
        storage_(make_storage(static_cast<size_t>(numel(shape_)) * static_cast<size_t>(size_of(dtype)))) {}
  Array(DType dtype, Shape shape, std::shared_ptr<Storage> storage)
      : dtype_(dtype), shape_(std::move(shape)), storage_(std::move(storage)) {}

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t count() const { return numel(shape_); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  uint64_t get(int64_t i) const {
    uint64_t bits = 0;
    const auto size = static_cast<size_t>(size_of(dtype_));
    std::memcpy(&bits, static_cast<const char*>(storage_->data()) + static_cast<size_t>(i) * size, size);
    return bits;
  }
  void set(int64_t i, uint64_t bits) {
    const auto size = static_cast<size_t>(size_of(dtype_));
    std::memcpy(static_cast<char*>(storage_->data()) + static_cast<size_t>(i) * size, &bits, size);
  }
  int64_t flat(const Index& at) const {
    int64_t f = 0;
    for (size_t a = 0; a < shape_.size(); a++) f = f * shape_[a] + at[a];
    return f;
  }

 private:
  DType dtype_ = DType::F32;
  Shape shape_;
  std::shared_ptr<Storage> storage_;
};

// Calls f with the coordinates of every element of `shape`, in row-major order.
void for_each_index(const Shape& shape, const std::function<void(const Index&, int64_t)>& f) {
  const int64_t n = numel(shape);
  Index at(shape.size(), 0);
  for (int64_t i = 0; i < n; i++) {
    f(at, i);
    for (size_t a = shape.size(); a-- > 0;) {
      if (++at[a] < shape[a]) break;
      at[a] = 0;
    }
  }
}

using Arrays = std::vector<Array>;

Array eval_elementwise(const Node& n, const Arrays& src) {
  Array out(n.dtype, n.shape);
  std::vector<uint64_t> args(src.size());
  const DType in = src.back().dtype();
  for (int64_t i = 0; i < out.count(); i++) {
    for (size_t s = 0; s < src.size(); s++) args[s] = src[s].get(i);
    out.set(i, evaluate(n.op, n.dtype, args, in));
  }
  return out;
}

// The element of the source that `at` means, or -1 for "zero".
int64_t moved(const Node& n, const Array& x, const Index& at, int64_t flat_out) {
  Index in = at;
  switch (n.op) {
    case Op::Reshape: return flat_out;
    case Op::Permute:
      for (size_t i = 0; i < at.size(); i++) in[static_cast<size_t>(n.ints()[i])] = at[i];
      break;
    case Op::Expand:
      for (size_t i = 0; i < at.size(); i++) in[i] = x.shape()[i] == 1 ? 0 : at[i];
      break;
    case Op::Pad:
      for (size_t i = 0; i < at.size(); i++) {
        in[i] = at[i] - n.ints()[2 * i];
        if (in[i] < 0 || in[i] >= x.shape()[i]) return -1;
      }
      break;
    case Op::Shrink:
      for (size_t i = 0; i < at.size(); i++) in[i] = at[i] + n.ints()[2 * i];
      break;
    case Op::Flip:
      for (int64_t a : n.ints()) {
        const auto i = static_cast<size_t>(a);
        in[i] = x.shape()[i] - 1 - at[i];
      }
      break;
    case Op::Window: {
      const auto axis = static_cast<size_t>(n.ints()[0]);
      in[axis] = at[axis] * n.ints()[2] + at.back() * n.ints()[3];
      in.pop_back();
      break;
    }
    case Op::Unwindow: {
      const auto axis = static_cast<size_t>(n.ints()[0]);
      const int64_t step = n.ints()[2], offset = at[axis] - at.back() * n.ints()[3];
      if (offset < 0 || offset % step != 0 || offset / step >= x.shape()[axis]) return -1;
      in[axis] = offset / step;
      break;
    }
    default: internal_error("reference: not a movement op");
  }
  return x.flat(in);
}

Array eval_movement(const Node& n, const Arrays& src) {
  Array out(n.dtype, n.shape);
  for_each_index(n.shape, [&](const Index& at, int64_t i) {
    const int64_t from = moved(n, src[0], at, i);
    out.set(i, from < 0 ? 0 : src[0].get(from));
  });
  return out;
}

uint64_t combine(Op op, DType t, uint64_t a, uint64_t b) {
  const uint64_t args[] = {a, b};
  return evaluate(op, t, args, t);
}

// Sums and products of floats are kept in a wider type, so that the reference is the more exact one.
DType reference_accumulator(Op reduce, DType t) {
  if (reduce == Op::ReduceMax || reduce == Op::ReduceMin || !is_float(t)) return t;
  return DType::F64;
}

uint64_t convert(uint64_t bits, DType from, DType to) {
  if (from == to) return bits;
  const uint64_t args[] = {bits};
  return evaluate(Op::Cast, to, args, from);
}

Array eval_reduce(const Node& n, const Arrays& src) {
  const Array& x = src[0];
  const DType acc_type = reference_accumulator(n.op, n.dtype);
  const Op op = combiner(n.op);
  std::vector<uint64_t> acc(static_cast<size_t>(n.numel()), reduce_identity(n.op, acc_type));
  std::vector<bool> reduced(x.shape().size(), false);
  for (int64_t a : n.ints()) reduced[static_cast<size_t>(a)] = true;
  for_each_index(x.shape(), [&](const Index& at, int64_t i) {
    size_t to = 0;
    for (size_t a = 0; a < at.size(); a++) {
      if (!reduced[a]) to = to * static_cast<size_t>(x.shape()[a]) + static_cast<size_t>(at[a]);
    }
    acc[to] = combine(op, acc_type, acc[to], convert(x.get(i), x.dtype(), acc_type));
  });
  Array out(n.dtype, n.shape);
  for (int64_t i = 0; i < out.count(); i++) {
    out.set(i, convert(acc[static_cast<size_t>(i)], acc_type, n.dtype));
  }
  return out;
}

Array eval_gather(const Node& n, const Arrays& src) {
  const Array& x = src[0];
  Array out(n.dtype, n.shape);
  for (int64_t i = 0; i < out.count(); i++) {
    int64_t flat = 0;
    bool inside = true;
    for (size_t a = 0; a < x.shape().size(); a++) {
      const auto at = static_cast<int64_t>(src[a + 1].get(i));
      inside &= at >= 0 && at < x.shape()[a];
      flat = flat * x.shape()[a] + (inside ? at : 0);
    }
    out.set(i, inside ? x.get(flat) : 0);
  }
  return out;
}

Array eval_scatter(const Node& n, const Arrays& src) {
  const auto how = static_cast<Combine>(n.integer());
  const DType acc = how == Combine::Add || how == Combine::Mul ? accumulator(n.dtype) : n.dtype;
  std::vector<uint64_t> value(static_cast<size_t>(n.numel()));
  for (int64_t i = 0; i < n.numel(); i++) {
    value[static_cast<size_t>(i)] = convert(src[0].get(i), n.dtype, acc);
  }
  constexpr Op kOp[] = {Op::Count_, Op::Add, Op::Mul, Op::Max, Op::Min};
  for (int64_t i = 0; i < src[1].count(); i++) {
    const auto at = static_cast<int64_t>(src[1].get(i));
    if (at < 0 || at >= n.numel()) continue;
    const uint64_t v = convert(src[2].get(i), n.dtype, acc);
    uint64_t& cell = value[static_cast<size_t>(at)];
    cell = how == Combine::Set ? v : combine(kOp[static_cast<int>(how)], acc, cell, v);
  }
  Array out(n.dtype, n.shape);
  for (int64_t i = 0; i < out.count(); i++) {
    out.set(i, convert(value[static_cast<size_t>(i)], acc, n.dtype));
  }
  return out;
}

// Calls f(start, stride, length) for every line of `shape` along `axis`.
void for_each_line(const Shape& shape, int64_t axis,
                   const std::function<void(int64_t, int64_t, int64_t)>& f) {
  int64_t inner = 1, outer = 1;
  for (size_t a = 0; a < shape.size(); a++) {
    if (static_cast<int64_t>(a) < axis) outer *= shape[a];
    if (static_cast<int64_t>(a) > axis) inner *= shape[a];
  }
  const int64_t length = shape[static_cast<size_t>(axis)];
  for (int64_t o = 0; o < outer; o++) {
    for (int64_t i = 0; i < inner; i++) f(o * length * inner + i, inner, length);
  }
}

Array eval_scan(const Node& n, const Arrays& src) {
  constexpr Op kOp[] = {Op::Add, Op::Mul, Op::Max, Op::Min};
  const Op op = kOp[n.ints()[0]];
  const DType acc_type =
      is_float(n.dtype) && n.ints()[0] <= static_cast<int64_t>(ScanOp::Mul) ? DType::F64 : n.dtype;
  Array out(n.dtype, n.shape);
  for_each_line(n.shape, n.ints()[1], [&](int64_t start, int64_t stride, int64_t length) {
    uint64_t acc = 0;
    for (int64_t k = 0; k < length; k++) {
      const int64_t at = start + stride * (n.ints()[2] ? length - 1 - k : k);
      const uint64_t v = convert(src[0].get(at), n.dtype, acc_type);
      acc = k == 0 ? v : combine(op, acc_type, acc, v);
      out.set(at, convert(acc, acc_type, n.dtype));
    }
  });
  return out;
}

Array eval_argsort(const Node& n, const Arrays& src) {
  const bool descending = n.integer() != 0;
  Array out(n.dtype, n.shape);
  const DType t = src[0].dtype();
  for_each_line(n.shape, n.rank() - 1, [&](int64_t start, int64_t, int64_t length) {
    std::vector<int64_t> order(static_cast<size_t>(length));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const uint64_t x = src[0].get(start + a), y = src[0].get(start + b);
      return descending ? sorts_before(y, x, t) : sorts_before(x, y, t);
    });
    for (int64_t k = 0; k < length; k++) {
      out.set(start + k, static_cast<uint64_t>(order[static_cast<size_t>(k)]));
    }
  });
  return out;
}

Array eval_leaf(const Node& n) {
  Array out(n.dtype, n.shape);
  for (int64_t i = 0; i < out.count(); i++) {
    out.set(i, n.op == Op::Iota ? static_cast<uint64_t>(i) : std::get<ScalarBits>(n.arg).bits);
  }
  return out;
}

Array eval(const Node& n, const Arrays& src) {
  if (is_elementwise(n.op)) return eval_elementwise(n, src);
  if (is_movement(n.op)) return eval_movement(n, src);
  if (is_reduce(n.op)) return eval_reduce(n, src);
  if (has(n.op, kIdentity)) return src[0];
  switch (n.op) {
    case Op::Const:
    case Op::Iota: return eval_leaf(n);
    case Op::Gather: return eval_gather(n, src);
    case Op::Scatter: return eval_scatter(n, src);
    case Op::Scan: return eval_scan(n, src);
    case Op::ArgSort: return eval_argsort(n, src);
    default: internal_error(fmt::format("reference: op {} has no value", name(n.op)));
  }
}

}  // namespace

void realize_reference(std::span<const NodeRef> roots) {
  const Topology graph(roots, true);
  std::vector<int> readers(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    for (int s : graph.sources(i)) readers[static_cast<size_t>(s)]++;
  }
  for (const NodeRef& r : roots) readers[static_cast<size_t>(graph.find(r))]++;
  std::vector<Array> values(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    const NodeRef& n = graph.nodes[i];
    if (const std::shared_ptr<Storage> s = n->storage()) {
      values[i] = Array(n->dtype, n->shape, s);
      continue;
    }
    if (n->op == Op::Buffer) refuse_example();
    Arrays src;
    for (int s : graph.sources(i)) src.push_back(values[static_cast<size_t>(s)]);
    values[i] = eval(*n, src);
    for (int s : graph.sources(i)) {
      if (--readers[static_cast<size_t>(s)] == 0) values[static_cast<size_t>(s)] = {};
    }
  }
  // Storage is attached only when everything has been computed: a failure leaves every tensor as it was.
  std::vector<std::shared_ptr<Storage>> storages;
  for (const NodeRef& r : roots) storages.push_back(values[static_cast<size_t>(graph.find(r))].storage());
  attach_values(roots, storages);
}

namespace {

class ReferenceDevice final : public Device {
 public:
  std::string_view name() const override { return "reference"; }
  std::string description() const override { return "evaluates the tensor graph, node by node"; }
  const Target& target() const override { return target_; }
  void realize(std::span<const NodeRef> roots) override { realize_reference(roots); }
  std::unique_ptr<Executable> prepare(Plan) override {
    user_error("reference: this device has no kernels; use --device cpu to look at or time them");
  }

 private:
  Target target_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device(Runtime&, std::string_view) {
  return std::make_unique<ReferenceDevice>();
}

}  // namespace lazuli
