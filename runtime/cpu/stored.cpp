#include "runtime/cpu/stored.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "core/node_map.h"

namespace lazuli {
namespace {

template <typename T>
inline constexpr bool kIsPlain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Writer {
 public:
  template <typename T>
  requires kIsPlain<T>
  void operator()(const T& v) { text_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void operator()(const std::string& v) {
    (*this)(v.size());
    text_ += v;
  }
  void operator()(const std::vector<std::byte>& v) {
    (*this)(v.size());
    text_.append(reinterpret_cast<const char*>(v.data()), v.size());
  }
  template <typename T>
  void operator()(const std::vector<T>& v) {
    (*this)(v.size());
    for (const T& x : v) fields(*this, x);
  }
  void operator()(const Ints& v) {
    (*this)(v.size());
    for (const int64_t x : v) (*this)(x);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  template <typename T>
  requires kIsPlain<T>
  void operator()(T& v) {
    if (!has(sizeof v)) return;
    std::memcpy(&v, text_.data(), sizeof v);
    text_.remove_prefix(sizeof v);
  }
  void operator()(bool& v) {
    uint8_t byte = 0;
    (*this)(byte);
    good_ = good_ && byte <= 1;
    v = byte == 1;
  }
  void operator()(std::string& v) {
    const size_t n = count();
    v = text_.substr(0, n);
    text_.remove_prefix(n);
  }
  void operator()(std::vector<std::byte>& v) {
    const size_t n = count();
    const auto* from = reinterpret_cast<const std::byte*>(text_.data());
    v.assign(from, from + n);
    text_.remove_prefix(n);
  }
  template <typename T>
  void operator()(std::vector<T>& v) {
    // Each takes a byte or more, so that a wrong count asks for no more memory than the text has.
    for (size_t n = count(); n > 0 && good_; n--) fields(*this, v.emplace_back());
  }
  void operator()(Ints& v) {
    for (size_t n = count(); n > 0 && good_; n--) {
      int64_t x = 0;
      (*this)(x);
      v.push_back(x);
    }
  }
  bool done() const { return good_ && text_.empty(); }

 private:
  bool has(size_t n) {
    good_ = good_ && n <= text_.size();
    return good_;
  }
  size_t count() {
    size_t n = 0;
    (*this)(n);
    return has(n) ? n : 0;
  }

  std::string_view text_;
  bool good_ = true;
};

// A phase's functions by where they begin in the image.
struct StoredPhase {
  uint64_t body = 0, tail = 0;
  bool has_tail = false;
  int64_t count = 1;
  PhaseBound bound;
  bool packs_ahead = false, waits = true, each = false;
  double cycles = 0;
};

struct StoredArray {
  DType dtype = DType::F32;
  Shape shape;
  friend bool operator==(const StoredArray&, const StoredArray&) = default;
};

struct StoredSlot {
  PlanSlot::Role role = PlanSlot::Role::Temporary;
  StoredArray array;
  uint64_t leaf = 0;  // of an input
};

// The op of a library step. Its argument is one of these, or nothing.
struct StoredNode {
  Op op = Op::Count_;
  StoredArray array;
  bool has_integer = false, has_ints = false;
  int64_t integer = 0;
  Ints ints;
  std::vector<StoredArray> sources;
};

struct StoredStep {
  Hash128 key;
  StepNote note;
  std::vector<int> arguments;
  std::vector<StoredNode> library;  // one, or none: a kernel, and which arguments it writes
  std::vector<uint8_t> writes;
};

struct StoredPlan {
  std::vector<StoredSlot> slots;
  std::vector<StoredStep> steps;
  std::vector<int> outputs, donors;
  bool exact = true;
};

template <typename V, typename T>
void fields(V& visit, T& x) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, StoredPhase>) {
    visit(x.body), visit(x.tail), visit(x.has_tail), visit(x.count), visit(x.packs_ahead),
        visit(x.waits), visit(x.each), visit(x.cycles);
    fields(visit, x.bound);
  } else if constexpr (std::is_same_v<U, PhaseBound>) {
    visit(x.slot), visit(x.factor), visit(x.add), visit(x.step), visit(x.repeated);
  } else if constexpr (std::is_same_v<U, Choice>) {
    visit(x.what), visit(x.taken), visit(x.others);
  } else if constexpr (std::is_same_v<U, Choice::Option>) {
    visit(x.text), visit(x.cost);
  } else if constexpr (std::is_same_v<U, Image::Symbol>) {
    visit(x.name), visit(x.offset);
  } else if constexpr (std::is_same_v<U, Image::Slot>) {
    visit(x.offset), visit(x.name), visit(x.addend);
  } else if constexpr (std::is_same_v<U, Image>) {
    visit(x.bytes), visit(x.symbols), visit(x.slots);
  } else if constexpr (std::is_same_v<U, CompiledKernel>) {
    visit(x.scratch_bytes), visit(x.shared_bytes), visit(x.predicted_seconds), visit(x.cycles);
    visit(x.schedule), visit(x.reasons), visit(x.choices), visit(x.in_place);
    visit(x.has_sizes), visit(x.reaches), visit(x.slices);
  } else if constexpr (std::is_same_v<U, InPlace>) {
    visit(x.input), visit(x.output);
  } else if constexpr (std::is_same_v<U, Slices>) {
    visit(x.outer), visit(x.count), visit(x.inner), visit(x.arguments);
  } else if constexpr (std::is_same_v<U, Reach>) {
    visit(x.argument), visit(x.code);
  } else if constexpr (std::is_same_v<U, Hash128>) {
    visit(x.low), visit(x.high);
  } else if constexpr (std::is_same_v<U, StepNote>) {  // steps are named where they are placed
    visit(x.operations), visit(x.decisions), visit(x.flops), visit(x.bytes);
  } else if constexpr (std::is_same_v<U, StoredArray>) {
    visit(x.dtype), visit(x.shape);
  } else if constexpr (std::is_same_v<U, StoredSlot>) {
    visit(x.role), fields(visit, x.array), visit(x.leaf);
  } else if constexpr (std::is_same_v<U, StoredNode>) {
    visit(x.op), fields(visit, x.array), visit(x.has_integer), visit(x.has_ints);
    visit(x.integer), visit(x.ints), visit(x.sources);
  } else if constexpr (std::is_same_v<U, StoredStep>) {
    fields(visit, x.key), fields(visit, x.note), visit(x.arguments);
    visit(x.library), visit(x.writes);
  } else if constexpr (std::is_same_v<U, StoredPlan>) {
    visit(x.slots), visit(x.steps), visit(x.outputs), visit(x.donors), visit(x.exact);
  } else {
    visit(x);
  }
}

}  // namespace

std::string store_kernel(const CompiledKernel& kernel) {
  Writer write;
  fields(write, kernel);
  fields(write, kernel.module->image());
  std::vector<StoredPhase> phases;
  const auto offset = [&](KernelFunction f) {
    return static_cast<uint64_t>(reinterpret_cast<const std::byte*>(f) - kernel.module->base());
  };
  for (const CompiledKernel::PhaseFunctions& p : kernel.phases) {
    phases.push_back({offset(p.body), p.tail ? offset(p.tail) : 0, p.tail != nullptr, p.count,
                      p.bound, p.packs_ahead, p.waits, p.each, p.cycles});
  }
  write(phases);
  return write.take();
}

std::shared_ptr<CompiledKernel> load_kernel(std::string_view bytes) {
  const auto kernel = std::make_shared<CompiledKernel>();
  Reader read(bytes);
  Image image;
  std::vector<StoredPhase> phases;
  fields(read, *kernel);
  fields(read, image);
  read(phases);
  if (!read.done()) return nullptr;
  for (const StoredPhase& p : phases) {
    if (p.body >= image.bytes.size() || p.tail >= image.bytes.size()) return nullptr;
  }
  try {
    kernel->module = std::make_shared<const CompiledModule>(std::move(image));
  } catch (const InternalError&) {
    return nullptr;
  }
  const auto function = [&](uint64_t offset) {
    return reinterpret_cast<KernelFunction>(
        const_cast<std::byte*>(kernel->module->base() + offset));
  };
  for (const StoredPhase& p : phases) {
    kernel->phases.push_back({function(p.body), p.has_tail ? function(p.tail) : nullptr, p.count,
                              p.bound, p.packs_ahead, p.waits, p.each, p.cycles});
  }
  return kernel;
}

namespace {

StoredArray stored(const NodeRef& n) {
  return {n->dtype, n->shape};
}

std::optional<StoredNode> stored_library(const Node& n) {
  StoredNode out;
  out.op = n.op;
  out.array = {n.dtype, n.shape};
  if (const auto* v = std::get_if<int64_t>(&n.arg)) {
    out.has_integer = true;
    out.integer = *v;
  } else if (const auto* list = std::get_if<Ints>(&n.arg)) {
    out.has_ints = true;
    out.ints = *list;
  } else if (!std::holds_alternative<std::monostate>(n.arg)) {
    return std::nullopt;
  }
  for (const NodeRef& s : n.src) out.sources.push_back(stored(s));
  return out;
}

bool is_array(const StoredArray& a) {
  int64_t elements = 1;
  const auto counts = [&](int64_t n) {
    return n >= 0 && !__builtin_mul_overflow(elements, n, &elements);
  };
  return static_cast<int>(a.dtype) < kDTypeCount &&
         std::all_of(a.shape.begin(), a.shape.end(), counts);
}

// Is it an array of the same lines, or of shorter ones?
bool begins(const Shape& part, const Shape& whole) {
  return !whole.empty() && part.size() == whole.size() && part.back() <= whole.back() &&
         std::equal(part.begin(), part.end() - 1, whole.begin());
}

// Is it a library step, with what that takes?
bool is_library(const StoredNode& n) {
  const size_t sources = n.sources.size();
  const auto has = [&](size_t count, bool integer) {
    return sources == count && n.has_integer == integer && n.has_ints == !integer;
  };
  switch (n.op) {
    case Op::Scatter:
      return has(3, true);
    case Op::ArgSort:
      return has(1, true) && begins(n.array.shape, n.sources[0].shape);
    case Op::Sort:
      return has(1, true);
    case Op::Scan:
      return has(1, false) && n.ints.size() == 3;
    case Op::Update: {
      const auto least = 2 - static_cast<int64_t>(sources);  // negative: one of the places
      return sources >= 2 && has(sources, false) && n.ints.size() == n.array.shape.size() &&
             n.sources[1].shape.size() == n.ints.size() &&
             std::all_of(n.ints.begin(), n.ints.end(), [&](int64_t i) { return i >= least; });
    }
    default:
      return false;
  }
}

// Null if there is no such node.
NodeRef library_node(const StoredNode& s) {
  Sources sources;
  for (const StoredArray& a : s.sources) {
    if (!is_array(a)) return nullptr;
    sources.push_back(stand_in(a.dtype, a.shape));
  }
  if (!is_library(s) || !is_array(s.array)) return nullptr;
  Arg arg = std::monostate();
  if (s.has_integer) arg = s.integer;
  if (s.has_ints) arg = s.ints;
  return make({.op = s.op,
               .dtype = s.array.dtype,
               .shape = s.array.shape,
               .arg = std::move(arg),
               .src = std::move(sources)});
}

bool are_within(const std::vector<int>& list, int least, size_t end) {
  return std::all_of(list.begin(), list.end(),
                     [&](int i) { return i >= least && i < static_cast<int>(end); });
}

// Do slots, leaves and roots that the plan names exist, and fit?
bool fits(const StoredPlan& p, std::span<const NodeRef> leaves, std::span<const NodeRef> roots) {
  for (const StoredSlot& s : p.slots) {
    if (s.role > PlanSlot::Role::Temporary || !is_array(s.array)) return false;
    if (s.role != PlanSlot::Role::Input) continue;
    if (s.leaf >= leaves.size() || s.array != stored(leaves[s.leaf])) return false;
  }
  for (const StoredStep& s : p.steps) {
    if (!are_within(s.arguments, 0, p.slots.size()) || s.library.size() > 1) return false;
    const size_t arguments = s.library.empty() ? s.writes.size() : s.library[0].sources.size() + 1;
    if (s.arguments.size() != arguments) return false;
  }
  if (p.outputs.size() != roots.size() || !are_within(p.outputs, 0, p.slots.size()) ||
      !are_within(p.donors, -1, p.slots.size())) {
    return false;
  }
  for (size_t r = 0; r < roots.size(); r++) {
    // An array of another shape may be what a root is once it is simplified.
    const StoredArray &is = p.slots[static_cast<size_t>(p.outputs[r])].array,
                      to_be = stored(roots[r]);
    if (is.dtype != to_be.dtype || numel(is.shape) != numel(to_be.shape)) return false;
  }
  for (const int d : p.donors) {
    if (d >= 0 && p.slots[static_cast<size_t>(d)].role != PlanSlot::Role::Input) return false;
  }
  return p.donors.empty() || p.donors.size() == roots.size();
}

}  // namespace

std::optional<std::string> store_plan(const LinkedPlan& linked, std::span<const NodeRef> leaves) {
  constexpr size_t kMostSteps = 10000;  // some 3 MB
  const Plan& plan = linked.plan;
  if (!plan.size_slots.empty() || !plan.pitches.empty() || plan.steps.size() > kMostSteps) {
    return std::nullopt;
  }
  NodeMap<uint64_t> number;
  for (size_t i = 0; i < leaves.size(); i++) number.try_emplace(leaves[i], i);
  StoredPlan out;
  for (const PlanSlot& s : plan.slots) {
    StoredSlot slot{s.role, {s.dtype, s.shape}};
    if (s.role == PlanSlot::Role::Input) {
      const auto it = number.find(s.node);
      if (it == number.end()) return std::nullopt;
      slot.leaf = it->second;
    }
    out.slots.push_back(std::move(slot));
  }
  for (size_t i = 0; i < plan.steps.size(); i++) {
    const PlanStep& s = plan.steps[i];
    StoredStep step{linked.steps[i].key, linked.steps[i].note, s.arguments, {}, {}};
    if (s.kernel) {
      for (const KernelArgument& a : s.kernel->arguments) step.writes.push_back(a.output);
    } else {
      std::optional<StoredNode> library = stored_library(*s.node);
      if (!library) return std::nullopt;
      step.library.push_back(std::move(*library));
    }
    out.steps.push_back(std::move(step));
  }
  out.outputs = plan.outputs;
  out.donors = plan.donors;
  out.exact = plan.exact;
  Writer write;
  fields(write, out);
  return write.take();
}

std::optional<LinkedPlan> load_plan(std::string_view bytes, std::span<const NodeRef> leaves,
                                    std::span<const NodeRef> roots) {
  StoredPlan in;
  Reader read(bytes);
  fields(read, in);
  if (!read.done() || !fits(in, leaves, roots)) return std::nullopt;
  LinkedPlan out;
  for (StoredSlot& s : in.slots) {
    PlanSlot slot{s.role, s.array.dtype, std::move(s.array.shape), {}};
    if (s.role == PlanSlot::Role::Input) slot.node = leaves[s.leaf];
    out.plan.slots.push_back(std::move(slot));
  }
  for (StoredStep& s : in.steps) {
    PlanStep step;
    step.arguments = std::move(s.arguments);
    if (!s.library.empty()) {
      step.node = library_node(s.library[0]);
      if (!step.node) return std::nullopt;
    } else {
      step.kernel = std::make_shared<Kernel>();
      for (uint8_t writes : s.writes) step.kernel->arguments.emplace_back().output = writes != 0;
    }
    out.plan.steps.push_back(std::move(step));
    out.steps.push_back({s.key, nullptr, std::move(s.note)});
  }
  out.plan.outputs = std::move(in.outputs);
  out.plan.donors = std::move(in.donors);
  out.plan.exact = in.exact;
  return out;
}

}  // namespace lazuli
