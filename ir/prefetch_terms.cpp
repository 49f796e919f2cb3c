// Terms of a sum that lie far apart, asked for before their turn.
#include <algorithm>
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

// Each line of a large argument that an iteration of the loop reads, and the next does not.
void prefetch_in(const Program& program, const Target& target, Instruction& loop) {
  const std::optional<int64_t> count = count_of(loop);
  const int64_t products = products_of(loop);
  if (!count || *count < kLeastTerms || products == 0) return;
  const int64_t ahead = (kProductsAhead + products - 1) / products;
  const LoopSteps along(loop);
  std::set<std::pair<int, int64_t>> lines;  // pointer, and line
  for (size_t at = 0; at < loop.body.size(); at++) {
    const Instruction& i = loop.body[at];
    if (i.code != Code::Load || i.memory < 0) continue;
    const MemoryArgument& m = program.arguments[static_cast<size_t>(i.memory)];
    const int64_t unit = size_of(m.dtype), step = along.of(i.args[0]).value_or(0);
    const bool far = !m.output && m.size * unit > target.l2 / 4 && step * unit >= 2 * kCacheLine;
    if (!far || !lines.insert({i.args[0].id, i.imm * unit / kCacheLine}).second) continue;
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
