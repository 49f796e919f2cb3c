// The next block of terms, asked for while the sums of this one are made.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/loop_steps.h"
#include "ir/prefetch.h"
#include "ir/program_writer.h"

namespace lazuli {
namespace {

constexpr int64_t kLeastBytes = 4096;  // of a block, else the processor is there in time

bool is_from_zero(const Instruction& i) {
  return i.code == Code::Loop && i.begin.kind == Operand::Kind::Constant && i.begin.bits == 0;
}

// Whether a loop has more than one iteration, or as many as a worker takes at once.
bool has_several(const Instruction& i) {
  return (is_from_zero(i) && count_of(i).value_or(1) > 1) ||
         (i.code == Code::Loop && i.begin.kind == Operand::Kind::Begin);
}

// Each iteration of a loop whose number is not known asks for all: what is there costs next to
// nothing.
int64_t parts_along(const Instruction& loop) {
  return count_of(loop).value_or(1);
}

int64_t iterations_of(const std::vector<Instruction*>& way) {
  int64_t n = 1;
  for (const Instruction* l : way) n *= parts_along(*l);
  return n;
}

// The innermost loop that makes most products of all, behind those around it, outermost first.
std::vector<Instruction*> way_to_products(std::vector<Instruction>& block) {
  std::vector<Instruction*> best;
  int64_t most = 0;
  for (Instruction& i : block) {
    if (!is_from_zero(i) || (is_innermost(i) && !count_of(i))) continue;
    std::vector<Instruction*> way;
    int64_t products = products_in(i);
    if (products == 0 || !is_innermost(i)) {
      way = way_to_products(i.body);
      products = way.empty() ? 0 : products_in(*way.back()) * iterations_of(way);
    }
    products *= parts_along(i);
    if (products <= most) continue;
    most = products;
    best = std::move(way);
    best.insert(best.begin(), &i);
  }
  return best;
}

// What the iterations of a loop read of an argument: a stretch each, one behind the other.
struct Stretch {
  int memory;
  DType dtype;
  Operand first;         // element, of this iteration's
  int64_t offset, size;  // elements
};

class Stretches {
 public:
  Stretches(const Program& program, const Target& target, const Instruction& blocks)
      : program_(program), target_(target), along_(blocks) {
    collect(blocks.body, nullptr);
  }

  std::vector<Stretch> take() const {
    std::vector<Stretch> out;
    for (const auto& [memory, r] : reads_) {
      // All of it, once or several times, and nothing else.
      const bool together = r.step > 0 && r.covered > 0 && r.covered % r.step == 0 &&
                            r.reach - r.offset <= r.step && r.first;
      if (together && r.step * size_of(r.dtype) >= kLeastBytes) {
        out.push_back({memory, r.dtype, *r.first, r.offset, r.step});
      }
    }
    return out;
  }

 private:
  struct Reads {
    DType dtype = DType::F32;
    int64_t step = 0, covered = 0, offset = 0;  // elements; -1: not known
    int64_t reach = 0;                          // one behind the last, from where the first is
    std::optional<Operand> first;
  };

  // `top`: the outermost of the loops around the block.
  void collect(const std::vector<Instruction>& block, const Instruction* top) {
    for (const Instruction& i : block) {
      if (i.code == Code::Loop) {
        around_.push_back({LoopSteps(i), count_of(i)});
        collect(i.body, top ? top : &i);
        around_.pop_back();
      } else if (!i.body.empty()) {
        collect(i.body, top ? top : &i);
      } else if (i.code == Code::Pointer && i.memory >= 0) {
        index_[i.dst.id] = {i.args[0], top};
      } else if (i.code == Code::Load && i.memory >= 0) {
        read(i);
      }
    }
  }

  void read(const Instruction& i) {
    const MemoryArgument& m = program_.arguments[static_cast<size_t>(i.memory)];
    if (m.output || m.bytes() <= target_.l1) return;
    Reads& r = reads_[i.memory];
    r.dtype = i.args[0].dtype;
    const std::optional<int64_t> step = along_.of(i.args[0]);
    if (!step || (r.step != 0 && *step != r.step) || i.args.size() > 1) {
      r.step = -1;
      return;
    }
    r.step = *step;
    int64_t elements = i.mask > 0 ? i.mask : i.dst.lanes, reach = i.imm + elements;
    for (const auto& [steps, count] : around_) {
      const std::optional<int64_t> s = steps.of(i.args[0]);
      if (!s || !count) r.step = -1;
      if (s.value_or(0) != 0) elements *= count.value_or(1);
      reach += s.value_or(0) * (count.value_or(1) - 1);
    }
    r.reach = std::max(r.reach, reach);
    r.covered += elements;
    const auto index = index_.find(i.args[0].id);
    if (index == index_.end() || (r.first && i.imm >= r.offset)) return;
    const auto& [element, top] = index->second;
    if (const auto first = top ? first_of(*top, element) : element) {
      r.first = first;
      r.offset = i.imm;
    }
  }

