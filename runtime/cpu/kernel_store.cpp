#include "runtime/cpu/kernel_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "codegen/llvm.h"
#include "core/error.h"
#include "ir/choose.h"
#include "ir/index.h"
#include "ir/kernel_cost.h"
#include "ir/lower.h"
#include "ir/program_cost.h"
#include "ir/schedule.h"
#include "runtime/cpu/call.h"
#include "runtime/cpu/stored.h"
#include "runtime/cpu/tune.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lazuli {
namespace {

// Numbers nodes in the order of a fixed walk, so that serial numbers of axes do not matter.
class StructuralHasher {
 public:
  StructuralHasher() { XXH3_128bits_reset(&state_); }

  void number(int64_t v) { XXH3_128bits_update(&state_, &v, sizeof v); }
  // Before what a list holds, so that no two kernels are hashed from the same numbers.
  void count(const auto& list) { number(static_cast<int64_t>(list.size())); }
  void node(const NodeRef& root) {
    if (!root) return number(-1);
    visit(root, [&](const NodeRef& n) {
      if (ids_.count(n)) return;
      const auto id = static_cast<int64_t>(ids_.size());
      ids_[n] = id;
      number(static_cast<int64_t>(n->op) << 8 | static_cast<int64_t>(n->dtype));
      argument(n->arg);
      count(n->src);
      for (const NodeRef& s : n->src) number(ids_.at(s));
    });
    number(ids_.at(root));
  }
  Hash128 digest() const {
    const XXH128_hash_t r = XXH3_128bits_digest(&state_);
    return {r.low64, r.high64};
  }

 private:
  void argument(const Arg& arg) {
    if (const auto* v = std::get_if<int64_t>(&arg)) number(*v);
    if (const auto* v = std::get_if<ScalarBits>(&arg)) number(static_cast<int64_t>(v->bits));
    if (const auto* v = std::get_if<VarArg>(&arg)) number(v->extent);
    if (const auto* v = std::get_if<Ints>(&arg)) {
      number(static_cast<int64_t>(v->size()));
      for (int64_t i : *v) number(i);
    }
  }

  XXH3_state_t state_;
  std::unordered_map<const Node*, int64_t> ids_;
};

int64_t points(const Stage& s) {
  int64_t n = 1;
  for (const NodeRef& a : s.axes) n *= a->hi + 1;
  return n;
}

// Rough cost of one evaluation, in operations.
double cost_of(const NodeRef& expr) {
  constexpr double kFunction = 16;
  double ops = 0;
  visit(expr, [&](const NodeRef& n) {
    if (is_elementwise(n->op)) ops += has(n->op, kCostly) ? kFunction : 1;
  });
  return ops;
}

Hash128 hash_of(std::string_view text) {
  const XXH128_hash_t r = XXH3_128bits(text.data(), text.size());
  return {r.low64, r.high64};
}

// All of a target that makes a difference to the code of a kernel.
std::string target_text(const Target& t) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
                     t.cpu, t.triple, t.features, t.lanes, t.vector_registers, t.fma_units,
                     t.has_fma, t.has_u8_dot, t.has_i16_dot, t.has_bf16_dot, t.slow_bf16_dot,
                     t.has_tiles, t.fast_gather, t.split_load, t.far_l3, t.short_rows,
                     t.l2_prefetch, t.rows_beside_stores, t.l1, t.l1_ways, t.l2, t.l3, t.threads,
                     t.fma_per_second, t.bandwidth);
}

}  // namespace

