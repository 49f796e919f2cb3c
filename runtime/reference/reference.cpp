#include "runtime/reference/reference.h"

#include <algorithm>
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
#include "runtime/inspect.h"
#include "runtime/runtime.h"
#include "runtime/storage.h"

namespace lazuli {
namespace {

Ints row_major(const Shape& shape) {
  Ints strides(shape.size(), 1);
  for (size_t a = shape.size(); a-- > 1;) strides[a - 1] = strides[a] * shape[a];
  return strides;
}

// A row-major array, or a view of one: the element at coordinates `at` is number offset + sum of
// at[a] * strides[a].
class Array {
 public:
  Array() = default;
  Array(DType dtype, const Shape& shape)
      : Array(dtype, shape, make_storage(bytes_of(shape, dtype))) {}
  Array(DType dtype, const Shape& shape, Ref<Storage> storage)
      : dtype_(dtype),
        shape_(shape),
        strides_(row_major(shape)),
        storage_(std::move(storage)),
        data_(storage_->data()) {}

  /// The elements of the same storage in another arrangement.
  Array view(const Shape& shape, Ints strides, int64_t offset = 0) const {
    Array v = *this;
    v.shape_ = shape;
    v.strides_ = std::move(strides);
    v.offset_ = offset;
    return v;
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Ints& strides() const { return strides_; }
  int64_t offset() const { return offset_; }
  int64_t count() const { return numel(shape_); }
  const Ref<Storage>& storage() const { return storage_; }
  /// Whether the elements are those of the storage, in order, and no others.
  bool is_whole() const {
    return offset_ == 0 && strides_ == row_major(shape_) &&
           storage_->bytes() == bytes_of(shape_, dtype_);
  }

  /// Element number `i` of the storage.
  uint64_t get(int64_t i) const {
    switch (size_of(dtype_)) {
      case 1:
        return at<uint8_t>(i);
      case 2:
        return at<uint16_t>(i);
      case 4:
        return at<uint32_t>(i);
      default:
        return at<uint64_t>(i);
    }
  }
  void set(int64_t i, uint64_t bits) {
    switch (size_of(dtype_)) {
      case 1:
        at<uint8_t>(i) = static_cast<uint8_t>(bits);
        break;
      case 2:
        at<uint16_t>(i) = static_cast<uint16_t>(bits);
        break;
      case 4:
        at<uint32_t>(i) = static_cast<uint32_t>(bits);
        break;
      default:
        at<uint64_t>(i) = bits;
    }
  }

 private:
  template <typename T>
  T& at(int64_t i) const {
    return static_cast<T*>(data_)[i];
  }

  DType dtype_ = DType::F32;
  Shape shape_;
  Ints strides_;
  int64_t offset_ = 0;
  Ref<Storage> storage_;
  void* data_ = nullptr;
};

using Arrays = std::vector<Array>;
using Places = std::vector<int64_t>;

// Calls f with the places of an element in each of `arrays`, for every element of `shape` in
// row-major order.
template <typename F>
void for_each_element(const Shape& shape, const Arrays& arrays, F f) {
  Places places, at(shape.size(), 0);
  std::vector<Places> strides(shape.size());
  for (const Array& x : arrays) {
    places.push_back(x.offset());
    for (size_t a = 0; a < shape.size(); a++) strides[a].push_back(x.strides()[a]);
  }
  for (int64_t left = numel(shape); left > 0; left--) {
    f(places);
    for (size_t a = shape.size(); a-- > 0;) {
      const int64_t step = ++at[a] < shape[a] ? 1 : 1 - shape[a];
      for (size_t s = 0; s < places.size(); s++) places[s] += step * strides[a][s];
      if (step == 1) break;
      at[a] = 0;
    }
  }
}

void fill(Array& x, uint64_t bits) {
  for (int64_t i = 0; i < x.count(); i++) x.set(i, bits);
}

void copy(const Array& from, Array to) {
  for_each_element(from.shape(), {from, to},
                   [&](const Places& at) { to.set(at[1], from.get(at[0])); });
}

Array in_row_major(const Array& x) {
  if (x.is_whole()) return x;
  Array out(x.dtype(), x.shape());
  copy(x, out);
  return out;
}

// What an elementwise node makes of one element of each source; of any other node, its only source.
class Element {
 public:
  Element(const Node& n, const Arrays& src) : node_(n), src_(src), args_(src.size()) {}
  uint64_t operator()(const Places& at) {
    if (!is_elementwise(node_.op)) return src_[0].get(at[0]);
    for (size_t s = 0; s < args_.size(); s++) args_[s] = src_[s].get(at[s]);
    return evaluate(node_.op, node_.dtype, args_, src_.back().dtype());
  }

