#include "ir/inserted_loads.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/rewrite.h"
#include "ir/value_uses.h"

namespace lazuli {
namespace {

// An inserted lane: the load of one element, or null, and its insert.
struct InsertedLane {
  int lane = 0;
  const Instruction* load = nullptr;
  size_t insert = 0;
};

// Loads that lane (imm + q * step) / repeat of one vector, as a Permute has them, gives to lane q.
struct Window {
  std::vector<InsertedLane> lanes = {};
  int64_t first = 0, live = 0;  // the elements that are loaded
  int64_t imm = 0;
  int step = 1, repeat = 1;
};

void note_stored_by(std::span<const Instruction> block, std::set<int>& stored) {
  for (const Instruction& i : block) {
    if (i.code == Code::Store) stored.insert(i.memory);
    // Tiles add to sums in one of a kernel's own; behind a barrier others may have stored there.
    if (i.code == Code::TileDot || i.code == Code::Barrier)
      stored.insert({Program::kScratch, Program::kShared, Program::kLocal});
    note_stored_by(i.body, stored);
  }
}

class InsertBlock {
 public:
  InsertBlock(Program& program, const Target& target, const Uses& uses,
              std::vector<Instruction>& block)
      : program_(program), target_(target), uses_(uses), block_(block) {
    for (size_t at = 0; at < block_.size(); at++) {
      const Instruction& i = block_[at];
      if (i.dst.id >= 0) made_[i.dst.id] = at;
      if (i.code == Code::Insert) continued_.insert(i.args[0].id);
      std::set<int> stored;
      note_stored_by(std::span(&i, 1), stored);
      for (const int memory : stored) stored_at_[memory].insert(at);
    }
  }

  void run() {
    for (size_t at = 0; at < block_.size(); at++) {
      const std::vector<InsertedLane> lanes = lanes_of(at);
      if (!lanes.empty() && !from_window(at, lanes)) gather(at, lanes);
    }
    rewrite(block_, std::move(written_), dropped_);
  }

 private:
  const Instruction* maker(const Operand& x) const {
    const auto it = x.kind == Operand::Kind::Value ? made_.find(x.id) : made_.end();
    return it == made_.end() ? nullptr : &block_[it->second];
  }

  // A load of one element that might as well come at `at`.
  const Instruction* element(const Operand& x, size_t at) const {
    const Instruction* const i = maker(x);
    const bool plain = i && i->code == Code::Load && i->dst.lanes == 1 && i->args.size() == 1 &&
                       i->mask == 0 && !i->flag;
    if (!plain) return nullptr;
    const auto stores = stored_at_.find(i->memory);
    if (stores == stored_at_.end()) return i;
    const auto next = stores->second.upper_bound(made_.at(x.id));
    return next == stores->second.end() || *next > at ? i : nullptr;
  }

  // Of the chain of inserts that ends at `at`, if its other lanes are zero; by lane.
  std::vector<InsertedLane> lanes_of(size_t at) const {
    constexpr int kFewLanes = 4;
    const Instruction* i = &block_[at];
    if (i->code != Code::Insert || continued_.count(i->dst.id) || i->dst.lanes < kFewLanes ||
        i->dst.dtype == DType::Bool || size_of(i->dst.dtype) < 4)
      return {};
    std::map<int64_t, InsertedLane> lanes;
    for (size_t insert = at;;) {
      const InsertedLane lane{static_cast<int>(i->imm), element(i->args[1], at), insert};
      if (!lanes.emplace(i->imm, lane).second) return {};
      const Operand& base = i->args[0];
      if (base.kind == Operand::Kind::Constant && base.bits == 0) break;
      i = maker(base);
      if (!i || i->code != Code::Insert || uses_.of(i->dst.id) > 1) return {};
      insert = made_.at(i->dst.id);
    }
    std::vector<InsertedLane> list;
    for (const auto& [q, lane] : lanes) list.push_back(lane);
    return list;
  }

  // Loads with one pointer, as many as there are.
  static std::vector<InsertedLane> nearest(const std::vector<InsertedLane>& lanes) {
    std::map<int, std::vector<InsertedLane>> by_pointer;
    for (const InsertedLane& l : lanes) {
      if (l.load) by_pointer[l.load->args[0].id].push_back(l);
    }
    std::vector<InsertedLane> most;
    for (auto& [pointer, list] : by_pointer) {
      if (list.size() > most.size()) most = std::move(list);
    }
    return most;
  }

  // The most of `near` that a permutation of one vector gives, the one of the middle among them.
  static Window window_of(const std::vector<InsertedLane>& near, int lanes) {
    Window best;
    const InsertedLane& middle = near[near.size() / 2];
    for (const int repeat : {1, 2, 4}) {
      for (const int step : {1, -1}) {
        for (int64_t more = 0; more < repeat; more++) {
          // From 0 on for every lane, so that the quotient is rounded down.
          const int64_t imm = more + (step < 0 ? lanes * repeat : 0);
          const auto place = [&](int lane) { return (imm + lane * step) / repeat; };
          const int64_t base = middle.load->imm - place(middle.lane);
          Window w{.imm = imm, .step = step, .repeat = repeat};
          int64_t low = middle.load->imm, high = low;
          for (const InsertedLane& l : near) {
            if (l.load->imm - place(l.lane) != base) continue;
            w.lanes.push_back(l);
            low = std::min(low, l.load->imm);
            high = std::max(high, l.load->imm);
          }
          w.first = low;
          w.live = high - low + 1;
          w.imm += (base - low + 2 * lanes) % lanes * repeat;
          if (w.live <= lanes && w.lanes.size() > best.lanes.size()) best = std::move(w);
        }
      }
    }
    return best;
  }

