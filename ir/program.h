// The loop program: typed scalar and vector operations in SSA form inside nested counted loops. It is what lowering
// makes, what the interpreter runs and what a dialect of codegen prints. There is no control-flow graph: a block is a list of
// instructions; a Loop holds a body and carries values (phis); an If holds a body.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/op.h"

namespace lazuli {

/// A value of the program: an instruction's result (id >= 0) or a constant.
struct Operand {
  enum class Kind : uint8_t { None, Value, Constant, Iota, Begin, End, GroupId, ItemId };
  Kind kind = Kind::None;
  DType dtype = DType::I64;
  bool pointer = false;
  int lanes = 1;
  int id = -1;        // Value: the instruction; GroupId, ItemId: the dimension
  uint64_t bits = 0;  // Constant: the element's bits; Iota over Bool: how many leading lanes are true
  int level = 0;      // number of open loops where it is defined
};

enum class Code : uint8_t {
  Op,           // an elementwise op of core/op.h on args; Cast and Bitcast too
  Splat,        // args[0] in all lanes
  Insert,       // args[0] with lane `imm` = args[1]
  Extract,      // lane `imm` of args[0]
  Exchange,     // exchanges blocks of `imm` lanes between args[0] and args[1]; `flag` picks the second result
  Evens,        // lane q is element 2*q of a run of which args[0] holds [0, lanes) and args[1] [lanes - 1, 2*lanes - 1)
  Zip,          // lanes of args[0] and args[1] in turn: the first half of them, or with `flag` the second
  Blend,        // lane q of args[1] where q has a bit of `imm`, else of args[0]
  Permute,      // lane q is lane (imm + q * step) / repeat of args[0], modulo their number
  Pointer,      // address of element args[0] of memory `memory`; `flag`: for Prefetch alone, so it may lie outside
  Load,         // element(s) at pointer args[0] + imm, `step` apart; masked by `mask` leading lanes, or by the Bool args[1]
  Store,        // args[1] to args[0] + imm, `step` apart; masked likewise (Bool args[2]); `flag`: non-temporal
  Prefetch,     // asks for the cache line at args[0] + imm; `flag`: for the cache of the second level alone
  TileDot,      // adds to the sums at args[0] the dots `op` of words at args[1] and args[2], as `tile` says
  LaneReduce,   // lanes of args[0] combined by `op` in a fixed tree
  Any,          // Bool scalar: is any lane of the Bool vector args[0] true
  Loop,         // for dst in begin..end, at least one iteration: body, carrying phis; afterwards `next` is the value
  If,           // if args[0] (Bool scalar): body; phis: dst = next if taken, else init
  Barrier,      // of a work-group
  GroupReduce,  // args[0] of all items combined by `op`
};

struct Phi {
  Operand dst, init, next;
};

/// What a TileDot multiplies. Element (i, j) of the sums lies at i * sum_stride + j. Of step s, words
/// k < kStep of row i lie at s * row_step + i * row_stride + k, those of column j of the other factor
/// at s * word_step + k * word_stride + j.
struct TileShape {
  int rows = 0, columns = 0;
  int64_t steps = 0;
  int64_t sum_stride = 0, row_stride = 0, row_step = 0, word_stride = 0, word_step = 0;
  bool columns_first = false;  // the columns' word is the dot's first operand

  /// Rows, columns and words of one tile register, and rows and columns of all of them.
  static constexpr int kRows = 16, kColumns = 16, kStep = 16, kMostRows = 32, kMostColumns = 32;

