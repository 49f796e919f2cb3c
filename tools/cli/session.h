// The runtime that one call of the command uses.
#pragma once

#include <memory>

#include "runtime/runtime.h"
#include "tools/cli/options.h"

namespace lazuli::cli {

/// A runtime made from the environment and the options, current on this thread while the session
/// lives.
class Session {
 public:
  /// UserError for an unknown device, a word that is no precision, a number of threads below 0. The
  /// device is opened at once, unless the caller wants to do without.
  explicit Session(const Common& common, bool open_device = true);

  Runtime& runtime() { return *runtime_; }
  Device& device() { return runtime_->device(); }

 private:
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Runtime::Use> use_;
};

/// Words that an option takes, with the nearest one in the error.
void require_word(std::string_view option, std::string_view word,
                  std::span<const std::string_view> known);

}  // namespace lazuli::cli
