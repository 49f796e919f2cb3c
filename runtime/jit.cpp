#include "runtime/jit.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/graph.h"
#include "core/node_map.h"
#include "core/ops_random.h"
#include "runtime/jit_entry.h"
#include "runtime/runtime.h"

namespace lazuli::detail {

class JitState final : public Counted {
 public:
  explicit JitState(std::vector<Dynamic> dynamic);
  /// Locks what was captured for the call until finish().
  Ref<Counted> prepare(JitCall& call, const JitCall::Trace& trace);
  void run(JitCall& call) const;
  void finish() { mutex_.unlock(); }
  JitCount total() const { return {captures_, calls_}; }
  /// Which dimension integer `number` follows; -1: none.
  int dim_of_integer(size_t number) const { return dim_of(number, {}); }

 private:
  static constexpr size_t kMaxEntries = 64, kMaxSizes = 4096;
  static constexpr int64_t kClassRatio = 4, kSmallestClass = 16;

  int dim_of(size_t number, std::optional<int64_t> axis) const;
  static std::string text_of(const Dynamic& d);
  std::vector<int64_t> sizes_of(const JitCall& call) const;
  std::vector<std::vector<int64_t>> class_bounds() const;
  std::vector<int64_t> other_sizes(const std::vector<int64_t>& sizes,
                                   const std::vector<int64_t>& bounds) const;
  std::vector<SymbolicAxes> axes_of(const JitCall& call, const std::vector<size_t>& same_as,
                                    const std::vector<int64_t>& bounds) const;
  bool matches(const Entry& e, int64_t classes, const JitCall& call) const;
  std::string sizes_of_capture(const JitCall& call, const std::vector<int64_t>& sizes) const;
  Traced traced(const JitCall& call, const JitCall::Trace& trace,
                const std::vector<size_t>& same_as, const std::vector<int64_t>& sizes) const;
  Entries capture(const JitCall& call, const JitCall::Trace& trace);
  Entry capture_to(const std::vector<int64_t>& bounds, const JitCall& call,
                   const JitCall::Trace& trace) const;
  void compile(Entry& e) const;
  void find_donors(Entry& e) const;
  void find_rooms(const Entry& e, const std::vector<int64_t>& sizes, Sized& sized) const;
  const Sized& at_size(Entry& e, const JitCall& call, const JitCall::Trace& trace) const;

