// `lazuli bench`: time, GFLOP/s, GB/s and percent of the floor of this machine.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "runtime/probe.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"
#include "tools/cli/steps.h"
#include "tools/cli/work.h"
#include "tools/cli/workloads.h"
#include "tools/notation/source.h"

namespace lazuli::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Measured {
  std::string name;
  bool whole = false;  // the evaluation with its graphs, not the replay of one plan
  int kernels = 0, launches = 0;
  double first_seconds = 0, compile_seconds = 0;
  Timing timing;
  double flops = 0, bytes = 0;
  double floor_seconds = 0;
  double sum = 0, sum_abs = 0;

  double gflops() const { return flops / timing.median * 1e-9; }
  double gbps() const { return bytes / timing.median * 1e-9; }
  double percent() const { return 100 * floor_seconds / timing.median; }
};

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
void measure_replay(const notation::Result& result, double seconds, Session& session, Measured& m) {
  const auto compiling = Clock::now();
  Replay replay(session.device(), result.tensors);
  m.compile_seconds = seconds_since(compiling);
  replay.run();
  m.first_seconds += seconds_since(compiling);
  m.timing = measure([&] { replay.run(); }, seconds);
  m.kernels = replay.kernels();
  m.launches = replay.launches();
  std::vector<NodeRef> roots;
  for (const Tensor& t : result.tensors) roots.push_back(t.node());
  m.flops = count_flops(roots);
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

void set_floor(Measured& m, const Roofline& roofline) {
  const double compute = std::isnan(m.flops) ? 0 : m.flops / (roofline.peak_gflops * 1e9);
  m.floor_seconds = std::max(compute, m.bytes / (roofline.bandwidth_gbps * 1e9));
}

/// A step as a user's program takes it: the making of its graphs is in its time.
Measured measure_step(const Step& step, double seconds, const Roofline& roofline) {
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
  m.timing = measure([&] { run(); }, seconds);
  set_floor(m, roofline);
  return m;
}

Measured measure_one(const std::string& what, double seconds, const Common& common,
                     Session& session, const Roofline& roofline) {
  if (const Step* const step = find_step(what)) return measure_step(*step, seconds, roofline);
  const Workload* const row = find_workload(what);
  if (row == nullptr) refuse_unknown_name(what);
  Measured m;
  m.name = row != nullptr ? std::string(row->name) : what;

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
    measure_replay(result, seconds, session, m);
  }
  if (row != nullptr) {
    m.flops = static_cast<double>(row->flops);
    m.bytes = static_cast<double>(row->bytes);
  }
  set_floor(m, roofline);
  return m;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

Json to_json(const Measured& m, Session& session, const Roofline& roofline) {
  Json j;
  j["name"] = m.name;
  j["device"] = session.device().name();
  j["threads"] = roofline.threads;
  j["whole"] = m.whole;
  j["kernels"] = m.whole ? Json() : Json(m.kernels);
  j["launches"] = m.whole ? Json() : Json(m.launches);
  j["first_seconds"] = m.first_seconds;
  j["compile_seconds"] = m.compile_seconds;
  j["seconds"] = {{"min", m.timing.min}, {"median", m.timing.median}, {"count", m.timing.count}};
  j["flops"] = m.flops;
  j["bytes"] = m.bytes;
  j["gflops"] = m.gflops();
  j["gbps"] = m.gbps();
  j["roofline"] = {{"peak_gflops", roofline.peak_gflops},
                   {"bandwidth_gbps", roofline.bandwidth_gbps},
                   {"floor_seconds", m.floor_seconds},
                   {"percent", m.percent()}};
  j["sum"] = m.sum;
  j["sum_abs"] = m.sum_abs;
  j["lazuli"] = LAZULI_VERSION;
  j["cpu"] = session.device().target().cpu;
  j["when"] = now_text();
  return j;
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.3f} us", seconds * 1e6);
}

void print_table(const std::vector<Measured>& all, Session& session, const Roofline& roofline) {
  fmt::print("{}\n", roofline_text(roofline, session.device()));
  size_t width = 4;
  for (const Measured& m : all) width = std::max(width, std::min<size_t>(m.name.size(), 40));
  fmt::print("{:{}}  {:>11} {:>11} {:>8} {:>10} {:>9} {:>7} {:>8} {:>11}\n", "name", width,
             "median", "min", "runs", "GFLOP/s", "GB/s", "floor", "kernels", "first");
  for (const Measured& m : all) {
    const std::string name = m.name.size() > width ? m.name.substr(0, width - 3) + "..." : m.name;
    fmt::print("{:{}}  {:>11} {:>11} {:>8} {:>10} {:>9.2f} {:>6.1f}% {:>8} {:>11}\n", name, width,
               time_text(m.timing.median), time_text(m.timing.min), m.timing.count,
               std::isnan(m.flops) ? "-" : fmt::format("{:.2f}", m.gflops()), m.gbps(), m.percent(),
               m.whole ? "-" : fmt::format("{}", m.kernels), time_text(m.first_seconds));
  }
  for (const Measured& m : all) {
    if (find_step(m.name) != nullptr) {
      fmt::print("{}: timed as a whole, with the making of its graphs\n", m.name);
    } else if (m.whole) {
      fmt::print(
          "{}: values are asked for on the way; timed as a whole, with the making of its graphs\n",
          m.name);
    } else if (m.launches == 0) {
      fmt::print("{}: nothing is computed\n", m.name);
    } else if (m.percent() > 100) {
      fmt::print("{}: {}\n", m.name, kAboveFloor);
    }
  }
}

void print_list() {
  for (const Workload& row : workloads()) fmt::print("{:28} {}\n", row.name, row.expression);
  fmt::print("steps of models:\n");
  for (const Step& step : steps()) fmt::print("{:28} {}\n", step.name, step.what);
}

}  // namespace

int bench(const BenchOptions& options, const Common& common) {
  if (options.list) {
    print_list();
    return kDone;
  }
  require(
      !options.what.empty(),
      "bench: expected an expression or the name of a workload; `lazuli bench --list` lists them");
  require(options.seconds > 0, "--seconds: {} is not positive", options.seconds);
  Session session(common);
  const Roofline roofline = measure_roofline(session.runtime().pool);
  std::vector<Measured> all;
  for (const std::string& what : options.what)
    all.push_back(measure_one(what, options.seconds, common, session, roofline));
  if (common.json.empty()) {
    print_table(all, session, roofline);
    return kDone;
  }
  Json list = Json::array();
  for (const Measured& m : all) list.push_back(to_json(m, session, roofline));
  write_text(common.json, (list.size() == 1 ? list[0] : list).dump(1) + "\n");
  return kDone;
}

}  // namespace lazuli::cli
