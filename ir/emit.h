// Emission of expressions into a nest of open loops.
//
// A stack of frames, one an open loop or If. A node is emitted once, in the outermost frame in
// which all it uses is known, and remembered there until that closes (rule L3). Integer sums are
// emitted outer terms first, so that partial sums move out too. This does the work of
// loop-invariant code motion, common subexpressions and reassociation of addresses: no optimisation
// pass runs behind it. In an innermost loop an index that grows by a constant is carried instead of
// computed.
//
// `lane` is a variable with the interval of the vector's lanes: an expression is a vector exactly
// if it contains it (rule L5).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/index.h"
#include "ir/index_bounds.h"
#include "ir/interleave.h"
#include "ir/program.h"
#include "ir/storage.h"

namespace lazuli {

/// A running value: an accumulator of a reduction.
struct Cell {
  Operand current;
  bool across_lanes = false;  // its lanes are to be combined at the end
};

class Emitter {
 public:
  /// `registers`: those of the target that hold vectors.
  Emitter(const Kernel& kernel, Program& program, int lanes, int registers);

  // ---- frames
  /// Forgets everything but storage: a new function begins.
  void begin_function();
  std::vector<Instruction> end_function();
  int depth() const { return static_cast<int>(frames_.size()) - 1; }
  /// Opens a loop of `variable` over [begin, end). Indices are carried in it if it is innermost.
  /// `usual_trips`: its iterations on an average, where the ends do not tell (0: not known).
  void open_loop(const NodeRef& variable, const Operand& begin, const Operand& end, bool innermost,
                 int64_t usual_trips = 0);
  void close_loop();
  /// Opens what happens only if `condition`, a Bool scalar, holds. With `keeps_loads` that is all
  /// that makes sure that what is loaded there exists.
  void open_if(const Operand& condition, bool keeps_loads = false);
  void close_if();
  /// Where the next instruction of the frame now open goes.
  size_t position() const { return frames_.back().code.size(); }
  /// Orders the copies of a body that begin at these positions (ir/interleave.h).
  void interleave_copies(const std::vector<size_t>& starts) {
    interleave(frames_.back().code, starts, vector_registers_);
  }
  /// Makes `cell` a phi of every loop and If opened since `frame`.
  void carry(Cell* cell, int frame);
  void bind(const NodeRef& variable, const Operand& value);
  void barrier();

  // ---- values
  int lanes() const { return lanes_; }
  /// The lane variable of a vector with `live` lanes.
  NodeRef lane_variable(int64_t live);
  /// The lane variable that n depends on, or null.
  NodeRef lane_of(const NodeRef& n);
  int64_t live_lanes(const NodeRef& lane) const { return lane->hi + 1; }
  Operand emit(const NodeRef& n);
  /// The same integer in 32 bits, which it fits.
  Operand emit_narrow(const NodeRef& n);
  Operand widen(Operand v, int lanes);
  /// An operation here, in the frame now open, remembered nowhere. `unordered`, of a Max or Min:
  /// may give either where one is NaN.
  Operand op_here(Op op, std::vector<Operand> args, bool unordered = false);
  /// The same in an outer frame, or as far out as the arguments are known.
  Operand op_in_frame(int frame, Op op, std::vector<Operand> args, bool unordered = false);
  Operand convert(const Operand& v, DType dtype);
  Operand lane_reduce(Op op, const Operand& v, bool unordered = false);
  /// v in the live lanes of `lane`, `other` in the rest.
  Operand only_live(const NodeRef& lane, const Operand& v, const Operand& other);
  static Operand constant(DType dtype, uint64_t bits);
  static Operand index(int64_t v);
  /// 0, 1, ... in the lanes; of Bool: true in the first `live`.
  Operand lane_numbers(DType dtype, int64_t live = 0) const;

  /// Until it is closed, the variable of a loop stays below `end`.
  void loop_ends_at(const NodeRef& variable, const NodeRef& end);
  /// n without the masks that are true wherever those loops come.
  NodeRef without_masks(const NodeRef& n) const;
  /// How far arguments have been touched, put into the program.
  void finish_reaches();

  // ---- stored values
  Place& place(int value) { return places_[value]; }
  /// Marks everything stored in this place so far as written at the depth now open.
  void completed(Place& place);
  void new_version(Place& place);
  Operand load_place(const Place& place, const NodeRef& flat, int level);
  void store_place(const Place& place, const std::vector<NodeRef>& index, const Operand& v,
                   bool stream);
  void keep_in_register(int value, const std::vector<NodeRef>& local, const Operand& v);
  void forget_registers(int value);
  /// Values of the stage now at its leaf, for later values at the same point (rule L12).
  void forward(int value, const std::vector<NodeRef>& index, const Operand& v);
  void clear_forwarded() { forwarded_.clear(); }

