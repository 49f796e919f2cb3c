// Elementary functions as arithmetic: exp, sin, erf and the rest become branch-free sequences of
// basic operations, so that they vectorise like any other expression and fuse with what surrounds
// them. They are the same on every target, but in f32 for what MathOps names.
#pragma once

#include "core/node.h"

namespace lazuli {

/// What a target has beyond the basic operations, for the functions that are shorter by it.
struct MathOps {
  bool permutes = false;   // EighthRoot: exponentials
  bool estimates = false;  // RecipEstimate: quotients in tanh and sigmoid
};

/// Whether `op` is expanded by expand_math.
bool is_math(Op op);

/// `op` of kernel-level float nodes of dtype `dtype` as a graph of basic operations: + - * / fma
/// sqrt abs round, compare, where, cast, bitcast, and integer operations. Nothing is flushed to
/// zero, NaN, infinities and signed zeros are as in C's Annex F, and angles of any size are reduced
/// exactly. f16 and bf16 go through f32. `arg` is that of the node; `ops` are basic operations too.
/// The algorithms: ir/math_functions.h.
NodeRef expand_math(Op op, DType dtype, const Sources& src, const Arg& arg = {},
                    const MathOps& ops = {});

/// The same for Rem of floats, which is exact; quotients of many digits are left to a Rem that runs
/// where a lane needs it.
NodeRef expand_rem(DType dtype, const Sources& src);

/// The largest error of expand_math in units in the last place of the exact result. For the 16-bit
/// floats 1.
int stated_ulp(Op op, DType dtype);

/// Arg of an Exp of what is at most 0, or NaN: the same result for less. The simplifier finds them.
inline constexpr int64_t kNotPositive = 1;
/// Whether `n` is an Exp with that promise.
inline bool is_not_positive_exp(const Node& n) {
  return n.op == Op::Exp && std::holds_alternative<int64_t>(n.arg) && n.integer() == kNotPositive;
}

/// Arg of a Where whose condition is seldom true: a target may guard the first branch with `if any
/// lane`, but need not.
inline constexpr int64_t kRarely = 1;
/// Whether `n` is a Where with that hint.
inline bool is_rare(const Node& n) {
  return n.op == Op::Where && std::holds_alternative<int64_t>(n.arg) && n.integer() == kRarely;
}

}  // namespace lazuli
