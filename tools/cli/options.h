// What the subcommands are told, and the expression they work on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/notation/notation.h"

namespace lazuli::cli {

enum ExitCode : int {
  kDone = 0,
  kAnswerIsNo = 1,
  kUserMistake = 2,
  kDeviceFailure = 3,
  kOurFailure = 4
};

/// The options that every subcommand has.
struct Common {
  std::string device;  // empty: the default, or what LAZULI_DEVICE says
  int threads = 0;     // 0: the default, or what LAZULI_THREADS says
  uint64_t seed = 0;
  std::string precision = "highest";
  std::string winograd = "auto";
  std::vector<std::string> inputs;  // name=file.npy
  bool cold = false;                // without the disk cache
  std::string json;                 // a file, `-` for standard output, empty for none
};

/// Sets the runtime's device, threads and precision. UserError for an unknown device and for what
/// is not built.
void apply(const Common& common);

/// A parsed expression and the tensors its inputs are bound to.
struct Expression {
  notation::Program program;
  notation::Bindings bindings;
  notation::EvalOptions options;

  /// The lazy result, built anew at each call.
  notation::Result evaluate() const {
    return notation::evaluate_program(program, bindings, options);
  }
};

/// `text`, or the contents of FILE for `@FILE`. UserError if it cannot be read.
std::string expression_text(const std::string& text);

/// Parses `text` and binds its inputs to the files of `common` and, where there is none, to their
/// fills.
Expression load_expression(const std::string& text, const Common& common);

/// Writes `text` to a file, or to standard output for `-`. UserError if it cannot be written.
void write_text(const std::string& path, const std::string& text);

}  // namespace lazuli::cli
