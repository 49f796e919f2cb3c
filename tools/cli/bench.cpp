// `lazuli bench`: time, GFLOP/s, GB/s and percent of the floor of this machine.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "tools/cli/bench_report.h"
#include "tools/cli/commands.h"
#include "tools/cli/function_limit.h"
#include "tools/cli/steps.h"
#include "tools/cli/workloads.h"
#include "tools/notation/source.h"

namespace lazuli::cli {
namespace {

/// A name alone that is no workload is a slip, since an expression without a call or an input
/// computes nothing.
void refuse_unknown_name(const std::string& what) {
  const bool is_name = std::all_of(
      what.begin(), what.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  if (!is_name || what.empty() || std::isdigit(static_cast<unsigned char>(what[0])) != 0) return;
  std::vector<std::string_view> names;
  for (const Workload& row : workloads()) names.push_back(row.name);
  for (const Step& step : steps()) names.push_back(step.name);
  user_error("bench: there is no workload '{}'; `lazuli bench --list` lists them{}", what,
             notation::suggestion(what, names));
}

/// Counts what is realised while it lives.
class RealiseCount {
 public:
  RealiseCount() {
    count = 0;
    set_realizer([](std::span<const NodeRef> roots) {
      ++count;
      Runtime::current().device().realize(roots);
    });
  }
  ~RealiseCount() { install_runtime(); }

  static inline int count = 0;
};

void add_sums(const Tensor& t, Measured& m) {
  const void* const data = t.data();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double value = detail::element(data, t.dtype(), i).as_double();
    if (!std::isfinite(value)) continue;
    m.sum += value;
    m.sum_abs += std::fabs(value);
  }
}

/// The time of one plan, replayed.
void measure_replay(const notation::Result& result, double seconds, Session& session,
                    FunctionLimit& functions, Measured& m) {
  const CompileCount before = session.device().compiled();
  const auto compiling = Clock::now();
  Replay replay(session.device(), result.tensors);
  m.compile_seconds = seconds_since(compiling);
  const CompileCount after = session.device().compiled();
  m.compiled = after.kernels - before.kernels;
  m.loaded = after.loaded - before.loaded;
  replay.run();
  m.first_seconds += seconds_since(compiling);
  m.timing = measure([&] { replay.run(); }, seconds);
  m.kernels = replay.kernels();
  m.launches = replay.launches();
  std::vector<NodeRef> roots;
  for (const Tensor& t : result.tensors) roots.push_back(t.node());
  const double share = replay.share_within_masks();
  m.flops = share * count_flops(roots);
  m.function_seconds = share * functions.seconds(roots);
  m.bytes = m.launches > 0 ? replay.bytes() : 0;
  for (size_t i = 0; i < result.tensors.size(); ++i) add_sums(replay.result(i), m);
}

/// The time of an expression that asks for values on its way, as unique does: no one plan is it.
void measure_whole(const Expression& e, notation::Result result, double seconds, Measured& m) {
  const auto start = Clock::now();
  realize(result.tensors);
  m.first_seconds += seconds_since(start);
  for (const auto& [name, tensor] : e.bindings) m.bytes += static_cast<double>(tensor.nbytes());
  for (const Tensor& t : result.tensors) {
    m.bytes += static_cast<double>(t.nbytes());
    add_sums(t, m);
  }
  m.flops = m.compile_seconds = std::numeric_limits<double>::quiet_NaN();
  result = {};  // else its nodes, and their values, would be met again
  m.timing = measure([&] { realize(e.evaluate().tensors); }, seconds);
}

/// The limits anew, or, where there is no memory left to read, those of before: the rows that are
/// measured already matter more.
Roofline measure_again(ThreadPool& pool, const Roofline& before) {
  try {
    return measure_roofline(pool);
  } catch (const DeviceError& e) {
    fmt::print(stderr, "the machine's limits are those of before this row: {}\n", e.what());
    return before;
  }
}

void set_floor(Measured& m, const Roofline& roofline) {
  const double compute = std::isnan(m.flops) ? 0 : m.flops / (roofline.peak_gflops * 1e9);
  m.floor_seconds = std::max(compute, m.bytes / (roofline.bandwidth_gbps * 1e9));
}

/// A step as a user's program takes it: the making of its graphs is in its time.
Measured measure_step(const Step& step, double seconds) {
  Measured m;
  m.name = step.name;
  m.whole = true;
  m.flops = step.flops;
  m.bytes = step.bytes;
  const std::function<Tensor()> run = step.build();
  const auto start = Clock::now();
  add_sums(run(), m);
  m.first_seconds = seconds_since(start);
  m.compile_seconds = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::function<void()>> runs{run};
  if (step.beside) runs.emplace_back(step.beside());
  const std::vector<Timing> timings = measure(runs, seconds);
  m.timing = timings[0];
  if (step.beside) m.beside = timings[1];
  return m;
}

/// `what` is an expression, or a name where there is one.
Measured measure_one(const std::string& what, double seconds, const Common& common,
                     Session& session, FunctionLimit& functions) {
  if (const Step* const step = find_step(what)) return measure_step(*step, seconds);
  const Workload* const row = find_workload(what);
  if (row == nullptr) refuse_unknown_name(what);
  Measured m;
  m.name = what;

  // From the text to the first result, without the time that filling the inputs takes.
  const auto start = Clock::now();
  const Expression e = load_expression(what, common);
  m.first_seconds = seconds_since(start);
  for (const auto& [name, tensor] : e.bindings) tensor.data();
  const auto filled = Clock::now();
  const RealiseCount realised;
  notation::Result result = e.evaluate();
  m.whole = realised.count > 0;
  m.first_seconds += seconds_since(filled);
  if (m.whole) {
    measure_whole(e, std::move(result), seconds, m);
  } else {
    measure_replay(result, seconds, session, functions, m);
  }
  if (row != nullptr) {
    m.flops = static_cast<double>(row->flops);
    m.bytes = static_cast<double>(row->bytes);
  }
  return m;
}

/// Calls `row(group, name, what)` for all workloads, those of a group one after another.
template <typename F>
void for_each_row(F row) {
  for (const Workload& w : workloads()) row(w.group, w.name, w.expression);
  for (const Step& s : steps()) row(s.group, s.name, s.what);
}

/// The names of a group. UserError for a group that is not there.
std::vector<std::string> members(const std::string& group) {
  constexpr std::string_view kAll = "all";
  std::vector<std::string> names;
  std::vector<std::string_view> groups{kAll};
  for_each_row([&](std::string_view of, std::string_view name, std::string_view) {
    if (of != groups.back()) groups.push_back(of);
    if (group == of || group == kAll) names.emplace_back(name);
  });
  require_word("--group", group, groups);
  return names;
}

/// Of all groups, or of those that are asked for.
void print_list(const std::vector<std::string>& groups) {
  std::vector<std::string> names;
  for (const std::string& g : groups) {
    for (std::string& name : members(g)) names.push_back(std::move(name));
  }
  std::string_view group;
  for_each_row([&](std::string_view of, std::string_view name, std::string_view what) {
    if (!groups.empty() && std::find(names.begin(), names.end(), name) == names.end()) return;
    if (of != group) fmt::print("--group {}\n", group = of);
    fmt::print("{:28} {}\n", name, what);
  });
}

}  // namespace

int bench(const BenchOptions& options, const Common& common) {
  if (options.list) {
    print_list(options.groups);
    return kDone;
  }
  std::vector<std::string> what;
  for (const std::string& one : options.what) {
    const Workload* const row = find_workload(one);
    what.push_back(row != nullptr ? std::string(row->name) : one);
  }
  for (const std::string& group : options.groups) {
    for (std::string& name : members(group)) {
      if (std::find(what.begin(), what.end(), name) == what.end()) what.push_back(std::move(name));
    }
  }
  require(
      !what.empty(),
      "bench: expected an expression or the name of a workload; `lazuli bench --list` lists them");
  require(options.seconds > 0 && std::isfinite(options.seconds),
          "--seconds: {} is no time to measure for; give a positive number", options.seconds);
  for (const std::string& path : {common.json, options.svg}) require_writable(path);
  Session session(common);
  std::vector<OldRow> old;
  if (!options.compare.empty()) old = read_run(options.compare, session, what);
  ThreadPool& pool = session.runtime().pool;
  Roofline roofline = measure_roofline(pool), before = roofline;
  FunctionLimit functions(session);
  std::vector<Measured> all;
  for (const std::string& one : what) {
    all.push_back(measure_one(one, options.seconds, common, session, functions));
    const Roofline after = measure_again(pool, before);
    all.back().around = highest(before, after);
    roofline = highest(roofline, after);
    before = after;
  }
  for (Measured& m : all) set_floor(m, roofline);
  compare_with(old, all, roofline);
  // A file is for machines; who waits for it looks at the terminal.
  if (common.json != "-") print_table(all, session, roofline);
  if (!common.json.empty()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Measured& m : all) list.push_back(to_json(m, session, roofline));
    write_text(common.json, (list.size() == 1 ? list[0] : list).dump(1) + "\n");
  }
  if (!options.svg.empty()) write_text(options.svg, draw_roofline(all, roofline));
  const bool slower = std::any_of(all.begin(), all.end(), [](const Measured& m) {
    return m.before && m.before->verdict() == "slower";
  });
  return slower ? kAnswerIsNo : kDone;
}

}  // namespace lazuli::cli
