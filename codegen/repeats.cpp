#include "codegen/repeats.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lazuli {
namespace {

// A function costs the compiler as much as some 20 instructions, and a call as much as some 20 that
// run: a copy is saved from twice the first on, and a call stays below 2 % of the time.
constexpr int64_t kFewest = 40;
constexpr int64_t kLeastWork = 1000;
constexpr double kUnknownCount = 8;  // iterations of a loop whose end is not a constant

uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ULL;
  return h ^ h >> 29;
}

uint64_t mix(uint64_t h, const Operand& v) {
  h = mix(h, static_cast<uint64_t>(v.kind) << 16 | static_cast<uint64_t>(v.dtype) << 8 |
                 static_cast<uint64_t>(v.lanes) << 1 | static_cast<uint64_t>(v.pointer));
  const bool literal = v.kind == Operand::Kind::Constant || v.kind == Operand::Kind::Iota;
  return literal ? mix(h, v.bits) : h;
}

bool is_range(const Operand& v) {
  return v.kind == Operand::Kind::Begin || v.kind == Operand::Kind::End;
}

bool is_access(Code code) {
  return code == Code::Load || code == Code::Store || code == Code::Prefetch;
}

double iterations(const Instruction& i) {
  if (i.code != Code::Loop) return 1;
  if (i.end.kind != Operand::Kind::Constant) return kUnknownCount;
  return static_cast<double>(static_cast<int64_t>(i.end.bits)) -
         static_cast<double>(static_cast<int64_t>(i.begin.bits));
}

}  // namespace

Repeats::Repeats(const Program& program) {
  phases_.reserve(program.phases.size());
  for (const Phase& phase : program.phases) {
    phases_.emplace_back();
    phases_.back().size = visit(phase.body).size + visit(phase.tail).size;
  }
}

bool Repeats::repeated(const Instruction& loop) const {
  const auto it = candidates_.find(&loop);
  return it != candidates_.end() && counts_.at(it->second) > 1;
}

std::vector<std::vector<size_t>> Repeats::separate_phases(int64_t fewest) const {
  // Each phase leads to an earlier one of its group, the first of them to itself.
  std::vector<size_t> earlier(phases_.size());
  std::iota(earlier.begin(), earlier.end(), size_t{0});
  const auto first_of = [&](size_t i) {
    while (earlier[i] != i) i = earlier[i] = earlier[earlier[i]];
    return i;
  };
  std::unordered_map<uint64_t, size_t> owners;
  for (size_t i = 0; i < phases_.size(); i++) {
    for (const uint64_t loop : phases_[i].candidates) {
      if (counts_.at(loop) == 1) continue;
      const auto [at, is_new] = owners.emplace(loop, i);
      if (is_new) continue;
      const auto [low, high] = std::minmax({first_of(at->second), first_of(i)});
      earlier[high] = low;
    }
  }
  std::vector<std::vector<size_t>> alike(phases_.size());
  for (size_t i = 0; i < phases_.size(); i++) alike[first_of(i)].push_back(i);
  std::vector<std::vector<size_t>> groups;
  int64_t size = fewest;  // of the last group
  for (const std::vector<size_t>& more : alike) {
    if (more.empty()) continue;
    if (size >= fewest) {
      groups.emplace_back();
      size = 0;
    }
    for (const size_t i : more) {
      groups.back().push_back(i);
      size += phases_[i].size;
    }
  }
  if (groups.size() > 1 && size < fewest) {
    auto& last = groups[groups.size() - 2];
    last.insert(last.end(), groups.back().begin(), groups.back().end());
    groups.pop_back();
  }
  for (auto& group : groups) std::sort(group.begin(), group.end());
  return groups;
}

Repeats::Shape Repeats::visit(const std::vector<Instruction>& body) {
  Shape all;
  for (const Instruction& i : body) {
    const Shape s = visit(i);
    all.hash = mix(all.hash, s.hash);
    all.size += s.size;
    all.work += s.work;
    all.closed = all.closed && s.closed;
  }
  return all;
}

Repeats::Shape Repeats::visit(const Instruction& i) {
  Shape s = visit(i.body);
  s.size++;
  s.work = (s.work + 1) * iterations(i);
  s.closed = s.closed && !is_range(i.begin) && !is_range(i.end) && i.code != Code::TileDot;
  uint64_t h = mix(s.hash, static_cast<uint64_t>(i.code) << 32 | static_cast<uint64_t>(i.op) << 16 |
                               static_cast<uint64_t>(i.mask) << 1 | static_cast<uint64_t>(i.flag));
  h = mix(h, static_cast<uint64_t>(i.step) << 32 | static_cast<uint64_t>(i.repeat));
  if (!is_access(i.code) || i.memory >= 0) h = mix(h, static_cast<uint64_t>(i.imm));
  for (const Operand* v : {&i.dst, &i.begin, &i.end}) h = mix(h, *v);
  for (const Operand& a : i.args) {
    h = mix(h, a);
    s.closed = s.closed && !is_range(a);
  }
  for (const Phi& p : i.phis) {
    h = mix(mix(mix(h, p.dst), p.init), p.next);
    s.closed = s.closed && !is_range(p.init) && !is_range(p.next);
  }
  s.hash = h;
  const bool large = s.size >= kFewest && s.work >= kLeastWork;
  if (i.code == Code::Loop && i.phis.empty() && s.closed && large) {
    candidates_[&i] = h;
    counts_[h]++;
    phases_.back().candidates.push_back(h);
  }
  return s;
}

int64_t place_of(const Program& program, const Instruction& i, DType dtype) {
  if (i.memory >= 0) return 0;
  const std::vector<int64_t>& places =
      i.memory == Program::kScratch ? program.scratch_places : program.shared_places;
  const auto next = std::upper_bound(places.begin(), places.end(), i.imm * size_of(dtype));
  return next == places.begin() ? 0 : next[-1];
}

}  // namespace lazuli
