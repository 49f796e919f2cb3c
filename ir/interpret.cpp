// The program interpreter: the meaning of ir/program.h, element by element, with every access checked.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/error.h"
#include "core/evaluate.h"
#include "core/scalar.h"
#include "ir/program.h"

namespace lazuli {
namespace {

using OpKind = lazuli::Op;

// One block of memory, and which of its bytes have been written (scratch starts undefined).
struct Memory {
  std::string name;
  char* data = nullptr;
  int64_t bytes = 0;
};

struct Slot {
  std::vector<uint64_t> lanes;     // element bits; a pointer: byte offset
  const Memory* memory = nullptr;  // pointers: one of Interpreter::memories_
};

class Interpreter {
 public:
  Interpreter(const Program& p, const std::vector<void*>& arguments, int workers)
      : program_(p),
        arguments_(arguments),
        workers_(workers),
        slots_(static_cast<size_t>(p.values)) {
    if (arguments.size() != p.arguments.size()) {
      internal_error(fmt::format("interpret {}: {} arguments were given, the program has {}", p.name,
                                 arguments.size(), p.arguments.size()));
    }
    for (size_t i = 0; i < arguments.size(); i++) {
      const MemoryArgument& a = p.arguments[i];
      memories_[static_cast<int>(i)] = {a.name, static_cast<char*>(arguments[i]), a.size * size_of(a.dtype)};
    }
    own(Program::kShared, "shared", p.shared_bytes);
  }

  void run() {
    const std::vector<Phase>& phases = program_.phases;
    for (size_t first = 0, end; first < phases.size(); first = end) {
      end = first + 1;
      if (phases[first].each) {
        each_.push_back(&phases[first]);
        continue;
      }
      while (end < phases.size() && !phases[end].waits && !phases[end].each) end++;
      // Several workers are imitated by the other order of what may run at the same time.
      for (size_t i = first; i < end; i++)
        run_phase(phases[workers_ == 1 ? i : first + end - 1 - i]);
    }
  }

 private:
  void run_phase(const Phase& phase) {
    if (!phase.groups.empty())
      internal_error("interpret: programs with work-groups are not interpreted");
    const int64_t steps = phase.bound.steps(phase.count, phase.has_tail, arguments_.data());
    const int64_t count = std::min(phase.count, steps);
    for (int w = 0; w < workers_; w++) {
      const int64_t begin = count * w / workers_, end = count * (w + 1) / workers_;
      if (begin == end) continue;
      enter(phase.body, begin, end);
    }
    if (steps > phase.count) enter(phase.tail, 0, 1);
  }

  void own(int id, const char* what, int64_t bytes) {
    // All bits set is NaN in every float type, and an absurd integer.
    auto& storage = owned_[id];
    storage.assign(static_cast<size_t>(bytes), '\xff');
    memories_[id] = {what, storage.data(), bytes};
  }

  void enter(const std::vector<Instruction>& body, int64_t begin, int64_t end) {
    own(Program::kScratch, "scratch", program_.scratch_bytes);
    own(Program::kLocal, "local", program_.local_bytes);
    for (const Phase* p : each_) {
      const int64_t steps = p->bound.steps(p->count, p->has_tail, arguments_.data());
      if (steps > 0) part(p->body, 0, std::min(p->count, steps));
      if (steps > p->count) part(p->tail, 0, 1);
    }
    part(body, begin, end);
  }

  void part(const std::vector<Instruction>& body, int64_t begin, int64_t end) {
    begin_ = begin;
    end_ = end;
    block(body);
  }

  [[noreturn]] void fail(const std::string& what) const {
    internal_error(fmt::format("interpret {}: {}", program_.name, what));
  }

  std::vector<uint64_t> value(const Operand& v) const {
    const auto lanes = static_cast<size_t>(v.lanes);
    switch (v.kind) {
      case Operand::Kind::Value: return slots_[static_cast<size_t>(v.id)].lanes;
      case Operand::Kind::Constant: return std::vector<uint64_t>(lanes, v.bits);
      case Operand::Kind::Iota: {
        std::vector<uint64_t> r(lanes);
        for (size_t i = 0; i < lanes; i++) {
          r[i] = v.dtype == DType::Bool ? i < v.bits : to_bits(Scalar(static_cast<int64_t>(i)), v.dtype);
        }
        return r;
      }
      case Operand::Kind::Begin: return {static_cast<uint64_t>(begin_)};
      case Operand::Kind::End: return {static_cast<uint64_t>(end_)};
      default: fail("an operand of a kind that has no value here");
    }
  }

