#include "runtime/cpu/winners.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lazuli {
namespace {

constexpr std::string_view kHeader = "lazuli: schedules found by measuring, form 1";

std::string checksum(std::string_view text) {
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(by);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Key, both times in nanoseconds, how many were tried, choices, checksum; a tab between.
std::string line_of(uint64_t high, uint64_t low, const Winner& w) {
  std::string choices;
  for (const auto& [what, taken] : w.settled) {
    choices += fmt::format("{}{}={}", choices.empty() ? "" : ";", what, taken);
  }
  const std::string text = fmt::format("{:016x}{:016x}\t{:.0f}\t{:.0f}\t{}\t{}", high, low,
                                       w.model_seconds * 1e9, w.seconds * 1e9, w.tried, choices);
  return text + "\t" + checksum(text);
}

template <typename T>
bool parse(std::string_view text, T& value, int base = 10) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return problem == std::errc() && end == text.data() + text.size();
}

bool parse_line(const std::string& line, uint64_t& high, uint64_t& low, Winner& w) {
  const size_t last = line.rfind('\t');
  if (last == std::string::npos || checksum(line.substr(0, last)) != line.substr(last + 1))
    return false;
  const std::vector<std::string> parts = split(std::string_view(line).substr(0, last), '\t');
  int64_t model = 0, found = 0;
  if (parts.size() != 5 || parts[0].size() != 32 || !parse(parts[0].substr(0, 16), high, 16) ||
      !parse(parts[0].substr(16), low, 16) || !parse(parts[1], model) || !parse(parts[2], found) ||
      !parse(parts[3], w.tried))
    return false;
  w.model_seconds = static_cast<double>(model) * 1e-9;
  w.seconds = static_cast<double>(found) * 1e-9;
  if (parts[4].empty()) return true;
  for (const std::string& choice : split(parts[4], ';')) {
    const size_t equals = choice.find('=');
    if (equals == std::string::npos) return false;
    w.settled[choice.substr(0, equals)] = choice.substr(equals + 1);
  }
  return true;
}

}  // namespace

Winners::Winners(const std::string& folder) : folder_(folder) {
  read();
}

std::optional<Winner> Winners::find(const Hash128& key) const {
  std::lock_guard lock(mutex_);
  const auto it = winners_.find({key.high, key.low});
  return it == winners_.end() ? std::nullopt : std::optional(it->second);
}

void Winners::keep(const Hash128& key, Winner winner) {
  std::lock_guard lock(mutex_);
  read();
  winners_[{key.high, key.low}] = std::move(winner);
  write();
}

void Winners::read() {
  if (folder_.empty()) return;
  std::ifstream file(folder_ + "/tuned");
  std::string line;
  if (!std::getline(file, line) || line != kHeader) return;
  while (std::getline(file, line)) {
    Key key;
    Winner w;
    if (parse_line(line, key.first, key.second, w)) winners_.try_emplace(key, std::move(w));
  }
}

// Under a name of its own first: a reader sees the old file or the new one.
void Winners::write() const {
  if (folder_.empty()) return;
  std::error_code problem;
  std::filesystem::create_directories(folder_, problem);
  const std::string path = folder_ + "/tuned",
                    fresh = fmt::format("{}.{}.{}", path, getpid(), fmt::ptr(this));
  {
    std::ofstream file(fresh);
    file << kHeader << "\n";
    for (const auto& [key, w] : winners_) file << line_of(key.first, key.second, w) << "\n";
    if (!file.flush()) {
      file.close();
      std::filesystem::remove(fresh, problem);
      return;
    }
  }
  std::filesystem::rename(fresh, path, problem);
  if (problem) std::filesystem::remove(fresh, problem);
}

}  // namespace lazuli
