// What a loop reads in order from memory, asked for some lines ahead.
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "ir/loop_steps.h"
#include "ir/prefetch.h"

namespace lazuli {
namespace {

constexpr int64_t kBytesAhead = 1024;  // 512 to 2048 are as good
constexpr int64_t kMostStep = 1024;    // bytes of an iteration: more is no walk in order
// Where an iteration is about as long as what a core has in flight, the loads of the next one begin
// late, so that what lies in L3 is waited for as well.
constexpr size_t kManyInstructions = 128;
constexpr int64_t kBytesFarAhead = 4096;  // 1536 gains half as much

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
    std::unordered_set<int> read_before;  // by a loop over the same row
    for (Instruction& i : block) {
      visit(i.body, i.code == Code::Loop ? &i : nullptr);
      if (i.code == Code::Loop) prefetch_in(i, around, read_before);
    }
  }

  void prefetch_in(Instruction& loop, const Instruction* around,
                   std::unordered_set<int>& read_before) {
    std::vector<Ask> asks = asks_of(loop, around);
    if (streams_keep_up(target_, loop.body.size(), asks.size())) return;
    if (around) {
      std::erase_if(asks, [&](const Ask& a) { return read_before.count(a.prefetch.memory) > 0; });
      for (const Ask& ask : asks) read_before.insert(ask.prefetch.memory);
    }
    for (auto ask = asks.rbegin(); ask != asks.rend(); ++ask) {
      loop.body.insert(loop.body.begin() + ask->behind + 1, ask->prefetch);
    }
  }

  // A prefetch and the load behind which it stands.
  struct Ask {
    std::ptrdiff_t behind;
    Instruction prefetch;
  };

  std::vector<Ask> asks_of(const Instruction& loop, const Instruction* around) const {
    const std::optional<int64_t> count = count_of(loop);
    const LoopSteps along(loop);
    const std::optional<LoopSteps> next_row =
        around ? std::optional(LoopSteps(*around)) : std::nullopt;
    const bool is_long = loop.body.size() > kManyInstructions;
    const int64_t ahead = is_long || !target_.l2_prefetch ? kBytesFarAhead : kBytesAhead,
                  near = is_long && target_.l2_prefetch ? target_.l2 : target_.l3;
    std::set<std::pair<int, int64_t>> lines;  // a pointer, and the line from there
    std::vector<Ask> asks;
    for (size_t at = 0; at < loop.body.size(); at++) {
      const Instruction& i = loop.body[at];
      if (i.code != Code::Load || i.memory < 0 || i.dst.lanes == 1 || asked_.count(i.memory))
        continue;
      const MemoryArgument& m = program_.arguments[static_cast<size_t>(i.memory)];
      const int64_t unit = size_of(i.args[0].dtype), step = along.of(i.args[0]).value_or(0) * unit;
      const bool in_order = step >= kCacheLine && step <= kMostStep;
      // What lies behind the end of a short row is the next one, where rows follow each other.
      const int64_t gap =
          count && next_row ? next_row->of(i.args[0]).value_or(0) * unit - *count * step : -1;
      const bool goes_on = 0 <= gap && gap < step;
      const bool ends_soon = count && *count * step < 2 * ahead && !goes_on;
      if (m.output || m.bytes() <= near || !in_order || ends_soon) continue;
      if (!lines.insert({i.args[0].id, i.imm * unit / kCacheLine}).second) continue;
      Instruction ask{.code = Code::Prefetch, .imm = i.imm + ahead / unit, .memory = i.memory};
      ask.args = {i.args[0]};
      ask.flag = true;
      asks.push_back({static_cast<std::ptrdiff_t>(at), std::move(ask)});
    }
    return asks;
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
