// A kernel = an algorithm (stages of values over axes) + a schedule (steps, as data, that only
// rewrite loop lists, scopes and attachment). The algorithm is written by the scheduler from the
// tensor graph; the schedule by the chooser's rules, a tuner, or a user; ir/lower.h turns both into
// a loop program.
//
// Expressions are nodes of core/node.h with shape (). Integers that index are in one canonical form
// (ir/index.h: Const, Var, Lin, FDiv, FMod of dtype I64), so equal indices are the same pointer and
// every one knows its interval.
//   Var                      an axis, value in [0, extent)
//   Load [slot](flat, valid) element `flat` of kernel argument `slot`; with a second source, zero
//   where it is false,
//                            and then nothing is read
//   Read [value](i, j, ...)  a value of another stage (or an earlier value of this one), at
//   coordinates of its `dims`
// and every elementwise op of core/op.h. A reduction is a property of a value, never a node.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/node.h"

namespace lazuli {

/// Where a value lives between its computation and its use.
enum class Scope : uint8_t {
  Register,  // SSA values; the reader's tile is the writer's
  Scratch,   // memory of one worker
  Local,     // memory of one GPU work-group
  Shared,    // memory of all workers, across phases
  Each,      // memory of one worker, across phases: each computes all of it for itself
  Argument,  // an output of the kernel
};

/// Whether phases read what others have stored in such memory.
inline bool crosses_phases(Scope s) {
  return s == Scope::Shared || s == Scope::Each || s == Scope::Argument;
}

/// How a loop runs. Ilp is unrolled with an accumulator of its own for every iteration.
enum class LoopKind : uint8_t { Serial, Unroll, Ilp, Vector, Parallel, Group, Item };

/// One result of a stage: for every point of `dims`, `expr`, reduced over the stage's other axes by
/// `reduce`.
struct Value {
  int id = -1;
  std::string name;
  NodeRef expr;            // over the stage's axes; its dtype is the accumulator's for a reduction
  Op reduce = Op::Count_;  // ReduceAdd, ReduceMul, ReduceMax, ReduceMin, or Count_: no reduction
  std::vector<NodeRef> dims;  // the axes kept, in the order of coordinates
  int slot = -1;              // the kernel argument it is stored to, row-major over dims; -1: none
  // The earlier value of this stage, a largest or smallest element, whose index along the one axis
  // that both are reduced over this is: the least one, of a NaN if there is one. expr is that axis,
  // reduce ReduceMin. -1: of none.
  int place_of = -1;
  bool zero_beyond = false;   // the stage's limit ends computing it: beyond that, zeros are stored
  // written by the schedule
  Scope scope = Scope::Scratch;
  std::vector<std::string> layout;  // storage order by names of split loops; empty: dims, row-major
  int alias = -1;                   // shares the storage of this value, in place
  bool stream = false;              // non-temporal stores

  bool reduces() const { return reduce != Op::Count_; }
};

/// Is it the largest or the smallest of its terms, and no place of one?
bool is_extreme(const Value& v);
/// What combines the two factors of a value's terms: the product that is summed, or the difference
/// whose squares or absolute values are.
const NodeRef& combination(const Value& v);
/// Factor 0 or 1: a source of the combination.
const NodeRef& factor(const Value& v, int place);

struct Loop {
  std::string name;
  int axis = 0;        // index into the stage's axes
  int64_t stride = 1;  // how far one iteration moves along the axis
  int64_t extent = 1;  // iterations
  LoopKind kind = LoopKind::Serial;