Hash128 structural_hash(const Kernel& kernel) {
  StructuralHasher h;
  h.count(kernel.arguments);
  for (const KernelArgument& a : kernel.arguments) {
    h.number(static_cast<int64_t>(a.dtype) << 1 | static_cast<int64_t>(a.output));
    h.number(a.size);
    h.number(a.least);
    h.number(a.made);
  }
  h.count(kernel.sizes);
  for (const KernelSize& s : kernel.sizes) {
    h.node(s.variable);
    h.number(s.slot);
    h.number(s.least);
  }
  h.count(kernel.stages);
  for (const auto& s : kernel.stages) {
    h.count(s->axes);
    for (const NodeRef& a : s->axes) h.node(a);
    h.count(s->limit);
    for (const auto& [axis, bound] : s->limit) {
      h.number(axis);
      h.node(bound);
    }
    h.count(s->bound);
    for (const auto& [axis, bound] : s->bound) {
      h.number(axis);
      h.node(bound);
    }
    h.count(s->values);
    for (const Value& v : s->values) {
      h.number(v.id);
      h.number(static_cast<int64_t>(v.reduce));
      h.number(v.place_of);
      h.number(v.slot);
      h.count(v.dims);
      for (const NodeRef& d : v.dims) h.node(d);
      h.node(v.expr);
    }
  }
  return h.digest();
}

double predict_seconds(const Kernel& kernel, const Target& target) {
  double work = 0;
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      work += (cost_of(v.expr) + (v.reduces() ? 1 : 0)) * static_cast<double>(points(*s));
    }
  }
  return std::max(work / (2 * target.fma_per_second), count_bytes(kernel) / target.bandwidth);
}

Hash128 KernelStore::kernel_file(const Hash128& key) const {
  return KernelCache::key_of(
      fmt::format("kernel {:x} {:x}\n{}", key.high, key.low, target_text(target_)));
}

Hash128 KernelStore::plan_file(const Hash128& graph) const {
  return KernelCache::key_of(fmt::format("plan {:x} {:x}\n{} {}", graph.high, graph.low,
                                         target_text(target_), target_.winograd));
}

std::shared_ptr<const CompiledKernel> KernelStore::add(const Hash128& key,
                                                       std::shared_ptr<const CompiledKernel> made,
                                                       std::atomic<int64_t>& count) {
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = kernels_.emplace(key, std::move(made));
  count += is_new;
  return it->second;
}

std::shared_ptr<const CompiledKernel> KernelStore::find(const Hash128& key) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = kernels_.find(key); it != kernels_.end()) return it->second;
  }
  if (!cache_) return nullptr;
  const std::optional<std::string> bytes = cache_->find(kernel_file(key));
  if (!bytes) return nullptr;
  const Span span(runtime_.trace, "compile", "load a kernel");
  std::shared_ptr<CompiledKernel> found = load_kernel(*bytes);
  return found ? add(key, std::move(found), loads_) : nullptr;
}

std::shared_ptr<const CompiledKernel> KernelStore::get(const Kernel& kernel, const Hash128& key) {
  if (auto found = find(key)) return found;
  if (auto found = find_or_begin(key)) return found;
  struct End {
    ~End() {
      {
        const std::lock_guard lock(store.mutex_);
        store.begun_.erase(key);
      }
      store.work_.wake();
    }
    KernelStore& store;
    const Hash128& key;
  };
  std::shared_ptr<const CompiledKernel> built;
  {
    const End end{*this, key};
    built = add(key, build(kernel), compiles_);
  }
  if (cache_) cache_->keep(kernel_file(key), store_kernel(*built));
  return built;
}

std::shared_ptr<const CompiledKernel> KernelStore::find_or_begin(const Hash128& key) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = kernels_.find(key); found != kernels_.end()) return found->second;
      // Threads that had begun stay with the parent, as those do that help.
      if (work_.is_forked() || begun_.insert(key).second) return nullptr;
    }
    work_.help_until([&] { return !is_begun(key); });
  }
}

bool KernelStore::is_begun(const Hash128& key) {
  const std::lock_guard lock(mutex_);
  return begun_.count(key) > 0 && !work_.is_forked();
}

