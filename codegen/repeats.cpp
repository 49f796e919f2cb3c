#include "codegen/repeats.h"

#include <algorithm>

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
  for (const Phase& phase : program.phases) {
    visit(phase.body);
    visit(phase.tail);
  }
}

bool Repeats::repeated(const Instruction& loop) const {
  const auto it = candidates_.find(&loop);
  return it != candidates_.end() && counts_.at(it->second) > 1;
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
