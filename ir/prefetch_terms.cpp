// Terms of a sum that lie far apart, asked for before their turn.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ir/loop_steps.h"
#include "ir/prefetch.h"

namespace lazuli {
namespace {

constexpr int64_t kLeastTerms = 64;  // of a sum that is worth it
constexpr int64_t kProductsAhead =
    800;  // multiply-adds of vectors, two a cycle: what the last cache takes

int64_t products_of(const Instruction& loop) {
  return std::count_if(loop.body.begin(), loop.body.end(), [](const Instruction& i) {
    return i.code == Code::Op && i.op == Op::Fma && i.dst.lanes > 1;
  });
}

using Line = std::pair<int, int64_t>;  // a pointer, and the line from there

std::optional<Line> line_of(const Program& program, const Instruction& load) {
  if (load.code != Code::Load || load.memory < 0) return std::nullopt;
  const DType t = program.arguments[static_cast<size_t>(load.memory)].dtype;
  return Line{load.args[0].id, load.imm * size_of(t) / kCacheLine};
}

// Each line of a large argument that an iteration of the loop reads, and the next does not. Lines
// that follow each other from one iteration to the next are foreseen by the machine.
void prefetch_in(const Program& program, const Target& target, Instruction& loop) {
  const std::optional<int64_t> count = count_of(loop);
  const int64_t products = products_of(loop);
  if (!count || *count < kLeastTerms || products == 0) return;
  const int64_t ahead = (kProductsAhead + products - 1) / products;
  const LoopSteps along(loop);
  std::set<Line> all, asked;
  std::map<int, int64_t> together;  // lines by pointer
  for (const Instruction& i : loop.body) {
    const std::optional<Line> line = line_of(program, i);
    if (line && all.insert(*line).second) together[line->first]++;
  }
  for (size_t at = 0; at < loop.body.size(); at++) {
    const Instruction& i = loop.body[at];
    const std::optional<Line> line = line_of(program, i);
    if (!line) continue;
    const MemoryArgument& m = program.arguments[static_cast<size_t>(i.memory)];
    const int64_t unit = size_of(m.dtype), step = along.of(i.args[0]).value_or(0);
    const bool far = !m.output && m.size * unit > target.l2 / 4 && step * unit >= 2 * kCacheLine &&
                     together[line->first] * kCacheLine < step * unit;
    if (!far || !asked.insert(*line).second) continue;
    Instruction ask{.code = Code::Prefetch, .imm = i.imm + ahead * step, .memory = i.memory};
    ask.args = {i.args[0]};
    loop.body.insert(loop.body.begin() + static_cast<std::ptrdiff_t>(at++), std::move(ask));
  }
}

void visit_block(const Program& program, const Target& target, std::vector<Instruction>& block) {
  for (Instruction& i : block) {
    visit_block(program, target, i.body);
    if (i.code == Code::Loop) prefetch_in(program, target, i);
  }
}

}  // namespace

void prefetch_far_terms(Program& program, const Target& target) {
  if (!target.far_l3) return;
  for (Phase& phase : program.phases) {
    visit_block(program, target, phase.body);
    visit_block(program, target, phase.tail);
  }
}

}  // namespace lazuli