  Slot& slot(const Operand& v) { return slots_[static_cast<size_t>(v.id)]; }
  void set(const Operand& v, std::vector<uint64_t> lanes) { slot(v).lanes = std::move(lanes); }

  char* address(const Operand& pointer, int64_t element, const char* verb) {
    const Slot& p = slot(pointer);
    const Memory& m = *p.memory;
    const int64_t size = size_of(pointer.dtype);
    const int64_t at = static_cast<int64_t>(p.lanes[0]) + element * size;
    if (at < 0 || at + size > m.bytes) {
      fail(fmt::format("{} of element {} of {}, which has {}", verb, at / size, m.name, m.bytes / size));
    }
    return m.data + at;
  }

  bool masked_out(const Instruction& i, size_t mask_arg, size_t lane) const {
    if (i.mask) return lane >= static_cast<size_t>(i.mask);
    if (i.args.size() <= mask_arg) return false;
    const auto mask = value(i.args[mask_arg]);
    return !mask[mask.size() == 1 ? 0 : lane];
  }

  void load(const Instruction& i) {
    std::vector<uint64_t>& r = slot(i.dst).lanes;
    r.assign(static_cast<size_t>(i.dst.lanes), 0);
    for (size_t lane = 0; lane < r.size(); lane++) {
      if (masked_out(i, 1, lane)) continue;
      std::memcpy(&r[lane], address(i.args[0], i.imm + static_cast<int64_t>(lane) * i.step, "load"),
                  static_cast<size_t>(size_of(i.dst.dtype)));
    }
  }

  void store(const Instruction& i) {
    const auto v = value(i.args[1]);
    for (size_t lane = 0; lane < v.size(); lane++) {
      if (masked_out(i, 2, lane)) continue;
      std::memcpy(address(i.args[0], i.imm + static_cast<int64_t>(lane) * i.step, "store"), &v[lane],
                  static_cast<size_t>(size_of(i.args[1].dtype)));
    }
  }

  uint64_t combine(OpKind op, DType t, uint64_t a, uint64_t b) const {
    const uint64_t args[] = {a, b};
    return evaluate(op, t, args, t);
  }

  // Most of what is interpreted: no copies of what it takes.
  void elementwise(const Instruction& i) {
    args_.resize(i.args.size());
    lanes_of_.clear();
    for (const Operand& a : i.args) {
      const bool is_value = a.kind == Operand::Kind::Value;
      if (!is_value && a.kind != Operand::Kind::Constant) args_[lanes_of_.size()] = value(a);
      lanes_of_.push_back(is_value                            ? slot(a).lanes.data()
                          : a.kind == Operand::Kind::Constant ? nullptr
                                                              : args_[lanes_of_.size()].data());
    }
    std::vector<uint64_t>& r = slot(i.dst).lanes;  // of no operand: a value has one definition
    r.resize(static_cast<size_t>(i.dst.lanes));
    one_.resize(i.args.size());
    for (size_t lane = 0; lane < r.size(); lane++) {
      for (size_t k = 0; k < one_.size(); k++) one_[k] = lanes_of_[k] ? lanes_of_[k][lane] : i.args[k].bits;
      r[lane] = evaluate(i.op, i.dst.dtype, one_, i.args.back().dtype);
    }
  }

  void shuffle(const Instruction& i) {
    const auto a = value(i.args[0]), b = value(i.args.back());
    const size_t n = a.size();
    std::vector<uint64_t> r(n);
    for (size_t q = 0; q < n; q++) {
      const auto from = static_cast<size_t>(shuffled_lane(i, static_cast<int>(q)));
      r[q] = from < n ? a[from] : b[from - n];
    }
    set(i.dst, std::move(r));
  }

  void across(const Instruction& i) {
    auto v = value(i.args[0]);
    for (size_t half = v.size() / 2; half; half /= 2) {
      for (size_t q = 0; q < half; q++) v[q] = combine(i.op, i.dst.dtype, v[q], v[q + half]);
    }
    set(i.dst, {v[0]});
  }

  void loop(const Instruction& i) {
    const auto begin = static_cast<int64_t>(value(i.begin)[0]), end = static_cast<int64_t>(value(i.end)[0]);
    if (begin >= end) fail(fmt::format("loop {} runs from {} to {}", i.name, begin, end));
    for (const Phi& p : i.phis) slot(p.dst) = whole(p.init);
    for (int64_t k = begin; k < end; k++) {
      set(i.dst, {static_cast<uint64_t>(k)});
      block(i.body);
      std::vector<Slot> next;
      for (const Phi& p : i.phis) next.push_back(whole(p.next));
      for (size_t q = 0; q < next.size() && k + 1 < end; q++) slot(i.phis[q].dst) = next[q];
      // After the loop the value of a phi is its `next`, also where that is another phi's result.
      for (size_t q = 0; q < next.size() && k + 1 == end; q++) {
        if (i.phis[q].next.kind == Operand::Kind::Value) slot(i.phis[q].next) = next[q];
      }
    }
  }

