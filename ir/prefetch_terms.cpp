// Terms of a sum that lie far apart, asked for before their turn.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/loop_steps.h"
#include "ir/prefetch.h"

namespace lazuli {
namespace {

constexpr int64_t kLeastTerms = 64;  // of a sum that is worth it
// Multiply-adds of vectors that a miss takes: of the last cache where that is far, else of memory.
constexpr int64_t kProductsOfFarCache = 800, kProductsOfMemory = 400;
constexpr int64_t kLinesAhead = 128;  // where that is not the far cache

using Line = std::pair<int, int64_t>;  // a pointer, and the line from there

std::optional<Line> line_of(const Instruction& load) {
  if (load.code != Code::Load || load.memory < 0) return std::nullopt;
  return Line{load.args[0].id, load.imm * size_of(load.args[0].dtype) / kCacheLine};
}

int64_t iterations_ahead(const Target& target, int64_t products, int64_t lines, int64_t count) {
  if (target.far_l3) return (kProductsOfFarCache + products - 1) / products;
  const int64_t few = std::max<int64_t>(std::min(kLinesAhead / lines, count / 8), 1);
  return products == 0 ? few : std::min(few, (kProductsOfMemory + products - 1) / products);
}

// Each line of a large argument that an iteration of the loop reads, and the next does not. Lines
// that follow each other from one iteration to the next are foreseen by the machine.
void prefetch_in(const Program& program, const Target& target, Instruction& loop) {
  const std::optional<int64_t> count = count_of(loop);
  const int64_t products = products_in(loop);
  if (!count || *count < kLeastTerms || (target.far_l3 && products == 0)) return;
  // Products hide a miss of L2 alone.
  const int64_t near = target.far_l3 ? target.l2 / 4 : products > 0 ? 4 * target.l2 : target.l2;
  const LoopSteps along(loop);
  std::set<int> known;              // memories of which other rules know better what to ask for
  std::map<int, int64_t> together;  // lines by pointer
  std::set<Line> all;
  for (const Instruction& i : loop.body) {
    if (i.code == Code::Prefetch) known.insert(i.memory);
    const std::optional<Line> line = line_of(i);
    if (line && all.insert(*line).second) together[line->first]++;
  }
  std::vector<std::pair<size_t, int64_t>> far;  // places in the body, and elements of a step
  for (size_t at = 0; at < loop.body.size(); at++) {
    const Instruction& i = loop.body[at];
    const std::optional<Line> line = line_of(i);
    if (!line || known.count(i.memory) > 0) continue;
    const MemoryArgument& m = program.arguments[static_cast<size_t>(i.memory)];
    const int64_t unit = size_of(i.args[0].dtype), step = along.of(i.args[0]).value_or(0);
    const bool apart =
        step * unit >= 2 * kCacheLine && together[line->first] * kCacheLine < step * unit;
    if (m.output || m.bytes() <= near || !apart || all.erase(*line) == 0) continue;
    far.emplace_back(at, step);
  }
  const auto lines = static_cast<int64_t>(far.size());
  const int64_t ahead = far.empty() ? 0 : iterations_ahead(target, products, lines, *count);
  for (auto it = far.rbegin(); it != far.rend(); ++it) {
    const auto [at, step] = *it;
    const Instruction& i = loop.body[at];
    Instruction ask{.code = Code::Prefetch, .imm = i.imm + ahead * step, .memory = i.memory};
    ask.args = {i.args[0]};
    ask.flag = target.l2_prefetch;
    loop.body.insert(loop.body.begin() + static_cast<std::ptrdiff_t>(at), std::move(ask));
  }
}

void prefetch_terms_in(const Program& program, const Target& target,
                       std::vector<Instruction>& block) {
  for (Instruction& i : block) {
    prefetch_terms_in(program, target, i.body);
    if (i.code == Code::Loop) prefetch_in(program, target, i);
  }
}

}  // namespace

void prefetch_far_terms(Program& program, const Target& target) {
  if (!target.far_l3 && !target.l2_prefetch) return;
  for (Phase& phase : program.phases) {
    prefetch_terms_in(program, target, phase.body);
    prefetch_terms_in(program, target, phase.tail);
  }
}

}  // namespace lazuli
