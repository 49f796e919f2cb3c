#include "tools/cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>

#include "core/error.h"
#include "tools/cli/draw.h"
#include "tools/cli/steps.h"

namespace lazuli::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.3f} us", seconds * 1e6);
}

double spread(const Timing& t) {
  return t.median > 0 ? (t.high - t.low) / t.median : 0;
}

Comparison compare_rows(const OldRow& old, const Measured& row, const Roofline& roofline) {
  const bool by_memory = row.bytes / (roofline.bandwidth_gbps * 1e9) >= row.floor_seconds;
  const double now = by_memory ? row.around.bandwidth_gbps : row.around.peak_gflops;
  const double then = by_memory ? old.bandwidth_gbps : old.peak_gflops;
  Comparison c;
  c.ratio = old.timing.median / row.timing.median;
  c.noise = spread(old.timing) + spread(row.timing) + std::fabs(std::log(now / then));
  c.noise = std::max(c.noise, 0.02);
  c.runs = std::min(old.timing.count, row.timing.count);
  return c;
}

OldRow old_row(const Json& row) {
  const Json &time = row.at("seconds"), &limit = row.at("around");
  OldRow old;
  old.name = row.at("name");
  old.timing.low = time.at("low");
  old.timing.median = time.at("median");
  old.timing.high = time.at("high");
  old.timing.count = time.at("count");
  old.bandwidth_gbps = limit.at("bandwidth_gbps");
  old.peak_gflops = limit.at("peak_gflops");
  return old;
}

Json timing_json(const Timing& t) {
  return {
      {"min", t.min}, {"low", t.low}, {"median", t.median}, {"high", t.high}, {"count", t.count}};
}

bool can_be_measured(const OldRow& row) {
  const Timing& t = row.timing;
  return 0 < t.low && t.low <= t.median && t.median <= t.high && t.count > 0 &&
         row.bandwidth_gbps > 0 && row.peak_gflops > 0;
}

}  // namespace

std::vector<OldRow> read_run(const std::string& path, Session& session,
                             std::span<const std::string> names) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');  // a folder opens as a file does, and is bad when it is read
  require(file.is_open() && !file.bad(),
          "--compare: the file '{}' cannot be read; `lazuli bench --json FILE` writes one", path);
  const auto refuse = [&] {
    user_error(
        "--compare: '{}' is not what this version's `lazuli bench --json` writes; measure it again",
        path);
  };
  std::vector<OldRow> rows;
  try {
    const Json parsed = Json::parse(text);
    const auto& device = session.device();
    for (const Json& row : parsed.is_array() ? parsed : Json::array({parsed})) {
      const std::string name = row.at("device"), cpu = row.at("cpu");
      const int threads = row.at("threads");
      rows.push_back(old_row(row));
      if (!can_be_measured(rows.back())) refuse();
      if (name == device.name() && cpu == device.target().cpu &&
          threads == session.runtime().config.threads)
        continue;
      user_error(
          "--compare: '{}' was measured on {} ({}, threads: {}), this run is on {} ({}, threads: "
          "{}); "
          "measure both alike",
          path, name, cpu, threads, device.name(), device.target().cpu,
          session.runtime().config.threads);
    }
  } catch (const Json::exception&) {
    refuse();
  }
  if (rows.empty()) refuse();
  const bool meets = std::any_of(rows.begin(), rows.end(), [&](const OldRow& row) {
    return std::find(names.begin(), names.end(), row.name) != names.end();
  });
  require(meets,
          "--compare: '{}' has no row that is measured now: its first is {}, the first here {}; "
          "measure a row that it has",
          path, rows[0].name, names[0]);
  return rows;
}

