// The next row, asked for while this one is worked on.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ir/loop_steps.h"
#include "ir/prefetch.h"

namespace lazuli {
namespace {

constexpr int64_t kShortest = 2048;    // bytes of a row that is worth it
constexpr int64_t kShortestFar = 16 << 10;  // of several at once, from a far L3
constexpr double kCyclesPerLine = 10;  // that memory takes to bring one
constexpr double kCyclesPerOp = 0.4;   // on a vector
// Where loads go on beside them, a pass of stores past the caches asks for all lines: of 4096 rows
// of 4096, layer normalization takes 0.73 of the time on Xeons of the fifth generation.
constexpr double kCyclesBesideStores = 1000;
// Of a pass that asks for all lines of the next row where L2 sees streams in them. On a Xeon with
// AMX softmax of 4096 rows of 4096 takes 0.75 of the time, cross entropy of 512 rows of 32,000
// 0.65, and on two cores 0.7 and 0.6.
constexpr double kCyclesPerLineAtOnce = 5;

// A loop over one row.
struct Pass {
  Instruction* loop;
  int64_t row;     // elements from one row to the next
  int64_t step;    // elements of an iteration
  double waiting;  // cycles of an iteration in which memory has nothing to do
  bool several;    // short rows at once
  int64_t unit;    // bytes of an element
};

// Bytes of each memory that an innermost loop of so many iterations walks in vectors, those apart
// that are written past the caches.
std::map<int, int64_t> bytes_walked(const Instruction& loop, const LoopSteps& along,
                                    int64_t count) {
  std::map<int, int64_t> bytes;
  for (const Instruction& i : loop.body) {
    const bool cached = i.code == Code::Load || (i.code == Code::Store && !i.flag);
    if (!cached || along.of(i.args[0]).value_or(0) == 0) continue;
    const Operand& vector = i.code == Code::Load ? i.dst : i.args[1];
    if (vector.lanes > 1) bytes[i.memory] += count * vector.lanes * size_of(vector.dtype);
  }
  return bytes;
}

double waiting_cycles(const Instruction& loop, const Target& target) {
  double cycles = 0;
  for (const Instruction& i : loop.body) {
    if (i.code == Code::Store && i.flag && target.rows_beside_stores) {
      cycles += kCyclesBesideStores;
    } else if (i.code == Code::Store && i.flag) {
      const int64_t bytes = i.args[1].lanes * size_of(i.args[1].dtype);
      cycles -= kCyclesPerLine * static_cast<double>(bytes) / kCacheLine;
    } else if (i.code == Code::Op && i.dst.lanes > 1) {
      const bool with_nan = (i.op == Op::Max || i.op == Op::Min) && is_float(i.dst.dtype);
      cycles += kCyclesPerOp * (with_nan ? 3 : 1);
    }
  }
  return cycles;
}

bool is_far_input(const MemoryArgument& m, const Target& target) {
  return !m.output && m.bytes() > target.l2;
}

// The rows that the loops inside one loop walk, each time it goes round.
class WalkedRows {
 public:
  WalkedRows(const Program& program, const Target& target, Instruction& outer)
      : program_(program), target_(target), outer_(outer) {
    for (Instruction& i : outer.body) {
      if (i.code == Code::Loop) note(i);
    }
  }

  void prefetch() {
    std::erase_if(passes_, [](const auto& of_memory) {
      const std::vector<Pass>& passes = of_memory.second;
      return (passes.size() == 1 && !passes[0].several) ||
             !std::all_of(passes.begin(), passes.end(),
                          [&](const Pass& p) { return p.step == passes[0].step; });
    });
    const bool keep_up = !target_.far_l3 && streams_keep_up_in_all();
    for (auto& [memory, passes] : passes_) {
      if (passes[0].several || !keep_up) share_out(memory, passes);
    }
  }

 private:
  // Does a loop compute on several rows at once that end before the processor sees where they go?
  bool walks_short_rows(const Instruction& loop, int memory, int64_t walked, int64_t unit) const {
    const bool is_short = walked * unit < kShortest;
    const int least = is_short ? 2 : 12;  // for a load: more than a product of few rows has
    std::set<int64_t> rows;
    int loads = 0, operations = 0;
    for (const Instruction& i : loop.body) {
      const bool load = i.code == Code::Load && i.memory == memory && i.dst.lanes > 1;
      if (load) rows.insert(i.imm / walked);
      loads += load;
      operations += i.code == Code::Op && i.dst.lanes > 1;
    }
    return (is_short || (target_.far_l3 && walked * unit < kShortestFar)) && rows.size() > 1 &&
           operations >= least * loads;
  }

