#include "runtime/cpu/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/error.h"
#include "ir/program_cost.h"
#include "ir/rematerialize.h"
#include "runtime/library.h"
#include "runtime/step_notes.h"

namespace lazuli {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

std::string text(int64_t bytes) {
  return bytes_text(static_cast<uint64_t>(bytes));
}

// The same op and shapes over sources that hold no arrays.
NodeRef without_sources(const NodeRef& n) {
  if (!n) return n;
  Sources src;
  for (const NodeRef& s : n->src) src.push_back(stand_in(s->dtype, s->shape));
  return make(
      {.op = n->op, .dtype = n->dtype, .shape = n->shape, .arg = n->arg, .src = std::move(src)});
}

}  // namespace

// The arguments of all launches. The arena is allocated here; inputs and outputs are given for each
// run.
class CpuExecutable::Memory {
 public:
  explicit Memory(const CpuExecutable& e) : executable_(e) {
    Allocator& allocator = e.runtime_.memory;
    if (e.memory_.arena) arena_ = allocator.allocate(static_cast<size_t>(e.memory_.arena));
    arguments_.resize(e.places_.size());
    for (const Place& p : e.places_) {
      if (p.slot < 0) arguments_[p.argument] = arena_.data() + p.offset;
    }
    scratch_stride_ = scratch_stride(e.scratch_bytes_);
    if (e.scratch_bytes_) {
      scratch_ =
          allocator.allocate_apart(static_cast<size_t>(scratch_stride_ * e.runtime_.pool.size()));
    }
    if (e.shared_bytes_) shared_ = allocator.allocate_apart(static_cast<size_t>(e.shared_bytes_));
  }

  void bind(std::span<Storage* const> inputs, std::span<Storage* const> outputs) {
    size_t in = 0, out = 0;
    auto place = executable_.places_.begin();
    const auto end = executable_.places_.end();
    while (place != end && place->slot < 0) ++place;
    for (size_t i = 0; i < executable_.plan_.slots.size(); i++) {
      const PlanSlot::Role role = executable_.plan_.slots[i].role;
      if (role == PlanSlot::Role::Temporary) continue;
      auto* const data = static_cast<std::byte*>(
          (role == PlanSlot::Role::Input ? inputs[in++] : outputs[out++])->data());
      for (; place != end && place->slot == static_cast<int>(i); ++place) {
        arguments_[place->argument] = data + place->offset;
      }
    }
    ensure(in == inputs.size() && out == outputs.size(),
           "executable: inputs and outputs do not fit the plan");
  }

  std::span<void*> arguments(const Launch& l) {
    return {arguments_.data() + l.first, l.slots.size()};
  }
  // Moves what the loop keeps `slices` slices back, so that a later slice lies where an earlier one
  // did.
  void move_back(const Loop& loop, int64_t slices) {
    for (const Moving& m : loop.moving) {
      void*& at = arguments_[m.argument];
      // The kernel is given the start of an array of which a part is there: it touches that alone.
      at = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(at) -
                                   static_cast<uintptr_t>(slices * m.bytes));
    }
  }
  WorkMemory work() { return {scratch_.data(), scratch_stride_, shared_.data()}; }

 private:
  const CpuExecutable& executable_;
  std::vector<void*> arguments_;
  int64_t scratch_stride_ = 0;
  Block arena_, scratch_, shared_;
};

