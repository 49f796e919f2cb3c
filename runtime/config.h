// The settings of a runtime. They come from the environment, which is read here and nowhere else,
// or from the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lazuli {

struct Config {
  int debug = 0;             ///< LAZULI_DEBUG: what to tell on standard error, 0 (nothing) to 4
  std::string device;        ///< LAZULI_DEVICE: cpu (the default, if LLVM is built in), reference,
                             ///< opencl or opencl:N
  std::string cache_folder;  ///< LAZULI_CACHE: where compiled kernels and plans are kept; empty:
                             ///< nowhere
  bool tune = false;         ///< LAZULI_TUNE: measure schedules instead of only modelling them
  int threads = 1;           ///< LAZULI_THREADS: 1 to 1024
  uint64_t memory = 0;       ///< LAZULI_MEMORY: most bytes for values; 0: what the machine has
  std::string profile;       ///< LAZULI_PROFILE: the file that a trace of what ran is written to;
                             ///< empty: none (runtime/trace.h)
  std::optional<bool> progress;  ///< LAZULI_PROGRESS: while kernels of a large graph compile, count
                                 ///< them in a line on standard error, if that is a terminal? Not
                                 ///< set: only the command does
  bool winograd = true;  ///< may 3x3 convolutions of f32 use fewer multiplications where that
                         ///< is faster? They then differ from the direct sums by up to 1e-4
                         ///< (ir/winograd.h). No variable; the command has --winograd

  /// The defaults: as many threads as cores may be used, the cache in the user's cache folder.
  Config();

  /// The defaults changed by the LAZULI_* variables of the environment. UserError for a value that
  /// makes no sense and for a LAZULI_* variable that does not exist.
  static Config from_env();

  /// The same from variables given by name and value; names without LAZULI_ in front are passed
  /// over.
  static Config from_variables(const std::vector<std::pair<std::string, std::string>>& variables);
};

/// One row of the table of variables.
struct ConfigVariable {
  std::string_view name;
  std::string_view meaning;
  std::string_view values;    ///< what it may be set to
  std::string_view fallback;  ///< what holds if it is not set
};

/// All variables, for help and documentation.
std::vector<ConfigVariable> config_variables();

}  // namespace lazuli