void compare_with(std::span<const OldRow> old, std::vector<Measured>& rows,
                  const Roofline& roofline) {
  for (Measured& row : rows) {
    for (const OldRow& then : old) {
      if (then.name == row.name) row.before = compare_rows(then, row, roofline);
    }
  }
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
  j["compiled"] = m.whole ? Json() : Json(m.compiled);
  j["seconds"] = timing_json(m.timing);
  if (m.beside) {
    j["beside"] = {{"seconds", timing_json(*m.beside)}, {"percent", m.beside_percent()}};
  }
  j["flops"] = m.flops;
  j["bytes"] = m.bytes;
  j["gflops"] = m.gflops();
  j["gbps"] = m.gbps();
  j["roofline"] = {{"peak_gflops", roofline.peak_gflops},
                   {"fed_gflops", roofline.fed_gflops},
                   {"bandwidth_gbps", roofline.bandwidth_gbps},
                   {"floor_seconds", m.floor_seconds},
                   {"function_seconds", m.function_seconds},
                   {"percent", m.percent()}};
  j["around"] = {{"peak_gflops", m.around.peak_gflops},
                 {"bandwidth_gbps", m.around.bandwidth_gbps}};
  if (m.before) {
    j["before"] = {
        {"ratio", m.before->ratio}, {"noise", m.before->noise}, {"verdict", m.before->verdict()}};
  }
  j["sum"] = m.sum;
  j["sum_abs"] = m.sum_abs;
  j["lazuli"] = LAZULI_VERSION;
  j["cpu"] = session.device().target().cpu;
  j["when"] = now_text();
  return j;
}

namespace {

std::string comparison_text(const Measured& row) {
  if (!row.before) return "not measured before";
  const Comparison& c = *row.before;
  return fmt::format("{:.2f} times as fast as before{}: {}", c.ratio,
                     c.runs >= kFewestRuns ? fmt::format(", within {:.0f} %", 100 * c.noise) : "",
                     c.verdict());
}

}  // namespace

void print_table(std::span<const Measured> rows, Session& session, const Roofline& roofline) {
  fmt::print("{}\n", roofline_text(roofline, session.device()));
  // A longer name has a line of its own.
  constexpr size_t kLongest = 40;
  size_t width = 4;
  for (const Measured& m : rows) {
    if (m.name.size() <= kLongest) width = std::max(width, m.name.size());
  }
  fmt::print("{:{}}  {:>11} {:>7} {:>8} {:>10} {:>9} {:>7} {:>8} {:>11}\n", "name", width, "median",
             "spread", "runs", "GFLOP/s", "GB/s", "floor", "kernels", "first");
  std::vector<double> compiles;  // of a kernel, the mean of a row
  int64_t loaded = 0;
  const bool compared =
      std::any_of(rows.begin(), rows.end(), [](const Measured& m) { return m.before.has_value(); });
  for (const Measured& m : rows) {
    const bool apart = m.name.size() > width;
    if (apart) fmt::print("{}\n", m.name);
    const std::string_view name = apart ? std::string_view() : m.name;
    fmt::print("{:{}}  {:>11} {:>6.1f}% {:>8} {:>10} {:>9.2f} {:>6.1f}% {:>8} {:>11}", name, width,
               time_text(m.timing.median), 100 * spread(m.timing), m.timing.count,
               std::isnan(m.flops) ? "-" : fmt::format("{:.2f}", m.gflops()), m.gbps(), m.percent(),
               m.whole ? "-" : fmt::format("{}", m.kernels), time_text(m.first_seconds));
    fmt::print("{}{}\n", compared ? "  " : "", compared ? comparison_text(m) : "");
    loaded += m.loaded;
    if (m.compiled > 0 && m.loaded == 0)
      compiles.push_back(m.compile_seconds / static_cast<double>(m.compiled));
  }
  for (const Measured& m : rows) {
    if (m.beside) {
      fmt::print("{}: {:.1f} % of the speed of a capture for its size alone, {}\n", m.name,
                 m.beside_percent(), time_text(m.beside->median));
    } else if (const Step* const step = find_step(m.name)) {
      fmt::print("{}: timed as a whole, {}", m.name, step->how);
      if (step->parts > 0)
        fmt::print("; {:.1f} ns a {}", m.timing.median / step->parts * 1e9, step->part);
      fmt::print("\n");
    } else if (m.whole) {
      fmt::print(
          "{}: values are asked for on the way; timed as a whole, with the making of its graphs\n",
          m.name);
    } else if (m.launches == 0) {
      fmt::print("{}: nothing is computed\n", m.name);
    } else if (m.percent() > 100) {
      fmt::print("{}: {}\n", m.name, kAboveFloor);
    } else if (m.function_seconds > m.floor_seconds) {
      fmt::print("{}: bound by functions: {:.0f} % of what they take alone, in cache\n", m.name,
                 m.function_percent());
    }
  }
  if (compiles.size() > 1) {
    std::sort(compiles.begin(), compiles.end());
    fmt::print("compiled in {} a kernel, lowering included (median; at most {})\n",
               time_text(compiles[compiles.size() / 2]), time_text(compiles.back()));
  }
  if (loaded > 0) {
    fmt::print("{} kernel{} came from the disk cache; --cold compiles all\n", loaded,
               loaded > 1 ? "s" : "");
  }
}

