#include "ir/strided_loads.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/rewrite.h"
#include "ir/value_uses.h"
#include "ir/zip_rounds.h"

namespace lazuli {
namespace {

// A vector that a chain of inserts makes of elements `step` apart, from `first` on: its first
// `live` lanes, the others are zero.
struct Strided {
  size_t at = 0;  // its last insert
  int64_t first = 0, step = 0, live = 0;
};

// Which of `from` vectors lane 0 of a blended one is of, and what each round of blends adds to that
// where a lane has its bit. With e the first element of a result and e + step * q on lane p, which
// is that modulo the lanes, vector s satisfies s * lanes + p = e modulo `from`.
class Rounds {
 public:
  Rounds(int64_t from, int64_t lanes) : from_(from), inverse_(1) {
    while (inverse_ * lanes % from != 1 % from) inverse_++;
  }
  int64_t of_result(int64_t element) const { return element * inverse_ % from_; }
  // The vector that round `bit` takes lanes with that bit from, for vector x of the next round.
  int64_t source(int64_t x, int64_t bit) const {
    return ((x - inverse_ * bit) % from_ + from_) % from_;
  }

 private:
  int64_t from_, inverse_;
};

class LoadBlock {
 public:
  LoadBlock(Program& program, const Target& target, const Uses& uses,
            std::vector<Instruction>& block)
      : program_(program), target_(target), uses_(uses), block_(block) {}

  void join() {
    for (size_t at = 0; at < block_.size(); at++) {
      if (block_[at].dst.id >= 0) made_[block_[at].dst.id] = at;
      if (block_[at].code == Code::Insert) continued_.insert(block_[at].args[0].id);
    }
    std::map<std::pair<int, int64_t>, std::vector<Strided>> vectors;  // by pointer and step
    for (size_t at = 0; at < block_.size(); at++) {
      if (const auto v = strided_at(at)) vectors[{pointer_of(at), v->step}].push_back(*v);
    }
    for (auto& [key, list] : vectors) {
      std::sort(list.begin(), list.end(),
                [](const Strided& a, const Strided& b) { return a.first < b.first; });
      for (size_t i = 0; i < list.size();) {
        std::vector<Strided> family;
        const int64_t end = list[i].first + key.second;
        while (i < list.size() && list[i].first < end) family.push_back(list[i++]);
        if (key.second % 2 == 0) {
          if (is_complete(family)) write_interleaved(family);
        } else if (is_worth_it(family)) {
          write(family);
        }
      }
    }
    rewrite(block_, std::move(written_), dropped_);
  }

 private:
  const Instruction* maker(const Operand& x) const {
    const auto it = x.kind == Operand::Kind::Value ? made_.find(x.id) : made_.end();
    return it == made_.end() ? nullptr : &block_[it->second];
  }

  // A load of one element of an input. It may be anywhere: an element of one that is written in
  // place is not stored before it is read.
  const Instruction* element(const Operand& x) const {
    const Instruction* const i = maker(x);
    const bool plain = i && i->code == Code::Load && i->dst.lanes == 1 && i->args.size() == 1 &&
                       i->mask == 0 && !i->flag && i->memory >= 0 &&
                       !program_.arguments[static_cast<size_t>(i->memory)].output;
    return plain ? i : nullptr;
  }

  int pointer_of(size_t last) const { return element(block_[last].args[1])->args[0].id; }

  std::optional<Strided> strided_at(size_t at) const {
    const Instruction* i = &block_[at];
    const int lanes = i->dst.lanes;
    if (i->code != Code::Insert || continued_.count(i->dst.id) || lanes < 4 || i->imm == 0 ||
        i->dst.dtype == DType::Bool)
      return {};
    const Instruction* const last = element(i->args[1]);
    if (!last) return {};
    const int live = static_cast<int>(i->imm) + 1;
    Strided v{at, last->imm, 0, live};
    for (int q = live - 1; q > 0; q--) {
      i = maker(i->args[0]);
      const bool next = i && i->code == Code::Insert && i->imm == q - 1 && uses_.of(i->dst.id) == 1;
      const Instruction* const x = next ? element(i->args[1]) : nullptr;
      if (!x || x->args[0].id != last->args[0].id) return {};
      if (q == live - 1) v.step = last->imm - x->imm;
      if (v.first - x->imm != v.step) return {};
      v.first = x->imm;
    }
    const bool odd = v.step > 1 && v.step % 2 == 1 && live == lanes,
               power = v.step > 1 && v.step <= lanes && (v.step & (v.step - 1)) == 0,
               alone = i->args[0].kind == Operand::Kind::Constant && i->args[0].bits == 0;
    return (odd || power) && alone ? std::optional(v) : std::nullopt;
  }

  // Whether there is one vector for each residue: every element between the first and the last is
  // of one.
  static bool is_complete(const std::vector<Strided>& family) {
    bool all = static_cast<int64_t>(family.size()) == family[0].step;
    for (size_t r = 0; r < family.size(); r++) {
      all &= family[r].first == family[0].first + static_cast<int64_t>(r) &&
             family[r].live == family[0].live;
    }
    return all;
  }

