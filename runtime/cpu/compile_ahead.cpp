#include "runtime/cpu/compile_ahead.h"

#include <signal.h>

#include <exception>
#include <system_error>

namespace lazuli {

Plan CompileAhead::plan(std::span<const NodeRef> roots, std::span<const NodeRef> donors) {
  const Span span(runtime_.trace, "graph", "make a plan");
  Plan made = make_plan(roots, store_.target(), donors,
                        [this](const std::shared_ptr<Kernel>& kernel) { add(kernel); });
  close();
  return made;
}

void CompileAhead::add(const std::shared_ptr<Kernel>& kernel) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(kernel);
  }
  changed_.notify_one();
  if (threads_.size() + 1 < static_cast<size_t>(runtime_.pool.size())) start_thread();
}

void CompileAhead::start_thread() {
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

void CompileAhead::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  waiting_.clear();
  changed_.notify_all();
}

void CompileAhead::finish() {
  close();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void CompileAhead::compile() {
  try {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
      if (closed_) return;
      const std::shared_ptr<Kernel> kernel = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      const Hash128 key = structural_hash(*kernel);
      lock.lock();
      if (!begun_.emplace(key.high, key.low).second) continue;
      lock.unlock();
      store_.get(*kernel, key);
      lock.lock();
    }
  } catch (const std::exception&) {
    // Whoever needs the kernel meets the error again, and tells of it.
  }
}

}  // namespace lazuli
