#include "runtime/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/graph.h"
#include "core/lazy_buffer.h"
#include "core/node_map.h"
#include "core/promotion.h"
#include "core/topology.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/executable.h"
#include "runtime/cpu/plan_maker.h"
#include "runtime/cpu/target.h"
#include "runtime/inspect.h"
#include "runtime/plan_key.h"
#include "runtime/storage.h"

namespace lazuli {
namespace {

// A compiled structure and how a graph of that structure is bound to it.
struct CachedPlan {
  // Literals that are arguments, as an array of each dtype.
  struct Arguments {
    DType dtype;
    std::vector<size_t> literals;
  };
  struct Input {
    int leaf = -1;               // number of one of the key's, or
    int arguments = -1;          // of one of the arrays, or
    Ref<Storage> constant = {};  // what follows from neither: every graph of the structure has it
  };

  LiteralUse literals;
  std::vector<Arguments> arguments;
  std::vector<Input> inputs;  // for each input slot
  Captured code;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(Runtime& runtime)
      : runtime_(runtime),
        cache_(runtime.config.cache_folder.empty()
                   ? nullptr
                   : std::make_unique<KernelCache>(runtime.config.cache_folder)),
        target_(target_of(runtime.config, cache_.get())),
        kernels_(target_, runtime, cache_.get()) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return fmt::format("{}, vectors of {} f32, {} threads", target_.cpu, target_.lanes,
                       runtime_.pool.size());
  }
  const Target& target() const override { return target_; }

  void realize(std::span<const NodeRef> roots) override {
    PlanKey key;
    std::vector<uint64_t> literals;
    std::optional<NewPlan> made;
    std::shared_ptr<const CachedPlan> plan;
    Turn turn(*this);
    for (;; key.ranges.empty() ? wait_for_turn(key.hash) : attach_ranges(key.ranges)) {
      const auto held = hold_values();
      {
        const Span span(runtime_.trace, "graph", "look for a plan");
        plan = find(roots, key.leaves, literals);
        if (plan) break;
        const auto is_there = [](const NodeRef& n) { return n->realised(); };
        if (std::all_of(roots.begin(), roots.end(), is_there)) return;  // by another thread
        key = plan_key(roots);
      }
      if (!key.ranges.empty()) continue;
      literals.clear();
      for (const Literal& l : key.form->literals()) literals.push_back(l.bits);
      LiteralUse use(key.form->literals());
      plan = find(key, literals, use, turn);
      if (!plan && !turn.taken()) continue;
      if (!plan) made = new_plan(roots, key, std::move(use));
      break;
    }
    if (!plan) {
      tell(roots);
      plan = compiled(std::move(*made));
      keep(key, plan);
      turn.end();
    }
    std::vector<Ref<Storage>> inputs;
    inputs.reserve(plan->inputs.size());
    for (const CachedPlan::Input& in : plan->inputs) {
      inputs.push_back(in.leaf >= 0 ? key.leaves[static_cast<size_t>(in.leaf)]->storage()
                       : in.arguments >= 0
                           ? array_of(plan->arguments[static_cast<size_t>(in.arguments)], literals)
                           : in.constant);
    }
    // Values are attached only now: a failure before leaves every tensor as it was.
    attach_values(roots, run(plan->code, runtime_.memory, inputs));
  }

  std::unique_ptr<Executable> prepare(Plan plan) override {
    return std::make_unique<CpuExecutable>(runtime_, target_,
                                           link_plan(std::move(plan), kernels_, runtime_));
  }

  Captured capture(std::span<const NodeRef> roots, std::span<const NodeRef> donors,
                   const SymbolicGraph* sizes) override {
    tell(roots);
    PlanMaker maker(runtime_, kernels_);
    {
      const auto held = hold_values();
      maker.make(roots, donors, sizes);
    }
    return captured(maker, true);
  }

  CompileCount compiled() const override {
    return {plans_made_, kernels_.compiles(), kernels_.loads(), plans_loaded_};
  }

 private:
  static Target target_of(const Config& config, KernelCache* cache) {
    Target target = host_target(cache);
    target.winograd = config.winograd;
    target.threads = config.threads;
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
      if (level >= 3)
        all += fmt::format("{}:\n{}{}{}", k.name, k.algorithm, k.schedule, k.program);
      if (level >= 4) all += k.llvm;
    }
    std::fputs(all.c_str(), stderr);
  }

  // Plans of structures met lately: one for the literals that it was first met with, and one that
  // has as arguments what has changed since. Each holds code and a list of steps, and no arrays but
  // what someone has realised of constants alone.
  static constexpr size_t kMaxStructures = 256;

