// The rows of tiles, asked for some products or a tile ahead: panels of columns that pass through
// the cache, the more where their rows fall into few of its sets, push them out between two tiles
// that read them.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "ir/loop_steps.h"
#include "ir/prefetch.h"
#include "ir/program_writer.h"

namespace lazuli {
namespace {

constexpr int64_t kLeastSteps = 64;       // of the products: fewer are over before a line comes
constexpr int64_t kProductsPerRow = 4;    // where each step asks, though few come to another line
constexpr int64_t kLeastTiles = 4;        // the last has no next one
constexpr int64_t kShortRow = 2048;       // bytes
constexpr int64_t kLongestRow = 4096;     // bytes; the machine foresees what crosses a page
constexpr int64_t kProductsAhead = 800;   // of vectors, two a cycle: what the last cache takes

// Of loads of single elements, the first of those in each row, which a loop walks `step` at a time.
std::vector<const Instruction*> first_of_rows(const std::vector<const Instruction*>& loads,
                                              int64_t step) {
  std::vector<const Instruction*> first;
  for (const Instruction* i : loads) {
    const bool later = std::any_of(loads.begin(), loads.end(), [&](const Instruction* other) {
      return other->imm < i->imm && i->imm - other->imm < step;
    });
    if (!later) first.push_back(i);
  }
  return first;
}

// The lines of tiles' rows that a loop of products asks for in each step.
class TileRows {
 public:
  TileRows(Program& program, const Target& target, const Instruction& tiles,
           const Instruction& products)
      : program_(program),
        target_(target),
        products_(products),
        around_(tiles),
        along_(products),
        steps_(count_of(products).value_or(0)),
        fmas_(products_in(products)) {
    std::map<int, std::vector<const Instruction*>> loads;  // by pointer
    for (const Instruction& i : products.body) {
      if (i.code != Code::Load || i.dst.lanes > 1 || i.memory == Program::kScratch) continue;
      if (along_.of(i.args[0]).value_or(0) > 0) loads[i.args[0].id].push_back(&i);
    }
    for (const auto& [pointer, list] : loads) {
      const int64_t step = *along_.of(list[0]->args[0]);
      if (around_.of(list[0]->args[0]) == step * steps_) {
        ask_some_ahead(list, step);
      } else if (list[0]->memory >= 0 && count_of(tiles).value_or(kLeastTiles) >= kLeastTiles) {
        ask_a_tile_ahead(list, step);
      }
    }
  }

  const std::vector<Instruction>& asked() const { return asked_; }
  // Code that asks along stretches, and what it carries from step to step.
  const std::vector<Instruction>& code() const { return code_; }
  const std::vector<Phi>& phis() const { return phis_; }

 private:
  // Tiles that lie behind each other, as packed ones do: where the last cache is far.
  void ask_some_ahead(const std::vector<const Instruction*>& loads, int64_t step) {
    if (!target_.far_l3 || fmas_ == 0 || steps_ < kLeastSteps) return;
    const int64_t ahead = (kProductsAhead + fmas_ - 1) / fmas_ * step;
    std::set<int64_t> lines;
    std::vector<const Instruction*> asked;
    for (const Instruction* i : loads) {
      const bool line = i->imm < step && lines.insert(line_of(*i)).second;
      if (line) asked.push_back(i);
    }
    if (static_cast<int64_t>(asked.size()) * kProductsPerLine <= fmas_) ask(asked, ahead);
  }

  // Rows as they lie, each of a few lines that the machine does not foresee.
  void ask_a_tile_ahead(const std::vector<const Instruction*>& loads, int64_t step) {
    const int64_t tile = around_.of(loads[0]->args[0]).value_or(0);
    const MemoryArgument& m = program_.arguments[static_cast<size_t>(loads[0]->memory)];
    const int64_t unit = size_of(loads[0]->args[0].dtype);
    if (tile <= 0 || m.output || m.bytes() <= target_.l1) return;
    const int64_t row = step * steps_;
    const std::vector<const Instruction*> rows = first_of_rows(loads, step);
    const auto count = static_cast<int64_t>(rows.size());
    if (row * unit > kLongestRow || count * kProductsPerRow > fmas_) return;
    if (row * unit > kShortRow && crowds_sets(tile * unit / count, count)) return;
    bool together = count > 1 && tile == count * row;
    for (int64_t r = 0; r < count; r++)
      together &= rows[static_cast<size_t>(r)]->imm == rows[0]->imm + r * row;
    if (!together || !ask_a_stretch(*rows[0], tile)) ask(rows, tile);
  }