  /// Registers that its rows, and its columns, take.
  int row_registers() const { return (rows - 1) / kRows + 1; }
  int column_registers() const { return (columns - 1) / kColumns + 1; }
};

struct Instruction {
  Code code = Code::Op;
  lazuli::Op op = lazuli::Op::Count_;
  Operand dst = {};
  std::vector<Operand> args = {};
  int64_t imm = 0;
  int memory = -1;     // Pointer, Load, Store: argument slot, or Program::kScratch, kShared, kLocal
  int mask = 0;        // Load, Store: only the first `mask` lanes; 0: all
  bool flag = false;   // Op, LaneReduce of Max and Min: either, where one is NaN
  int step = 1;        // Permute; Load; Store: elements from one lane's to the next's
  int repeat = 1;      // Permute: so many neighbouring lanes take the same element
  TileShape tile = {}; // TileDot; `flag`: the sums begin with what lies there, else with zeros
  Operand begin = {}, end = {};  // Loop; `imm`: iterations on an average, where these do not tell; 0: unknown
  std::vector<Phi> phis = {};
  std::vector<Instruction> body = {};
  std::string name = {};  // Loop: of its variable
};

/// Which lane of args[0], or counted on, of args[1], lane q of an Exchange, Evens, Zip, Blend or
/// Permute is.
int shuffled_lane(const Instruction& i, int q);

/// How many iterations of a parallel loop there are at a size that an argument holds:
/// repeated * ceil((factor * size + add) / step), or all of them if that is more.
struct PhaseBound {
  int slot = -1;  // -1: all, at any size
  int64_t factor = 0, add = 0, step = 1, repeated = 1;

  /// Of `count` iterations and a last, ragged one, if there is one.
  int64_t steps(int64_t count, bool has_tail, const void* const* arguments) const;
};

/// One root nest: a function over [begin, end) of its parallel loop, and one for a ragged last iteration.
struct Phase {
  std::string name;
  std::vector<Instruction> body, tail;
  bool has_tail = false;
  bool waits = true;                   // for the phases before it; else it may run at the same time as the one before
  bool each = false;                   // each worker runs all of it, before its first iteration of a later phase
  int64_t count = 1;                   // iterations of the parallel loop that `body` may be given
  bool packs_ahead = false;            // an iteration packs what the next one reads: few, long ranges are best
  PhaseBound bound;
  std::vector<int64_t> groups, items;  // GPU: sizes of the work-group and work-item dimensions
};

struct MemoryArgument {
  std::string name;
  DType dtype = DType::F32;
  int64_t size = 0;
  bool output = false;
  bool strays = false;  // where the algorithm reads nothing of it, or guards what it reads, another element may be read
  bool streamed = false;  // the schedule lets it bypass the caches, and some of its vectors lie at no boundary

  int64_t bytes() const { return size * size_of(dtype); }
};

/// How far a kernel goes in an argument: the number of elements from its start that hold all it
/// touches, as a function of sizes. Steps of a stack machine: kConstant v; kSize argument least
/// (that size less its least value); kTimes v; kOver v (rounded down); kPlus.
struct Reach {
  enum Code : int64_t { kConstant, kSize, kTimes, kOver, kPlus };
  int64_t argument = 0;
  std::vector<int64_t> code;

  int64_t at(const void* const* arguments) const;
};

struct Program {
  static constexpr int kScratch = -2, kShared = -3, kLocal = -4;
  std::string name;
  std::vector<MemoryArgument> arguments;
  std::vector<Phase> phases;  // with a barrier before each that waits
  int lanes = 8;
  int64_t scratch_bytes = 0, shared_bytes = 0, local_bytes = 0;
  std::vector<int64_t> scratch_places, shared_places;  // bytes at which values begin, ascending
  int values = 0;  // ids are below this
  bool has_sizes = false;      // and
  std::vector<Reach> reaches;  // then, of the arguments
};

/// Scratch, shared and local memory hold values of several dtypes: the Pointer's dst.dtype is the element type, and args[0]
/// counts elements of that type from the start of the memory. A bool lies there as a byte, and may be read as U8.
std::string print_program(const Program& program);

/// Throws InternalError naming the instruction and the rule unless every value is defined before its use in an enclosing
/// block, dtypes and lanes agree with the op's row, and memory exists.
void verify_program(const Program& program);

/// Runs it, slowly: arguments are pointers to dense arrays. Scratch starts as NaN. Every access is checked against the memory's size.
/// `workers` splits each phase's parallel loop, to test that results do not depend on it.
void interpret_program(const Program& program, std::vector<void*> arguments, int workers = 1);

}  // namespace lazuli
