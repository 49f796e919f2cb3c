// The loop nest of a kernel: loops with exact edges, accumulators, attached stages.
//
// L1 Phases. Each root stage is one function over [begin, end) of its parallel loops; a barrier
// lies between. L2 Environment. Each axis has `current` (a sum of the loop variables bound so far
// and the region's base) and `remaining`
//    (how many indices remain below this point). A leaf substitutes axis := current into the
//    expressions.
// L4 Edges are exact, never predicated but at bounds (L10). A loop of stride s over n indices runs
// n / s full iterations and then, if n % s, one more
//    emitted copy with a constant variable and the remainder; inner loops take their counts from
//    `remaining`. A vector over fewer indices than lanes uses a lane variable of that extent.
// L6 Accumulators. For a reduced value let p be the first reduction loop such that from p inwards
// every loop over a kept
//    axis is unrolled or a vector. All instances below p are accumulators in registers, combined
//    and stored when p closes. If reduction loops remain outside p they start from the value's
//    storage. Register tiles, blocking, dot products and column sums are all this one rule. A sum
//    of a product is emitted as fma(a, b, accumulator) for floats.
// L7 Combining. Accumulators of ilp loops in a fixed pairwise tree, then lanes in a fixed tree.
// The place of an extreme (Value::place_of) is carried beside it, and is the least among the places
// of those parts that are equal to it.
// L9 Regions: ir/footprint.h. If a reader of a stage sits outside the loop the stage is attached
// at, the storage belongs to the
//    loop now opening, and the inner emission only fills it.
// L10 Triangular domains, and sizes that are known when a kernel runs. The serial loops over a
// bounded axis get run-time ends, and what may be empty, or is a last shorter step, stands under an
// If. Those over an axis with a beginning start with the step that has it; a stage that stores along
// the axis, with the least one of its whole region, rounded down to its readers' steps. Where a step is several vectors side by side, what is left below a size is done by the
// vector. A stage that stores along the axis must cover its readers: the largest bound of its whole
// region, rounded up to the step of each stage that reads it along that axis, counted from where
// the region begins and from where the axis does. Values that are read beyond a mask are 0 there:
// after the loop that ends, zeros are stored in what is left of it.
// L11 A loop over coarse parts of an axis that stands inside one over fine parts is written out:
// as many parts as are whole are walked at once, each one step further, and the rest after them.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "ir/emit.h"
#include "ir/footprint.h"
#include "ir/kernel.h"
#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

class Nest {
 public:
  /// `nan_elsewhere`: the extremes that ir/nan_elsewhere.h finds.
  Nest(const Kernel& kernel, const Target& target, int lanes, std::set<int> nan_elsewhere);
  Program run();

 private:
  struct Environment {
    SmallVector<NodeRef, 8> current;
    SmallVector<int64_t, 8> remaining;
    std::vector<std::pair<int, int64_t>> ilp;  // axis and iteration of each ilp loop passed
    SmallVector<NodeRef, 8> visited;           // iteration of each loop passed, by position
    NodeRef lane;
    const Region* region = nullptr;
    std::map<int, int64_t> parts;  // of an axis, that are walked at once (L11)
  };
  /// The accumulators of one value while its reduction loops are open.
  struct Accumulators {
    int frame = 0;
    NodeRef first;       // condition: no outer reduction loop has run yet; null: there is none
    bool split = false;  // several accumulators make one element: they are added to what is stored
                         // at the end
    struct Entry {
      std::vector<NodeRef> index;
      std::vector<std::pair<int, int64_t>> ilp;
      std::unique_ptr<Cell> cell;
    };
    std::vector<Entry> entries;  // in order of creation
  };

