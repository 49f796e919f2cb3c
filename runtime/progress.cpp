#include "runtime/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

namespace lazuli {
namespace {

void put(int file, std::string_view text) {
  // Where it cannot be written there is nobody to tell.
  [[maybe_unused]] const ssize_t written = write(file, text.data(), text.size());
}

}  // namespace

Progress::Progress(bool wanted, std::string_view what, int64_t total, int file)
    : on_(wanted && isatty(file)), what_(what), total_(total), file_(file) {}

Progress::~Progress() {
  if (shown_) put(file_, "\r\033[K");
}

void Progress::step() {
  if (!on_) return;
  const std::lock_guard lock(mutex_);
  done_++;
  if (done_ == total_ || std::chrono::steady_clock::now() - start_ < kWait) return;
  put(file_, fmt::format("\r{} {} of {}\033[K", what_, done_, total_));
  shown_ = true;
}

}  // namespace lazuli
