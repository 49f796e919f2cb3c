#include "runtime/cpu/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_set>

#include "core/error.h"
#include "runtime/library.h"

namespace lazuli {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// What a step computes, in a few words.
std::string ops_of(const PlanStep& s) {
  constexpr size_t kMost = 60;
  if (!s.kernel) return std::string(name(s.node->op));
  std::string text;
  for (const NodeRef& n : s.members) {
    if (text.size() > kMost) return text + " ...";
    text += fmt::format("{}{}", text.empty() ? "" : " ", name(n->op));
  }
  return text;
}

// The same op and shapes over sources that hold no arrays.
NodeRef without_sources(const NodeRef& n) {
  if (!n) return n;
  Sources src;
  for (const NodeRef& s : n->src) {
    src.push_back(
        make({.op = Op::Buffer, .dtype = s->dtype, .shape = s->shape, .arg = int64_t{-1}}));
  }
  return make(
      {.op = n->op, .dtype = n->dtype, .shape = n->shape, .arg = n->arg, .src = std::move(src)});
}

}  // namespace

// The arguments of all launches. Temporaries are allocated here; inputs and outputs are given for
// each run.
class CpuExecutable::Memory {
 public:
  explicit Memory(const CpuExecutable& e) : executable_(e) {
    Allocator& allocator = e.runtime_.memory;
    for (size_t bytes : e.block_bytes_) blocks_.push_back(allocator.allocate(bytes));
    places_.resize(e.plan_.slots.size());
    for (const Launch& l : e.launches_) {
      for (int s : l.slots) {
        const auto slot = static_cast<size_t>(s);
        if (e.plan_.slots[slot].role == PlanSlot::Role::Temporary) {
          arguments_.push_back(blocks_[static_cast<size_t>(e.block_of_slot_[slot])].data());
        } else {
          places_[slot].push_back(arguments_.size());
          arguments_.push_back(nullptr);
        }
      }
    }
    scratch_stride_ = scratch_stride(e.scratch_bytes_);
    if (e.scratch_bytes_) {
      scratch_ = allocator.allocate(static_cast<size_t>(scratch_stride_ * e.runtime_.pool.size()));
    }
    if (e.shared_bytes_) shared_ = allocator.allocate(static_cast<size_t>(e.shared_bytes_));
  }

  void bind(std::span<const Ref<Storage>> inputs, std::span<const Ref<Storage>> outputs) {
    size_t in = 0, out = 0;
    for (size_t i = 0; i < places_.size(); i++) {
      const PlanSlot::Role role = executable_.plan_.slots[i].role;
      if (role == PlanSlot::Role::Temporary) continue;
      void* const data = (role == PlanSlot::Role::Input ? inputs[in++] : outputs[out++])->data();
      for (size_t place : places_[i]) arguments_[place] = data;
    }
    ensure(in == inputs.size() && out == outputs.size(),
           "executable: inputs and outputs do not fit the plan");
  }

  std::span<void*> arguments(const Launch& l) {
    return {arguments_.data() + l.first, l.slots.size()};
  }
  WorkMemory work() { return {scratch_.data(), scratch_stride_, shared_.data()}; }

 private:
  const CpuExecutable& executable_;
  std::vector<void*> arguments_;
  std::vector<std::vector<size_t>> places_;  // of each input and output among the arguments
  int64_t scratch_stride_ = 0;
  std::vector<Block> blocks_;
  Block scratch_, shared_;
};

CpuExecutable::CpuExecutable(Runtime& runtime, KernelStore& store, Plan plan)
    : runtime_(runtime), store_(store), plan_(std::move(plan)) {
  std::vector<std::shared_ptr<Kernel>> kernels;
  for (const PlanStep& s : plan_.steps) {
    if (s.kernel) kernels.push_back(s.kernel);
  }
  compile_all(kernels);
  size_t arguments = 0;
  for (const PlanStep& s : plan_.steps) {
    Launch l;
    l.first = arguments;
    arguments += s.arguments.size();
    if (s.kernel) l.kernel = store_.get(*s.kernel);
    l.node = s.node;
    l.slots = s.arguments;
    if (runtime_.trace.on()) l.label = runtime_.trace.label("kernel", ops_of(s));
    if (l.kernel) {
      scratch_bytes_ = std::max(scratch_bytes_, l.kernel->scratch_bytes);
      shared_bytes_ = std::max(shared_bytes_, l.kernel->shared_bytes);
    }
    launches_.push_back(std::move(l));
  }
  plan_memory();
}

