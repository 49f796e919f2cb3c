// The rows of tiles, asked for some products ahead: panels of columns that pass through the cache,
// the more where their rows fall into few of its sets, push them out between two tiles that read
// them.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "ir/loop_steps.h"
#include "ir/prefetch.h"

namespace lazuli {
namespace {

constexpr int64_t kLeastSteps = 64;  // of the products: fewer are over before a line comes
constexpr int64_t kProductsPerLine = 16;  // with fewer, to ask costs what it saves
constexpr int64_t kProductsAhead = 800;   // of vectors, two a cycle: what the last cache takes

bool is_product(const Instruction& i) {
  return i.code == Code::Op && i.op == Op::Fma && i.dst.lanes > 1;
}

// The pointers, by id, through which a loop of products loads single elements of tiles that lie
// behind each other in the order in which `tiles`, around it, walks them.
std::map<int, std::vector<const Instruction*>> walked_rows(const Instruction& tiles,
                                                           const Instruction& products) {
  const LoopSteps around(tiles), along(products);
  std::map<int, std::vector<const Instruction*>> loads;
  for (const Instruction& i : products.body) {
    if (i.code != Code::Load || i.dst.lanes > 1 || i.memory == Program::kScratch) continue;
    const int64_t step = along.of(i.args[0]).value_or(0);
    const bool together =
        step > 0 && around.of(i.args[0]) == step * count_of(products).value_or(0);
    if (together && i.imm < step) loads[i.args[0].id].push_back(&i);
  }
  return loads;
}

void prefetch_rows(const Instruction& tiles, Instruction& products) {
  const int64_t fmas = std::count_if(products.body.begin(), products.body.end(), is_product);
  if (fmas == 0 || count_of(products).value_or(0) < kLeastSteps) return;
  const int64_t steps = (kProductsAhead + fmas - 1) / fmas;
  const LoopSteps along(products);
  std::vector<Instruction> asked;
  for (const auto& [pointer, loads] : walked_rows(tiles, products)) {
    std::set<int64_t> lines;
    for (const Instruction* i : loads) {
      const int64_t unit = size_of(i->args[0].dtype);
      if (!lines.insert(i->imm * unit / kCacheLine).second) continue;
      const int64_t ahead = steps * *along.of(i->args[0]);
      asked.push_back({.code = Code::Prefetch, .imm = i->imm + ahead, .memory = i->memory});
      asked.back().args = {i->args[0]};
    }
  }
  if (static_cast<int64_t>(asked.size()) * kProductsPerLine > fmas) return;
  for (Instruction& ask : asked) {
    const auto pointer =
        std::find_if(products.body.begin(), products.body.end(),
                     [&](const Instruction& i) { return i.dst.id == ask.args[0].id; });
    if (pointer != products.body.end()) products.body.insert(pointer + 1, std::move(ask));
  }
}

void visit_block(std::vector<Instruction>& block) {
  for (Instruction& tiles : block) {
    visit_block(tiles.body);
    if (tiles.code != Code::Loop) continue;
    for (Instruction& i : tiles.body) {
      if (i.code == Code::Loop && is_innermost(i)) prefetch_rows(tiles, i);
    }
  }
}

}  // namespace

void prefetch_next_tiles(Program& program, const Target& target) {
  if (!target.far_l3) return;
  int64_t bytes = program.shared_bytes;
  for (const MemoryArgument& m : program.arguments) bytes += m.size * size_of(m.dtype);
  if (bytes <= target.l2) return;
  for (Phase& phase : program.phases) {
    visit_block(phase.body);
    visit_block(phase.tail);
  }
}

}  // namespace lazuli