  // As many whole vectors as there are, and zips that give each residue's elements.
  void write_interleaved(const std::vector<Strided>& family) {
    const size_t at = first_of(family);
    const Operand like = block_[at].dst;
    const int64_t lanes = like.lanes, all = family[0].step * family[0].live;
    const Instruction load = *element(block_[at].args[1]);
    std::vector<Instruction>& out = written_[at];
    std::vector<Operand> vectors;
    for (int64_t from = 0; from < family[0].step * lanes; from += lanes) {
      Instruction i = load;
      i.imm = family[0].first + from;
      i.mask = static_cast<int>(all - from < lanes ? all - from : 0);
      Operand zero = like;
      zero.kind = Operand::Kind::Constant;
      zero.bits = 0;
      vectors.push_back(from < all ? make(std::move(i), like, out) : zero);
    }
    zip_rounds(std::move(vectors), lanes,
               [&](const Operand& x, const Operand& y, bool high, int result) {
                 Instruction i{.code = Code::Zip, .args = {x, y}, .flag = high};
                 if (result < 0) return make(std::move(i), like, out);
                 const size_t done = family[static_cast<size_t>(result)].at;
                 i.dst = block_[done].dst;
                 out.push_back(std::move(i));
                 drop(done);
                 return out.back().dst;
               });
  }

  static size_t first_of(const std::vector<Strided>& family) {
    return std::min_element(family.begin(), family.end(),
                            [](const auto& a, const auto& b) { return a.at < b.at; })
        ->at;
  }

  // The vectors that each round makes, the last round's first.
  std::vector<std::set<int64_t>> wanted(const std::vector<Strided>& family) const {
    const int64_t n = family[0].step, lanes = block_[family[0].at].dst.lanes;
    const Rounds rounds(n, lanes);
    std::vector<std::set<int64_t>> made(1);
    for (const Strided& v : family) made[0].insert(rounds.of_result(v.first - family[0].first));
    for (int64_t bit = lanes / 2; bit > 0; bit /= 2) {
      std::set<int64_t> below;
      for (int64_t x : made.back()) {
        below.insert(x);
        below.insert(rounds.source(x, bit));
      }
      made.push_back(std::move(below));
    }
    return made;
  }

  // Next to one instruction for each element, which loads and inserts it.
  bool is_worth_it(const std::vector<Strided>& family) const {
    constexpr int64_t kSpare = 3;  // registers
    const int64_t n = family[0].step, lanes = block_[family[0].at].dst.lanes;
    // The last of the whole vectors has an element that is asked for.
    const int64_t beyond = family.back().first - family[0].first + n * (lanes - 1);
    if (n > target_.vector_registers - kSpare || (n - 1) * lanes > beyond) return false;
    const std::vector<std::set<int64_t>> made = wanted(family);
    size_t steps = family.size();
    for (const std::set<int64_t>& round : made) steps += round.size();
    return static_cast<int64_t>(steps) < lanes * static_cast<int64_t>(family.size());
  }

  Operand make(Instruction i, const Operand& like, std::vector<Instruction>& out) {
    i.dst = like;
    i.dst.kind = Operand::Kind::Value;
    i.dst.id = program_.values++;
    out.push_back(std::move(i));
    return out.back().dst;
  }

  // In place of the first of the vectors.
  void write(const std::vector<Strided>& family) {
    const int64_t n = family[0].step, first = family[0].first;
    const size_t at = first_of(family);
    const Operand like = block_[at].dst;
    const int64_t lanes = like.lanes;
    const Instruction load = *element(block_[at].args[1]);
    const std::vector<std::set<int64_t>> made = wanted(family);
    std::vector<Instruction>& out = written_[at];
    // Nothing behind the last element is touched.
    const int64_t end = family.back().first + n * (lanes - 1) + 1;
    std::map<int64_t, Operand> vectors;
    for (int64_t x : made.back()) {
      Instruction i = load;
      i.imm = first + x * lanes;
      const int64_t there = end - i.imm;
      i.mask = there < lanes ? static_cast<int>(there) : 0;
      vectors[x] = make(std::move(i), like, out);
    }
    const Rounds rounds(n, lanes);
    auto round = made.rbegin();
    for (int64_t bit = 1; bit < lanes; bit *= 2) {
      std::map<int64_t, Operand> next;
      for (int64_t x : *++round) {
        const Operand &rest = vectors.at(x), &set = vectors.at(rounds.source(x, bit));
        next[x] = make({.code = Code::Blend, .args = {rest, set}, .imm = bit}, like, out);
      }
      vectors = std::move(next);
    }
    for (const Strided& v : family) {
      const int64_t element = v.first - first;
      Instruction p{.code = Code::Permute,
                    .args = {vectors.at(rounds.of_result(element))},
                    .imm = element % lanes,
                    .step = static_cast<int>(n)};
      p.dst = block_[v.at].dst;
      out.push_back(std::move(p));
      drop(v.at);
    }
  }

  // The chain that ends at `at`, and the loads that nobody else needs.
  void drop(size_t at) {
    for (;;) {
      dropped_.insert(at);
      const Instruction& i = block_[at];
      if (uses_.of(i.args[1].id) == 1) dropped_.insert(made_.at(i.args[1].id));
      if (i.imm == 0) return;
      at = made_.at(i.args[0].id);
    }
  }

  Program& program_;
  const Target& target_;
  const Uses& uses_;
  std::vector<Instruction>& block_;
  std::unordered_map<int, size_t> made_;  // where values of this block are made
  std::set<int> continued_;               // values that lanes are inserted into
  std::map<size_t, std::vector<Instruction>> written_;
  std::set<size_t> dropped_;
};

}  // namespace

void join_strided_loads(Program& program, const Target& target) {
  for_each_block_with(Code::Insert, program,
                      [&](const Uses& uses, std::vector<Instruction>& block) {
                        LoadBlock(program, target, uses, block).join();
                      });
}

}  // namespace lazuli