namespace {

// Whatever a winner depends on: the model's schedule stands for the rules that made it.
Hash128 tuning_key(const Kernel& scheduled, const Target& t) {
  return hash_of(fmt::format("{}\n{}\n{}\n{}", LAZULI_VERSION, target_text(t),
                             print_algorithm(scheduled), scheduled.schedule));
}

std::string told_of_winner(const Winner& w) {
  if (w.tried == 1) return "tuned: no other schedule gives the same bits";
  if (w.settled.empty())
    return fmt::format("tuned: of {} schedules none is clearly faster", w.tried);
  std::string choices;
  for (const auto& [what, taken] : w.settled) {
    choices += fmt::format("{}{}: {}", choices.empty() ? "" : ", ", what, taken);
  }
  return fmt::format("tuned: {}; {:.1f} us, {:.0f} % less than the model's choice, of {} schedules",
                     choices, w.seconds * 1e6, 100 * (1 - w.seconds / w.model_seconds), w.tried);
}

// Schedules `k` as was found, and gives its program; false if the rules, which may have changed, do
// not have it so.
bool schedule_as(const Winner& w, const Kernel& kernel, const Target& target, Kernel& k,
                 Program& program) {
  Kernel found = clone(kernel);
  try {
    Program other = choose_schedule(found, target, w.settled);
    if (!same_order(k, found)) return false;
    program = std::move(other);
  } catch (const UserError&) {
    return false;
  }
  k = std::move(found);
  k.reasons.push_back(told_of_winner(w));
  return true;
}

}  // namespace

KernelStore::KernelStore(Target target, Runtime& runtime, KernelCache* cache)
    : target_(std::move(target)), runtime_(runtime), cache_(cache) {
  if (!runtime.config.tune) return;
  winners_.emplace(runtime.config.cache_folder);
  cache_ = nullptr;  // winners may change at any time, so what is tuned is compiled
}

std::shared_ptr<const CompiledKernel> KernelStore::build(const Kernel& kernel) {
  std::vector<std::string> words = {"compile"};
  if (runtime_.trace.on()) {
    for (const auto& stage : kernel.stages) words.push_back(stage->name);
  }
  const Span span(runtime_.trace, "compile", span_name(words));
  Kernel k = clone(kernel);
  Program program = choose_schedule(k, target_);
  bool searched = false;
  if (winners_) {
    const auto winner = winners_->find(tuning_key(k, target_));
    searched = winner && schedule_as(*winner, kernel, target_, k, program);
  }
  std::shared_ptr<CompiledKernel> out =
      compile_kernel(k, program, target_, predict_seconds(kernel, target_), work_);
  out->searched = searched;
  return out;
}

void KernelStore::tune(const Kernel& kernel) {
  if (!winners_ || predict_seconds(kernel, target_) < kTuneSeconds) return;
  std::lock_guard one(tuning_);  // others would disturb the clock
  const Hash128 key = structural_hash(kernel);
  const std::shared_ptr<const CompiledKernel> model = get(kernel, key);
  if (model->searched) return;
  Kernel k = clone(kernel);
  choose_schedule(k, target_);
  try {
    winners_->keep(tuning_key(k, target_), lazuli::tune(kernel, *model, target_, runtime_));
  } catch (const DeviceError&) {
    return;  // no memory for a second set of arrays: it stays as the model says
  }
  std::shared_ptr<const CompiledKernel> found = build(kernel);
  std::lock_guard lock(mutex_);
  kernels_[key] = std::move(found);
}

std::shared_ptr<CompiledKernel> compile_kernel(const Kernel& kernel, const Program& program,
                                               const Target& target, double predicted_seconds,
                                               SharedWork& work) {
  verify_program(program);
  auto out = std::make_shared<CompiledKernel>();
  CompileOptions options = options_for(target, program);
  options.verify = false;
  out->module = compile(emit_llvm_parts(program, target, "kernel"), options, work);
  for (size_t i = 0; i < program.phases.size(); i++) {
    CompiledKernel::PhaseFunctions f;
    f.cycles = estimate_cycles(program.phases[i]);
    out->cycles += f.cycles;
    f.body = out->module->kernel(phase_function("kernel", i, false));
    if (program.phases[i].has_tail) f.tail = out->module->kernel(phase_function("kernel", i, true));
    f.count = program.phases[i].count;
    f.bound = program.phases[i].bound;
    f.packs_ahead = program.phases[i].packs_ahead;
    f.waits = program.phases[i].waits;
    f.each = program.phases[i].each;
    out->phases.push_back(f);
  }
  out->has_sizes = program.has_sizes;
  out->reaches = program.reaches;
  out->scratch_bytes = program.scratch_bytes;
  out->shared_bytes = program.shared_bytes;
  out->predicted_seconds = predicted_seconds;
  out->schedule = kernel.schedule;
  out->reasons = kernel.reasons;
  out->choices = kernel.choices;
  out->in_place = in_place_arguments(program);
  out->slices = slices_of(kernel, program);
  return out;
}

