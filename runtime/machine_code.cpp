#include "runtime/machine_code.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lazuli {
namespace {

bool has(std::string_view line, std::string_view part) {
  return line.find(part) != std::string_view::npos;
}

std::string_view trimmed(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
}

std::string_view opcode(std::string_view line) {
  return line.substr(0, line.find_first_of(" \t"));
}

// The numbers of %xmm3, %ymm3 and %zmm3; of v3.4s and q3.
void add_vector_registers(std::string_view line, std::set<int>& used) {
  for (size_t i = 0; i + 1 < line.size(); i++) {
    size_t digits = 0;
    if (line[i] == '%' && line.substr(i + 2, 2) == "mm") {
      digits = i + 4;
    } else if ((line[i] == 'v' || line[i] == 'q') && i > 0 &&
               std::string_view(" \t,{[").find(line[i - 1]) != std::string_view::npos) {
      digits = i + 1;
    }
    if (digits == 0 || digits >= line.size() ||
        !std::isdigit(static_cast<unsigned char>(line[digits])))
      continue;
    used.insert(std::stoi(std::string(line.substr(digits, 2))));
  }
}

// The label that a jump goes to, or an empty one.
std::string_view jump_target(std::string_view line) {
  const std::string_view op = opcode(line);
  if (!op.starts_with('j') && !op.starts_with("b.") && op != "b" && !op.starts_with("cb") &&
      !op.starts_with("tb"))
    return {};
  const size_t label = line.find(".L");
  return label == std::string_view::npos ? std::string_view() : line.substr(label);
}

}  // namespace

MachineCode read_assembly(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (const std::string_view line = trimmed(text.substr(at, end - at)); !line.empty())
      lines.push_back(line);
    at = end + 1;
  }
  struct Loop {
    size_t begin, end;
  };
  std::vector<Loop> loops;
  std::map<std::string_view, size_t> labels;
  for (size_t i = 0; i < lines.size(); i++) {
    if (lines[i].back() == ':') labels[lines[i].substr(0, lines[i].size() - 1)] = i;
    const auto target = labels.find(jump_target(lines[i]));
    if (target != labels.end()) loops.push_back({target->second, i});
  }
  std::vector<bool> inner(lines.size());
  for (const Loop& l : loops) {
    const bool innermost = std::none_of(loops.begin(), loops.end(), [&](const Loop& o) {
      return o.begin > l.begin && o.end < l.end;
    });
    for (size_t i = l.begin; innermost && i <= l.end; i++) inner[i] = true;
  }
  MachineCode code;
  std::set<int> used;
  bool framed =
      false;  // the frame pointer stands for the stack, rather than being one register more
  for (size_t i = 0; i < lines.size(); i++) {
    const std::string_view line = lines[i];
    if (has(line, "@function")) framed = false;
    if (line.front() == '.' || line.back() == ':') continue;
    framed |= line.starts_with("movq\t%rsp, %rbp");
    add_vector_registers(line, used);
    const std::string_view op = opcode(line);
    const bool address = op.starts_with("lea") || op == "stp" || op == "ldp";  // of registers saved
    if (!address && (has(line, "(%rsp") || (framed && has(line, "(%rbp")) || has(line, "[sp"))) {
      code.stack_accesses++;
      code.inner_stack_accesses += inner[i];
    }
    code.inner_calls += inner[i] && (op.starts_with("call") || op == "bl" || op == "blr");
    code.prefetches += op.starts_with("prefetch") || op == "prfm" || op == "prfum";
  }
  code.vector_registers = static_cast<int>(used.size());
  return code;
}

}  // namespace lazuli
