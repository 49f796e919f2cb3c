#include "runtime/cpu/compile_ahead.h"

#include <algorithm>
#include <thread>

namespace lazuli {

Plan CompileAhead::run(std::span<const NodeRef> roots, std::span<const NodeRef> donors) {
  const std::thread::id caller = std::this_thread::get_id();
  std::optional<Plan> plan;
  // As many steps as threads: each of the others waits in its own until the plan is made, so that
  // one is left for the caller.
  runtime_.pool.parallel_for(0, runtime_.pool.size(), 1, [&](int64_t, int64_t, int) {
    if (std::this_thread::get_id() == caller && !plan) {
      try {
        const Span span(runtime_.trace, "graph", "make a plan");
        plan = make_plan(roots, store_.target(), donors,
                         [this](const std::shared_ptr<Kernel>& kernel) { add(kernel); });
      } catch (...) {
        close(true);
        throw;
      }
      close(false);
    }
    compile();
  });
  return std::move(*plan);
}

void CompileAhead::add(const std::shared_ptr<Kernel>& kernel) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(kernel);
  changed_.notify_one();
}

void CompileAhead::close(bool failed) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  if (failed) return waiting_.clear();
  // The longest first, so that no thread begins one when the others are done.
  std::stable_sort(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) {
    return a->stages.size() > b->stages.size();
  });
  progress_.emplace(runtime_.config.progress.value_or(false), "compiling: kernels",
                    static_cast<int64_t>(waiting_.size()));
}

void CompileAhead::compile() {
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::shared_ptr<Kernel> kernel = std::move(waiting_.front());
    waiting_.pop_front();
    const bool counts = progress_.has_value();
    lock.unlock();
    const Hash128 key = structural_hash(*kernel);
    lock.lock();
    if (begun_.emplace(key.high, key.low).second) {
      lock.unlock();
      store_.get(*kernel, key);
      lock.lock();
    }
    if (counts) progress_->step();
  }
}

}  // namespace lazuli