  const Program& program_;
  const Target& target_;
  const LoopSteps along_;
  std::vector<std::pair<LoopSteps, std::optional<int64_t>>> around_;
  std::map<int, std::pair<Operand, const Instruction*>> index_;  // of a pointer
  std::map<int, Reads> reads_;
};

// What each of so many iterations asks for.
int64_t part_of(const Stretch& s, int64_t times) {
  return (s.size + times - 1) / times;
}

// In each iteration of the products the next part of the stretches of the block behind this one; of
// this one again in the last, which costs next to nothing.
void ask(Program& program, Instruction& blocks, const std::vector<Instruction*>& way,
         const std::vector<Stretch>& stretches) {
  Instruction& products = *way.back();
  std::vector<ProgramWriter> inside;  // the body of each loop on the way
  for (const Instruction* l : way) inside.emplace_back(program, l->dst.level);
  ProgramWriter before(program, blocks.dst.level);
  const Operand more = before.op(
      Op::Lt, {before.op(Op::Add, {blocks.dst, before.number(1)}), blocks.end}, DType::Bool);
  const int64_t times = iterations_of(way);
  for (const Stretch& s : stretches) {
    const int64_t part = part_of(s, times), line = kCacheLine / size_of(s.dtype);
    const Operand ahead = before.op(Op::Where, {more, before.number(s.size), before.number(0)});
    Operand element = before.op(Op::Add, {s.first, ahead});
    int64_t each = part * times;
    for (size_t l = 0; l + 1 < way.size(); l++) {
      each /= parts_along(*way[l]);
      if (!count_of(*way[l])) continue;
      const Operand done = inside[l].op(Op::Mul, {way[l]->dst, inside[l].number(each)});
      element = inside[l].op(Op::Add, {done, element});
    }
    ProgramWriter& step = inside.back();
    const Operand at = step.fresh(DType::I64);
    products.phis.push_back({at, element, step.op(Op::Add, {at, step.number(part)})});
    const Operand pointer = step.pointer(s.memory, s.dtype, at, true);
    for (int64_t n = 0; n < part; n += line) step.prefetch(s.memory, pointer, s.offset + n, true);
  }
  // From the inside, since what is inserted moves the loops behind it.
  for (size_t l = way.size(); l-- > 0;) {
    std::vector<Instruction>& body = way[l]->body;
    inside[l].insert(body, l + 1 == way.size() ? 0 : static_cast<size_t>(way[l + 1] - body.data()));
  }
  before.insert(blocks.body, static_cast<size_t>(way[0] - blocks.body.data()));
}

// Whether x is known in front of the instruction `at` of a block, if it is at all in it.
bool is_known_before(const std::vector<Instruction>& block, const Instruction* at,
                     const Operand& x) {
  if (x.kind != Operand::Kind::Value) return true;
  return std::none_of(block.begin() + (at - block.data()), block.end(), [&](const Instruction& i) {
    return i.dst.id == x.id || std::any_of(i.phis.begin(), i.phis.end(), [&](const Phi& p) {
             return p.next.id == x.id || p.dst.id == x.id;
           });
  });
}

bool is_asked(const std::vector<Instruction>& block, int memory) {
  return std::any_of(block.begin(), block.end(), [&](const Instruction& i) {
    return i.code == Code::Prefetch && i.memory == memory;
  });
}

// Returns the arguments that are asked for.
std::set<int> prefetch_blocks_in(Program& program, const Target& target,
                                 std::vector<Instruction>& block) {
  std::set<int> all;
  for (Instruction& i : block) {
    const std::set<int> inside = prefetch_blocks_in(program, target, i.body);
    all.insert(inside.begin(), inside.end());
    // Partial sums go from block to block through memory.
    if (!has_several(i) || !i.phis.empty()) continue;
    const std::vector<Instruction*> way = way_to_products(i.body);
    if (way.size() < 2 || products_in(*way.back()) == 0) continue;
    std::vector<Stretch> stretches = Stretches(program, target, i).take();
    int64_t bytes = 0, lines = 0;
    const int64_t times = iterations_of(way);
    std::erase_if(stretches, [&](const Stretch& s) {
      // Whole elements in each iteration should not come to much more than there are.
      const bool beyond = 2 * part_of(s, times) * times > 3 * s.size;
      return beyond || !is_known_before(i.body, way[0], s.first) ||
             is_asked(way.back()->body, s.memory) || inside.count(s.memory) > 0;
    });
    for (const Stretch& s : stretches) {
      bytes += s.size * size_of(s.dtype);
      lines += (part_of(s, times) * size_of(s.dtype) + kCacheLine - 1) / kCacheLine;
    }
    const int64_t products = products_in(*way.back());
    // A tile whose loads bound it has no time to ask.
    const bool fits = bytes <= target.l2 / 3, pays = lines * kProductsPerLine <= products,
               bound = lines + loads_in(*way.back()) > products;
    if (stretches.empty() || !fits || !pays || bound) continue;
    ask(program, i, way, stretches);
    for (const Stretch& s : stretches) all.insert(s.memory);
  }
  return all;
}

}  // namespace

void prefetch_next_blocks(Program& program, const Target& target) {
  int64_t bytes = program.shared_bytes;
  for (const MemoryArgument& m : program.arguments) bytes += m.bytes();
  if (bytes <= target.l2) return;
  for (Phase& phase : program.phases) prefetch_blocks_in(program, target, phase.body);
}

}  // namespace lazuli
