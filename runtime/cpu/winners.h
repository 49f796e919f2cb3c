// Schedules that were found by measuring, kept from one process to the next.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "core/node.h"
#include "ir/choose.h"

namespace lazuli {

/// What a search around the model's schedule of a kernel found.
struct Winner {
  Settled settled;  ///< where it differs from the model's choice; empty: that was the best
  double model_seconds = 0, seconds = 0;
  int tried = 0;  ///< schedules that were measured
};

/// Winners by key, in a file of text. It holds choices, not code: whatever stands in it, a schedule
/// is made of it by the rules, or it is passed over. Thread-safe.
class Winners {
 public:
  /// In the file `tuned` of this folder; empty: in memory alone. What cannot be read is left out,
  /// and gone after the next keep(); where the folder cannot be written, nothing is kept.
  explicit Winners(const std::string& folder);

  std::optional<Winner> find(const Hash128& key) const;
  /// Also writes the file, with what other processes have put there meanwhile.
  void keep(const Hash128& key, Winner winner);

 private:
  using Key = std::pair<uint64_t, uint64_t>;

  void read();
  void write() const;

  mutable std::mutex mutex_;
  std::string folder_;
  std::map<Key, Winner> winners_;
};

}  // namespace lazuli