CpuExecutable::CpuExecutable(Runtime& runtime, const Target& target, LinkedPlan linked)
    : runtime_(runtime), plan_(std::move(linked.plan)) {
  std::vector<Code> codes;
  for (const LinkedPlan::Step& s : linked.steps) {
    Code c{s.kernel};
    if (s.kernel) {
      scratch_bytes_ = std::max(scratch_bytes_, s.kernel->scratch_bytes);
      shared_bytes_ = std::max(shared_bytes_, s.kernel->shared_bytes);
    }
    if (runtime_.trace.on()) {
      const std::vector<std::string>& words = s.note.operations;
      c.label = runtime_.trace.label("kernel", words.empty() ? "copy" : span_name(words));
    }
    codes.push_back(std::move(c));
  }
  plan_.decisions.clear();  // which the notes tell of
  const std::vector<int> code_of = place_arrays(codes, target);
  size_t arguments = 0;
  for (size_t i = 0; i < plan_.steps.size(); i++) {
    const PlanStep& s = plan_.steps[i];
    const auto k = static_cast<size_t>(code_of[i]);
    launches_.push_back({codes[k], s.node, s.arguments, arguments});
    arguments += s.arguments.size();
    notes_.push_back(linked.steps[k].note);
    notes_.back().name = step_name(codes[k].kernel ? nullptr : s.node.get(), i);
  }
  for (const Decision& d : plan_.decisions) {
    notes_[static_cast<size_t>(d.step)].decisions.push_back(
        fmt::format("{} {}", d.op == Op::Count_ ? "a value" : name(d.op), d.text));
  }
  for (Loop& loop : loops_) {
    for (int k = loop.steps.first; k <= loop.steps.last; k++) {
      notes_[static_cast<size_t>(k)].decisions.push_back(told_of(loop.steps));
      const Launch& l = launches_[static_cast<size_t>(k)];
      for (size_t a = 0; a < l.slots.size(); a++) {
        if (!loop.steps.keeps(l.slots[a])) continue;
        const PlanSlot& slot = plan_.slots[static_cast<size_t>(l.slots[a])];
        loop.moving.push_back({l.first + a, loop.steps.slice_bytes(slot)});
      }
    }
  }
  place_arguments();
}

void CpuExecutable::place_arguments() {
  for (const Launch& l : launches_) {
    for (int s : l.slots) {
      Place place{s, places_.size(), 0};
      if (plan_.slots[static_cast<size_t>(s)].role == PlanSlot::Role::Temporary) {
        const MemoryPlan::Place& in = memory_.places[static_cast<size_t>(s)];
        place.slot = in.slot;
        place.offset = in.offset;
      }
      places_.push_back(place);
    }
  }
  std::stable_sort(places_.begin(), places_.end(),
                   [](const Place& a, const Place& b) { return a.slot < b.slot; });
}

