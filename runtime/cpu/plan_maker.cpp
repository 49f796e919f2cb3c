#include "runtime/cpu/plan_maker.h"

#include <signal.h>

#include <exception>
#include <new>
#include <system_error>

#include "ir/bounds.h"
#include "runtime/cpu/stored.h"

namespace lazuli {

void PlanMaker::make(std::span<const NodeRef> roots, std::span<const NodeRef> donors,
                     const SymbolicGraph* sizes) {
  if (sizes) {
    const Span span(runtime_.trace, "graph", "make a plan");
    plan_ = make_plan(roots, store_.target(), donors);
    return bound_stages(plan_, *sizes);
  }
  if (store_.disk()) {
    key_ = graph_key(roots, donors);
    if (load(roots)) return;
  }
  const Span span(runtime_.trace, "graph", "make a plan");
  plan_ = make_plan(roots, store_.target(), donors,
                    [this](const std::shared_ptr<Kernel>& kernel) { add(kernel); });
  close();
}

// What goes wrong with the disk, or for want of memory beside it, only costs time.
bool PlanMaker::load(std::span<const NodeRef> roots) {
  if (!key_) return false;
  try {
    const std::optional<std::string> bytes = store_.disk()->find(store_.plan_file(key_->hash));
    if (!bytes) return false;
    const Span span(runtime_.trace, "graph", "load a plan");
    std::optional<LinkedPlan> found = load_plan(*bytes, key_->leaves, roots);
    if (!found) return false;
    for (size_t i = 0; i < found->steps.size(); i++) {
      LinkedPlan::Step& step = found->steps[i];
      if (!found->plan.steps[i].kernel) continue;
      step.kernel = store_.find(step.key);
      if (!step.kernel) return false;
    }
    loaded_ = std::move(found);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void PlanMaker::keep(const LinkedPlan& linked) const {
  if (!key_) return;
  try {
    const std::optional<std::string> bytes = store_plan(linked, key_->leaves);
    if (bytes) store_.disk()->keep(store_.plan_file(key_->hash), *bytes);
  } catch (const std::bad_alloc&) {
    return;
  }
}

LinkedPlan PlanMaker::link() {
  if (loaded_) return std::move(*loaded_);
  LinkedPlan linked = link_plan(std::move(plan_), store_, runtime_);
  keep(linked);
  return linked;
}

void PlanMaker::add(const std::shared_ptr<Kernel>& kernel) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(kernel);
  }
  changed_.notify_one();
  if (threads_.size() + 1 < static_cast<size_t>(runtime_.pool.size())) start_thread();
}

void PlanMaker::start_thread() {
  threads_.reserve(threads_.size() + 1);
  // Signals are the program's business: its own threads get them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    threads_.emplace_back([this] { compile(); });
  } catch (const std::system_error&) {
    // The plan's own thread compiles them later.
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void PlanMaker::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  waiting_.clear();
  changed_.notify_all();
}

void PlanMaker::finish() {
  close();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void PlanMaker::compile() {
  try {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
      if (closed_) return;
      const std::shared_ptr<Kernel> kernel = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      const Hash128 key = structural_hash(*kernel);
      lock.lock();
      if (!begun_.emplace(key.high, key.low).second || store_.is_begun(key)) continue;
      lock.unlock();
      store_.get(*kernel, key);
      lock.lock();
    }
  } catch (const std::exception&) {
    // Whoever needs the kernel meets the error again, and tells of it.
  }
}

}  // namespace lazuli
