// Blocks of a program with some instructions in place of others.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/program.h"
#include "ir/value_uses.h"

namespace lazuli {

/// The block with `written[at]` in place of the instruction at `at`, and without those at
/// `dropped`.
inline void rewrite(std::vector<Instruction>& block,
                    std::map<size_t, std::vector<Instruction>> written,
                    const std::set<size_t>& dropped) {
  if (written.empty() && dropped.empty()) return;
  std::vector<Instruction> out;
  for (size_t at = 0; at < block.size(); at++) {
    const auto it = written.find(at);
    if (it != written.end()) {
      std::move(it->second.begin(), it->second.end(), std::back_inserter(out));
    } else if (dropped.count(at) == 0) {
      out.push_back(std::move(block[at]));
    }
  }
  block = std::move(out);
}

/// Calls f(block) for a block and those of the loops and branches inside that are not empty,
/// innermost first.
template <typename F>
void for_each_block(std::vector<Instruction>& block, const F& f) {
  for (Instruction& i : block) {
    if (!i.body.empty()) for_each_block(i.body, f);
  }
  f(block);
}

/// Calls f(uses, block) for all blocks of a program that hold an instruction `code`, where `uses`
/// is how often the phase used values before the first call.
template <typename F>
void for_each_block_with(Code code, Program& program, const F& f) {
  for (Phase& phase : program.phases) {
    std::optional<Uses> uses;  // few phases hold such an instruction
    const auto visit = [&](std::vector<Instruction>& block) {
      const bool holds = std::any_of(block.begin(), block.end(),
                                     [&](const Instruction& i) { return i.code == code; });
      if (!holds) return;
      if (!uses) {
        uses.emplace();
        count_uses(phase.body, *uses);
        count_uses(phase.tail, *uses);
      }
      f(*uses, block);
    };
    for_each_block(phase.body, visit);
    for_each_block(phase.tail, visit);
  }
}

}  // namespace lazuli
