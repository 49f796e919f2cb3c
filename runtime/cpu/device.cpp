#include "runtime/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstdio>
#include <list>
#include <unordered_map>

#include "core/error.h"
#include "core/graph.h"
#include "core/lazy_buffer.h"
#include "core/node_map.h"
#include "core/topology.h"
#include "ir/bounds.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/executable.h"
#include "runtime/cpu/target.h"
#include "runtime/inspect.h"
#include "runtime/origin.h"
#include "runtime/plan_key.h"
#include "runtime/storage.h"

namespace lazuli {
namespace {

// A compiled structure and how a graph of that structure is bound to it.
struct CachedPlan {
  Captured code;
  struct Input {
    size_t leaf = 0;        // number of one of the key's, or
    Ref<Storage> constant;  // what follows from no leaf, so that every graph of the structure has it
  };
  std::vector<Input> inputs;  // for each input slot
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(Runtime& runtime)
      : runtime_(runtime),
        cache_(runtime.config.cache_folder.empty() ? nullptr : std::make_unique<KernelCache>(runtime.config.cache_folder)),
        target_(target_of(runtime.config, cache_.get())),
        kernels_(target_, runtime, cache_.get()) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return fmt::format("{}, vectors of {} f32, {} threads", target_.cpu, target_.lanes, runtime_.pool.size());
  }
  const Target& target() const override { return target_; }

  void realize(std::span<const NodeRef> roots) override {
    PlanKey key;
    Plan made;
    std::vector<NodeRef> stand_ins;
    std::shared_ptr<CachedPlan> plan;
    for (;; attach_ranges(key.ranges)) {
      const auto held = hold_values();
      {
        const Span span(runtime_.trace, "graph", "look for a plan");
        plan = find(roots, key.leaves);
        if (plan) break;
        key = plan_key(roots);
      }
      if (!key.ranges.empty()) continue;
      plan = find(key);
      if (!plan) made = scheduled(with_stand_ins(roots, key, stand_ins));
      break;
    }
    if (!plan) tell(roots);
    if (!plan) plan = keep(key, bound(compile_plan(std::move(made), false), stand_ins));
    std::vector<Ref<Storage>> inputs;
    for (const CachedPlan::Input& in : plan->inputs) {
      inputs.push_back(in.constant ? in.constant : key.leaves[in.leaf]->storage());
    }
    // Values are attached only now: a failure before leaves every tensor as it was.
    attach_values(roots, run(plan->code, runtime_.memory, inputs));
  }

  std::unique_ptr<Executable> prepare(Plan plan) override {
    return std::make_unique<CpuExecutable>(runtime_, kernels_, std::move(plan));
  }

  Captured capture(std::span<const NodeRef> roots, std::span<const NodeRef> donors,
                   const SymbolicGraph* sizes) override {
    tell(roots);
    Plan plan;
    {
      const auto held = hold_values();
      plan = scheduled(roots, donors);
      if (sizes) bound_stages(plan, *sizes);
    }
    return compile_plan(std::move(plan), true);
  }

  CompileCount compiled() const override { return {plans_made_, kernels_.compiles(), kernels_.loads()}; }

 private:
  static Target target_of(const Config& config, KernelCache* cache) {
    Target target = host_target(cache);
    target.winograd = config.winograd;
    return target;
  }

  // What becomes of a structure that is met for the first time, as LAZULI_DEBUG asks.
  void tell(std::span<const NodeRef> roots) const {
    const int level = runtime_.config.debug;
    if (level == 0) return;
    const std::vector<Tensor> tensors(roots.begin(), roots.end());
    const PlanText text = inspect(tensors, target_, false);
    std::string all = text.plan;
    for (const KernelText& k : text.kernels) {
      all += fmt::format("{}: {}; {:.3g} operations, {:.3g} bytes\n", k.name,
                         fmt::join(k.operations, ", "), k.flops, k.bytes);
    }
    if (level >= 2) all += text.fusion;
    for (const KernelText& k : text.kernels) {
      if (level >= 3) all += fmt::format("{}:\n{}", k.name, k.program);
      if (level >= 4) all += k.llvm;
    }
    std::fputs(all.c_str(), stderr);
  }

  // Plans kept for structures met lately. Each holds code and a list of steps, and no arrays but what
  // someone has realised of constants alone.
  static constexpr size_t kMaxPlans = 256;

  struct Kept {
    std::shared_ptr<CachedPlan> plan;
    std::shared_ptr<const GraphForm>
        form;  // of the graph that it last ran, but for those known by it
    std::list<Hash128>::iterator recent;
  };

  // By the form of the graph, which most that have a plan are known by; then their values.
  std::shared_ptr<CachedPlan> find(std::span<const NodeRef> roots, std::vector<NodeRef>& values) {
    Kept kept;
    {
      std::lock_guard lock(mutex_);
      const auto it = forms_.find(form_of(roots));
      if (it == forms_.end()) return nullptr;
      kept = plans_.at(it->second);
      recent_.splice(recent_.begin(), recent_, kept.recent);
    }
    return kept.form->match(roots, values) ? kept.plan : nullptr;
  }

