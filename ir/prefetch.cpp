#include "ir/prefetch.h"

#include <set>
#include <unordered_map>
#include <utility>

namespace lazuli {
namespace {

constexpr int64_t kLine = 64;        // bytes
constexpr int64_t kIterations = 16;  // of a loop that is long enough to hide a miss
constexpr size_t kMost = 64;         // lines

// The instructions of one block behind its loop number `loop`.
class Behind {
 public:
  Behind(Program& program, const Target& target, const std::vector<Instruction>& block, size_t loop)
      : program_(program), target_(target) {
    find_walked(block[loop].body);
    for (size_t i = loop + 1; i < block.size() && !has_body(block[i]); i++) collect(block[i]);
    // What the loop makes, or the block loads, is not known before it.
    for (const Phi& phi : block[loop].phis) later_.insert(phi.dst.id);
    for (const Access& a : accesses_) {
      const int pointer = known(a.pointer, block[loop].dst.level);
      if (pointer < 0) continue;
      Instruction ask{.code = Code::Prefetch, .imm = a.offset, .memory = a.memory};
      ask.args = {a.pointer};
      ask.args[0].id = pointer;
      made_.push_back(std::move(ask));
    }
  }

  std::vector<Instruction> take() { return std::move(made_); }

 private:
  struct Access {
    Operand pointer;
    int64_t offset;
    int memory;
  };

  static bool has_body(const Instruction& i) { return i.code == Code::Loop || i.code == Code::If; }

  void find_walked(const std::vector<Instruction>& body) {
    for (const Instruction& i : body) {
      if (i.code == Code::Load) walked_.insert(i.memory);
      find_walked(i.body);
    }
  }

  void collect(const Instruction& i) {
    if (i.code != Code::Store) definitions_.emplace(i.dst.id, &i);
    if (i.code != Code::Load || i.memory < 0 || walked_.count(i.memory)) return;
    const MemoryArgument& m = program_.arguments[static_cast<size_t>(i.memory)];
    if (m.size * size_of(m.dtype) <= target_.l1) return;
    const int64_t line = i.imm * size_of(m.dtype) / kLine;
    if (accesses_.size() == kMost || !lines_.insert({i.args[0].id, line}).second) return;
    accesses_.push_back({i.args[0], i.imm, i.memory});
  }

  // The id of an operand's value where it is known before the loop, computed there if need be; -1
  // if it is not.
  int known(const Operand& x, int level) {
    const auto it = definitions_.find(x.id);
    if (it == definitions_.end()) return later_.count(x.id) ? -1 : x.id;
    const Instruction& i = *it->second;
    const bool address = i.code == Code::Pointer ||
                         (i.code == Code::Op && i.dst.lanes == 1 && !is_float(i.dst.dtype));
    if (!address) return -1;
    const auto [copy, fresh] = copies_.emplace(x.id, -1);
    if (!fresh) return copy->second;
    Instruction again = i;
    for (Operand& a : again.args) {
      if (a.kind != Operand::Kind::Value) continue;
      a.id = known(a, level);
      if (a.id < 0) return -1;
    }
    again.dst.id = program_.values++;
    copies_[x.id] = again.dst.id;
    made_.push_back(std::move(again));
    return copies_[x.id];
  }

  Program& program_;
  const Target& target_;
  std::unordered_map<int, const Instruction*> definitions_;
  std::set<int> later_, walked_;  // values made by the loop, memory that it reads
  std::set<std::pair<int, int64_t>> lines_;
  std::vector<Access> accesses_;
  std::unordered_map<int, int> copies_;
  std::vector<Instruction> made_;
};

bool is_long(const Instruction& i) {
  if (i.code != Code::Loop || i.begin.kind != Operand::Kind::Constant ||
      i.end.kind != Operand::Kind::Constant) {
    return false;
  }
  const auto count = static_cast<int64_t>(i.end.bits) - static_cast<int64_t>(i.begin.bits);
  return count >= kIterations && !i.phis.empty();
}

void visit_block(Program& program, const Target& target, std::vector<Instruction>& block) {
  for (size_t i = block.size(); i-- > 0;) {
    visit_block(program, target, block[i].body);
    if (!is_long(block[i])) continue;
    std::vector<Instruction> ahead = Behind(program, target, block, i).take();
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(i),
                 std::make_move_iterator(ahead.begin()), std::make_move_iterator(ahead.end()));
  }
}

}  // namespace

void prefetch_epilogues(Program& program, const Target& target) {
  for (Phase& phase : program.phases) {
    visit_block(program, target, phase.body);
    visit_block(program, target, phase.tail);
  }
}

}  // namespace lazuli