  /// Emitted as copies of its body, or as lanes.
  bool is_unrolled() const {
    return kind == LoopKind::Unroll || kind == LoopKind::Ilp || kind == LoopKind::Vector;
  }
};

struct Stage;
/// The loop over coarser parts of the same axis that stands inside `loop`, one of `s` (rule L11 of
/// ir/nest.h); null: there is none.
const Loop* coarser_inside(const Stage& s, const Loop& loop);

/// A serial loop over each axis, in their order.
std::vector<Loop> whole_loops(std::span<const NodeRef> axes);

/// Values computed together in one loop nest. An axis (a Var) may be shared between stages of a
/// kernel: equal axes then mean the same iteration.
struct Stage {
  std::string name;
  std::vector<NodeRef> axes;
  std::vector<Value> values;
  std::map<int, NodeRef>
      limit;  // axis -> exclusive upper bound in terms of other axes: a triangular domain
  std::map<int, NodeRef> begin;  // axis -> inclusive lower bound, likewise
  std::map<int, NodeRef> bound;  // limits in terms of sizes too: what lies beyond nobody needs
  // written by the schedule
  std::vector<Loop> loops;  // starts as one serial loop for each axis
  Stage* at =
      nullptr;  // computed inside loop `at_loop` of that stage; null: a root, a phase of its own
  std::string at_loop;
  bool whole_steps = false;  // its dots are of words in whole steps, as tile registers take them

  bool keeps(const Value& v, int axis) const;
  /// Has it an axis whose loops begin or end at a mask?
  bool is_triangular() const { return !limit.empty() || !begin.empty(); }
  bool is_triangular_along(int axis) const { return limit.count(axis) + begin.count(axis) > 0; }
};

/// Whether two stages compute the same points: equal axes, and loops that begin and end alike.
bool same_domain(const Stage& a, const Stage& b);

/// The value of `stage` that is the place of `v`; null: none is.
const Value* place_of(const Stage& stage, const Value& v);

struct KernelArgument {
  std::string name;
  DType dtype = DType::F32;
  int64_t size = 0;  // elements
  bool output = false;
  int64_t least = INT64_MAX;  // elements that it has in every run, if not `size`
  bool made = false;          // by another step of the same plan
};

/// A decision of the chooser (ir/choose.h) that leaves every bit of the results as it is.
struct Choice {
  struct Option {
    std::string text;
    double cost = 0;  // predicted time, that of what was taken being 1; 0: the model does not say
  };
  std::string what;  // "tile of sum"; once in a kernel
  std::string taken;
  std::vector<Option> others;
};

/// A size that differs from run to run. A variable in bounds of axes, which counts from `least`.
struct KernelSize {
  NodeRef variable;
  int slot = -1;  // the argument that holds it
  int64_t least = 0;
};

struct Kernel {
  std::string name;
  std::vector<KernelArgument> arguments;
  std::vector<std::unique_ptr<Stage>> stages;  // sources before users
  std::vector<KernelSize> sizes;
  std::string schedule;                        // the steps applied so far, as text
  std::vector<std::string> reasons;            // why each was chosen
  std::vector<Choice> choices;                 // and what else could have been
  int value_count = 0;

  int add_argument(std::string arg_name, DType dtype, int64_t size, bool output);
  Stage* add_stage(std::string stage_name, std::vector<NodeRef> axes);
  /// Adds a value to `stage` and returns its id, for read().
  int add_value(Stage* stage, std::string value_name, NodeRef expr, std::vector<NodeRef> dims,
                Op reduce = Op::Count_, int slot = -1);
  Stage* find_stage(const std::string& stage_name) const;  // UserError if there is none
  std::pair<Stage*, Value*> find_value(int id) const;
  Value* find_value(const std::string& value_name) const;  // UserError if there is none
};

/// Is `node` one of the list?
bool contains(std::span<const NodeRef> list, const Node* node);

/// A fresh axis.
NodeRef axis(std::string name, int64_t extent);
NodeRef load(int slot, DType dtype, const NodeRef& flat, const NodeRef& valid = {});
NodeRef read(int value, DType dtype, std::vector<NodeRef> index);

/// The algorithm as text, a line a value.
std::string print_algorithm(const Kernel& kernel);

/// Throws UserError, naming stage, value and rule, unless the algorithm is legal: reads name
/// earlier values with the right number of coordinates, loads name arguments, expressions use only
/// the stage's own axes, dtypes agree, dims are axes of the stage.
void verify_algorithm(const Kernel& kernel);

/// Copies a kernel (stages are owned).
Kernel clone(const Kernel& kernel);

}  // namespace lazuli