void CpuExecutable::compile_all(const std::vector<std::shared_ptr<Kernel>>& kernels) {
  std::vector<const Kernel*> distinct;
  std::unordered_set<uint64_t> seen;
  for (const auto& k : kernels) {
    if (seen.insert(structural_hash(*k).low).second) distinct.push_back(k.get());
  }
  // The longest first, so that no thread begins one when the others are done.
  std::stable_sort(distinct.begin(), distinct.end(), [](const Kernel* a, const Kernel* b) {
    return a->stages.size() > b->stages.size();
  });
  runtime_.pool.parallel_for(0, static_cast<int64_t>(distinct.size()), 1,
                             [&](int64_t from, int64_t to, int) {
                               for (int64_t i = from; i < to; i++)
                                 store_.get(*distinct[static_cast<size_t>(i)]);
                             });
  for (const Kernel* k : distinct) store_.tune(*k);
}

// First fit by size over the intervals in which temporaries live.
void CpuExecutable::plan_memory() {
  const size_t n = plan_.slots.size();
  std::vector<int> first(n, -1), last(n, -1);
  for (size_t step = 0; step < launches_.size(); step++) {
    for (int s : launches_[step].slots) {
      const auto i = static_cast<size_t>(s);
      if (first[i] < 0) first[i] = static_cast<int>(step);
      last[i] = static_cast<int>(step);
    }
  }
  block_of_slot_.assign(n, -1);
  std::vector<int> busy_until;
  std::vector<size_t> order;
  for (size_t i = 0; i < n; i++) {
    if (plan_.slots[i].role == PlanSlot::Role::Temporary) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return first[a] < first[b]; });
  for (size_t i : order) {
    const size_t bytes = bytes_of(plan_.slots[i].shape, plan_.slots[i].dtype);
    int best = -1;
    for (size_t b = 0; b < block_bytes_.size(); b++) {
      if (busy_until[b] >= first[i]) continue;
      if (best < 0) best = static_cast<int>(b);
      const size_t have = block_bytes_[b], other = block_bytes_[static_cast<size_t>(best)];
      const bool fits = have >= bytes, other_fits = other >= bytes;
      if (fits ? !other_fits || have < other : !other_fits && have > other)
        best = static_cast<int>(b);
    }
    if (best < 0) {
      best = static_cast<int>(block_bytes_.size());
      block_bytes_.push_back(0);
      busy_until.push_back(-1);
    }
    const auto b = static_cast<size_t>(best);
    block_bytes_[b] = std::max(block_bytes_[b], bytes);
    busy_until[b] = last[i];
    block_of_slot_[i] = best;
  }
}

void CpuExecutable::launch(const Launch& l, Memory& memory) {
  const std::span<void*> arguments = memory.arguments(l);
  if (l.kernel) {
    Trace* const trace = runtime_.trace.on() ? &runtime_.trace : nullptr;
    return run_kernel(*l.kernel, arguments.data(), memory.work(), runtime_.pool, trace, l.label);
  }
  const Span span(runtime_.trace, l.label);
  run_library_step(*l.node, arguments, runtime_.pool);
}

CpuExecutable::~CpuExecutable() = default;

void CpuExecutable::keep_memory() {
  kept_ = std::make_unique<Memory>(*this);
}

template <typename F>
void CpuExecutable::with_memory(std::span<const Ref<Storage>> inputs,
                                std::span<const Ref<Storage>> outputs, F body) {
  std::lock_guard lock(mutex_);
  std::optional<Memory> own;
  Memory& memory = kept_ ? *kept_ : own.emplace(*this);
  memory.bind(inputs, outputs);
  body(memory);
}

void CpuExecutable::run(std::span<const Ref<Storage>> inputs,
                        std::span<const Ref<Storage>> outputs) {
  with_memory(inputs, outputs, [&](Memory& memory) {
    for (const Launch& l : launches_) launch(l, memory);
  });
}

std::vector<double> CpuExecutable::time_steps(std::span<const Ref<Storage>> inputs,
                                              std::span<const Ref<Storage>> outputs, int repeats) {
  std::vector<std::vector<double>> times(launches_.size());
  with_memory(inputs, outputs, [&](Memory& memory) {
    for (const Launch& l : launches_) launch(l, memory);  // warm
    for (int r = 0; r < repeats; r++) {
      for (size_t i = 0; i < launches_.size(); i++) {
        const double start = now();
        launch(launches_[i], memory);
        times[i].push_back(now() - start);
      }
    }
  });
  std::vector<double> out;
  for (auto& t : times) out.push_back(t.empty() ? 0 : median(std::move(t)));
  return out;
}

std::vector<StepReport> CpuExecutable::report() const {
  std::vector<StepReport> out;
  for (const Launch& l : launches_) {
    StepReport r;
    if (l.kernel) r = {l.kernel->schedule, l.kernel->reasons, l.kernel->choices, l.kernel->cycles};
    out.push_back(std::move(r));
  }
  return out;
}

void CpuExecutable::forget_graph() {
  for (Launch& l : launches_) l.node = without_sources(l.node);
  for (PlanSlot& s : plan_.slots) s.node = {};
  for (PlanStep& s : plan_.steps) {
    s.node = {};
    s.kernel = nullptr;
    s.members.clear();
  }
  plan_.roots.clear();
  plan_.decisions.clear();
}

}  // namespace lazuli
