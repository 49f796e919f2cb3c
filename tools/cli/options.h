// What the subcommands are told, and the expression they work on.
#pragma once

#include <cstdint>
#include <optional>
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
  std::string command;         // the subcommand's name
  std::string device;          // empty: the default, or what LAZULI_DEVICE says
  std::optional<int> threads;  // none: what LAZULI_THREADS says; 0: all cores
  uint64_t seed = 0;
  std::string precision = "highest";
  std::string winograd = "auto";
  std::vector<std::string> inputs;  // name=file.npy
  bool cold = false;                // without the disk cache
  std::string json;                 // a file, `-` for standard output, empty for none
};

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

/// Parses `text`, which is an expression, the name of a workload, or `@FILE` with an expression in
/// it, and binds its inputs to the files of `common` and, where there is none, to their
/// fills.
Expression load_expression(const std::string& text, const Common& common);

/// Writes `text` to a file, or to standard output for `-`. UserError if it cannot be written.
void write_text(const std::string& path, const std::string& text);

/// UserError if `write_text` could not write there, so that what takes long need not be done in
/// vain. What the file holds stays; an empty path, which asks for no file, passes.
void require_writable(const std::string& path);

}  // namespace lazuli::cli
