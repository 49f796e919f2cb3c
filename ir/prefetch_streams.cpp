// What a loop reads in order from memory, asked for some lines ahead.
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "ir/loop_steps.h"
#include "ir/prefetch.h"

namespace lazuli {
namespace {

constexpr int64_t kBytesAhead = 1024;  // where prefetches bring more: 512 to 2048 are as good
constexpr int64_t kMostStep = 1024;    // bytes of an iteration: more is no walk in order
// Where an iteration is about as long as what a core has in flight, the loads of the next one begin
// late: with prefetches that bring more than all else, what lies in L3 is asked for as well.
constexpr size_t kManyInstructions = 128;
// 1536 gains half as much, of shorter iterations on Zen 3 too.
constexpr int64_t kBytesFarAhead = 4096;
// A far L3 keeps up with exp and whatever is less; with longer iterations on each line, what is in
// flight reaches too few lines ahead. On Xeons of the fifth generation a megabyte of log then takes
// 0.94 of the time, sin 0.91, tanh 0.95; for L2 instead of L1 it gains half as much. A sum of rows
// would take 1.04.
constexpr size_t kInstructionsOfFarLine = 28;
constexpr int64_t kBytesAheadOfL3 = 2048;

class Streams {
 public:
  Streams(const Program& program, const Target& target) : program_(program), target_(target) {}

  void prefetch(std::vector<Instruction>& block) {
    find_asked(block);
    visit(block, nullptr);
  }

 private:
  // Arguments of which other rules know better what to ask for.
  void find_asked(const std::vector<Instruction>& block) {
    for (const Instruction& i : block) {
      if (i.code == Code::Prefetch) asked_.insert(i.memory);
      find_asked(i.body);
    }
  }

  // `around`: the loop whose body the block is, or null.
  void visit(std::vector<Instruction>& block, const Instruction* around) {
    for (Instruction& i : block) {
      visit(i.body, i.code == Code::Loop ? &i : nullptr);
      if (i.code == Code::Loop) prefetch_in(i, around);
    }
  }

  void prefetch_in(Instruction& loop, const Instruction* around) {
    const bool is_long = loop.body.size() > kManyInstructions;
    const Reach memory{
        .near = is_long && target_.l2_prefetch ? target_.l2 : target_.l3,
        .ahead = is_long || !target_.l2_prefetch ? kBytesFarAhead : kBytesAhead,
        .to_l2 = true,
    };
    std::vector<Ask> asks = asks_of(loop, around, memory);
    if (asks.empty() && target_.far_l3) {
      asks = asks_of(loop, around, {.near = target_.l2, .ahead = kBytesAheadOfL3, .to_l2 = false});
      if (loop.body.size() < kInstructionsOfFarLine * asks.size()) return;
    }
    if (streams_keep_up(target_, loop.body.size(), asks.size())) return;
    for (auto ask = asks.rbegin(); ask != asks.rend(); ++ask) {
      loop.body.insert(loop.body.begin() + ask->behind + 1, ask->prefetch);
    }
  }

  // A prefetch and the load behind which it stands.
  struct Ask {
    std::ptrdiff_t behind;
    Instruction prefetch;
  };

  // Of arguments of more than `near` bytes, what lies `ahead`, for the second level of cache or the
  // first.
  struct Reach {
    int64_t near, ahead;
    bool to_l2;
  };

  std::vector<Ask> asks_of(const Instruction& loop, const Instruction* around,
                           const Reach& reach) const {
    const std::optional<int64_t> count = count_of(loop);
    std::optional<LoopSteps> along;
    std::set<std::pair<int, int64_t>> lines;  // a pointer, and the line from there
    std::vector<Ask> asks;
    for (size_t at = 0; at < loop.body.size(); at++) {
      const Instruction& i = loop.body[at];
      if (i.code != Code::Load || i.memory < 0 || i.dst.lanes == 1 || asked_.count(i.memory))
        continue;
      const MemoryArgument& m = program_.arguments[static_cast<size_t>(i.memory)];
      if (m.output || m.bytes() <= reach.near) continue;
      if (!along) along.emplace(loop);
      const int64_t unit = size_of(i.args[0].dtype), step = along->of(i.args[0]).value_or(0) * unit;
      if (step < kCacheLine || step > kMostStep) continue;
      const bool is_short = count && *count * step < 2 * reach.ahead;
      if (is_short && !goes_on(i, *count * step, step, around, 2 * reach.ahead)) continue;
      if (!lines.insert({i.args[0].id, i.imm * unit / kCacheLine}).second) continue;
      Instruction ask{
          .code = Code::Prefetch, .imm = i.imm + reach.ahead / unit, .memory = i.memory};
      ask.args = {i.args[0]};
      ask.flag = reach.to_l2;
      asks.push_back({static_cast<std::ptrdiff_t>(at), std::move(ask)});
    }
    return asks;
  }

  // Does the row that a loop reads in so many bytes end where the next one begins, or less than an
  // iteration before, and do so many rows follow each other that they are long together?
  static bool goes_on(const Instruction& load, int64_t row, int64_t step, const Instruction* around,
                      int64_t least) {
    if (!around) return false;
    const std::optional<int64_t> rows = count_of(*around);
    const int64_t next =
        LoopSteps(*around).of(load.args[0]).value_or(0) * size_of(load.args[0].dtype);
    return row <= next && next < row + step && (!rows || *rows * next >= least);
  }

  const Program& program_;
  const Target& target_;
  std::unordered_set<int> asked_;
};

}  // namespace

void prefetch_streams(Program& program, const Target& target) {
  for (Phase& phase : program.phases) {
    Streams(program, target).prefetch(phase.body);
    Streams(program, target).prefetch(phase.tail);
  }
}

}  // namespace lazuli