std::vector<int> CpuExecutable::place_arrays(const std::vector<Code>& codes, const Target& target) {
  std::vector<std::vector<InPlace>> in_place;
  std::vector<double> seconds;
  for (size_t i = 0; i < codes.size(); i++) {
    const PlanStep& s = plan_.steps[i];
    const CompiledKernel* const kernel = codes[i].kernel.get();
    in_place.push_back(kernel ? kernel->in_place : in_place_arguments(*s.node));
    // One array may be smaller than at the upper bounds where the other is not.
    std::erase_if(in_place.back(), [&](const InPlace& p) {
      const auto sized = [&](int argument) {
        return plan_.slots[static_cast<size_t>(s.arguments[static_cast<size_t>(argument)])].sized;
      };
      return sized(p.input) || sized(p.output);
    });
    double bytes = 0;
    for (int a : s.arguments) {
      const PlanSlot& slot = plan_.slots[static_cast<size_t>(a)];
      bytes += static_cast<double>(bytes_of(slot.shape, slot.dtype));
    }
    const double cycles = kernel ? kernel->cycles : 2 * library_operations(*s.node);
    seconds.push_back(estimate_seconds(cycles, bytes, target, 1));
  }
  const Allocator& memory = runtime_.memory;
  const MemoryStats stats = memory.stats();
  const auto room = static_cast<int64_t>(memory.limit() - std::min(memory.limit(), stats.live));
  // As the allocator counts.
  static constexpr int64_t kMost = int64_t{1} << 61;
  const auto block = [](uint64_t bytes) {
    return static_cast<int64_t>(std::min(uint64_t{kMost}, Allocator::block_bytes(bytes)));
  };
  int64_t workers = 0;
  if (scratch_bytes_) {
    workers += block(static_cast<uint64_t>(scratch_stride(scratch_bytes_) * runtime_.pool.size()));
  }
  if (shared_bytes_) workers += block(static_cast<uint64_t>(shared_bytes_));
  std::vector<std::pair<size_t, int64_t>> results;
  for (size_t s = 0; s < plan_.slots.size(); s++) {
    const PlanSlot& slot = plan_.slots[s];
    if (slot.role == PlanSlot::Role::Output) {
      results.emplace_back(s, block(bytes_of(slot.shape, slot.dtype)));
    }
  }
  const auto beside_arena = [&](const MemoryPlan& m) {
    int64_t bytes = workers;
    for (const auto& [slot, own] : results) {
      if (m.donors[slot] < 0) bytes = std::min(bytes + own, kMost);
    }
    return bytes;
  };
  // By how much the arena is too large.
  const auto excess = [&](const MemoryPlan& m) {
    const int64_t left = room - beside_arena(m);
    if (left < 0) return m.arena - left;
    return m.arena - static_cast<int64_t>(Allocator::largest_block(static_cast<uint64_t>(left)));
  };
  const size_t steps = plan_.steps.size();
  Rematerialized fit = rematerialize(std::move(plan_), in_place, seconds, excess);
  memory_ = std::move(fit.memory);
  std::vector<const std::vector<Slices>*> slices;
  std::vector<std::vector<InPlace>> pairs;
  for (int k : fit.step_of) {
    const CompiledKernel* const kernel = codes[static_cast<size_t>(k)].kernel.get();
    slices.push_back(kernel ? &kernel->slices : nullptr);
    pairs.push_back(in_place[static_cast<size_t>(k)]);
  }
  // Loops keep arrays longer that are read from outside, and results from the memory of donors: a
  // plan that takes more with them does without.
  std::vector<StepLoop> loops = find_step_loops(fit.plan, slices, target);
  if (!loops.empty()) {
    MemoryPlan with_loops = plan_memory(fit.plan, pairs, loops);
    if (with_loops.arena + with_loops.outputs <= memory_.arena + memory_.outputs) {
      with_loops.repeated = memory_.repeated;
      with_loops.repeated_share = memory_.repeated_share;
      with_loops.saved = memory_.saved;
      memory_ = std::move(with_loops);
      for (StepLoop& loop : loops) loops_.push_back({std::move(loop), {}});
    }
  }
  // Where results alone are too large, the allocator refuses the first that is.
  if (memory_.arena > 0 && excess(memory_) > 0) {
    device_error(
        "memory: a graph needs at least {} beside what it reads, {} of it for values between its "
        "{} steps, and {} of the limit of {} are left (LAZULI_MEMORY, or what the machine has); "
        "use smaller shapes or batches, or free other values, which hold {}",
        text(beside_arena(memory_) + memory_.arena), text(memory_.arena), steps, text(room),
        bytes_text(memory.limit()), bytes_text(stats.live));
  }
  plan_ = std::move(fit.plan);
  return std::move(fit.step_of);
}

void CpuExecutable::launch(const Launch& l, Memory& memory, const GridPart* part) {
  const std::span<void*> arguments = memory.arguments(l);
  if (l.code.kernel) {
    Trace* const trace = runtime_.trace.on() ? &runtime_.trace : nullptr;
    return run_kernel(*l.code.kernel, arguments.data(), memory.work(), runtime_.pool, trace,
                      l.code.label, part);
  }
  const Span span(runtime_.trace, l.code.label);
  run_library_step(*l.node, arguments, runtime_.pool);
}

