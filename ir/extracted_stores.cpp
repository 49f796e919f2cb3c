#include "ir/extracted_stores.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/rewrite.h"
#include "ir/value_uses.h"

namespace lazuli {
namespace {

constexpr int kLanes = 16;

class ExtractBlock {
 public:
  ExtractBlock(const Uses& uses, std::vector<Instruction>& block) : uses_(uses), block_(block) {}

  void run() {
    for (size_t at = 0; at < block_.size(); at++) {
      const Instruction& i = block_[at];
      const bool extracts = i.code == Code::Extract && i.args[0].lanes == kLanes &&
                            i.dst.dtype != DType::Bool && size_of(i.dst.dtype) == 4;
      if (extracts) made_[i.dst.id] = at;
      if (i.code != Code::Store || !is_single(i)) continue;
      const auto extract = made_.find(i.args[1].id);
      if (extract != made_.end())
        stored_[{block_[extract->second].args[0].id, i.args[0].id}].push_back(
            {extract->second, at});
    }
    for (const auto& [to, lanes] : stored_) scatter(lanes);
    rewrite(block_, std::move(written_), dropped_);
  }

 private:
  struct Lane {
    size_t extract, store;
  };

  static bool is_single(const Instruction& i) {
    return i.args.size() == 2 && i.args[1].lanes == 1 && i.mask == 0 && !i.flag;
  }

  // At the place of the last of the stores, if nothing in between tells when the others come.
  void scatter(const std::vector<Lane>& lanes) {
    // A scatter's places are 32 bits wide.
    constexpr int64_t kFar = std::numeric_limits<int32_t>::max() / 8;
    if (lanes.size() != kLanes) return;
    const Instruction& first = block_[lanes[0].store];
    std::vector<int64_t> places(kLanes, 0);
    std::set<int64_t> numbers;
    for (const Lane& l : lanes) {
      const Instruction &store = block_[l.store], &extract = block_[l.extract];
      const bool alike = store.args[0].id == first.args[0].id && store.memory == first.memory &&
                         uses_.of(extract.dst.id) == 1;
      if (!alike || !numbers.insert(extract.imm).second) return;
      places[static_cast<size_t>(extract.imm)] = store.imm;
    }
    const int64_t step = places[1] - places[0];
    for (size_t q = 0; q < places.size(); q++) {
      if (places[q] != places[0] + static_cast<int64_t>(q) * step) return;
    }
    if (step == 0 || std::abs(step) * kLanes > kFar) return;
    const std::set<int64_t> stored(places.begin(), places.end());
    std::set<size_t> own;
    for (const Lane& l : lanes) own.insert(l.store);
    for (size_t at = lanes.front().store; at < lanes.back().store; at++) {
      if (own.count(at) == 0 && tells(block_[at], first, stored)) return;
    }
    Instruction scatter = block_[lanes.back().store];
    scatter.imm = places[0];
    scatter.step = static_cast<int>(step);
    scatter.args[1] = block_[lanes.back().extract].args[0];
    for (const Lane& l : lanes) {
      dropped_.insert(l.extract);
      dropped_.insert(l.store);
    }
    written_[lanes.back().store].push_back(std::move(scatter));
  }

  // Whether an instruction might see the elements at `stored`, or store there as well.
  static bool tells(const Instruction& i, const Instruction& first,
                    const std::set<int64_t>& stored) {
    if (!i.body.empty() || i.code == Code::Barrier || i.code == Code::TileDot) return true;
    if (i.memory != first.memory || (i.code != Code::Load && i.code != Code::Store)) return false;
    const bool elsewhere = i.code == Code::Store && is_single(i) &&
                           i.args[0].id == first.args[0].id && stored.count(i.imm) == 0;
    return !elsewhere;
  }

  const Uses& uses_;
  std::vector<Instruction>& block_;
  std::unordered_map<int, size_t> made_;  // where single lanes are extracted
  // By vector and pointer, in the order of the stores.
  std::map<std::pair<int, int>, std::vector<Lane>> stored_;
  std::map<size_t, std::vector<Instruction>> written_;
  std::set<size_t> dropped_;
};

}  // namespace

void join_extracted_stores(Program& program, const Target& target) {
  if (!target.fast_gather) return;
  for_each_block_with(
      Code::Extract, program,
      [](const Uses& uses, std::vector<Instruction>& block) { ExtractBlock(uses, block).run(); });
}

}  // namespace lazuli