  std::shared_ptr<CachedPlan> find(const PlanKey& key) {
    std::lock_guard lock(mutex_);
    const auto it = plans_.find(key.hash);
    if (it == plans_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, it->second.recent);
    set_form(key);
    return it->second.plan;
  }

  // Returns what is kept under the key: another thread's plan, if it was first.
  std::shared_ptr<CachedPlan> keep(const PlanKey& key, std::shared_ptr<CachedPlan> made) {
    std::lock_guard lock(mutex_);
    if (const auto it = plans_.find(key.hash); it != plans_.end()) return it->second.plan;
    std::list<Hash128> place{key.hash};
    plans_.emplace(key.hash, Kept{made, nullptr, place.begin()});
    recent_.splice(recent_.begin(), place);
    set_form(key);
    if (recent_.size() > kMaxPlans) {
      drop_form(recent_.back());
      plans_.erase(recent_.back());
      recent_.pop_back();
    }
    return made;
  }

  void set_form(const PlanKey& key) {
    drop_form(key.hash);
    forms_[key.form->key()] = key.hash;
    plans_.at(key.hash).form = key.form;
  }
  void drop_form(const Hash128& plan) {
    const std::shared_ptr<const GraphForm>& form = plans_.at(plan).form;
    if (!form) return;
    const auto it = forms_.find(form->key());
    if (it != forms_.end() && it->second == plan) forms_.erase(it);
  }

  Plan scheduled(std::span<const NodeRef> roots, std::span<const NodeRef> donors = {}) {
    const Span span(runtime_.trace, "graph", "make a plan");
    return make_plan(roots, target_, donors);
  }

  Captured compile_plan(Plan plan, bool keep_memory) {
    plans_made_++;
    Captured c;
    for (const PlanSlot& s : plan.slots) {
      if (s.role == PlanSlot::Role::Input) c.inputs.push_back(s.node);
    }
    const auto executable = std::make_shared<CpuExecutable>(runtime_, kernels_, std::move(plan));
    std::vector<StepNote> notes = step_notes(executable->plan());
    executable->forget_graph();
    if (keep_memory) executable->keep_memory(true);
    c.executable = executable;
    c.origin = std::make_shared<Origin>(Origin{std::move(notes), executable});
    return c;
  }

  // The graph over arrays that are nowhere, in the order of the key's leaves. Over the leaves
  // themselves, simplifying could make a node that has a value already, and the plan would read
  // what other graphs of its structure do not have.
  static std::vector<NodeRef> with_stand_ins(std::span<const NodeRef> roots, const PlanKey& key,
                                             std::vector<NodeRef>& stand_ins) {
    NodeMap<NodeRef> made;
    for (const NodeRef& n : key.leaves) {
      stand_ins.push_back(placeholder(n->dtype, n->shape, n->tracked));
      made[n] = stand_ins.back();
    }
    const Topology graph(roots, true);
    for (const NodeRef& n : graph.nodes) {
      if (made.count(n)) continue;
      Sources src;
      for (const NodeRef& s : n->src) src.push_back(made.at(s));
      made[n] = with_src(n, std::move(src));
    }
    std::vector<NodeRef> out;
    for (const NodeRef& r : roots) out.push_back(made.at(r));
    return out;
  }

  static std::shared_ptr<CachedPlan> bound(Captured plan, std::span<const NodeRef> leaves) {
    auto cached = std::make_shared<CachedPlan>();
    NodeMap<size_t> leaf_number;
    for (size_t i = 0; i < leaves.size(); i++) leaf_number[leaves[i]] = i;
    for (const NodeRef& n : std::exchange(plan.inputs, {})) {
      const auto it = leaf_number.find(n);
      const bool is_leaf = it != leaf_number.end();
      ensure(is_leaf || n->realised(), "plan: an input slot is not a leaf of the graph");
      cached->inputs.push_back(is_leaf ? CachedPlan::Input{it->second, nullptr}
                                       : CachedPlan::Input{0, n->storage()});
    }
    cached->code = std::move(plan);
    return cached;
  }

  struct KeyHash {
    size_t operator()(const Hash128& h) const { return h.low; }
  };

  Runtime& runtime_;
  std::unique_ptr<KernelCache> cache_;
  Target target_;
  KernelStore kernels_;
  std::atomic<int64_t> plans_made_ = 0;
  std::mutex mutex_;
  std::list<Hash128> recent_;
  std::unordered_map<Hash128, Kept, KeyHash> plans_;
  std::unordered_map<uint64_t, Hash128> forms_;  // of them, by the key of the form
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(Runtime& runtime, std::string_view which) {
  require(which.empty(), "device: cpu has no number, but 'cpu:{}' was given; use cpu", which);
  require_llvm();
  return std::make_unique<CpuDevice>(runtime);
}

}  // namespace lazuli