  std::mutex mutex_;
  std::vector<Dynamic> dynamic_;
  std::vector<Dim> dims_;        // distinct
  std::vector<int> dim_number_;  // of each in dynamic_
  std::list<Entries> entries_;   // the latest used first
  std::atomic<int64_t> captures_ = 0, calls_ = 0;
};

namespace {

// The tensor that a slot stands for in this call; null for a key, and where there is no gradient.
// One that the call does not hold otherwise, `kept` does then.
LazyBuffer* buffer_of(const Entry& e, size_t slot, std::span<const Tensor> arguments,
                      Ref<LazyBuffer>& kept) {
  const Slot& s = e.function.slots[slot];
  switch (s.kind) {
    case Slot::Kind::Argument:
      return arguments[s.number].buffer().get();
    case Slot::Kind::Captured:
      return s.buffer.get();
    case Slot::Kind::Gradient:
      kept = buffer_of(e, s.number, arguments, kept)->grad();
      return kept.get();
    case Slot::Kind::Key:
      break;
  }
  return nullptr;
}

std::vector<size_t> first_of_same(std::span<const Tensor> tensors) {
  std::vector<std::pair<const LazyBuffer*, size_t>> order;
  for (size_t i = 0; i < tensors.size(); i++) order.push_back({tensors[i].buffer().get(), i});
  std::sort(order.begin(), order.end());
  std::vector<size_t> same_as(tensors.size());
  for (size_t k = 0; k < order.size(); k++) {
    const bool same = k > 0 && order[k].first == order[k - 1].first;
    same_as[order[k].second] = same ? same_as[order[k - 1].second] : order[k].second;
  }
  return same_as;
}

// The function has two stand-ins for an argument that it also finds elsewhere: what it writes to
// one does not show in the other.
void check_apart(const Entry& e, std::span<const Tensor> arguments) {
  const std::vector<Slot>& slots = e.function.slots;
  for (size_t a = 0; a < slots.size(); a++) {
    if (slots[a].kind != Slot::Kind::Argument) continue;
    const size_t number = slots[a].number;
    for (size_t c = 0; c < slots.size(); c++) {
      const Slot& other = slots[c];
      const bool found = other.kind == Slot::Kind::Captured || other.kind == Slot::Kind::Gradient;
      if (!found || !(e.written[a] || e.written[c])) continue;
      Ref<LazyBuffer> kept;
      const LazyBuffer* const at = buffer_of(e, c, arguments, kept);
      require(at != arguments[number].buffer().get(),
              "jit: argument {} is a tensor that the function also finds outside, and writes to; "
              "either give it or let it be found",
              number);
    }
  }
}

// The function does the same things at both sizes.
void check_alike(const Traced& a, const Traced& b, const std::vector<Dim>& dims) {
  bool alike = a.results == b.results && a.effects == b.effects && a.slots.size() == b.slots.size();
  for (size_t i = 0; alike && i < a.slots.size(); i++) {
    const Slot &s = a.slots[i], &t = b.slots[i];
    alike = s.kind == t.kind && s.number == t.number && s.grad_touched == t.grad_touched &&
            (s.kind != Slot::Kind::Captured || s.buffer == t.buffer);
  }
  std::string names;
  for (const Dim& d : dims) names += (names.empty() ? "" : ", ") + d.name;
  require(alike,
          "jit: the function reads, changes or returns other tensors at another size of {}; let "
          "them be the same at all sizes, or declare no dimension",
          names);
}

}  // namespace

// ---- dimensions

JitState::JitState(std::vector<Dynamic> dynamic) : dynamic_(std::move(dynamic)) {
  for (const Dynamic& d : dynamic_) {
    size_t i = 0;
    while (i < dims_.size() && dims_[i].serial != d.dim.serial) i++;
    if (i == dims_.size()) {
      for (const Dim& other : dims_) {
        require(
            other.name != d.dim.name,
            "jit: two dimensions are named {}; for sizes that are always equal make it once, and "
            "give it to every axis that follows it; else name them apart",
            other.name);
      }
      dims_.push_back(d.dim);
    }
    dim_number_.push_back(static_cast<int>(i));
  }
}

int JitState::dim_of(size_t number, std::optional<int64_t> axis) const {
  for (size_t i = 0; i < dynamic_.size(); i++) {
    if (dynamic_[i].number == number && dynamic_[i].axis == axis) return dim_number_[i];
  }
  return -1;
}

// What was declared to follow a dimension.
std::string JitState::text_of(const Dynamic& d) {
  return d.axis ? fmt::format("axis {} of tensor {}", *d.axis, d.number)
                : fmt::format("integer {}", d.number);
}

// The size of each dimension in this call.
std::vector<int64_t> JitState::sizes_of(const JitCall& call) const {
  std::vector<int64_t> sizes(dims_.size(), -1);
  for (size_t i = 0; i < dynamic_.size(); i++) {
    const Dynamic& d = dynamic_[i];
    const size_t given = d.axis ? call.tensors_.size() : call.integers_.size();
    if (d.number >= given) {
      user_error(
          "jit: {} is declared to follow {}, but the call has {} {}; number them from 0, as the "
          "function is given them",
          text_of(d), d.dim.name, given, d.axis ? "tensors" : "integers");
    }
    int64_t size = 0;
    if (d.axis) {
      const Tensor& t = call.tensors_[d.number];
      if (*d.axis >= t.dim()) {
        user_error(
            "jit: {} is declared to follow {}, but its shape is {}; declare an axis that it has",
            text_of(d), d.dim.name, to_string(t.shape()));
      }
      size = t.size(*d.axis);
    } else {
      size = call.integers_[d.number];
    }
    require(d.dim.least <= size && size <= d.dim.most,
            "jit: dimension {} is {}, but was declared as {} to {}; declare wider bounds, or give "
            "less",
            d.dim.name, size, d.dim.least, d.dim.most);
    int64_t& known = sizes[static_cast<size_t>(dim_number_[i])];
    if (known >= 0 && known != size) {
      const auto first = std::find(dim_number_.begin(), dim_number_.end(), dim_number_[i]);
      user_error(
          "jit: dimension {} is {} as {}, but {} as {}; give both one size, or declare two "
          "dimensions",
          d.dim.name, known, text_of(dynamic_[static_cast<size_t>(first - dim_number_.begin())]),
          size, text_of(d));
    }
    known = size;
  }
  return sizes;
}

// The largest sizes of each class (core/dim.h), the largest class first.
std::vector<std::vector<int64_t>> JitState::class_bounds() const {
  std::vector<std::vector<int64_t>> all(1);
  for (const Dim& d : dims_) all[0].push_back(d.most);
  for (bool smaller = true; smaller;) {
    std::vector<int64_t> next = all.back();
    smaller = false;
    for (const Dynamic& d : dynamic_) {
      const auto n = static_cast<size_t>(dim_of(d.number, d.axis));
      const int64_t bound = (all.back()[n] + kClassRatio - 1) / kClassRatio;
      // Sizes enough to tell the dimensions apart must be left.
      if (!d.axis || bound < kSmallestClass) continue;
      if (bound <= d.dim.least + static_cast<int64_t>(dims_.size())) continue;
      next[n] = bound;
      smaller = true;
    }
    if (smaller) all.push_back(std::move(next));
  }
  return all;
}

// Sizes that tell the dimensions apart: each is less than its upper bound by another difference.
std::vector<int64_t> JitState::other_sizes(const std::vector<int64_t>& sizes,
                                           const std::vector<int64_t>& bounds) const {
  std::set<int64_t> differences;
  std::vector<int64_t> other;
  for (size_t d = 0; d < dims_.size(); d++) {
    int64_t difference = bounds[d] - sizes[d];
    // A function at size 1 has fewer operations, since what is repeated once is not repeated.
    if (difference < 1 || sizes[d] < 2 || differences.count(difference)) difference = 1;
    while (differences.count(difference)) difference++;
    differences.insert(difference);
    other.push_back(bounds[d] - difference);
    require(other.back() >= dims_[d].least,
            "jit: dimension {} has {} sizes, too few to tell it from {} other dimensions; declare "
            "wider bounds, or let it be fixed",
            dims_[d].name, dims_[d].most - dims_[d].least + 1, dims_.size() - 1);
  }
  return other;
}

std::vector<SymbolicAxes> JitState::axes_of(const JitCall& call, const std::vector<size_t>& same_as,
                                            const std::vector<int64_t>& bounds) const {
  std::vector<SymbolicAxes> out(call.tensors_.size());
  for (size_t i = 0; i < out.size(); i++) {
    const Shape shape = call.tensors_[i].shape();
    for (size_t a = 0; a < shape.size(); a++) {
      int d = -1;
      for (size_t j = 0; j < out.size() && d < 0; j++) {
        if (same_as[j] == same_as[i]) d = dim_of(j, static_cast<int64_t>(a));
      }
      SymbolicAxis axis;
      if (d >= 0) {
        axis.parts.push_back({bounds[static_cast<size_t>(d)], d, 0});
      } else if (shape[a] != 1) {
        axis.parts.push_back({shape[a]});
      }
      out[i].push_back(std::move(axis));
    }
  }
  return out;
}

// ---- capture

// `classes` entries were captured together.
bool JitState::matches(const Entry& e, int64_t classes, const JitCall& call) const {
  if (e.signature != call.signature_ || e.plain != call.plain_) return false;
  Runtime& runtime = Runtime::current();
  if (e.runtime != runtime.serial || e.device != &runtime.device()) return false;
  if (e.same_as != first_of_same(call.tensors_)) return false;
  for (size_t i = 0; i < e.function.slots.size(); i++) {
    const Slot& s = e.function.slots[i];
    if (s.kind == Slot::Kind::Key) continue;
    // A tensor that nothing else knows any more was replaced by another.
    if (s.kind == Slot::Kind::Captured && s.buffer->count() == classes) return false;
    Ref<LazyBuffer> kept;
    const LazyBuffer* const buffer = buffer_of(e, i, call.tensors_, kept);
    if (!buffer || buffer->requires_grad() != s.placeholder->tracked) return false;
    // Shape and dtype of one tensor never change.
    if (s.kind != Slot::Kind::Captured) {
      const NodeRef n = buffer->node();
      const bool fits = e.symbolic ? is_shape_at(n->shape, e.slot_axes[i], call.sizes_)
                                   : n->shape == s.placeholder->shape;
      if (!fits || n->dtype != s.placeholder->dtype) return false;
    }
    if (s.grad_touched && (buffer->grad() != nullptr) != s.had_grad) return false;
  }
  return true;
}

// What an error of the function says of sizes, where they are others than the call's.
std::string JitState::sizes_of_capture(const JitCall& call,
                                       const std::vector<int64_t>& sizes) const {
  if (sizes == call.sizes_) return "";
  std::string text;
  for (size_t d = 0; d < dims_.size(); d++) {
    text += fmt::format("{}{} = {}, which this call has as {}", text.empty() ? "" : ", ",
                        dims_[d].name, sizes[d], call.sizes_[d]);
  }
  return fmt::format(
      " (jit captures the function at {}: let each axis that is always as long follow the same "
      "dimension, and take sizes from the tensors)",
      text);
}

// Runs the function with stand-ins.
Traced JitState::traced(const JitCall& call, const JitCall::Trace& trace,
                        const std::vector<size_t>& same_as,
                        const std::vector<int64_t>& sizes) const {
  Traced t;
  t.sizes = sizes;
  std::vector<int64_t> integers = call.integers_;
  for (size_t i = 0; i < integers.size(); i++) {
    const int d = dim_of(i, {});
    if (d >= 0) integers[i] = sizes[static_cast<size_t>(d)];
  }
  const std::vector<SymbolicAxes> axes = axes_of(call, same_as, sizes);
  {
    Capture capture;
    std::vector<Tensor> stand_ins, made;
    for (size_t i = 0; i < call.tensors_.size(); i++) {
      const size_t same = same_as[i];
      stand_ins.push_back(same == i
                              ? capture.argument(call.tensors_[i], i, shape_at(axes[i], sizes))
                              : stand_ins[same]);
    }
    const Span span(Runtime::current().trace, "graph", "build a graph");
    try {
      t.kept = trace(stand_ins, integers, made);
    } catch (const UserError& e) {
      const std::string text = e.what();
      if (text.starts_with("jit: ")) throw;
      throw UserError(text + sizes_of_capture(call, sizes));
    }
    t.roots = capture.finish(std::move(made));
    t.slots = capture.slots();
  }
  t.results = t.roots.size();
  const auto root = [&](const NodeRef& n) {
    t.roots.push_back(n);
    return static_cast<int>(t.roots.size()) - 1;
  };
  for (size_t i = 0; i < t.slots.size(); i++) {
    Slot& s = t.slots[i];
    if (s.after) t.effects.push_back({i, false, root(s.after)});
    if (s.grad_written) t.effects.push_back({i, true, s.grad_after ? root(s.grad_after) : -1});
    // Neither graphs nor values are kept.
    s.after = s.grad_after = {};
    if (s.kind != Slot::Kind::Captured) s.buffer = nullptr;
  }
  return t;
}

Entries JitState::capture(const JitCall& call, const JitCall::Trace& trace) {
  captures_++;
  Entries all;
  for (const std::vector<int64_t>& bounds : class_bounds()) {
    all.classes.push_back(capture_to(bounds, call, trace));
    const Entry& e = all.classes.back();
    check_alike(all.classes[0].function, e.function, dims_);
    if (e.code.executable) e.code.executable->keep_memory(false);
  }
  std::reverse(all.classes.begin(), all.classes.end());
  return all;
}

Entry JitState::capture_to(const std::vector<int64_t>& bounds, const JitCall& call,
                           const JitCall::Trace& trace) const {
  Runtime& runtime = Runtime::current();
  Entry e;
  e.signature = call.signature_;
  e.plain = call.plain_;
  e.runtime = runtime.serial;
  e.device = &runtime.device();
  e.same_as = first_of_same(call.tensors_);
  e.bounds = bounds;
  e.function = traced(call, trace, e.same_as, bounds);
  for (size_t i = 0; i < e.function.slots.size(); i++) {
    const auto& effects = e.function.effects;
    e.written.push_back(std::any_of(effects.begin(), effects.end(),
                                    [&](const Traced::Effect& f) { return f.slot == i; }));
  }
  check_apart(e, call.tensors_);
  if (!dims_.empty()) {
    const std::vector<SymbolicAxes> axes = axes_of(call, e.same_as, bounds);
    for (const Slot& s : e.function.slots) {
      SymbolicAxes own;
      for (int64_t n : s.placeholder->shape) own.push_back({{{n}}});
      if (s.kind == Slot::Kind::Argument) {
        own = axes[s.number];
        require(!follows(own) || !s.placeholder->tracked,
                "jit: argument {} has an axis that follows a dimension, and requires a gradient; "
                "give its detached value, and take the gradient in the function",
                s.number);
      }
      for (SymbolicAxis& a : own) {
        if (a.parts.size() == 1 && a.parts[0] == AxisPart{1}) a.parts.clear();
      }
      e.slot_axes.push_back(std::move(own));
    }
    const Traced other = traced(call, trace, e.same_as, other_sizes(call.sizes_, bounds));
    check_alike(e.function, other, dims_);
    std::vector<Dim> dims = dims_;
    for (size_t d = 0; d < dims.size(); d++) dims[d].most = bounds[d];
    e.symbolic = std::make_unique<SymbolicGraph>(std::move(dims), e.slot_axes, e.function.graph(),
                                                 other.graph());
  }
  compile(e);
  e.function.roots.clear();
  return e;
}

// Roots that are equal are computed once.
void JitState::compile(Entry& e) const {
  const std::vector<NodeRef>& all = e.symbolic ? e.symbolic->roots() : e.function.roots;
  std::vector<NodeRef> roots;
  for (const NodeRef& n : all) {
    const auto i = static_cast<size_t>(std::find(roots.begin(), roots.end(), n) - roots.begin());
    if (i == roots.size()) roots.push_back(n);
    e.code_root.push_back(i);
    e.types.push_back({n->dtype, n->shape});
  }
  if (roots.empty()) return;
  // What a tensor was before is needed no more when it has its new value.
  std::vector<NodeRef> donors(roots.size());
  for (const Traced::Effect& f : e.function.effects) {
    const Slot& s = e.function.slots[f.slot];
    const bool owns = s.kind == Slot::Kind::Captured || s.kind == Slot::Kind::Argument;
    if (f.on_grad || !owns || (e.symbolic && follows(e.slot_axes[f.slot]))) continue;
    donors[e.code_root[static_cast<size_t>(f.root)]] = s.placeholder;
  }
  e.code = e.device->capture(roots, donors, e.symbolic.get());
  e.room_out.resize(roots.size());
  NodeMap<int> slot_of, extra_of;
  for (size_t i = 0; i < e.function.slots.size(); i++) {
    slot_of[e.function.slots[i].placeholder] = static_cast<int>(i);
  }
  if (e.symbolic) {
    for (size_t i = 0; i < e.symbolic->extras().size(); i++) {
      extra_of[e.symbolic->extras()[i].leaf] = static_cast<int>(i);
    }
  }
  const Plan& plan = e.code.executable->plan();
  // Inputs and outputs are counted each for themselves.
  std::vector<Entry::Place> place_of;
  size_t inputs = 0, outputs = 0;
  for (const PlanSlot& s : plan.slots) {
    const bool is_output = s.role == PlanSlot::Role::Output;
    place_of.push_back({is_output, is_output ? outputs : inputs});
    (is_output ? outputs : inputs) += s.role != PlanSlot::Role::Temporary;
  }
  for (const int slot : plan.outputs) e.places.push_back(place_of[static_cast<size_t>(slot)]);
  e.spare.resize(outputs);
  size_t next = 0;
  for (const NodeRef& n : std::exchange(e.code.inputs, {})) {
    while (plan.slots[next].role != PlanSlot::Role::Input) next++;
    Entry::Input in;
    in.in_plan = next++;
    for (size_t p = 0; p < plan.pitches.size(); p++) {
      if (static_cast<size_t>(plan.pitches[p].slot) == in.in_plan) in.pitch = static_cast<int>(p);
    }
    if (const auto slot = slot_of.find(n); slot != slot_of.end()) {
      in.slot = slot->second;
    } else if (const auto extra = extra_of.find(n); extra != extra_of.end()) {
      in.extra = extra->second;
    } else if (in.pitch < 0) {
      if (!n->realised()) refuse_example();
      in.constant = n->storage();
    }
    e.inputs.push_back(std::move(in));
  }
  e.room_in.resize(e.inputs.size());
  e.room_sizes.resize(e.inputs.size());
  find_donors(e);
}

void JitState::find_donors(Entry& e) const {
  const Executable& executable = *e.code.executable;
  const Plan& plan = executable.plan();
  std::vector<size_t> input_of(plan.slots.size());
  for (size_t i = 0; i < e.inputs.size(); i++) input_of[e.inputs[i].in_plan] = i;
  for (size_t r = 0; r < plan.outputs.size(); r++) {
    const int donor = executable.memory().donors[static_cast<size_t>(plan.outputs[r])];
    if (donor < 0) continue;
    Entry::Input& in = e.inputs[input_of[static_cast<size_t>(donor)]];
    if (in.slot >= 0) in.output = static_cast<int>(e.places[r].number);
  }
  for (const Traced::Effect& f : e.function.effects) {
    const auto lends = [&](const Entry::Input& in) {
      return in.output >= 0 && in.slot == static_cast<int>(f.slot);
    };
    const auto it = std::find_if(e.inputs.begin(), e.inputs.end(), lends);
    const bool lent = !f.on_grad && it != e.inputs.end();
    e.lender.push_back(lent ? static_cast<int>(it - e.inputs.begin()) : -1);
  }
}

// An array that ends earlier than at the upper bounds will do where nothing beyond it is touched;
// one that a call makes, where only its end is. So will one whose rows inside are fewer, where
// kernels are told how far they lie apart.
void JitState::find_rooms(const Entry& e, const std::vector<int64_t>& sizes, Sized& sized) const {
  const Plan& plan = e.code.executable->plan();
  const std::vector<int64_t> reach = e.code.executable->reach(sizes);
  std::vector<bool> in_room(plan.slots.size());
  const auto check = [&](size_t slot, const SymbolicAxes& axes) {
    const bool makes = plan.slots[slot].role == PlanSlot::Role::Output;
    const bool told =
        std::any_of(plan.pitches.begin(), plan.pitches.end(),
                    [&](const PlanPitch& p) { return static_cast<size_t>(p.array) == slot; });
    const bool fits =
        sizes == e.symbolic->upper_sizes() || !follows(axes) ||
        ((ends_with_size(axes) || told) && (makes || reach[slot] <= numel(shape_at(axes, sizes))));
    in_room[slot] = in_room[slot] || !fits;
  };
  for (const Entry::Input& in : e.inputs) {
    if (in.slot >= 0 || in.extra >= 0) check(in.in_plan, e.axes(in));
  }
  const auto slot_of = [&](size_t c) { return static_cast<size_t>(plan.outputs[c]); };
  for (size_t r = 0; r < e.code_root.size(); r++) {
    check(slot_of(e.code_root[r]), e.symbolic->root_axes(r));
  }
  for (const Entry::Input& in : e.inputs) sized.in_room.push_back(in_room[in.in_plan]);
  for (const PlanPitch& p : plan.pitches) {
    const int64_t pitch = in_room[static_cast<size_t>(p.array)] ? p.rows.most : p.rows.at(sizes);
    sized.pitches.push_back(make_storage(sizeof pitch));
    std::memcpy(sized.pitches.back()->data(), &pitch, sizeof pitch);
  }
  sized.bytes.resize(e.places.size());
  sized.out_room.resize(e.places.size());
  for (size_t r = 0; r < e.code_root.size(); r++) {
    const size_t c = e.code_root[r];
    if (!follows(e.symbolic->root_axes(r))) continue;
    const DType dtype = e.slot_of_code(c).dtype;
    sized.bytes[c] =
        std::pair(bytes_of(sized.shapes[r], dtype), bytes_of(Shape{reach[slot_of(c)]}, dtype));
    sized.out_room[c] = in_room[slot_of(c)];
  }
}

// What the graph needs at the sizes of this call. A new size asks the function, not the compiler.
const Sized& JitState::at_size(Entry& e, const JitCall& call, const JitCall::Trace& trace) const {
  if (const auto it = e.sized.find(call.sizes_); it != e.sized.end()) return it->second;
  const Traced t = traced(call, trace, e.same_as, call.sizes_);
  check_alike(e.function, t, dims_);
  Sized sized;
  sized.kept = t.kept;
  for (const NodeRef& n : e.symbolic->values(t.graph())) {
    if (!n->realised()) realize_nodes(std::span(&n, 1));
    sized.extras.push_back(n->storage());
  }
  for (size_t r = 0; r < e.code_root.size(); r++) {
    sized.shapes.push_back(shape_at(e.symbolic->root_axes(r), call.sizes_));
  }
  if (e.code.executable) find_rooms(e, call.sizes_, sized);
  if (e.sized.size() >= kMaxSizes) e.sized.clear();
  return e.sized.emplace(call.sizes_, std::move(sized)).first->second;
}

// ---- replay

Ref<Counted> JitState::prepare(JitCall& call, const JitCall::Trace& trace) {
  std::unique_lock lock(mutex_);
  calls_++;
  call.sizes_ = sizes_of(call);
  auto it = std::find_if(entries_.begin(), entries_.end(), [&](Entries& e) {
    const auto classes = static_cast<int64_t>(e.classes.size());
    return matches(e.of(call.sizes_), classes, call);
  });
  if (it == entries_.end()) {
    entries_.push_front(capture(call, trace));
    if (entries_.size() > kMaxEntries) entries_.pop_back();
  } else if (it != entries_.begin()) {
    entries_.splice(entries_.begin(), entries_, it);
  }
  Entries& all = entries_.front();
  Entry& e = all.of(call.sizes_);
  if (&e != all.latest) {
    for (Entry* const one : {std::exchange(all.latest, nullptr), &e}) {
      if (one && one->code.executable) one->code.executable->keep_memory(one == &e);
    }
    all.latest = &e;
  }
  const Sized* const sized = e.symbolic ? &at_size(e, call, trace) : nullptr;
  call.results_.reserve(e.function.results);
  for (size_t r = 0; r < e.function.results; r++)
    call.results_.push_back(e.value_to_come(r, sized));
  call.entry_ = &e;
  call.sized_ = sized;
  lock.release();
  return sized ? sized->kept : e.function.kept;
}

void JitState::run(JitCall& call) const {
  Entry& e = *call.entry_;
  check_apart(e, call.tensors_);
  struct Forget {
    Entry::Call& now;
    ~Forget() { now.clear(); }
  } const forget{e.now};
  std::vector<Tensor> waiting;
  KeyDraws keys;
  for (size_t i = 0; i < e.function.slots.size(); i++) {
    Ref<LazyBuffer> kept;
    LazyBuffer* buffer = buffer_of(e, i, call.tensors_, kept);
    if (e.function.slots[i].kind == Slot::Kind::Key) {
      kept = keys.next().buffer();
      buffer = kept.get();
    }
    e.now.buffers.push_back(buffer);
    if (!buffer->realised()) waiting.emplace_back(Ref<LazyBuffer>(buffer));
    if (kept) e.now.kept.push_back(std::move(kept));
  }
  if (!waiting.empty()) realize(waiting);
  run_captured(e, call.results_, call.sizes_, call.sized_);
  keys.keep();
}

JitCall::JitCall(Ref<JitState> state, const void* signature)
    : state_(std::move(state)), signature_(signature) {}

JitCall::~JitCall() {
  if (entry_) state_->finish();
}

void JitCall::add_plain(std::string_view bytes) {
  const size_t size = bytes.size();
  plain_.append(reinterpret_cast<const char*>(&size), sizeof size);
  plain_ += bytes;
}

void JitCall::add_integer(int64_t value) {
  const size_t number = integers_.size();
  integers_.push_back(value);
  if (state_->dim_of_integer(number) >= 0) return;
  add_plain({reinterpret_cast<const char*>(&value), sizeof value});
}

Ref<Counted> JitCall::prepare(const Trace& trace) {
  return state_->prepare(*this, trace);
}

void JitCall::run() {
  state_->run(*this);
}

Ref<JitState> make_jit_state(std::vector<Dynamic> dynamic) {
  return make_ref<JitState>(std::move(dynamic));
}

bool is_capturing() {
  return Capture::current() != nullptr;
}

JitCount count(const Ref<JitState>& state) {
  return state->total();
}

}  // namespace lazuli::detail

namespace lazuli {

Dim dim(std::string name, int64_t least, int64_t most) {
  require(!name.empty(),
          "dim: a name is missing; give what errors shall call it, such as \"batch\"");
  require(0 <= least && least < most,
          "dim: {} cannot be {} to {}; let the least be 0 or more, and the most be more than that",
          name, least, most);
  return {std::move(name), least, most, next_serial()};
}

Dynamic dynamic(size_t tensor, int64_t axis, const Dim& dim) {
  require(axis >= 0, "dynamic: axis {} of tensor {} is negative; count axes from 0", axis, tensor);
  require(dim.least >= 1,
          "dynamic: dimension {} may be 0, but axis {} of tensor {} is to follow it; let the least "
          "be 1",
          dim.name, axis, tensor);
  return {tensor, axis, dim};
}

Dynamic dynamic(size_t integer, const Dim& dim) {
  return {integer, {}, dim};
}

}  // namespace lazuli
