#include "tools/notation/source.h"

#include <fmt/format.h>

#include <algorithm>

namespace lazuli::notation {
namespace {

constexpr size_t kWindow = 100;  // columns of a long line that are shown

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

size_t columns(std::string_view s) {
  return static_cast<size_t>(
      std::count_if(s.begin(), s.end(), [](char c) { return !is_continuation(c); }));
}

/// Moves `at` to the start of the code point it is in.
size_t code_point_start(std::string_view s, size_t at) {
  while (at > 0 && at < s.size() && is_continuation(s[at])) --at;
  return at;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Optimal string alignment distance; letters that differ in case only cost nothing.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string show_place(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  const size_t line_number = 1 + static_cast<size_t>(std::count(
                                     text.begin(), text.begin() + static_cast<long>(offset), '\n'));
  const size_t before = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const size_t end = std::min(text.find('\n', offset), text.size());
  std::string_view line = text.substr(begin, end - begin);
  size_t at = offset - begin;

  std::string_view left, right;
  if (line.size() > kWindow) {
    size_t from = at > kWindow / 2 ? code_point_start(line, at - kWindow / 2) : 0;
    from = std::min(from, code_point_start(line, line.size() - kWindow));
    const size_t to = code_point_start(line, std::min(line.size(), from + kWindow));
    left = from > 0 ? "..." : "";
    right = to < line.size() ? "..." : "";
    line = line.substr(from, to - from);
    at -= from;
  }
  std::string shown(line);
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  const std::string head = fmt::format("  line {}: {}", line_number, left);
  const size_t indent = head.size() + columns(line.substr(0, at));
  return fmt::format("\n{}{}{}\n{}^", head, shown, right, std::string(indent, ' '));
}

void fail_at(std::string_view text, size_t offset, const std::string& message) {
  throw PlacedError(message + show_place(text, offset));
}

std::string nearest(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > 64) return "";
  size_t best = word.size() <= 2 ? 2 : std::max<size_t>(2, word.size() / 3 + 1);
  std::string_view found;
  for (const std::string_view candidate : known) {
    const size_t gap =
        std::max(word.size(), candidate.size()) - std::min(word.size(), candidate.size());
    if (gap >= best) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < best && distance < candidate.size()) {
      best = distance;
      found = candidate;
    }
  }
  return std::string(found);
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  const std::string found = nearest(word, known);
  return found.empty() ? "" : fmt::format("; did you mean '{}'?", found);
}

}  // namespace lazuli::notation