template <typename F>
void CpuExecutable::run_steps(Memory& memory, F run) {
  const auto steps = static_cast<int>(launches_.size());
  auto loop = loops_.begin();
  for (int k = 0; k < steps; k++) {
    if (loop == loops_.end() || !loop->steps.has(k)) {
      run(static_cast<size_t>(k), nullptr);
      continue;
    }
    const StepLoop& l = loop->steps;
    // Where it began when the loop ends, however it ends.
    struct Moved {
      Memory& memory;
      const Loop& loop;
      int64_t slices = 0;
      ~Moved() { memory.move_back(loop, -slices); }
    } moved{memory, *loop};
    while (moved.slices < l.count) {
      const int64_t n = std::min(l.at_once, l.count - moved.slices);
      for (int i = l.first; i <= l.last; i++) {
        const GridPart part = part_of(l.slices[static_cast<size_t>(i - l.first)], moved.slices, n);
        run(static_cast<size_t>(i), &part);
      }
      memory.move_back(*loop, n);
      moved.slices += n;
    }
    k = l.last;
    ++loop;
  }
}

CpuExecutable::~CpuExecutable() = default;

void CpuExecutable::keep_memory(bool keep) {
  const std::lock_guard lock(mutex_);
  kept_ = keep ? std::make_unique<Memory>(*this) : nullptr;
}

template <typename F>
void CpuExecutable::with_memory(std::span<Storage* const> inputs, std::span<Storage* const> outputs,
                                F body) {
  std::lock_guard lock(mutex_);
  std::optional<Memory> own;
  Memory& memory = kept_ ? *kept_ : own.emplace(*this);
  memory.bind(inputs, outputs);
  body(memory);
}

void CpuExecutable::run(std::span<Storage* const> inputs, std::span<Storage* const> outputs) {
  with_memory(inputs, outputs, [&](Memory& memory) {
    run_steps(memory, [&](size_t k, const GridPart* part) { launch(launches_[k], memory, part); });
  });
}

std::vector<double> CpuExecutable::time_steps(std::span<Storage* const> inputs,
                                              std::span<Storage* const> outputs, int repeats) {
  std::vector<std::vector<double>> times(launches_.size());
  with_memory(inputs, outputs, [&](Memory& memory) {
    for (int r = -1; r < repeats; r++) {  // first to warm
      std::vector<double> seconds(launches_.size());
      run_steps(memory, [&](size_t k, const GridPart* part) {
        const double start = now();
        launch(launches_[k], memory, part);
        seconds[k] += now() - start;
      });
      for (size_t k = 0; r >= 0 && k < seconds.size(); k++) times[k].push_back(seconds[k]);
    }
  });
  std::vector<double> out;
  for (auto& t : times) out.push_back(t.empty() ? 0 : median(std::move(t)));
  return out;
}

std::vector<int64_t> CpuExecutable::reach(std::span<const int64_t> sizes) const {
  const std::vector<int64_t> all = Executable::reach(sizes);
  std::vector<int64_t> out(all.size(), 0);
  std::vector<int64_t> pitches;
  for (const PlanPitch& p : plan_.pitches) pitches.push_back(p.rows.at(sizes));
  for (const Launch& l : launches_) {
    std::vector<const void*> arguments(l.slots.size(), nullptr);
    for (size_t i = 0; i < l.slots.size(); i++) {
      for (size_t d = 0; d < plan_.size_slots.size(); d++) {
        if (plan_.size_slots[d] == l.slots[i]) arguments[i] = &sizes[d];
      }
      for (size_t p = 0; p < pitches.size(); p++) {
        if (plan_.pitches[p].slot == l.slots[i]) arguments[i] = &pitches[p];
      }
      if (l.code.kernel && l.code.kernel->has_sizes) continue;
      const auto s = static_cast<size_t>(l.slots[i]);
      out[s] = all[s];
    }
    if (!l.code.kernel) continue;
    for (const Reach& r : l.code.kernel->reaches) {
      const auto s = static_cast<size_t>(l.slots[static_cast<size_t>(r.argument)]);
      out[s] = std::max(out[s], r.at(arguments.data()));
    }
  }
  return out;
}

std::vector<StepReport> CpuExecutable::report() const {
  std::vector<StepReport> out;
  for (const Launch& l : launches_) {
    StepReport r;
    if (const CompiledKernel* const k = l.code.kernel.get()) {
      r = {k->schedule, k->reasons, k->choices, k->cycles};
    }
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
