#include "runtime/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>

#include "core/error.h"
#include "runtime/host.h"

namespace lazuli {
namespace {

constexpr std::string_view kPrefix = "LAZULI_";

template <typename T>
std::optional<T> parse_number(std::string_view text, T lowest, T highest) {
  T value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = problem == std::errc() && end == text.data() + text.size();
  return is_whole && value >= lowest && value <= highest ? std::optional(value) : std::nullopt;
}

std::optional<bool> parse_switch(std::string_view text) {
  if (text == "1" || text == "on" || text == "true") return true;
  if (text == "0" || text == "off" || text == "false") return false;
  return std::nullopt;
}

// "512M": a number and a unit of 1024 bytes to some power.
std::optional<uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  int shift = 0;
  if (const size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
      unit != std::string_view::npos) {
    shift = 10 * (int(unit) + 1);
    text.remove_suffix(1);
  }
  const uint64_t highest = std::numeric_limits<uint64_t>::max() >> shift;
  const auto count = parse_number<uint64_t>(text, 1, highest);
  return count ? std::optional(*count << shift) : std::nullopt;
}

bool is_device(std::string_view text) {
  if (text == "cpu" || text == "reference" || text == "opencl") return true;
  constexpr std::string_view kNumbered = "opencl:";
  return text.starts_with(kNumbered) &&
         parse_number<int>(text.substr(kNumbered.size()), 0, 1023).has_value();
}

template <typename F, typename T>
bool set(F& field, const std::optional<T>& value) {
  if (value) field = *value;
  return value.has_value();
}

// Everything about a variable. `parse` changes the config, or returns false if the value makes no
// sense; the error is then `NAME: 'value' <complaint>; <values>`.
struct ConfigRow {
  ConfigVariable variable;
  std::string_view complaint;
  bool (*parse)(Config& config, std::string_view value);
};

constexpr ConfigRow kRows[] = {
    {{"LAZULI_DEBUG",
      "what to tell on standard error of each new graph: 1 kernels, 2 fusion, 3 schedules and "
      "programs, 4 sources",
      "give an integer from 0 to 4", "0"},
     "is no debug level",
     [](Config& c, std::string_view v) { return set(c.debug, parse_number<int>(v, 0, 4)); }},
    {{"LAZULI_DEVICE", "where tensors are computed", "give cpu, reference, opencl or opencl:N",
      LAZULI_DEFAULT_DEVICE},
     "is no device",
     [](Config& c, std::string_view v) {
       if (is_device(v)) c.device = v;
       return is_device(v);
     }},
    {{"LAZULI_CACHE", "where compiled kernels and plans are kept",
      "give a folder's absolute path, or off", "the folder lazuli in $XDG_CACHE_HOME or ~/.cache"},
     "is no place for a cache",
     [](Config& c, std::string_view v) {
       if (!v.starts_with('/') && v != "off") return false;
       c.cache_folder = v == "off" ? "" : v;
       return true;
     }},
    {{"LAZULI_TUNE", "measure schedules instead of only modelling them", "give on or off", "off"},
     "is neither on nor off",
     [](Config& c, std::string_view v) { return set(c.tune, parse_switch(v)); }},
    {{"LAZULI_THREADS", "how many threads compute", "give an integer from 1 to 1024",
      "the cores that the process may use"},
     "is no number of threads",
     [](Config& c, std::string_view v) { return set(c.threads, parse_number<int>(v, 1, 1024)); }},
    {{"LAZULI_MEMORY", "the most memory for values",
      "give a number of bytes above 0, such as 500000000 or 512M (units K, M, G, T)",
      "what the machine has"},
     "is no amount of memory",
     [](Config& c, std::string_view v) { return set(c.memory, parse_bytes(v)); }},
    {{"LAZULI_PROFILE", "the file that a trace of what ran is written to, in Chrome's format",
      "give a file's name that ends in .json, or off", "off"},
     "is no file for a trace",
     [](Config& c, std::string_view v) {
       if (!v.ends_with(".json") && v != "off") return false;
       c.profile = v == "off" ? "" : v;
       return true;
     }},
    {{"LAZULI_PROGRESS",
      "count kernels in a line on the terminal while those of a large graph compile",
      "give on or off", "on for the command, off for other programs"},
     "is neither on nor off",
     [](Config& c, std::string_view v) { return set(c.progress, parse_switch(v)); }},
};

// The number of single-letter edits from one text to the other.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

[[noreturn]] void unknown_variable(const std::string& name) {
  const ConfigRow* nearest = std::min_element(
      std::begin(kRows), std::end(kRows), [&](const ConfigRow& a, const ConfigRow& b) {
        return edit_distance(name, a.variable.name) < edit_distance(name, b.variable.name);
      });
  if (edit_distance(name, nearest->variable.name) <= 3) {
    user_error("{}: there is no such variable; did you mean {}?", name, nearest->variable.name);
  }
  std::vector<std::string_view> names;
  for (const ConfigRow& row : kRows) names.push_back(row.variable.name);
  user_error("{}: there is no such variable; those there are: {}", name, fmt::join(names, ", "));
}

// Quoted for a message: what cannot be printed is shown by its code.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    result += code < 32 || code == 127 ? fmt::format("\\x{:02x}", code) : std::string(1, c);
  }
  return result + "'";
}

std::string default_cache_folder() {
  const char* folder = std::getenv("XDG_CACHE_HOME");
  if (folder != nullptr && *folder == '/') return std::string(folder) + "/lazuli";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/lazuli" : "";
}

}  // namespace

Config::Config()
    : device(LAZULI_DEFAULT_DEVICE),
      cache_folder(default_cache_folder()),
      threads(std::min(available_cores(), 1024)) {}

Config Config::from_env() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return from_variables(variables);
}

Config Config::from_variables(const std::vector<std::pair<std::string, std::string>>& variables) {
  Config config;
  for (const auto& [name, value] : variables) {
    if (!std::string_view(name).starts_with(kPrefix)) continue;
    const ConfigRow* row =
        std::find_if(std::begin(kRows), std::end(kRows),
                     [&](const ConfigRow& r) { return r.variable.name == name; });
    if (row == std::end(kRows)) unknown_variable(name);
    if (!row->parse(config, value)) {
      user_error("{}: {} {}; {}", name, quoted(value), row->complaint, row->variable.values);
    }
  }
  return config;
}

std::vector<ConfigVariable> config_variables() {
  std::vector<ConfigVariable> variables;
  for (const ConfigRow& row : kRows) variables.push_back(row.variable);
  return variables;
}

}  // namespace lazuli
