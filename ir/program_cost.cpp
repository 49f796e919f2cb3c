#include "ir/program_cost.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace lazuli {
namespace {

// Cycles for which each kind of unit is busy.
struct Busy {
  double arithmetic = 0, loads = 0, stores = 0, lanes = 0;
  double most() const { return std::max({arithmetic, loads, stores, lanes}); }
};

double cycles_of(Op op) {
  switch (op) {
    case Op::Div:
      return 4;
    case Op::Sqrt:
      return 6;
    case Op::IDiv:
    case Op::Rem:
      return 12;
    default:
      return 0.5;
  }
}

// From one result to what is computed from it.
double latency_of(const Instruction& i) {
  if (i.dst.pointer || !is_float(i.dst.dtype)) return 1;
  if (i.code == Code::LaneReduce) return 12;
  return i.code == Code::Op ? (i.op == Op::Div || i.op == Op::Sqrt ? 14 : 4) : 1;
}

class Estimator {
 public:
  // `steps`: of the parallel loop.
  explicit Estimator(int64_t steps) : steps_(steps) {}

  // Of a block that runs once.
  double cycles(const std::vector<Instruction>& block) {
    Busy busy;
    double inside = 0;
    std::set<int> rare;  // whether any lane needs what few values need
    for (const Instruction& i : block) {
      count(i, busy);
      if (i.code == Code::Any) rare.insert(i.dst.id);
      if (i.code == Code::Loop) inside += trips(i) * loop(i) + kLeave;
      if (i.code == Code::If && !rare.count(i.args[0].id)) inside += cycles(i.body);
    }
    return busy.most() + inside;
  }

 private:
  static constexpr double kLeave = 10;         // a loop ends: the branch was not foreseen
  static constexpr double kUnknownTrips = 16;  // of a loop that ends at a size

  double loop(const Instruction& l) { return std::max(cycles(l.body), chain(l)); }

  double trips(const Instruction& l) const {
    if (l.end.kind == Operand::Kind::End) return static_cast<double>(steps_);
    if (l.begin.kind != Operand::Kind::Constant || l.end.kind != Operand::Kind::Constant)
      return l.imm > 0 ? static_cast<double>(l.imm) : kUnknownTrips;
    return static_cast<double>(static_cast<int64_t>(l.end.bits - l.begin.bits));
  }

  static void count(const Instruction& i, Busy& busy) {
    switch (i.code) {
      case Code::Op:
        // Addresses are part of the loads and stores that use them.
        if (i.dst.lanes > 1 || is_float(i.dst.dtype)) busy.arithmetic += cycles_of(i.op);
        break;
      case Code::Load:
        if (i.step != 1) busy.loads += 0.375 * i.dst.lanes;  // measured: six cycles for 16
        busy.loads += i.args.size() > 1 || i.mask > 0 ? 1 : 0.5;
        break;
      case Code::Store:
        busy.stores += i.step == 1 ? 1 : kScatterCycles * i.args[1].lanes;
        break;
      case Code::Insert:
      case Code::Extract:
      case Code::Exchange:
      case Code::Evens:
      case Code::Zip:
      case Code::Blend:
      case Code::Permute:
        busy.lanes += 1;
        break;
      case Code::LaneReduce:
        busy.lanes += 4;
        break;
      case Code::TileDot:  // a register takes a cycle for each row and step
        busy.arithmetic += static_cast<double>(
            TileShape::kRows * i.tile.steps * i.tile.row_registers() * i.tile.column_registers());
        break;
      default:
        break;
    }
  }

  // The longest chain from a carried number to what it becomes; counters keep ahead. Loops inside
  // are counted by themselves.
  static double chain(const Instruction& l) {
    std::unordered_map<int, double> late;
    for (const Phi& p : l.phis) {
      if (!p.dst.pointer && (is_float(p.dst.dtype) || p.dst.lanes > 1)) late[p.dst.id] = 0;
    }
    for (const Instruction& i : l.body) {
      double at = -1;
      for (const Operand& a : i.args) {
        const auto it = a.kind == Operand::Kind::Value ? late.find(a.id) : late.end();
        if (it != late.end()) at = std::max(at, it->second);
      }
      if (at >= 0) late[i.dst.id] = at + latency_of(i);
    }
    double longest = 0;
    for (const Phi& p : l.phis) {
      const auto it = late.find(p.next.id);
      if (it != late.end()) longest = std::max(longest, it->second);
    }
    return longest;
  }

  int64_t steps_;
};

}  // namespace

double estimate_cycles(const Phase& phase) {
  const double tail = phase.has_tail ? Estimator(1).cycles(phase.tail) : 0;
  return Estimator(phase.count).cycles(phase.body) + tail;
}

double estimate_cycles(const Program& program) {
  double sum = 0;
  for (const Phase& p : program.phases) sum += estimate_cycles(p);
  return sum;
}

double estimate_seconds(double cycles, double bytes, const Target& target, int threads) {
  // Of one core: near memory is faster, and a few cores take all there is of the farthest.
  constexpr double kFromL2 = 4, kFromL3 = 1.5, kCoresOfMemory = 2;
  const double frequency = target.fma_per_second / (target.fma_units * target.lanes), n = threads;
  const double faster = bytes <= static_cast<double>(target.l2)   ? kFromL2 * n
                        : bytes <= static_cast<double>(target.l3) ? kFromL3 * n
                                                                  : std::min(n, kCoresOfMemory);
  return std::max(cycles / frequency / n, bytes / (target.bandwidth * faster));
}

}  // namespace lazuli