 private:
  enum Kind : int { kNode, kNarrow, kPointer, kRead, kPlaceLoad, kSplat };  // what a key remembers
  struct Key {
    int kind;
    int64_t a, b;
    const Node* node;
    const Node* valid;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      const auto p = reinterpret_cast<uintptr_t>(k.node), q = reinterpret_cast<uintptr_t>(k.valid);
      return std::hash<uint64_t>()(p * 0x9E3779B97F4A7C15ULL ^ q * 31 ^
                                   static_cast<uint64_t>(k.a * 131 + k.b * 7 + k.kind));
    }
  };
  struct Remembered {
    Operand value;
    NodeRef node, valid;  // keep the key's pointers alive
  };
  using Coordinates = std::pair<int, std::vector<const Node*>>;
  struct Held {
    Operand value;
    std::vector<NodeRef> index;
  };
  struct CarriedIndex {
    Phi phi;
    int64_t step;
  };
  struct Frame {
    std::vector<Instruction> code;
    std::vector<Key> keys;
    std::vector<Coordinates> registers;
    std::vector<Phi> phis;
    std::vector<Cell*> cells;  // of phis
    std::vector<CarriedIndex> carried;
    NodeRef variable;
    Operand counter, begin, end;
    bool innermost = false;
    int64_t usual_trips = 0;
    Operand condition = {};  // of an If, which has nothing of a loop
    bool is_if = false;
    int loads_outside = 0;  // loads_from_ outside of an If
  };
  /// One access to memory.
  struct Access {
    int memory;
    DType dtype;
    NodeRef index, valid;
    int level;     // not emitted further out than this
    bool padded;   // dead lanes may be touched
    int64_t size;  // elements of the memory from index 0; 0: not known
  };

  static int level_of(const std::vector<Operand>& args);
  Operand new_value_like(Operand v, int level);
  Frame& top() { return frames_.back(); }
  /// Takes the innermost frame away, and what was remembered in it.
  Frame leave();
  Operand push(Instruction i, int level, DType dtype, int lanes);
  Operand op(Op op, DType dtype, std::vector<Operand> args);
  Operand remember(const Key& key, const NodeRef& node, const NodeRef& valid, const Operand& v);
  const Operand* find(const Key& key) const;
  Operand pointer(int memory, DType dtype, const NodeRef& index);
  Operand pointer_at(int memory, DType dtype, const Operand& index);
  Operand load(const Access& a);
  Operand load_scalar(const Access& a);
  void touch(int memory, const NodeRef& index);
  // To be called where an element is read that nobody asks for: slices (ir/slices.h) rely on it.
  void stray(int memory);
  Operand guarded_pointer(const Access& a, LinearForm form, int64_t live, const Operand& valid,
                          int64_t& offset);
  Operand load_vector(const Access& a, const NodeRef& lane, const LinearForm& scalar_part);
  Operand load_strided(const Access& a, const NodeRef& first, int64_t step, int64_t live);
  /// Lanes that read elements of which all are valid, or none is.
  struct Together {
    NodeRef valid;                         // null: always
    NodeRef lowest;                        // index of the first of the elements
    std::vector<int64_t> lanes, elements;  // counted from there
  };
  std::optional<Together> lanes_together(const Access& a, const NodeRef& lane);
  std::optional<Operand> load_repeated(const Access& a, const NodeRef& lane);
  Operand gather(const Access& a, const NodeRef& lane);
  std::optional<Operand> gather_together(const Access& a, const NodeRef& lane);
  void store(int memory, DType dtype, const NodeRef& index, const Operand& v, bool padded,
             bool stream);
  void settle_strided(std::vector<Instruction>& code);
  Operand emit_sum(const NodeRef& n);
  Operand carried_index(const NodeRef& n);
  Operand carried_narrow(const NodeRef& n);
  int64_t carried_step(const NodeRef& n) const;
  Operand carry_by(int64_t step, const Operand& first);
  Operand narrow_sum(const NodeRef& n);
  Operand emit_division(const NodeRef& n);
  Operand emit_read(const NodeRef& n);
  Operand emit_elementwise(const NodeRef& n);
  Operand emit_rare(const NodeRef& n);
  bool exchange_lanes(int value, const std::vector<NodeRef>& local);
  bool exchange_square(int value, const std::vector<NodeRef>& local, size_t along, size_t other,
                       int64_t first, int64_t live);
  const Operand* find_register(int value, const std::vector<NodeRef>& local) const;

  const Kernel& kernel_;
  Program& program_;
  int lanes_;
  int vector_registers_;
  std::vector<Frame> frames_;
  int loads_from_ = 0;  // no load goes further out than this frame
  std::unordered_map<Key, Remembered, KeyHash> memo_;
  NodeRefMap<NodeRef> lane_memo_;
  std::map<int64_t, NodeRef> lane_variables_;
  std::map<int, Place> places_;
  std::unordered_map<int64_t, int> version_level_;
  int64_t versions_ = 0;
  std::map<Coordinates, Held> registers_, forwarded_;
  NodeMap<int> sizes_;
  AxisBounds loop_ends_;
  std::vector<NodeRef> ending_;  // the variables in it
  std::map<std::pair<int, const Node*>, std::pair<NodeRef, int64_t>> reaches_;  // up to a constant
};

}  // namespace lazuli
