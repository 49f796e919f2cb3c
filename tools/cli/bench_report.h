// What `lazuli bench` has measured, as a table, as JSON, as a picture, and beside an older run.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/probe.h"
#include "tools/cli/session.h"
#include "tools/cli/work.h"

namespace lazuli::cli {

/// The same row, measured before. See compare_with.
struct Comparison {
  double ratio = 0;  // old median / new median: above 1 is faster
  double noise = 0;  // a ratio within 1 + noise and its inverse says nothing
  int64_t runs = 0;  // of the two, those that ran less often
  std::string_view verdict() const {
    if (runs < kFewestRuns) return "too few runs to tell";
    return ratio > 1 + noise ? "faster" : ratio < 1 / (1 + noise) ? "slower" : "same";
  }
};

/// A row of a file that --json has written.
struct OldRow {
  std::string name;
  Timing timing;
  double bandwidth_gbps = 0, peak_gflops = 0;  // before or after it, the higher one
};

/// One row.
struct Measured {
  std::string name;
  bool whole = false;  // the evaluation with its graphs, not the replay of one plan
  int kernels = 0, launches = 0;
  double first_seconds = 0, compile_seconds = 0;
  int64_t compiled = 0, loaded = 0;  // kernels, the latter from the disk cache
  Timing timing;
  double flops = 0, bytes = 0;
  Roofline around{};            // measured before or after it, the higher one of each limit
  double floor_seconds = 0;     // of operations and bytes, by the highest limits of the run
  double function_seconds = 0;  // of functions such as exp, alone
  double sum = 0, sum_abs = 0;
  std::optional<Comparison> before;
  std::optional<Timing> beside;  // of the same captured for its sizes alone (tools/cli/steps.h)

  double gflops() const { return flops / timing.median * 1e-9; }
  double gbps() const { return bytes / timing.median * 1e-9; }
  double percent() const { return 100 * floor_seconds / timing.median; }
  double beside_percent() const { return 100 * beside->median / timing.median; }
  double function_percent() const { return 100 * function_seconds / timing.median; }
};

/// The rows of a file that --json has written, on the device, the CPU and with as many threads as
/// are measured now. UserError for a file that is none, for a run on something else, and where none
/// of the `names` to be measured is among them.
std::vector<OldRow> read_run(const std::string& path, Session& session,
                             std::span<const std::string> names);

/// Sets every row beside the one of its name in `old`, if there is one. The noise is what the
/// middle halves of both runs spread over, and what the limit that bounds the row, as measured
/// beside it, has moved by between them, at least 2 %.
void compare_with(std::span<const OldRow> old, std::vector<Measured>& rows,
                  const Roofline& roofline);

nlohmann::ordered_json to_json(const Measured& row, Session& session, const Roofline& roofline);
void print_table(std::span<const Measured> rows, Session& session, const Roofline& roofline);
/// GFLOP/s over operations per byte, both logarithmic, under the two limits of the machine.
std::string draw_roofline(std::span<const Measured> rows, const Roofline& roofline);

}  // namespace lazuli::cli
