#include "runtime/shared_work.h"

#include <utility>

namespace lazuli {

void SharedWork::run(Batch& batch) {
  if (is_forked()) {
    for (size_t i = 0; i < batch.count; i++) batch.task(batch.context, i);
    return;
  }
  std::unique_lock lock(mutex_);
  Batch** at = &first_;
  while (*at) at = &(*at)->next;
  *at = &batch;
  changed_.notify_all();
  while (batch.begun < batch.count) do_next(batch, lock);
  changed_.wait(lock, [&] { return batch.running == 0; });
  for (at = &first_; *at != &batch;) at = &(*at)->next;
  *at = batch.next;
  lock.unlock();
  if (batch.error) std::rethrow_exception(std::move(batch.error));
}

SharedWork::Batch* SharedWork::waiting() const {
  Batch* b = first_;
  while (b && b->begun == b->count) b = b->next;
  return b;
}

void SharedWork::do_next(Batch& batch, std::unique_lock<std::mutex>& lock) {
  const size_t i = batch.begun++;
  batch.running++;
  lock.unlock();
  std::exception_ptr error;
  try {
    batch.task(batch.context, i);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  batch.running--;
  if (error) {
    batch.begun = batch.count;
    if (!batch.error) batch.error = std::move(error);
  }
  if (batch.running == 0) changed_.notify_all();
}

void SharedWork::wake() {
  if (is_forked()) return;
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace lazuli