std::string draw_roofline(std::span<const Measured> rows, const Roofline& roofline) {
  constexpr double kWidth = 900, kHeight = 560, kLeft = 70, kBottom = 50, kTop = 30;
  // Decades shown: of operations per byte, and of GFLOP/s.
  double x0 = -1, x1 = 2, y1 = std::ceil(std::log10(roofline.peak_gflops)), y0 = y1 - 3;
  std::vector<const Measured*> shown;  // a row without operations has no place here
  for (const Measured& m : rows) {
    if (!(m.flops > 0 && m.bytes > 0)) continue;
    shown.push_back(&m);
    x0 = std::min(x0, std::floor(std::log10(m.flops / m.bytes)));
    x1 = std::max(x1, std::ceil(std::log10(m.flops / m.bytes)));
    y0 = std::min(y0, std::floor(std::log10(m.gflops())));
  }
  const auto x = [&](double intensity) {
    return kLeft + (std::log10(intensity) - x0) / (x1 - x0) * (kWidth - kLeft - 20);
  };
  const auto y = [&](double gflops) {
    return kHeight - kBottom - (std::log10(gflops) - y0) / (y1 - y0) * (kHeight - kBottom - kTop);
  };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  const auto line = [&](double xa, double ya, double xb, double yb, const char* style) {
    out += fmt::format("<path d=\"M{:.1f} {:.1f} L{:.1f} {:.1f}\" fill=\"none\" {}/>\n", xa, ya, xb,
                       yb, style);
  };
  const auto text = [&](double xa, double ya, const char* anchor, const std::string& words) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", xa, ya,
                       anchor, escape(words));
  };
  const char* const grid = "stroke=\"#ddd\"";
  for (double d = x0; d <= x1; d++) {
    const double at = x(std::pow(10, d));
    line(at, kTop, at, kHeight - kBottom, grid);
    text(at, kHeight - kBottom + 16, "middle", fmt::format("{:g}", std::pow(10, d)));
  }
  for (double d = y0; d <= y1; d++) {
    const double at = y(std::pow(10, d));
    line(kLeft, at, kWidth - 20, at, grid);
    text(kLeft - 6, at + 4, "end", fmt::format("{:g}", std::pow(10, d)));
  }
  text(kWidth / 2, kHeight - 12, "middle", "operations per byte");
  text(kLeft, kTop - 12, "start",
       fmt::format("GFLOP/s; the limits are {:.1f} GFLOP/s and {:.1f} GB/s, {} thread{}",
                   roofline.peak_gflops, roofline.bandwidth_gbps, roofline.threads,
                   roofline.threads == 1 ? "" : "s"));
  // From where memory's limit enters the picture, through the ridge, to the right edge.
  const double ridge = roofline.peak_gflops / roofline.bandwidth_gbps;
  const double enter = std::max(std::pow(10, x0), std::pow(10, y0) / roofline.bandwidth_gbps);
  const char* const limit = "stroke=\"#333\" stroke-width=\"2\"";
  line(x(enter), y(enter * roofline.bandwidth_gbps), x(ridge), y(roofline.peak_gflops), limit);
  line(x(ridge), y(roofline.peak_gflops), kWidth - 20, y(roofline.peak_gflops), limit);
  for (const Measured* m : shown) {
    const double at = x(m->flops / m->bytes), height = y(m->gflops());
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#1f4e9e\"><title>", at,
                       height);
    out += fmt::format("{}: {:.1f} GFLOP/s, {:.0f} % of the floor</title></circle>\n",
                       escape(m->name), m->gflops(), m->percent());
    text(at + 6, height + 4, "start", m->name.substr(0, 40));
  }
  return out + "</svg>\n";
}

}  // namespace lazuli::cli
