// The subcommands: each takes its options, prints, and returns an exit status. Errors are
// exceptions.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/options.h"

namespace lazuli::cli {

struct RunOptions {
  std::string expression;
  std::string output;  // r.npy or r.npz; empty: print
};
int run(const RunOptions& options, const Common& common);

struct DumpOptions {
  std::string expression;
  std::string stage;   // empty: fusion, then the source of every kernel
  std::string kernel;  // number or name of the only kernel to show
  std::string target;  // LLVM's name of another CPU, or `list`
  std::string svg;     // file to draw the graph to
  bool dot = false;
  bool as_json = false;
};
int dump(const DumpOptions& options, const Common& common);

struct ExplainOptions {
  std::string expression;
};
int explain(const ExplainOptions& options, const Common& common);

struct CacheOptions {
  bool clear = false;
};
int cache(const CacheOptions& options, const Common& common);
/// The disk cache in this folder, in a few words; empty: there is none.
std::string cache_state(const std::string& folder);

struct BenchOptions {
  std::vector<std::string> what;
  double seconds = 1;
  bool list = false;
  std::vector<std::string> groups;  // of workloads, beside `what`
  std::string compare;              // file that --json has written: what to set the result beside
  std::string svg;                  // file to draw the roofline to
};
int bench(const BenchOptions& options, const Common& common);

struct CheckOptions {
  std::string expression;
};
int check(const CheckOptions& options, const Common& common);

struct TrainOptions {
  std::string name;
  bool list = false;
};
int train(const TrainOptions& options, const Common& common);

int print_info(const Common& common);

}  // namespace lazuli::cli
