// Numbers that a graph holds. They are structure, as its ops are, until one is met with a second
// value: from then on it is an argument of the plan, and its values compile nothing. As an argument
// it is an element of an array, of which nothing is known when the plan is made: what simplifies
// for some numbers only is not simplified, and an index that it is a part of is looked up, not made
// a movement. Such rules are exact, so that values are the same bits either way; but a function of
// literals alone (exp, say) is the host's where they are built in, and within the stated units in
// the last place of it where they are not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/node.h"

namespace lazuli {

/// Is `n` a constant without a value? One that has a value is an array like any other.
inline bool is_literal(const Node& n) {
  return n.op == Op::Const && !n.realised();
}

/// The value of a constant, at one of the places that read it.
struct Literal {
  DType dtype;
  uint64_t bits;
};

/// Which literals of a structure a plan has built in, and which are its arguments. Those that were
/// equal whenever they were met are one argument.
class LiteralUse {
 public:
  /// All built in.
  explicit LiteralUse(std::span<const Literal> literals);

  /// Does the plan serve these values?
  bool fits(std::span<const uint64_t> bits) const;
  /// What serves these too.
  LiteralUse widened(std::span<const uint64_t> bits) const;
  /// The first literal that is the same argument as number `i`; -1: it is built in.
  int argument(size_t i) const { return arguments_[i]; }

 private:
  std::vector<Literal> values_;  // of what is built in
  std::vector<int> arguments_;
  bool any_ = false;  // is any literal an argument?
};

}  // namespace lazuli
