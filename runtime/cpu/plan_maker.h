// What is run for a graph that is met for the first time.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "ir/plan.h"
#include "runtime/cpu/linked_plan.h"
#include "runtime/plan_key.h"

namespace lazuli {

/// Takes the plan that an earlier process left on the disk, with its kernels; or makes one, and
/// compiles its kernels meanwhile, on threads of its own: not on the pool's, which may be busy with
/// kernels of other plans. What fails there, or is not begun when the plan is made, is left to
/// whoever needs the kernel.
class PlanMaker {
 public:
  PlanMaker(Runtime& runtime, KernelStore& store) : runtime_(runtime), store_(store) {}
  ~PlanMaker() { finish(); }
  PlanMaker(const PlanMaker&) = delete;
  PlanMaker& operator=(const PlanMaker&) = delete;

  /// Arguments as of make_plan(), and as of Device::capture(). To be called while values are held,
  /// once, before link().
  void make(std::span<const NodeRef> roots, std::span<const NodeRef> donors,
            const SymbolicGraph* sizes = nullptr);
  /// Compiles what is left to compile. To be called where no lock is held.
  LinkedPlan link();
  /// Was it on the disk?
  bool loaded() const { return loaded_.has_value(); }

 private:
  bool load(std::span<const NodeRef> roots);
  void keep(const LinkedPlan& linked) const;
  void add(const std::shared_ptr<Kernel>& kernel);
  void start_thread();
  void close();
  void finish();
  void compile();

  Runtime& runtime_;
  KernelStore& store_;
  Plan plan_;
  std::optional<LinkedPlan> loaded_;
  std::optional<GraphKey> key_;  // where the plan is to be kept
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Kernel>> waiting_;
  std::set<std::pair<uint64_t, uint64_t>> begun_;  // keys
  bool closed_ = false;
};

}  // namespace lazuli
