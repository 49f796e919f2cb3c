// Compiles the kernels of a plan while the rest of it is still being made.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "ir/plan.h"
#include "runtime/cpu/kernel_store.h"
#include "runtime/progress.h"

namespace lazuli {

/// Makes the plan of make_plan() on the calling thread, while the other threads of the runtime's
/// pool bring its kernels into the store; at the end this thread does, too. So they must be final
/// as make_plan() writes them. Throws what make_plan() or a compilation throws.
class CompileAhead {
 public:
  CompileAhead(Runtime& runtime, KernelStore& store) : runtime_(runtime), store_(store) {}

  Plan run(std::span<const NodeRef> roots, std::span<const NodeRef> donors);

 private:
  void add(const std::shared_ptr<Kernel>& kernel);
  // No kernel is to come.
  void close(bool failed);
  void compile();

  Runtime& runtime_;
  KernelStore& store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Kernel>> waiting_;
  std::set<std::pair<uint64_t, uint64_t>> begun_;  // keys
  bool closed_ = false;
  std::optional<Progress> progress_;
};

}  // namespace lazuli