 private:
  const Node& node_;
  const Arrays& src_;
  std::vector<uint64_t> args_;
};

Array eval_elementwise(const Node& n, const Arrays& src) {
  Array out(n.dtype, n.shape);
  Element element(n, src);
  int64_t i = 0;
  for_each_element(n.shape, src, [&](const Places& at) { out.set(i++, element(at)); });
  return out;
}

Array eval_movement(const Node& n, const Array& x) {
  Ints strides = x.strides();
  int64_t offset = x.offset();
  switch (n.op) {
    case Op::Reshape:
      return in_row_major(x).view(n.shape, row_major(n.shape));
    case Op::Permute:
      for (size_t a = 0; a < strides.size(); a++) {
        strides[a] = x.strides()[static_cast<size_t>(n.ints()[a])];
      }
      break;
    case Op::Expand:
      for (size_t a = 0; a < strides.size(); a++) {
        if (x.shape()[a] != n.shape[a]) strides[a] = 0;
      }
      break;
    case Op::Shrink:
      for (size_t a = 0; a < strides.size(); a++) offset += n.ints()[2 * a] * strides[a];
      break;
    case Op::Flip:
      for (int64_t axis : n.ints()) {
        const auto a = static_cast<size_t>(axis);
        offset += (x.shape()[a] - 1) * strides[a];
        strides[a] = -strides[a];
      }
      break;
    case Op::Window: {
      const auto a = static_cast<size_t>(n.ints()[0]);
      strides.push_back(strides[a] * n.ints()[3]);
      strides[a] *= n.ints()[2];
      break;
    }
    case Op::Pad: {
      Array out(n.dtype, n.shape);
      fill(out, 0);
      int64_t first = 0;
      for (size_t a = 0; a < strides.size(); a++) first += n.ints()[2 * a] * out.strides()[a];
      copy(x, out.view(x.shape(), out.strides(), first));
      return out;
    }
    case Op::Unwindow: {
      // Windows may reach beyond the result, which leaves out what is there.
      const auto a = static_cast<size_t>(n.ints()[0]);
      const int64_t step = n.ints()[2], dilation = n.ints()[3];
      Shape room = n.shape;
      room[a] =
          std::max(room[a], (x.shape()[a] - 1) * step + (x.shape().back() - 1) * dilation + 1);
      Array out(n.dtype, room);
      fill(out, 0);
      Ints placed = out.strides();
      placed.back() += placed[a] * dilation;
      placed[a] *= step;
      copy(x, out.view(x.shape(), std::move(placed)));
      return out.view(n.shape, out.strides());
    }
    default:
      internal_error("reference: not a movement op");
  }
  return x.view(n.shape, std::move(strides), offset);
}

uint64_t combine(Op op, DType t, uint64_t a, uint64_t b) {
  const uint64_t args[] = {a, b};
  return evaluate(op, t, args, t);
}

// Sums and products of floats are kept in a wider type, so that the reference is the more exact
// one.
DType reference_accumulator(Op reduce, DType t) {
  if (reduce == Op::ReduceMax || reduce == Op::ReduceMin || !is_float(t)) return t;
  return DType::F64;
}

uint64_t convert(uint64_t bits, DType from, DType to) {
  if (from == to) return bits;
  const uint64_t args[] = {bits};
  return evaluate(Op::Cast, to, args, from);
}

// The sum, product, maximum or minimum of what `term` makes of `src`.
Array eval_reduce(const Node& n, const Node& term, const Arrays& src) {
  const Shape& shape = n.src[0]->shape;
  const DType from = n.src[0]->dtype, acc_type = reference_accumulator(n.op, n.dtype);
  const Op op = combiner(n.op);
  Array acc(acc_type, n.shape);
  fill(acc, reduce_identity(n.op, acc_type));
  Element element(term, src);
  Ints strides(shape.size(), 0);
  for (size_t a = 0, kept = 0; a < shape.size(); a++) {
    const bool reduced =
        std::find(n.ints().begin(), n.ints().end(), static_cast<int64_t>(a)) != n.ints().end();
    if (!reduced) strides[a] = acc.strides()[kept++];
  }
  Arrays walked = src;
  walked.push_back(acc.view(shape, std::move(strides)));
  for_each_element(shape, walked, [&](const Places& at) {
    const uint64_t v = convert(element(at), from, acc_type);
    acc.set(at.back(), combine(op, acc_type, acc.get(at.back()), v));
  });
  Array out(n.dtype, n.shape);
  for (int64_t i = 0; i < out.count(); i++) out.set(i, convert(acc.get(i), acc_type, n.dtype));
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
  const int64_t row = src[1].count() > 0 ? src[2].count() / src[1].count() : 0;
  for (int64_t i = 0; i < src[2].count(); i++) {
    const auto first = static_cast<int64_t>(src[1].get(i / row));
    const int64_t at = first < 0 ? first : first + i % row;
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

// ArgSort, and Sort, which has the elements in place of their places.
Array eval_sort(const Node& n, const Arrays& src) {
  const bool descending = n.integer() != 0;
  Array out(n.dtype, n.shape);
  const DType t = src[0].dtype();
  const int64_t count = n.shape.back();
  for_each_line(src[0].shape(), n.rank() - 1, [&](int64_t start, int64_t, int64_t length) {
    std::vector<int64_t> order(static_cast<size_t>(length));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const uint64_t x = src[0].get(start + a), y = src[0].get(start + b);
      return descending ? sorts_before(y, x, t) : sorts_before(x, y, t);
    });
    for (int64_t k = 0; k < count; k++) {
      const int64_t place = order[static_cast<size_t>(k)];
      out.set(start / length * count + k,
              n.op == Op::Sort ? src[0].get(start + place) : static_cast<uint64_t>(place));
    }
  });
  return out;
}

Array eval_update(const Node& n, const Arrays& src) {
  Array out(n.dtype, n.shape);
  for (int64_t i = 0; i < out.count(); i++) out.set(i, src[0].get(i));
  const Shape& box = src[1].shape();
  Ints begin = n.ints();
  for (int64_t& b : begin) {
    if (b < 0) b = static_cast<int64_t>(src[static_cast<size_t>(1 - b)].get(0));
  }
  for (int64_t i = 0; i < src[1].count(); i++) {
    int64_t rest = i, at = 0, stride = 1;
    for (size_t k = box.size(); k-- > 0;) {
      at += (begin[k] + rest % box[k]) * stride;
      rest /= box[k];
      stride *= n.shape[k];
    }
    out.set(at, src[1].get(i));
  }
  return out;
}

Array eval_leaf(const Node& n) {
  Array out(n.dtype, n.shape);
  for (int64_t i = 0; i < out.count(); i++) {
    out.set(i, n.op == Op::Iota ? static_cast<uint64_t>(i) : std::get<ScalarBits>(n.arg).bits);
  }
  return out;
}

// `term` is the elementwise node that a reduction evaluates as it goes, else `n` itself; `src` are
// its sources.
Array eval(const Node& n, const Node& term, Arrays src) {
  if (is_elementwise(n.op)) return eval_elementwise(n, src);
  if (is_movement(n.op)) return eval_movement(n, src[0]);
  if (is_reduce(n.op)) return eval_reduce(n, term, src);
  if (has(n.op, kIdentity)) return src[0];
  for (Array& x : src) x = in_row_major(x);
  switch (n.op) {
    case Op::Const:
    case Op::Iota:
      return eval_leaf(n);
    case Op::Gather:
      return eval_gather(n, src);
    case Op::Scatter:
      return eval_scatter(n, src);
    case Op::Scan:
      return eval_scan(n, src);
    case Op::ArgSort:
    case Op::Sort:
      return eval_sort(n, src);
    case Op::Update:
      return eval_update(n, src);
    default:
      internal_error(fmt::format("reference: op {} has no value", name(n.op)));
  }
}

}  // namespace

namespace {

// The values of `roots`, where `given` holds those of leaves that have none of their own.
std::vector<Ref<Storage>> evaluate(std::span<const NodeRef> roots,
                                   const NodeMap<Ref<Storage>>& given) {
  const Topology graph(roots, true);
  std::vector<int> readers(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    for (int s : graph.sources(i)) readers[static_cast<size_t>(s)]++;
  }
  for (const NodeRef& r : roots) readers[static_cast<size_t>(graph.find(r))]++;
  // The terms that a reduction alone reads are never stored: a product of matrices needs no room
  // for all its products.
  std::vector<bool> is_term(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    if (!is_reduce(graph.nodes[i]->op) || graph.nodes[i]->realised()) continue;
    const auto s = static_cast<size_t>(graph.sources(i)[0]);
    is_term[s] =
        is_elementwise(graph.nodes[s]->op) && !graph.nodes[s]->realised() && readers[s] == 1;
  }
  Trace& trace = Runtime::current().trace;
  Arrays values(graph.size());
  for (size_t i = 0; i < graph.size(); i++) {
    const NodeRef& n = graph.nodes[i];
    if (const Ref<Storage> s = n->storage()) {
      values[i] = Array(n->dtype, n->shape, s);
      continue;
    }
    if (const auto it = given.find(n); it != given.end()) {
      values[i] = Array(n->dtype, n->shape, it->second);
      continue;
    }
    if (n->op == Op::Buffer) refuse_example();
    if (is_term[i]) continue;
    const bool has_term = is_reduce(n->op) && is_term[static_cast<size_t>(graph.sources(i)[0])];
    const size_t term = has_term ? static_cast<size_t>(graph.sources(i)[0]) : i;
    Arrays src;
    for (int s : graph.sources(term)) src.push_back(values[static_cast<size_t>(s)]);
    const Span span(trace, "kernel", lazuli::name(n->op));
    values[i] = eval(*n, *graph.nodes[term], std::move(src));
    for (int s : graph.sources(term)) {
      if (--readers[static_cast<size_t>(s)] == 0) values[static_cast<size_t>(s)] = {};
    }
  }
  std::vector<Ref<Storage>> storages;
  for (const NodeRef& r : roots) {
    storages.push_back(in_row_major(values[static_cast<size_t>(graph.find(r))]).storage());
  }
  return storages;
}

}  // namespace

// Storage is attached only when everything has been computed: a failure leaves every tensor as it
// was.
void realize_reference(std::span<const NodeRef> roots) {
  attach_values(roots, evaluate(roots, {}));
}

namespace {

class ReferenceExecutable final : public Executable {
 public:
  explicit ReferenceExecutable(Plan plan) : plan_(std::move(plan)) {
    memory_.donors.assign(plan_.slots.size(), -1);
  }
  void run(std::span<Storage* const> inputs, std::span<Storage* const> outputs) override {
    NodeMap<Ref<Storage>> given;
    std::vector<size_t> output_of(plan_.slots.size());
    size_t in = 0, out = 0;
    for (size_t i = 0; i < plan_.slots.size(); i++) {
      const PlanSlot& s = plan_.slots[i];
      if (s.role == PlanSlot::Role::Input) given[s.node] = Ref<Storage>(inputs[in++]);
      if (s.role == PlanSlot::Role::Output) output_of[i] = out++;
    }
    const std::vector<Ref<Storage>> values = evaluate(plan_.roots, given);
    for (size_t r = 0; r < values.size(); r++) {
      const auto slot = static_cast<size_t>(plan_.outputs[r]);
      if (plan_.slots[slot].role != PlanSlot::Role::Output || !values[r]->bytes()) continue;
      std::memcpy(outputs[output_of[slot]]->data(), values[r]->data(), values[r]->bytes());
    }
  }
  std::vector<double> time_steps(std::span<Storage* const>, std::span<Storage* const>,
                                 int) override {
    return {};
  }
  const Plan& plan() const override { return plan_; }
  const MemoryPlan& memory() const override { return memory_; }
  const std::vector<StepNote>& notes() const override { return notes_; }
  std::vector<StepReport> report() const override { return {}; }