int64_t scratch_stride(int64_t scratch_bytes) {
  return (scratch_bytes + 4095) / 4096 * 4096 + 576;
}

namespace {

int64_t steps_of(const CompiledKernel::PhaseFunctions& phase, void** arguments,
                 const GridPart* part) {
  return part ? part->steps() : phase.bound.steps(phase.count, phase.tail != nullptr, arguments);
}

// Phases that run at the same time, and how each is cut into chunks.
class PhaseGroup {
 public:
  // As many from `first` on as do not wait.
  PhaseGroup(std::span<const CompiledKernel::PhaseFunctions> phases, size_t first, void** arguments,
             int threads, const GridPart* part) {
    size_t end = first + 1;
    const auto joins = [](const CompiledKernel::PhaseFunctions& p) { return !p.waits && !p.each; };
    while (end < phases.size() && joins(phases[end]) && end - first < kMost) end++;
    phases_ = phases.subspan(first, end - first);
    for (size_t i = 0; i < phases_.size(); i++) {
      const CompiledKernel::PhaseFunctions& phase = phases_[i];
      parts_[i].steps = steps_of(phase, arguments, part);
      const double share = static_cast<double>(parts_[i].steps) / all_steps(phase);
      share_ = std::max(share_, share);
      cycles_ += phase.cycles * share;
    }
    for (size_t i = 0; i < phases_.size(); i++) {
      const CompiledKernel::PhaseFunctions& phase = phases_[i];
      // Several chunks for each thread, so that none waits long for the last, and as many more as
      // are long beside what it takes to begin one. A panel that is packed ahead needs a next step.
      const double most = cycles_ / (4 * threads), least = cycles_ / (16 * threads);
      const double chunk = phase.packs_ahead ? 2 * most : std::clamp(kLongChunk, least, most);
      const double fitting = all_steps(phase) * chunk / std::max(phase.cycles, 1.0);
      Part& part = parts_[i];
      part.grain = std::clamp(static_cast<int64_t>(std::min(fitting, kMostSteps)), int64_t{1},
                              std::max(part.steps, int64_t{1}));
      part.first = chunks_;
      chunks_ += (part.steps + part.grain - 1) / part.grain;
    }
  }

  size_t size() const { return phases_.size(); }
  int64_t chunks() const { return chunks_; }
  // The largest share of its iterations that a phase has at the sizes of this call.
  double share() const { return share_; }
  double cycles() const { return cycles_; }

  template <typename F>
  void run(int64_t from, int64_t to, F&& steps) const {
    for (size_t i = 0; i < phases_.size(); i++) {
      const Part& p = parts_[i];
      const int64_t begin = std::max<int64_t>(from - p.first, 0) * p.grain;
      const int64_t end = std::min((to - p.first) * p.grain, p.steps);
      if (begin < end) steps(phases_[i], begin, end);
    }
  }

 private:
  static constexpr size_t kMost = 64;
  static constexpr double kLongChunk = 20000;  // cycles
  static constexpr double kMostSteps = 1e15;  // which a double and an integer hold exactly

  // The ragged last iteration is one more step.
  static double all_steps(const CompiledKernel::PhaseFunctions& phase) {
    return static_cast<double>(phase.count + (phase.tail ? 1 : 0));
  }

  struct Part {
    int64_t steps, grain, first;  // first: of its chunks
  };

