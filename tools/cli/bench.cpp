// `lazuli bench`: time, GFLOP/s, GB/s and percent of the floor of this machine.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "runtime/probe.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"
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

/// The row whose name or whose expression `what` is, or null.
const Workload* workload_of(const std::string& what) {
  for (const Workload& row : workloads()) {
    if (row.name == what || row.expression == what) return &row;
  }
  return nullptr;
}

void refuse_step(const std::string& what) {
  for (const std::string_view step : steps()) {
    if (step == what) {
      user_error(
          "bench: the workload {} is a step of a model, which is not built yet; `lazuli bench "
          "--list` lists those that are",
          what);
    }
  }
}

/// A name alone that is no workload is a slip, since an expression without a call or an input
/// computes nothing.
void refuse_unknown_name(const std::string& what) {
  const bool is_name = std::all_of(
      what.begin(), what.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  if (!is_name || what.empty() || std::isdigit(static_cast<unsigned char>(what[0])) != 0) return;
  std::vector<std::string_view> names;
  for (const Workload& row : workloads()) names.push_back(row.name);
  user_error("bench: there is no workload '{}'{}; `lazuli bench --list` lists them", what,
             notation::suggestion(what, names));
}

void add_sums(const Tensor& t, Measured& m) {
  const void* const data = t.data();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double value = detail::element(data, t.dtype(), i).as_double();
    if (!std::isfinite(value)) continue;
    m.sum += value;
    m.sum_abs += std::fabs(value);
  }
}

Measured measure_one(const std::string& what, double seconds, const Common& common,
                     Session& session, const Roofline& roofline) {
  refuse_step(what);
  const Workload* const row = workload_of(what);
  if (row == nullptr) refuse_unknown_name(what);
  Measured m;
  m.name = row != nullptr ? std::string(row->name) : what;

  // From the text to the first result, without the time that filling the inputs takes.
  const auto start = Clock::now();
  const Expression e =
      load_expression(row != nullptr ? std::string(row->expression) : what, common);
  double before = seconds_since(start);
  for (const auto& [name, tensor] : e.bindings) tensor.data();
  const auto filled = Clock::now();
  const notation::Result result = e.evaluate();
  const auto compiling = Clock::now();
  Replay replay(session.device(), result.tensors);
  m.compile_seconds = seconds_since(compiling);
  replay.run();
  m.first_seconds = before + seconds_since(filled);

  m.timing = measure(replay, seconds);
  m.kernels = replay.kernels();
  m.launches = replay.launches();
  std::vector<NodeRef> roots;
  for (const Tensor& t : result.tensors) roots.push_back(t.node());
  m.flops = row != nullptr ? static_cast<double>(row->flops) : count_flops(roots);
  m.bytes = row != nullptr ? static_cast<double>(row->bytes) : replay.bytes();
  m.floor_seconds =
      std::max(m.flops / (roofline.peak_gflops * 1e9), m.bytes / (roofline.bandwidth_gbps * 1e9));
  for (size_t i = 0; i < result.tensors.size(); ++i) add_sums(replay.result(i), m);
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
  j["kernels"] = m.kernels;
  j["launches"] = m.launches;
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
  fmt::print("{} on {}, {} thread{}: {:.1f} GFLOP/s, {:.1f} GB/s\n", session.device().name(),
             session.device().target().cpu, roofline.threads, roofline.threads == 1 ? "" : "s",
             roofline.peak_gflops, roofline.bandwidth_gbps);
  size_t width = 4;
  for (const Measured& m : all) width = std::max(width, std::min<size_t>(m.name.size(), 40));
  fmt::print("{:{}}  {:>11} {:>11} {:>8} {:>10} {:>9} {:>7} {:>8} {:>11}\n", "name", width,
             "median", "min", "runs", "GFLOP/s", "GB/s", "floor", "kernels", "first");
  for (const Measured& m : all) {
    const std::string name = m.name.size() > width ? m.name.substr(0, width - 3) + "..." : m.name;
    fmt::print("{:{}}  {:>11} {:>11} {:>8} {:>10.2f} {:>9.2f} {:>6.1f}% {:>8} {:>11}\n", name,
               width, time_text(m.timing.median), time_text(m.timing.min), m.timing.count,
               m.gflops(), m.gbps(), m.percent(), m.kernels, time_text(m.first_seconds));
  }
}

void print_list() {
  for (const Workload& row : workloads()) fmt::print("{:28} {}\n", row.name, row.expression);
  fmt::print("not built yet: {}\n", fmt::join(steps(), " "));
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
