// A block of a program with some instructions in place of others.
#pragma once

#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ir/program.h"

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

}  // namespace lazuli
