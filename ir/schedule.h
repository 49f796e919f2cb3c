// A schedule is a list of steps, as text, one a line (or separated by `;`, `#` starts a comment):
//   split S l outer inner N      loop l of stage S becomes outer (stride N) and inner (N
//   iterations) order S l...                 the loops of S, outermost first
//   serial|unroll|ilp|vector|parallel|group|item S l...   how loops run (ir/kernel.h)
//   at S X l                     S is computed inside loop l of stage X
//   scope V reg|scratch|shared|each|local          where value V lives
//   store V l...                 storage order of V by names of its stage's loops: packing
//   inplace V W                  V is kept in the memory of W
//   stream V                     non-temporal stores
//   fuse A B                     B's values join the loops of A (equal axes)
//   pack S i P                   factor i (0, 1) of what S sums (ir/kernel.h) becomes stage P
//   polyphase S i P n            factor i, a read of V, reads stage P in its place: the elements of V,
//   every n-th along its last axis beside each other, as strided convolutions read them
//   dot S l D P Q [n]            products that S sums along l are taken a word of D (dot.u8i8,
//   dot.i8, dot.i16, dot.bf16) at a time: factors 0 and 1, packed, become stages P and Q (ir/dots.h); where
//   a factor had to be raised to lose its sign, stage S.start makes up for it; so many words that
//   they are a multiple of n, the last ones zeros
//   dims V n...                  V's dimensions in another order (their present places): another row-major storage
//   lift S n P [R...]            the n-th load of S (as printed, from 0), or, counted on, what it
//   reads of other stages, becomes stage P, which later stages R that have the same load read too
//   rfactor S l P N              stage P reduces N chunks of l, each for itself; S what they give
//   cache S P                    stage P reduces what S did; S copies it, and what follows from it
//   limit V                      loops begin and end at the masks where(k < bound, x, -inf or 0) in V
//   (ir/limits.h)
//   flatten S a b f              neighbouring axes a, b of S become one axis f
//   merge S a b f                the same in all stages that have these axes
// Steps only change loop lists, scopes and attachment; what is computed never changes. Every step
// is checked as it is applied; what only the whole schedule can tell is checked by verify_schedule,
// and by the lowering (tiles).
#pragma once

#include <string>
#include <vector>

#include "ir/kernel.h"

namespace lazuli {

struct Step {
  std::string op;
  std::vector<std::string> args;
};

/// UserError for an unknown step or a wrong number of words.
std::vector<Step> parse_schedule(const std::string& text);
std::string print_step(const Step& step);

/// Applies one step, or a text of them, and appends it to kernel.schedule. UserError if a step is
/// not legal.
void apply_step(Kernel& kernel, const Step& step);
void apply_schedule(Kernel& kernel, const std::string& text);

/// Throws UserError, naming stage and rule, unless the finished schedule is legal: attachment is a
/// tree that encloses every reader, other phases see shared values only, parallel loops split no
/// reduction, in-place values die in time.
void verify_schedule(const Kernel& kernel);

/// Whether two schedules of one algorithm give the same bits, as far as loops tell: every reduction
/// takes its terms in the same order, into the same accumulators, and rounds at the same points, and
/// loops that end at a mask end alike. What is kept where does not matter.
bool same_order(const Kernel& a, const Kernel& b);

/// The root of a phase. One that does not wait runs beside those before it, up to one that does.
struct PhaseRoot {
  const Stage* stage;
  bool waits;
  bool each;  // run whole by each worker: its values have scope each
};
/// The root stages in the order in which their phases run. UserError if they wait for each other.
std::vector<PhaseRoot> phases(const Kernel& kernel);

/// Ids of the values that the stage reads, ascending.
std::vector<int> values_read(const Stage& stage);

/// The loads of a stage, each once, in the order in which `lift` numbers them.
std::vector<NodeRef> loads_of(const Stage& stage);
/// These, and behind them what it reads of other stages.
std::vector<NodeRef> operands_of(const Stage& stage);

}  // namespace lazuli