  void note(Instruction& loop) {
    const bool counted =
        loop.begin.kind == Operand::Kind::Constant && loop.end.kind == Operand::Kind::Constant;
    const bool inmost = std::all_of(loop.body.begin(), loop.body.end(),
                                    [](const Instruction& i) { return i.body.empty(); });
    if (!counted || !inmost) return;
    const auto count = static_cast<int64_t>(loop.end.bits - loop.begin.bits);
    const LoopSteps along(loop);
    for (const auto& [memory, bytes] : bytes_walked(loop, along, count)) {
      bytes_[memory] = std::max(bytes_[memory], bytes);
    }
    std::set<int> seen;
    for (const Instruction& i : loop.body) {
      if (i.code != Code::Load || i.memory < 0 || i.dst.lanes == 1) continue;
      const MemoryArgument& m = program_.arguments[static_cast<size_t>(i.memory)];
      const int64_t unit = size_of(i.args[0].dtype);
      if (!is_far_input(m, target_) || seen.count(i.memory)) continue;
      if (!around_) around_.emplace(outer_);
      const int64_t row = around_->of(i.args[0]).value_or(0);
      const int64_t step = along.of(i.args[0]).value_or(0), walked = step * count;
      if (row <= 0 || row * unit > target_.l2 / 2 || walked <= 0 || walked > row) continue;
      const bool several = walks_short_rows(loop, i.memory, walked, unit);
      if (!several && (row * unit < kShortest || 4 * walked < 3 * row)) continue;
      seen.insert(i.memory);
      passes_[i.memory].push_back({&loop, row, step, waiting_cycles(loop, target_), several, unit});
    }
  }

  bool streams_keep_up_in_all() const {
    std::set<const Instruction*> loops;
    size_t instructions = 0, lines = 0;
    for (const auto& [memory, passes] : passes_) {
      std::set<int64_t> of_memory;
      for (const Instruction& i : passes[0].loop->body) {
        if (i.code == Code::Load && i.memory == memory)
          of_memory.insert(i.imm * passes[0].unit / kCacheLine);
      }
      lines += of_memory.size();
      for (const Pass& p : passes) {
        if (loops.insert(p.loop).second) instructions += p.loop->body.size();
      }
    }
    return streams_keep_up(target_, instructions, lines);
  }

  static Pass& longest_waiting(std::vector<Pass>& passes) {
    return *std::max_element(passes.begin(), passes.end(),
                             [](const Pass& a, const Pass& b) { return a.waiting <= b.waiting; });
  }

  // Each line is asked for by the pass that leaves memory idle longest. But all are by one where L2
  // sees streams in what it is asked for, if they go there, or that pass has some time for them.
  void share_out(int memory, std::vector<Pass>& passes) {
    const int64_t unit = passes[0].unit;
    const bool to_l2 = target_.l2_prefetch || target_.rows_beside_stores;
    int64_t held = bytes_[memory];  // the next row's
    for (const auto& [_, bytes] : bytes_) held += bytes;
    const double lines = static_cast<double>(passes[0].step * unit) / kCacheLine;
    const bool at_once =
        target_.rows_beside_stores &&
        (held > target_.l1 || longest_waiting(passes).waiting >= kCyclesPerLineAtOnce * lines);
    std::map<int64_t, const Pass*> pass_of;  // by line of an iteration
    for (const Instruction& i : passes[0].loop->body) {
      if (i.code != Code::Load || i.memory != memory) continue;
      const auto [it, fresh] = pass_of.emplace(i.imm * unit / kCacheLine, nullptr);
      if (!fresh) continue;
      Pass& most = longest_waiting(passes);
      if (!at_once) most.waiting -= kCyclesPerLine;
      it->second = &most;
    }
    for (const Pass& p : passes) {
      std::vector<Instruction>& body = p.loop->body;
      for (size_t i = 0; i < body.size(); i++) {
        if (body[i].code != Code::Load || body[i].memory != memory) continue;
        const auto it = pass_of.find(body[i].imm * unit / kCacheLine);
        if (it == pass_of.end() || it->second != &p) continue;
        it->second = nullptr;
        Instruction ask{.code = Code::Prefetch, .imm = body[i].imm + p.row, .memory = memory};
        ask.args = {body[i].args[0]};
        ask.flag = to_l2 && held > target_.l1;
        body.insert(body.begin() + static_cast<std::ptrdiff_t>(++i), std::move(ask));
      }
    }
  }

  const Program& program_;
  const Target& target_;
  const Instruction& outer_;
  std::optional<LoopSteps> around_;          // of the outer loop
  std::map<int, std::vector<Pass>> passes_;  // by memory
  std::map<int, int64_t> bytes_;             // by memory, that the longest of the loops walks
};

void prefetch_walked_rows_in(const Program& program, const Target& target,
                             std::vector<Instruction>& block) {
  for (Instruction& i : block) {
    if (i.code == Code::Loop) WalkedRows(program, target, i).prefetch();
    prefetch_walked_rows_in(program, target, i.body);
  }
}

}  // namespace

void prefetch_walked_rows(Program& program, const Target& target) {
  const bool far = std::any_of(program.arguments.begin(), program.arguments.end(),
                               [&](const MemoryArgument& m) { return is_far_input(m, target); });
  if (!far) return;
  for (Phase& phase : program.phases) {
    prefetch_walked_rows_in(program, target, phase.body);
    prefetch_walked_rows_in(program, target, phase.tail);
  }
}

}  // namespace lazuli
