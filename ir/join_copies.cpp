#include "ir/join_copies.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/rewrite.h"
#include "ir/value_uses.h"

namespace lazuli {
namespace {

bool is_plain(const Instruction& i) {
  const size_t args = i.code == Code::Store ? 2 : 1;
  return i.args.size() == args && i.mask == 0 && !i.flag && i.step == 1;
}

class CopyBlock {
 public:
  CopyBlock(Program& program, const Uses& uses, std::vector<Instruction>& block)
      : program_(program), uses_(uses), block_(block) {}

  void join() {
    for (size_t at = 0; at < block_.size(); at++) {
      if (!note(block_[at], at)) {  // others may see what is stored, or change what is loaded
        close_run();
        loads_.clear();
      }
    }
    close_run();
    if (runs_.empty()) return;
    std::vector<Instruction> out;
    for (size_t at = 0; at < block_.size(); at++) {
      const auto run = runs_.find(at);
      if (run != runs_.end()) {
        write(run->second, out);
      } else if (joined_.count(at) == 0) {
        out.push_back(std::move(block_[at]));
      }
    }
    block_ = std::move(out);
  }

 private:
  // A load, and the store of what it loads.
  struct Copy {
    size_t load, store;
  };

  // False if copies before it stay before it.
  bool note(const Instruction& i, size_t at) {
    if (i.code == Code::Op || i.code == Code::Pointer || i.code == Code::Splat) return true;
    if (i.code == Code::Load) {
      if (!is_input(i.memory)) return false;
      const bool copied = i.dst.lanes == 1 && is_plain(i) && uses_.of(i.dst.id) == 1;
      if (copied) loads_[i.dst.id] = at;
      return true;
    }
    if (i.code != Code::Store || !is_plain(i)) return false;
    const auto load = loads_.find(i.args[1].id);
    if (load == loads_.end()) return false;
    const Copy copy{load->second, at};
    if (!run_.empty() && !follows(copy, run_.back())) close_run();
    run_.push_back(copy);
    return true;
  }

  bool is_input(int memory) const {
    return memory >= 0 && !program_.arguments[static_cast<size_t>(memory)].output;
  }

  bool follows(const Copy& copy, const Copy& before) const {
    const auto behind = [&](size_t i, size_t j) {
      const Instruction &x = block_[i], &y = block_[j];
      return x.args[0].id == y.args[0].id && x.imm == y.imm + 1;
    };
    return behind(copy.load, before.load) && behind(copy.store, before.store);
  }

  void close_run() {
    if (run_.size() > 1) {
      for (const Copy& c : run_) joined_.insert({c.load, c.store});
      runs_[run_.back().store] = run_;
    }
    run_.clear();
  }

  void write(const std::vector<Copy>& run, std::vector<Instruction>& out) {
    for (size_t first = 0; first < run.size();) {
      Instruction load = block_[run[first].load], store = block_[run[first].store];
      const size_t lanes =
          std::min(std::bit_floor(run.size() - first), static_cast<size_t>(program_.lanes));
      load.dst.lanes = static_cast<int>(lanes);
      store.args[1] = load.dst;
      out.push_back(std::move(load));
      out.push_back(std::move(store));
      first += lanes;
    }
  }

  Program& program_;
  const Uses& uses_;
  std::vector<Instruction>& block_;
  std::unordered_map<int, size_t> loads_;  // of elements, by what they load
  std::vector<Copy> run_;
  std::unordered_map<size_t, std::vector<Copy>> runs_;  // by the place of the last store
  std::unordered_set<size_t> joined_;
};

}  // namespace

void join_copies(Program& program) {
  for_each_block_with(Code::Store, program, [&](const Uses& uses, std::vector<Instruction>& block) {
    CopyBlock(program, uses, block).join();
  });
}

}  // namespace lazuli