  std::span<const CompiledKernel::PhaseFunctions> phases_;
  std::array<Part, kMost> parts_;  // of those that there are
  int64_t chunks_ = 0;
  double share_ = 0, cycles_ = 0;
};

// Phases that each worker runs whole, before its first step of a later one.
class EachPhases {
 public:
  explicit EachPhases(std::span<const CompiledKernel::PhaseFunctions> phases) : phases_(phases) {}

  // Phases before this one are due.
  void come_to(size_t phase) {
    if (due_ == 0) next_.fill(0);
    due_ = phase;
  }

  template <typename F>
  void run_due(int worker, F&& run) {
    if (due_ == 0) return;
    for (uint16_t& next = next_[static_cast<size_t>(worker)]; next < due_; next++) {
      if (phases_[next].each) run(phases_[next]);
    }
  }

 private:
  std::span<const CompiledKernel::PhaseFunctions> phases_;
  size_t due_ = 0;
  std::array<uint16_t, ThreadPool::kMaxThreads> next_;  // of each worker; unset while none is due
};

}  // namespace

void run_kernel(const CompiledKernel& kernel, void** arguments, const WorkMemory& memory,
                ThreadPool& pool, Trace* trace, int label, const GridPart* part) {
  // Waking other threads costs more than it saves below this time of the whole kernel, memory
  // counted, and below so many cycles of the phases at hand, which count near memory alone.
  constexpr double kParallelSeconds = 6e-6, kParallelCycles = 3000;
  const auto run_steps = [&](const CompiledKernel::PhaseFunctions& phase, int64_t begin,
                             int64_t end, int worker) {
    void* const scratch = memory.scratch ? memory.scratch + memory.stride * worker : nullptr;
    if (part) {
      while (begin < end) {
        const int64_t turn = begin / part->size, at = begin % part->size;
        const int64_t n = std::min(end - begin, part->size - at);
        const int64_t from = part->begin + turn * part->period + at;
        call_kernel(phase.body, arguments, scratch, memory.shared, from, from + n);
        begin += n;
      }
      return;
    }
    const int64_t whole = std::min(end, phase.count);
    if (begin < whole) {
      call_kernel(phase.body, arguments, scratch, memory.shared, begin, whole);
    }
    if (end > phase.count) {
      call_kernel(phase.tail, arguments, scratch, memory.shared, 0, 1);
    }
  };
  const auto note = [&](int64_t start) {
    if (trace) trace->add(label, start, Trace::now());
  };
  if (pool.size() == 1 || kernel.predicted_seconds < kParallelSeconds) {
    for (const CompiledKernel::PhaseFunctions& phase : kernel.phases) {
      const int64_t start = trace ? Trace::now() : 0;
      const int64_t steps = steps_of(phase, arguments, part);
      if (steps == 0) continue;
      run_steps(phase, 0, steps, 0);
      note(start);
    }
    return;
  }
  EachPhases each(kernel.phases);
  for (size_t first = 0; first < kernel.phases.size();) {
    if (kernel.phases[first].each) {
      each.come_to(++first);
      continue;
    }
    const PhaseGroup group(kernel.phases, first, arguments, pool.size(), part);
    first += group.size();
    const auto run = [&](int64_t from, int64_t to, int worker) {
      const int64_t start = trace ? Trace::now() : 0;
      each.run_due(worker, [&](const CompiledKernel::PhaseFunctions& phase) {
        run_steps(phase, 0, steps_of(phase, arguments, nullptr), worker);
      });
      group.run(from, to,
                [&](const CompiledKernel::PhaseFunctions& phase, int64_t begin, int64_t end) {
                  run_steps(phase, begin, end, worker);
                });
      note(start);
    };
    const bool alone = kernel.predicted_seconds * group.share() < kParallelSeconds ||
                       group.cycles() < kParallelCycles;
    // Of no more than one chunk, parallel_for wakes nobody.
    pool.parallel_for(0, group.chunks(), alone ? std::max<int64_t>(group.chunks(), 1) : 1, run);
  }
}

}  // namespace lazuli
