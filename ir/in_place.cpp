#include "ir/in_place.h"

#include <map>
#include <set>
#include <tuple>

namespace lazuli {
namespace {

// What one load or store touches. A base is a value of the program: equal bases are equal addresses
// only within one iteration of the loops around them, hence within one block.
struct MemoryAccess {
  int base_kind = 0, base_id = 0;
  uint64_t base_bits = 0;
  int64_t offset = 0;
  int lanes = 1, step = 1, mask = 0;
  int mask_kind = 0, mask_id = 0;

  auto key() const {
    return std::tie(base_kind, base_id, base_bits, offset, lanes, step, mask, mask_kind, mask_id);
  }
  friend bool operator<(const MemoryAccess& a, const MemoryAccess& b) { return a.key() < b.key(); }
};

// Where a block's instructions are looked at, in order.
class AccessWalk {
 public:
  explicit AccessWalk(const Program& program) : program_(program) {
    const size_t n = program.arguments.size();
    barred_.resize(n);
    for (size_t out = 0; out < n; out++) {
      if (!program.arguments[out].output) continue;
      for (size_t in = 0; in < n; in++) {
        const MemoryArgument &a = program.arguments[in], &b = program.arguments[out];
        if (a.output || a.size != b.size || size_of(a.dtype) != size_of(b.dtype)) continue;
        pairs_.push_back({static_cast<int>(in), static_cast<int>(out)});
      }
    }
  }

  std::vector<InPlace> run() {
    for (const Phase& p : program_.phases) {
      block(p.body);
      block(p.tail);
    }
    std::erase_if(pairs_, [&](const InPlace& p) {
      return barred_[static_cast<size_t>(p.output)] || refused_.count({p.input, p.output}) > 0;
    });
    return std::move(pairs_);
  }

 private:
  MemoryAccess access(const Instruction& i) const {
    const auto pointer = pointers_.find(i.args[0].id);
    const Operand& base = pointer == pointers_.end() ? i.args[0] : pointer->second->args[0];
    MemoryAccess a{static_cast<int>(base.kind), base.id, base.bits, i.imm};
    const size_t mask = i.code == Code::Load ? 1 : 2;
    a.lanes = (i.code == Code::Load ? i.dst : i.args[1]).lanes;
    a.step = i.step;
    a.mask = i.mask;
    if (i.args.size() > mask) {
      a.mask_kind = static_cast<int>(i.args[mask].kind);
      a.mask_id = i.args[mask].id;
    }
    return a;
  }

  // Loads of an operand must each come before a store of the same elements in the same block: then
  // no other iteration, before or after, has stored them, since each element is stored once.
  void block(const std::vector<Instruction>& instructions) {
    std::map<int, std::set<MemoryAccess>> stored;
    // Outputs that must still store it.
    std::map<int, std::map<MemoryAccess, std::set<int>>> waiting;
    for (const Instruction& i : instructions) {
      if (i.code == Code::Pointer) pointers_[i.dst.id] = &i;
      if (i.code == Code::Load && i.memory >= 0) {
        const MemoryAccess a = access(i);
        if (program_.arguments[static_cast<size_t>(i.memory)].output) {
          barred_[static_cast<size_t>(i.memory)] = true;  // it adds up what it stores
        }
        for (const InPlace& p : pairs_) {
          if (p.input != i.memory) continue;
          if (stored[p.output].count(a)) refused_.insert({p.input, p.output});
          waiting[p.input][a].insert(p.output);
        }
      }
      if (i.code == Code::Store && i.memory >= 0) {
        const MemoryAccess a = access(i);
        stored[i.memory].insert(a);
        for (auto& [input, accesses] : waiting) {
          if (const auto it = accesses.find(a); it != accesses.end()) it->second.erase(i.memory);
        }
      }
      if (!i.body.empty()) block(i.body);
    }
    for (const auto& [input, accesses] : waiting) {
      for (const auto& [a, outputs] : accesses) {
        for (int output : outputs) refused_.insert({input, output});
      }
    }
  }

  const Program& program_;
  std::vector<InPlace> pairs_;
  std::vector<bool> barred_;
  std::set<std::pair<int, int>> refused_;
  std::map<int, const Instruction*> pointers_;
};

}  // namespace

std::vector<InPlace> in_place_arguments(const Program& program) {
  return AccessWalk(program).run();
}

}  // namespace lazuli
