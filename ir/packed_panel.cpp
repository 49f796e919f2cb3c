#include "ir/packed_panel.h"

#include <unordered_map>
#include <utility>

#include "ir/loop_steps.h"

namespace lazuli {
namespace {

constexpr int64_t kLeastPackedRows = 64;  // of a panel

}  // namespace

const Phi* phi_of(const Instruction& loop, const Operand& x) {
  for (const Phi& p : loop.phis) {
    if (x.kind == Operand::Kind::Value && p.dst.id == x.id) return &p;
  }
  return nullptr;
}

std::optional<PackedPanel> packed_panel(const Instruction& loop) {
  const auto rows = count_of(loop);
  if (!rows || *rows < kLeastPackedRows) return {};
  const LoopSteps along(loop);
  PackedPanel p;
  p.rows = *rows;
  const Instruction *source = nullptr, *target = nullptr;
  std::unordered_map<int, int64_t> loaded;  // value -> place in a row of the argument
  for (const Instruction& i : loop.body) {
    const bool plain = i.mask == 0 && !i.flag;
    if (i.code == Code::Pointer) {
      const Instruction*& seen = i.memory >= 0 ? source : target;
      const Phi* const phi = phi_of(loop, i.args[0]);
      const auto step = along.of(i.args[0]);
      const bool fits = !seen && phi && step && (i.memory >= 0 || i.memory == Program::kScratch);
      if (!fits) return {};
      seen = &i;
      if (i.memory >= 0) {
        p.memory = i.memory;
        p.dtype = i.dst.dtype;
        p.from = phi->init;
        p.row = *step;
      } else {
        const auto to = constant_of(phi->init);
        if (!to) return {};
        p.to = *to;
        p.width = *step;
      }
    } else if (i.code == Code::Load) {
      if (!plain || i.args.size() > 1 || !source || i.args[0].id != source->dst.id) return {};
      loaded[i.dst.id] = i.imm;
      p.lanes = i.dst.lanes;
    } else if (i.code == Code::Store) {
      const auto it = loaded.find(i.args[1].id);
      const bool fits = plain && i.args.size() == 2 && target && it != loaded.end() &&
                        i.args[0].id == target->dst.id && i.args[1].lanes == p.lanes &&
                        i.args[1].dtype == p.dtype && target->dst.dtype == p.dtype;
      if (!fits || !p.vectors.emplace(i.imm, it->second).second) return {};
    } else if (i.code != Code::Op || i.dst.lanes > 1 || i.dst.dtype != DType::I64) {
      return {};
    }
  }
  if (!source || !target || p.lanes == 1 || p.vectors.empty()) return {};
  // Where the panel begins is a part of what the stores say.
  const int64_t first = p.vectors.begin()->first;
  std::map<int64_t, int64_t> vectors;
  for (const auto& [to, from] : p.vectors) vectors[to - first] = from;
  p.vectors = std::move(vectors);
  p.to += first;
  const int64_t stored = static_cast<int64_t>(p.vectors.size()) * p.lanes;
  const bool whole = stored == p.width && p.vectors.rbegin()->first + p.lanes == p.width;
  return whole ? std::optional<PackedPanel>(p) : std::nullopt;
}

}  // namespace lazuli