  struct Kept {
    std::shared_ptr<const CachedPlan> first, widened;
    std::shared_ptr<const GraphForm>
        form;  // of the graph that it last ran, but for those known by it
    std::list<Hash128>::iterator recent;

    std::shared_ptr<const CachedPlan> plan_for(std::span<const uint64_t> literals) const {
      if (first->literals.fits(literals)) return first;
      return widened && widened->literals.fits(literals) ? widened : nullptr;
    }
  };

  // By the form of the graph, which most that have a plan are known by; then their values and
  // literals.
  std::shared_ptr<const CachedPlan> find(std::span<const NodeRef> roots,
                                         std::vector<NodeRef>& values,
                                         std::vector<uint64_t>& literals) {
    Kept kept;
    {
      std::lock_guard lock(mutex_);
      const auto it = forms_.find(form_of(roots));
      if (it == forms_.end()) return nullptr;
      kept = plans_.at(it->second);
      recent_.splice(recent_.begin(), recent_, kept.recent);
    }
    return kept.form->match(roots, values, literals) ? kept.plan_for(literals) : nullptr;
  }

  // One thread at a time makes a plan of a structure; the others wait for it, since it may serve
  // them too, and a wider one must serve what both have met.
  class Turn {
   public:
    explicit Turn(CpuDevice& device) : device_(device) {}
    ~Turn() { end(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    bool taken() const { return of_.has_value(); }
    // Under the lock of the device; not taken if it is another thread's.
    void take(const Hash128& structure) {
      if (device_.in_work_.insert(structure).second) of_ = structure;
    }
    void end() {
      if (!of_) return;
      const std::lock_guard lock(device_.mutex_);
      device_.in_work_.erase(*of_);
      of_.reset();
      device_.work_ended_.notify_all();
    }

   private:
    CpuDevice& device_;
    std::optional<Hash128> of_;
  };

  void wait_for_turn(const Hash128& structure) {
    std::unique_lock lock(mutex_);
    work_ended_.wait(lock, [&] { return !in_work_.contains(structure); });
  }

  // If there is no such plan, and it is this thread's turn to make one, `use` is what that has to
  // serve.
  std::shared_ptr<const CachedPlan> find(const PlanKey& key, std::span<const uint64_t> literals,
                                         LiteralUse& use, Turn& turn) {
    std::lock_guard lock(mutex_);
    const auto it = plans_.find(key.hash);
    if (it != plans_.end()) {
      const Kept& kept = it->second;
      recent_.splice(recent_.begin(), recent_, kept.recent);
      set_form(key);
      if (const auto plan = kept.plan_for(literals)) return plan;
      use = (kept.widened ? kept.widened : kept.first)->literals.widened(literals);
    }
    turn.take(key.hash);
    return nullptr;
  }

  void keep(const PlanKey& key, std::shared_ptr<const CachedPlan> made) {
    std::lock_guard lock(mutex_);
    if (const auto it = plans_.find(key.hash); it != plans_.end()) {
      it->second.widened = std::move(made);
      return;
    }
    std::list<Hash128> place{key.hash};
    plans_.emplace(key.hash, Kept{std::move(made), nullptr, nullptr, place.begin()});
    recent_.splice(recent_.begin(), place);
    set_form(key);
    if (recent_.size() > kMaxStructures) {
      drop_form(recent_.back());
      plans_.erase(recent_.back());
      recent_.pop_back();
    }
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

  Captured captured(PlanMaker& maker, bool keep_memory) {
    LinkedPlan linked = maker.link();
    plans_made_++;
    plans_loaded_ += maker.loaded();
    Captured c;
    for (const PlanSlot& s : linked.plan.slots) {
      if (s.role == PlanSlot::Role::Input) c.inputs.push_back(s.node);
    }
    const auto executable = std::make_shared<CpuExecutable>(runtime_, target_, std::move(linked));
    executable->forget_graph();
    if (keep_memory) executable->keep_memory(true);
    c.executable = executable;
    return c;
  }

  // A plan over arrays that are nowhere, in place of the leaves and of those literals that are
  // arguments. Over the leaves themselves, simplifying could make a node that has a value already,
  // and the plan would read what other graphs of its structure do not have.
  struct NewPlan {
    LiteralUse literals;
    std::vector<CachedPlan::Arguments> arguments;
    NodeRefMap<CachedPlan::Input> inputs;  // what the arrays stand for
    std::unique_ptr<PlanMaker> maker;
  };

  NewPlan new_plan(std::span<const NodeRef> roots, const PlanKey& key, LiteralUse literals) {
    NewPlan made{std::move(literals), {}, {}, std::make_unique<PlanMaker>(runtime_, kernels_)};
    NodeMap<NodeRef> now;
    for (size_t i = 0; i < key.leaves.size(); i++) {
      const NodeRef& n = key.leaves[i];
      const NodeRef array = placeholder(n->dtype, n->shape, n->tracked);
      made.inputs[array].leaf = static_cast<int>(i);
      now[n] = array;
    }
    const std::vector<NodeRef> arguments = argument_nodes(key.form->literals(), made);
    size_t literal = 0;
    const auto source = [&](const NodeRef& n) {
      if (!is_literal(*n)) return now.at(n);
      const int argument = made.literals.argument(literal++);
      return argument < 0 ? n : broadcast_node(arguments[static_cast<size_t>(argument)], n->shape);
    };
    const Topology graph(roots, true);
    for (const NodeRef& n : graph.nodes) {
      if (is_literal(*n) || now.count(n)) continue;
      Sources src;
      for (const NodeRef& s : n->src) src.push_back(source(s));
      now[n] = with_src(n, std::move(src));
    }
    std::vector<NodeRef> out;
    for (const NodeRef& r : roots) out.push_back(source(r));
    made.maker->make(out, {});
    return made;
  }

  // Those literals that are arguments, as elements of arrays: at the first of equal ones.
  static std::vector<NodeRef> argument_nodes(std::span<const Literal> literals, NewPlan& made) {
    std::map<DType, std::vector<size_t>> by_dtype;
    for (size_t i = 0; i < literals.size(); i++) {
      if (made.literals.argument(i) == static_cast<int>(i))
        by_dtype[literals[i].dtype].push_back(i);
    }
    std::vector<NodeRef> nodes(literals.size());
    for (auto& [dtype, numbers] : by_dtype) {
      const auto size = static_cast<int64_t>(numbers.size());
      const NodeRef array = placeholder(dtype, {size}, false);
      for (int64_t k = 0; k < size; k++) {
        nodes[numbers[static_cast<size_t>(k)]] = reshape(shrink(array, {k, k + 1}), {});
      }
      made.inputs[array].arguments = static_cast<int>(made.arguments.size());
      made.arguments.push_back({dtype, std::move(numbers)});
    }
    return nodes;
  }

  std::shared_ptr<const CachedPlan> compiled(NewPlan made) {
    auto plan = std::make_shared<CachedPlan>(CachedPlan{std::move(made.literals),
                                                        std::move(made.arguments),
                                                        {},
                                                        captured(*made.maker, false)});
    for (const NodeRef& n : std::exchange(plan->code.inputs, {})) {
      const auto it = made.inputs.find(n);
      const bool is_given = it != made.inputs.end();
      ensure(is_given || n->realised(), "plan: an input slot is not a leaf of the graph");
      plan->inputs.push_back(is_given ? it->second : CachedPlan::Input{.constant = n->storage()});
    }
    return plan;
  }

  Ref<Storage> array_of(const CachedPlan::Arguments& arguments,
                        std::span<const uint64_t> literals) {
    const auto size = static_cast<size_t>(size_of(arguments.dtype));
    const auto array = make_ref<HostStorage>(runtime_.memory, size * arguments.literals.size());
    auto* to = static_cast<std::byte*>(array->data());
    for (size_t i : arguments.literals) {
      std::memcpy(to, &literals[i], size);
      to += size;
    }
    return array;
  }

  struct KeyHash {
    size_t operator()(const Hash128& h) const { return h.low; }
  };

  Runtime& runtime_;
  std::unique_ptr<KernelCache> cache_;
  Target target_;
  KernelStore kernels_;
  std::atomic<int64_t> plans_made_ = 0, plans_loaded_ = 0;
  std::mutex mutex_;
  std::list<Hash128> recent_;
  std::unordered_map<Hash128, Kept, KeyHash> plans_;
  std::unordered_map<uint64_t, Hash128> forms_;   // of them, by the key of the form
  std::unordered_set<Hash128, KeyHash> in_work_;  // structures that a plan is being made of
  std::condition_variable work_ended_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(Runtime& runtime, std::string_view which) {
  require(which.empty(), "device: cpu has no number, but 'cpu:{}' was given; use cpu", which);
  require_llvm();
  return std::make_unique<CpuDevice>(runtime);
}

}  // namespace lazuli
