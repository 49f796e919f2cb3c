// A line on a terminal that counts what is done of something long.
#pragma once

#include <chrono>
#include <mutex>
#include <string_view>

namespace lazuli {

/// Nothing is written unless `file` is a terminal, and not before kWait: most things are done by
/// then. The line is wiped at the end. Thread-safe.
class Progress {
 public:
  static constexpr std::chrono::milliseconds kWait{500};

  /// Of `total` things, called `what`; `file` is a descriptor. Nothing is written if not `wanted`.
  Progress(bool wanted, std::string_view what, int64_t total, int file = 2);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// One more is done.
  void step();

 private:
  const bool on_;
  const std::string_view what_;
  const int64_t total_;
  const int file_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  int64_t done_ = 0;
  bool shown_ = false;
};

}  // namespace lazuli
