// Where addresses begin, and how they move on from one iteration of a loop to the next.
#pragma once

#include <algorithm>
#include <climits>
#include <optional>
#include <vector>

#include "ir/program.h"

namespace lazuli {

/// How many iterations a loop has; nothing if it is no loop, or if that is not known.
inline std::optional<int64_t> count_of(const Instruction& loop) {
  const bool counted = loop.code == Code::Loop && loop.begin.kind == Operand::Kind::Constant &&
                       loop.end.kind == Operand::Kind::Constant;
  if (!counted) return {};
  return static_cast<int64_t>(loop.end.bits) - static_cast<int64_t>(loop.begin.bits);
}

/// Whether nothing in a loop has a body of its own.
inline bool is_innermost(const Instruction& loop) {
  return std::all_of(loop.body.begin(), loop.body.end(),
                     [](const Instruction& i) { return i.body.empty(); });
}

/// Whether an instruction multiplies and adds vectors.
inline bool is_product(const Instruction& i) {
  return i.code == Code::Op && i.op == Op::Fma && i.dst.lanes > 1;
}

/// The products of vectors in one iteration of a loop, not those of loops inside it.
inline int64_t products_in(const Instruction& loop) {
  return std::count_if(loop.body.begin(), loop.body.end(), is_product);
}

/// Its loads, likewise.
inline int64_t loads_in(const Instruction& loop) {
  return std::count_if(loop.body.begin(), loop.body.end(),
                       [](const Instruction& i) { return i.code == Code::Load; });
}

/// How far scalars and pointers move on from one iteration of a loop to the next.
class LoopSteps {
 public:
  explicit LoopSteps(const Instruction& loop) {
    find_range(loop);
    steps_.resize(static_cast<size_t>(last_ - first_ + 1), 0);
    set(loop.dst, 1);
    for (const Phi& phi : loop.phis) set(phi.dst, carried(loop.body, phi));
    note(loop.body);
  }

  /// Nothing if it is not known, or not always the same.
  std::optional<int64_t> of(const Operand& x) const {
    const bool outside = x.kind != Operand::Kind::Value || x.id < first_ || x.id > last_;
    return outside ? std::optional<int64_t>(0) : steps_[static_cast<size_t>(x.id - first_)];
  }

 private:
  static bool is_integer(const Instruction& i, Op op) {
    return i.code == Code::Op && i.op == op && i.dst.lanes == 1 && i.dst.dtype == DType::I64;
  }

  // Of the values that are made inside: they lie close together.
  void find_range(const Instruction& i) {
    const auto take = [&](const Operand& x) {
      if (x.kind != Operand::Kind::Value) return;
      first_ = std::min(first_, x.id);
      last_ = std::max(last_, x.id);
    };
    take(i.dst);
    for (const Phi& phi : i.phis) take(phi.dst);
    for (const Instruction& j : i.body) find_range(j);
  }

  void set(const Operand& x, std::optional<int64_t> step) {
    steps_[static_cast<size_t>(x.id - first_)] = step;
  }

  static std::optional<int64_t> carried(const std::vector<Instruction>& body, const Phi& phi) {
    if (phi.dst.lanes != 1) return {};
    for (const Instruction& i : body) {
      const bool adds = i.dst.id == phi.next.id && is_integer(i, Op::Add) &&
                        i.args[0].id == phi.dst.id && i.args[1].kind == Operand::Kind::Constant;
      if (adds) return static_cast<int64_t>(i.args[1].bits);
    }
    return {};
  }

  void note(const std::vector<Instruction>& block) {
    for (const Instruction& i : block) {
      // Loops inside begin anew each time.
      const bool loop = i.code == Code::Loop;
      for (const Phi& phi : i.phis) set(phi.dst, loop ? of(phi.init) : std::nullopt);
      note(i.body);
      if (i.dst.kind == Operand::Kind::Value) set(i.dst, loop ? 0 : step(i));
    }
  }

  std::optional<int64_t> step(const Instruction& i) const {
    if (i.code == Code::Pointer) return of(i.args[0]);
    const bool sum = is_integer(i, Op::Add);
    if (!sum && !is_integer(i, Op::Mul)) return {};
    const auto a = of(i.args[0]), b = of(i.args[1]);
    if (!a || !b) return {};
    if (sum) return *a + *b;
    if (i.args[1].kind == Operand::Kind::Constant) {
      return *a * static_cast<int64_t>(i.args[1].bits);
    }
    return *a == 0 && *b == 0 ? std::optional<int64_t>(0) : std::nullopt;
  }

  std::vector<std::optional<int64_t>> steps_;  // by id; 0 of what is made outside
  int first_ = INT_MAX, last_ = INT_MIN;
};

/// The instruction of a loop, or of one inside it, that makes x; null: it is made outside.
inline const Instruction* maker_of(const Instruction& loop, const Operand& x) {
  for (const Instruction& i : loop.body) {
    if (i.dst.id == x.id) return &i;
    if (const Instruction* inside = maker_of(i, x)) return inside;
  }
  return nullptr;
}

/// What a loop, or one inside it, carries in x when it begins; null: it carries no x.
inline const Operand* begin_of(const Instruction& loop, const Operand& x) {
  for (const Phi& p : loop.phis) {
    if (p.dst.id == x.id) return &p.init;
  }
  for (const Instruction& i : loop.body) {
    if (const Operand* inside = begin_of(i, x)) return inside;
  }
  return nullptr;
}

/// What x, an index, is in the first iteration of a loop and of those inside it, as an operand that
/// is made outside; nothing if that is not seen.
inline std::optional<Operand> first_of(const Instruction& loop, const Operand& x) {
  if (x.kind != Operand::Kind::Value) return x;
  if (x.id == loop.dst.id) return loop.begin;
  if (const Operand* begin = begin_of(loop, x)) return first_of(loop, *begin);
  const Instruction* maker = maker_of(loop, x);
  if (!maker) return x;
  if (maker->code == Code::Loop) return first_of(loop, maker->begin);
  if (maker->code != Code::Op || (maker->op != Op::Add && maker->op != Op::Mul)) return {};
  const auto a = first_of(loop, maker->args[0]), b = first_of(loop, maker->args[1]);
  const auto is_zero = [](const std::optional<Operand>& o) {
    return o && o->kind == Operand::Kind::Constant && o->bits == 0;
  };
  if (!is_zero(a) && !is_zero(b)) return {};
  if (maker->op == Op::Mul) return is_zero(a) ? a : b;
  return is_zero(a) ? b : a;
}

}  // namespace lazuli