 private:
  Plan plan_;
  std::vector<StepNote> notes_;
  MemoryPlan memory_;  // nothing lies in the memory of anything else
};

class ReferenceDevice final : public Device {
 public:
  std::string_view name() const override { return "reference"; }
  std::string description() const override { return "evaluates the tensor graph, node by node"; }
  const Target& target() const override { return target_; }
  void realize(std::span<const NodeRef> roots) override { realize_reference(roots); }
  std::unique_ptr<Executable> prepare(Plan) override {
    user_error("reference: this device has no kernels; use --device cpu to look at or time them");
  }
  // The graph as it was written: nothing is fused, nor rewritten.
  Captured capture(std::span<const NodeRef> roots, std::span<const NodeRef>,
                   const SymbolicGraph*) override {
    Captured c;
    Plan plan;
    NodeMap<int> slots;
    const auto add = [&](const NodeRef& n, PlanSlot::Role role) {
      const auto [it, is_new] = slots.try_emplace(n, static_cast<int>(plan.slots.size()));
      if (is_new) plan.slots.push_back({role, n->dtype, n->shape, n});
      return it->second;
    };
    for (const NodeRef& n : Topology(roots, true).nodes) {
      if (!n->realised() && n->op != Op::Buffer) continue;
      add(n, PlanSlot::Role::Input);
      c.inputs.push_back(n);
    }
    for (const NodeRef& r : roots) plan.outputs.push_back(add(r, PlanSlot::Role::Output));
    plan.roots.assign(roots.begin(), roots.end());
    c.executable = std::make_shared<ReferenceExecutable>(std::move(plan));
    return c;
  }

 private:
  Target target_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device(Runtime&, std::string_view) {
  return std::make_unique<ReferenceDevice>();
}

}  // namespace lazuli
