// Compiled kernels and plans kept from one process to the next, as files of one folder.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/node.h"

namespace lazuli {

/// Contents by key. A file holds its key and a checksum; what does not fit them is deleted and not
/// given. A file is written under another name first, so that a reader in this or another process
/// finds all of it or nothing; processes may find, keep and clear at once. Files used longest ago
/// are deleted, now and then, where all take more than a bound. A folder or a file that is not the
/// user's own, or that others may write to, is not used: what is kept is run. Nothing that goes
/// wrong with files is an error, and a cache that cannot be used only costs time. Thread-safe.
class KernelCache {
 public:
  static constexpr int64_t kMostBytes = int64_t{256} << 20;

  /// In the folder `kernels` of this one, which is made at the first keep() or report().
  explicit KernelCache(std::string folder, int64_t most_bytes = kMostBytes);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  /// The key of what the compiler of this program makes of `text`: another where its sources or its
  /// LLVM differ.
  static Hash128 key_of(std::string_view text);

  std::optional<std::string> find(const Hash128& key);
  void keep(const Hash128& key, std::string_view content);

  struct Report {
    int64_t entries = 0, bytes = 0;
    std::string refused;  // why the folder, or some of it, is not used, written to or emptied; empty:
                          // it is, or is not there yet
  };
  Report report();
  /// Deletes all that is kept, and returns what that was.
  Report clear();

 private:
  // The open folder, -1 if it is not to be used.
  int open_folder(bool make);
  void close_folder();
  bool write(int folder, const std::string& name, std::string_view content);
  // Deletes what is too old to fit the bound, and what writers that died have left.
  void sweep(int folder);

  const std::string parent_, folder_;
  const int64_t most_bytes_;
  std::mutex mutex_;
  int open_ = -1;
  int64_t kept_;  // by this process, counted from a number of its own
  std::string refused_;
};

}  // namespace lazuli
