// Compiles the kernels of a plan while the rest of it is still being made.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "ir/plan.h"
#include "runtime/cpu/kernel_store.h"

namespace lazuli {

/// Brings kernels into the store on threads of its own, beside a thread that makes their plan: not
/// on the pool's, which may be busy with kernels of other plans. What fails here, or is not begun
/// when the plan is made, is left to whoever needs the kernel.
class CompileAhead {
 public:
  CompileAhead(Runtime& runtime, KernelStore& store) : runtime_(runtime), store_(store) {}
  ~CompileAhead() { finish(); }
  CompileAhead(const CompileAhead&) = delete;
  CompileAhead& operator=(const CompileAhead&) = delete;

  /// make_plan(), whose kernels must be final as it writes them.
  Plan plan(std::span<const NodeRef> roots, std::span<const NodeRef> donors);
  /// Waits for the kernels that are being compiled. To be called where no lock is held.
  void finish();

 private:
  void add(const std::shared_ptr<Kernel>& kernel);
  void start_thread();
  void close();
  void compile();

  Runtime& runtime_;
  KernelStore& store_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Kernel>> waiting_;
  std::set<std::pair<uint64_t, uint64_t>> begun_;  // keys
  bool closed_ = false;
};

}  // namespace lazuli
