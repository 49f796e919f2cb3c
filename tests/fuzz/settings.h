// What decides how long a fuzzer runs, and on what.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace lazuli::test {

/// A number from the environment, because a run must be repeatable with the seed it printed.
inline uint64_t setting(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

/// The first seed: FUZZ_SEED.
inline uint64_t first_seed() {
  return setting("FUZZ_SEED", 1);
}

/// Ends after a test's part of FUZZ_SECONDS, which all tests of the suite share.
class FuzzTime {
 public:
  explicit FuzzTime(double part)
      : end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                 part * static_cast<double>(setting("FUZZ_SECONDS", 10))))) {}
  bool left() const { return Clock::now() < end_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

}  // namespace lazuli::test