  Slot whole(const Operand& v) {
    return v.kind == Operand::Kind::Value ? slot(v) : Slot{value(v), nullptr};
  }

  void branch(const Instruction& i) {
    const bool taken = value(i.args[0])[0] != 0;
    if (taken) block(i.body);
    std::vector<Slot> r;
    for (const Phi& p : i.phis) r.push_back(whole(taken ? p.next : p.init));
    for (size_t q = 0; q < r.size(); q++) slot(i.phis[q].dst) = r[q];
  }

  void tile(const Instruction& i) {
    const TileShape& t = i.tile;
    const DType sum = i.args[0].dtype;
    const auto word = [&](const Operand& from, int64_t at) {
      uint64_t bits = 0;
      std::memcpy(&bits, address(from, at, "load"), sizeof(int32_t));
      return bits;
    };
    for (int64_t row = 0; row < t.rows; row++) {
      for (int64_t column = 0; column < t.columns; column++) {
        char* at = address(i.args[0], i.imm + row * t.sum_stride + column, "store");
        uint64_t args[3] = {};
        if (i.flag) std::memcpy(&args[2], at, sizeof(int32_t));
        for (int64_t w = 0; w < t.steps * TileShape::kStep; w++) {
          const int64_t step = w / TileShape::kStep, k = w % TileShape::kStep;
          args[t.columns_first ? 1 : 0] =
              word(i.args[1], step * t.row_step + row * t.row_stride + k);
          args[t.columns_first ? 0 : 1] =
              word(i.args[2], step * t.word_step + k * t.word_stride + column);
          args[2] = evaluate(i.op, sum, args, sum);
        }
        std::memcpy(at, &args[2], sizeof(int32_t));
      }
    }
  }

  void block(const std::vector<Instruction>& body) {
    for (const Instruction& i : body) step(i);
  }

  void step(const Instruction& i) {
    switch (i.code) {
      case Code::Op: return elementwise(i);
      case Code::Splat: return set(i.dst, std::vector<uint64_t>(static_cast<size_t>(i.dst.lanes), value(i.args[0])[0]));
      case Code::Insert: {
        auto v = value(i.args[0]);
        v[static_cast<size_t>(i.imm)] = value(i.args[1])[0];
        return set(i.dst, std::move(v));
      }
      case Code::Extract: return set(i.dst, {value(i.args[0])[static_cast<size_t>(i.imm)]});
      case Code::Exchange:
      case Code::Evens:
      case Code::Zip:
      case Code::Blend:
      case Code::Permute:
        return shuffle(i);
      case Code::Pointer: {
        Slot& s = slot(i.dst);
        s.memory = &memories_.at(i.memory);
        s.lanes = {static_cast<uint64_t>(static_cast<int64_t>(value(i.args[0])[0]) * size_of(i.dst.dtype))};
        return;
      }
      case Code::Load: return load(i);
      case Code::Store: return store(i);
      case Code::TileDot: return tile(i);
      case Code::LaneReduce: return across(i);
      case Code::Any: {
        const auto v = value(i.args[0]);
        return set(i.dst, {std::any_of(v.begin(), v.end(), [](uint64_t b) { return b != 0; })});
      }
      case Code::Loop: return loop(i);
      case Code::If: return branch(i);
      case Code::Barrier:
      case Code::Prefetch: return;
      case Code::GroupReduce: fail("a reduction over work-items");
    }
  }

  const Program& program_;
  const std::vector<void*>& arguments_;
  int workers_;
  std::vector<Slot> slots_;
  std::map<int, Memory> memories_;
  std::map<int, std::vector<char>> owned_;
  int64_t begin_ = 0, end_ = 0;
  std::vector<const Phase*> each_;  // of the phases so far, those that a worker runs first
  // Of elementwise, kept so that nothing is allocated: operands that are neither constants nor slots, where the lanes
  // of each lie (null: a constant), and one lane of all.
  std::vector<std::vector<uint64_t>> args_;
  std::vector<const uint64_t*> lanes_of_;
  std::vector<uint64_t> one_;
};

}  // namespace

void interpret_program(const Program& program, std::vector<void*> arguments, int workers) {
  Interpreter(program, arguments, workers).run();
}

}  // namespace lazuli