  void emit_phase(const Stage* root);
  void emit_stage(const Stage* s, const Region& region);
  void make_place(const Stage* s, const Value& v, const Region& region);
  void place_attached(const Stage* s, size_t position, const Environment& e);
  void loops(const Stage* s, size_t position, Environment& e);
  void run_loop(const Stage* s, size_t position, Environment& e);
  void body(const Stage* s, size_t position, Environment& e, const NodeRef& iteration,
            int64_t remaining);
  void body(const Stage* s, size_t position, Environment& e, const NodeRef& iteration,
            int64_t stride, int64_t remaining);
  void vector_loop(const Stage* s, size_t position, Environment& e);
  void unrolled_loop(const Stage* s, size_t position, Environment& e);
  void parallel_loops(const Stage* s, Environment& e);
  bool packs_in_each(const Stage* s, size_t position) const;
  void parallel_nest(const Stage* s, const std::vector<int64_t>& full,
                     const std::vector<int64_t>& tails, const Environment& e);
  void parallel_iterations(const Stage* s, const std::vector<NodeRef>& iterations,
                           const std::vector<int64_t>& full, const std::vector<int64_t>& tails,
                           const Environment& e);
  void serial_loop(const Stage* s, size_t position, Environment& e);
  void steps_between(const Stage* s, size_t position, Environment& e, const NodeRef& v,
                     const NodeRef& from, const NodeRef& to, int64_t stride);
  void zeros_beyond(const Stage* s, size_t position, Environment& e, const NodeRef& steps);
  void parts_at_once(const Stage* s, size_t position, const Loop& coarse, Environment& e);
  void loop_to_vectors(const Stage* s, size_t position, Environment& e);
  bool innermost(const Stage* s, size_t position) const;
  size_t accumulation_position(const Stage* s, const Value& v) const;
  void open_accumulators(const Stage* s, const Value& v, size_t position, const Environment& e);
  Operand stored_partial(const Value& v, const Accumulators& g, const std::vector<NodeRef>& index,
                         const Operand& initial);
  Cell& accumulator(const Stage* s, const Value& v, const NodeRef& term,
                    const std::vector<NodeRef>& index, const Environment& e, bool across);
  void finish(const Value& v, const Value* place);
  /// Is it stored to an argument, or read by a stage?
  bool is_seen(const Value& v) const;
  Operand place_among(const std::vector<Operand>& parts, const std::vector<Operand>& places,
                      const Operand& extreme, bool across);
  void leaf(const Stage* s, Environment& e);
  void accumulate(const Value& v, const NodeRef& term, Cell& c, const Environment& e);
  void accumulate_place(const Stage* s, const Value& v, const NodeRef& term, const NodeRef& index,
                        Cell& extreme, Cell& place, const Environment& e);
  void keep(const Value& v, const std::vector<NodeRef>& index, const Operand& r);
  bool may_end(const Stage* s, int axis, bool by_size) const;
  bool ends_at_bound(const Stage* s, size_t position, const Environment& e) const;
  bool ends_at(const Stage* s, size_t position, const Environment& e, bool by_size) const;
  std::vector<int64_t> reader_steps(const Stage* s, int a, bool by_size) const;
  bool may_begin(const Stage* s, int axis) const;
  NodeRef first_step(const Stage* s, size_t position, const Environment& e) const;
  NodeRef outermost_bound(const Stage* s, size_t position, const Environment& e,
                          const NodeRef& bound, bool whole, bool least) const;
  bool is_needed_outside(const Stage* s, size_t position, bool before) const;
  bool leaves_values(const Stage* s, size_t position) const;
  NodeRef bounded_end(const Stage* s, size_t position, const Environment& e, bool by_size) const;
  std::vector<size_t> bound_parallel(const Stage* s, size_t count, int64_t total);
  NodeRef trimmed_end(const Stage* s, size_t position, const Environment& e) const;

  const Kernel& kernel_;
  const Target& target_;
  Program program_;
  Emitter emitter_;
  Reads reads_;
  std::set<int> nan_elsewhere_;
  std::unordered_map<int, Accumulators> accumulators_;
  Substitution leaf_axes_, leaf_memo_;  // of the leaf at work: their memory is used again
  Phase* phase_ = nullptr;
  const Stage* root_ = nullptr;
  std::vector<NodeRef> parallel_variables_;
  bool tail_ = false;
  bool zeros_ = false;  // beyond a bound: values that are read there, and are 0, are stored
};

/// Whether v is the least or greatest of integers that fit 32 bits, such as indices.
bool is_narrow_index(const Value& v);

/// The op that a reduction of this dtype combines with.
Op combining_op(Op reduce, DType dtype);

}  // namespace lazuli