  // Whether rows that lie so many bytes apart, of two tiles, leave a set of L1 too few lines.
  bool crowds_sets(int64_t apart, int64_t count) const {
    const int64_t way = target_.l1 / target_.l1_ways, sets = way / std::gcd(way, apart);
    return 2 * ((count + sets - 1) / sets) > target_.l1_ways * 3 / 4;
  }

  // The next tile's rows lie behind each other: in each step the next part of all of them.
  bool ask_a_stretch(const Instruction& first, int64_t tile) {
    const auto pointer =
        std::find_if(products_.body.begin(), products_.body.end(),
                     [&](const Instruction& i) { return i.dst.id == first.args[0].id; });
    if (pointer == products_.body.end() || pointer->code != Code::Pointer) return false;
    const auto phi = std::find_if(products_.phis.begin(), products_.phis.end(),
                                  [&](const Phi& p) { return p.dst.id == pointer->args[0].id; });
    if (phi == products_.phis.end()) return false;
    const int64_t part = tile / steps_, line = kCacheLine / size_of(first.args[0].dtype);
    ProgramWriter step(program_, products_.dst.level);
    const Operand element = step.fresh(DType::I64);
    const Operand next = step.op(Op::Add, {element, step.number(part)});
    const Operand at = step.pointer(first.memory, first.args[0].dtype, element, true);
    for (int64_t n = 0; n < part; n += line) step.prefetch(first.memory, at, first.imm + tile + n);
    phis_.push_back({element, phi->init, next});
    for (Instruction& i : step.take()) code_.push_back(std::move(i));
    return true;
  }

  static int64_t line_of(const Instruction& load) {
    return load.imm * size_of(load.args[0].dtype) / kCacheLine;
  }

  void ask(const std::vector<const Instruction*>& loads, int64_t ahead) {
    for (const Instruction* i : loads) {
      asked_.push_back({.code = Code::Prefetch, .imm = i->imm + ahead, .memory = i->memory});
      asked_.back().args = {i->args[0]};
    }
  }

  Program& program_;
  const Target& target_;
  const Instruction& products_;
  const LoopSteps around_, along_;
  const int64_t steps_, fmas_;
  std::vector<Instruction> asked_, code_;
  std::vector<Phi> phis_;
};

void prefetch_tiles_in(Program& program, const Target& target, std::vector<Instruction>& block) {
  for (Instruction& tiles : block) {
    prefetch_tiles_in(program, target, tiles.body);
    if (tiles.code != Code::Loop) continue;
    for (Instruction& products : tiles.body) {
      if (products.code != Code::Loop || !is_innermost(products) || products_in(products) == 0)
        continue;
      const TileRows rows(program, target, tiles, products);
      for (const Instruction& ask : rows.asked()) {
        const auto pointer =
            std::find_if(products.body.begin(), products.body.end(),
                         [&](const Instruction& i) { return i.dst.id == ask.args[0].id; });
        if (pointer != products.body.end()) products.body.insert(pointer + 1, ask);
      }
      products.body.insert(products.body.begin(), rows.code().begin(), rows.code().end());
      products.phis.insert(products.phis.end(), rows.phis().begin(), rows.phis().end());
    }
  }
}

}  // namespace

void prefetch_next_tiles(Program& program, const Target& target) {
  int64_t bytes = program.shared_bytes;
  for (const MemoryArgument& m : program.arguments) bytes += m.bytes();
  if (bytes <= target.l2) return;
  for (Phase& phase : program.phases) {
    prefetch_tiles_in(program, target, phase.body);
    prefetch_tiles_in(program, target, phase.tail);
  }
}

}  // namespace lazuli
