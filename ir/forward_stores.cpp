#include "ir/forward_stores.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lazuli {
namespace {

// The operand of a masked access that says which lanes it has; none if the instruction counts them.
const Operand* mask_of(const Instruction& i) {
  const size_t at = i.code == Code::Load ? 1 : 2;
  return i.args.size() > at ? &i.args[at] : nullptr;
}

bool is_masked(const Instruction& i) {
  return i.mask > 0 || mask_of(i) != nullptr;
}

bool is_same(const Operand& a, const Operand& b) {
  return a.kind == b.kind && a.id == b.id && a.bits == b.bits && a.lanes == b.lanes &&
         a.dtype == b.dtype;
}

// Whether the load has the lanes of the store, from where they lie.
bool is_loaded(const Instruction& store, const Instruction& load) {
  const Operand &value = store.args[1], *mask = mask_of(store), *loaded = mask_of(load);
  return store.memory == load.memory && store.imm == load.imm && store.mask == load.mask &&
         is_same(store.args[0], load.args[0]) && value.dtype == load.dst.dtype &&
         value.lanes == load.dst.lanes && (mask != nullptr) == (loaded != nullptr) &&
         (mask == nullptr || is_same(*mask, *loaded));
}

bool may_overlap(const Instruction& a, const Instruction& b) {
  if (a.memory != b.memory) return false;
  if (!is_same(a.args[0], b.args[0]) || a.step != 1 || b.step != 1) return true;
  return a.imm < b.imm + b.args[1].lanes && b.imm < a.imm + a.args[1].lanes;
}

// Whether the instructions may write to what `store` has stored.
bool may_overwrite(const std::vector<Instruction>& body, const Instruction& store) {
  return std::any_of(body.begin(), body.end(), [&](const Instruction& i) {
    return i.code == Code::TileDot || (i.code == Code::Store && i.memory == store.memory) ||
           may_overwrite(i.body, store);
  });
}

// `stored`: masked stores before, of which memory still has all.
void forward_in(std::vector<Instruction>& body, std::vector<Instruction> stored) {
  for (Instruction& i : body) {
    if (i.code == Code::Load && is_masked(i)) {
      const auto store = std::find_if(stored.rbegin(), stored.rend(),
                                      [&](const Instruction& s) { return is_loaded(s, i); });
      if (store == stored.rend()) continue;
      Operand mask{.kind = Operand::Kind::Iota, .dtype = DType::Bool, .lanes = i.dst.lanes};
      mask.bits = static_cast<uint64_t>(i.mask);
      if (const Operand* m = mask_of(i)) mask = *m;
      const Operand zero{
          .kind = Operand::Kind::Constant, .dtype = i.dst.dtype, .lanes = i.dst.lanes};
      i = {.code = Code::Op, .op = Op::Where, .dst = i.dst, .args = {mask, store->args[1], zero}};
    } else if (i.code == Code::Store) {
      std::erase_if(stored, [&](const Instruction& s) { return may_overlap(s, i); });
      if (is_masked(i) && i.step == 1) stored.push_back(i);
    } else if (i.code == Code::Barrier || i.code == Code::TileDot) {
      stored.clear();
    } else if (!i.body.empty()) {
      std::erase_if(stored, [&](const Instruction& s) { return may_overwrite(i.body, s); });
      forward_in(i.body, stored);
    }
  }
}

}  // namespace

void forward_stores(Program& program) {
  for (Phase& phase : program.phases) {
    forward_in(phase.body, {});
    forward_in(phase.tail, {});
  }
}

}  // namespace lazuli