  bool from_window(size_t at, const std::vector<InsertedLane>& lanes) {
    constexpr size_t kFew = 4;
    const std::vector<InsertedLane> near = nearest(lanes);
    if (near.size() < kFew) return false;
    const int n = block_[at].dst.lanes;
    const Window w = window_of(near, n);
    const size_t others = lanes.size() - w.lanes.size();
    if (w.lanes.size() < kFew || w.live == 1 || others > lanes.size() / 4) return false;
    Instruction permute{.code = Code::Permute, .imm = w.imm, .step = w.step, .repeat = w.repeat};
    permute.dst = block_[at].dst;
    // Lanes that nothing is inserted into are the last ones, and stay zero.
    const int used = lanes.back().lane + 1;
    if (used > static_cast<int>(lanes.size())) return false;
    bool in_place = true, zero = true;
    for (int q = 0; q < n; q++) {
      const int from = shuffled_lane(permute, q);
      in_place &= from == q;
      zero &= q < used || from >= w.live;
    }
    const bool alone = others == 0;

    std::vector<Instruction>& out = written_[at];
    Instruction load = *w.lanes.front().load;
    load.imm = w.first;
    load.mask = static_cast<int>(w.live < n ? w.live : 0);
    Operand x = put(std::move(load), at, in_place && zero && alone, out);
    if (!in_place) {
      permute.args = {x};
      x = put(std::move(permute), at, zero && alone, out);
    }
    if (!zero) {
      const Operand leading{.kind = Operand::Kind::Iota,
                            .dtype = DType::Bool,
                            .lanes = n,
                            .bits = static_cast<uint64_t>(used)};
      Operand nothing = x;
      nothing.kind = Operand::Kind::Constant;
      nothing.id = -1;
      Instruction keep{.code = Code::Op, .op = Op::Where, .args = {leading, x, nothing}};
      x = put(std::move(keep), at, alone, out);
    }
    size_t left = others;
    for (size_t k = 0, joined = 0; k < lanes.size(); k++) {
      if (joined < w.lanes.size() && w.lanes[joined].lane == lanes[k].lane) {
        joined++;
        drop(lanes[k]);
        continue;
      }
      dropped_.insert(lanes[k].insert);
      Instruction insert = block_[lanes[k].insert];
      insert.args[0] = x;
      x = put(std::move(insert), at, --left == 0, out);
    }
    return true;
  }

  // A gather's places are 32 bits wide.
  void gather(size_t at, const std::vector<InsertedLane>& lanes) {
    constexpr int kFewLanes = 16;  // of eight, inserts are as fast
    constexpr int64_t kFar = std::numeric_limits<int32_t>::max() / 8;
    const int n = block_[at].dst.lanes;
    const auto live = static_cast<int64_t>(lanes.size());
    const bool leading = lanes.front().lane == 0 && lanes.back().lane == live - 1;
    if (!target_.fast_gather || n < kFewLanes || 4 * live < 3 * n || !leading) return;
    if (nearest(lanes).size() < lanes.size()) return;
    const int64_t first = lanes[0].load->imm, step = lanes[1].load->imm - first;
    for (const InsertedLane& l : lanes) {
      if (l.load->imm != first + l.lane * step) return;
    }
    if (step == 0 || std::abs(step) * n > kFar) return;
    Instruction load = *lanes[0].load;
    load.mask = static_cast<int>(live < n ? live : 0);
    load.step = static_cast<int>(step);
    for (const InsertedLane& l : lanes) drop(l);
    put(std::move(load), at, true, written_[at]);
  }

  // Appends an instruction whose result is that of the chain that ends at `at`, or a new value.
  Operand put(Instruction i, size_t at, bool is_last, std::vector<Instruction>& out) {
    i.dst = block_[at].dst;
    if (!is_last) i.dst.id = program_.values++;
    out.push_back(std::move(i));
    return out.back().dst;
  }

  // The insert, and the load if nobody else needs it.
  void drop(const InsertedLane& l) {
    dropped_.insert(l.insert);
    if (uses_.of(l.load->dst.id) == 1) dropped_.insert(made_.at(l.load->dst.id));
  }

  Program& program_;
  const Target& target_;
  const Uses& uses_;
  std::vector<Instruction>& block_;
  std::unordered_map<int, size_t> made_;       // where values of this block are made
  std::set<int> continued_;                    // values that lanes are inserted into
  std::map<int, std::set<size_t>> stored_at_;  // where this block stores to a memory
  std::map<size_t, std::vector<Instruction>> written_;
  std::set<size_t> dropped_;
};

}  // namespace

void join_inserted_loads(Program& program, const Target& target) {
  for_each_block_with(Code::Insert, program,
                      [&](const Uses& uses, std::vector<Instruction>& block) {
                        InsertBlock(program, target, uses, block).run();
                      });
}

}  // namespace lazuli
