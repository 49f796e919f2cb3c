#include "ir/interleave.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace lazuli {
namespace {

// Operations on data of a copy that is worth it.
constexpr int kLong = 12;

bool is_long_run(const std::vector<Instruction>& code, size_t begin, size_t end) {
  return std::count_if(code.begin() + static_cast<ptrdiff_t>(begin),
                       code.begin() + static_cast<ptrdiff_t>(end), [](const Instruction& i) {
                         return i.code == Code::Op && i.dst.dtype != DType::I64;
                       }) >= kLong;
}

// An If moves as a whole if nothing in it touches memory.
bool movable(const Instruction& i) {
  switch (i.code) {
    case Code::Loop:
    case Code::Barrier:
    case Code::GroupReduce:
    case Code::TileDot:
      return false;
    case Code::If:
      return std::all_of(i.body.begin(), i.body.end(), [](const Instruction& inner) {
        return movable(inner) && inner.code != Code::Load && inner.code != Code::Store;
      });
    default:
      return true;
  }
}

// Elements of memory that a load or store touches, from the pointer that it has.
struct Touched {
  int memory, pointer;  // the value that is the pointer; -1: several
  int64_t begin, end;
};

Touched touched_by(const Instruction& i) {
  const bool has_pointer = !i.args.empty() && i.args[0].kind == Operand::Kind::Value;
  const int64_t lanes = i.code == Code::Load ? i.dst.lanes : i.args[1].lanes;
  const bool one = has_pointer && i.args[0].lanes == 1;
  return {i.memory, one ? i.args[0].id : -1, i.imm, i.imm + (lanes - 1) * i.step + 1};
}

bool may_overlap(const Touched& a, const Touched& b) {
  if (a.memory != b.memory) return false;
  const bool same = a.pointer == b.pointer && a.pointer >= 0;
  return !same || (a.begin < b.end && b.begin < a.end);
}

// Whether v takes a register for data; indices have their own.
bool is_data(const Operand& v) {
  return v.lanes > 1 || (v.dtype != DType::I64 && !v.pointer);
}

// About how many cycles pass from the beginning of an operation to that of what reads its result.
int latency(const Instruction& i) {
  if (i.code == Code::Load || i.code == Code::Pointer || i.op == Op::Bitcast) return 0;
  if (i.code != Code::Op) return 1;
  switch (i.op) {
    case Op::Div:
    case Op::Sqrt:
      return 12;
    case Op::Add:
    case Op::Sub:
    case Op::Mul:
    case Op::Fma:
      return is_float(i.dst.dtype) ? 4 : 1;
    case Op::Cast:
      return 4;
    default:
      return 1;
  }
}

// Whether enough operations on floats, of several cycles each, are waited for to be worth an order.
// What packs and what mixes bits has none.
bool is_long_arithmetic(const std::vector<Instruction>& code, size_t begin, size_t end) {
  constexpr int kFew = 8;
  return std::count_if(code.begin() + static_cast<ptrdiff_t>(begin),
                       code.begin() + static_cast<ptrdiff_t>(end), [](const Instruction& i) {
                         return i.code == Code::Op && is_float(i.dst.dtype) && latency(i) >= 4 &&
                                i.op != Op::Cast;
                       }) >= kFew;
}

bool loads_what_it_stores(const std::vector<Instruction>& code, size_t begin) {
  std::set<int> loaded, stored;
  for (size_t i = begin; i < code.size(); i++) {
    if (code[i].code == Code::Load) loaded.insert(code[i].memory);
    if (code[i].code == Code::Store) stored.insert(code[i].memory);
  }
  return std::any_of(stored.begin(), stored.end(), [&](int m) { return loaded.count(m) > 0; });
}

template <typename Visit>
void for_each_source(const Instruction& i, const Visit& visit) {
  for (const Operand& a : i.args) visit(a);
  for (const Phi& p : i.phis) {
    visit(p.init);
    visit(p.next);
  }
  for (const Instruction& inner : i.body) for_each_source(inner, visit);
}

// The instructions of all copies, and which need which.
class Order {
 public:
  // Not `timed`: copies take turns, an instruction each.
  Order(std::vector<Instruction>& code, std::vector<size_t> bounds, int registers, bool timed)
      : code_(code),
        bounds_(std::move(bounds)),
        timed_(timed),
        most_alive_(timed ? 2 * registers : std::numeric_limits<int>::max() / 2) {
    sort_by_place();
    connect();
  }

  void run();

 private:
  struct Step {
    size_t at = 0;  // in the code
    int part = 0;   // of its copy, which branches cut: so many are before it
    std::vector<size_t> sources;
    std::vector<size_t> after;  // what waits for it, what is lazy left out
    size_t missing = 0;         // that it waits for
    size_t unread = 0;          // readers that are not placed
    int cycle = 0;              // from which its sources are known
    int registers = 0;          // that what it makes takes
    bool placed = false;
    bool lazy = false;  // costs nothing, and so is placed right before what reads it first
  };

  void sort_by_place();
  void connect();
  void wait_for_sources(size_t step, size_t source);
  int cycles(const Instruction& i) const { return timed_ ? latency(i) : 0; }
  int added(const Step& s) const;
  std::optional<size_t> next();
  void place(size_t step, int cycle);

  std::vector<Instruction>& code_;
  std::vector<size_t> bounds_;
  bool timed_;
  int most_alive_;
  int alive_ = 0;
  size_t first_ = 0;                           // all before it are placed, or lazy
  std::vector<Step> steps_;                    // the earlier in a copy, the earlier; copies in turn
  std::set<size_t> ready_;                     // steps whose sources are known
  std::map<int, std::vector<size_t>> coming_;  // by the cycle from which they are
  std::vector<size_t> placed_;
};

void Order::sort_by_place() {
  struct Place {
    int part, operation;
    size_t at;
    auto operator<=>(const Place&) const = default;
  };
  std::vector<Place> places;
  for (size_t c = 0; c + 1 < bounds_.size(); c++) {
    int part = 0, operation = 0;
    for (size_t i = bounds_[c]; i < bounds_[c + 1]; i++) {
      places.push_back({part, operation, i});
      operation += timed_ ? latency(code_[i]) > 0 : 1;
      part += code_[i].code == Code::If;
    }
  }
  std::sort(places.begin(), places.end());
  steps_.resize(places.size());
  for (size_t s = 0; s < places.size(); s++) {
    steps_[s].at = places[s].at;
    steps_[s].part = places[s].part;
  }
}

void Order::connect() {
  std::unordered_map<int, size_t> maker;  // of values
  std::vector<size_t> step_at(code_.size());
  for (size_t s = 0; s < steps_.size(); s++) {
    const Instruction& i = code_[steps_[s].at];
    step_at[steps_[s].at] = s;
    steps_[s].lazy = timed_ && latency(i) == 0;
    const auto makes = [&](const Operand& v) {
      maker[v.id] = s;
      steps_[s].registers += is_data(v);
    };
    if (i.dst.id >= 0) makes(i.dst);
    for (const Phi& phi : i.phis) makes(phi.dst);
  }
  const auto need = [&](size_t reader, size_t source) {
    std::vector<size_t>& sources = steps_[reader].sources;
    if (source == reader || std::count(sources.begin(), sources.end(), source) > 0) return;
    sources.push_back(source);
    steps_[source].unread++;
  };
  std::vector<std::pair<Touched, size_t>> loads, stores;
  for (size_t at = bounds_[0]; at < bounds_.back(); at++) {
    const size_t step = step_at[at];
    for_each_source(code_[at], [&](const Operand& a) {
      const auto it = a.kind == Operand::Kind::Value ? maker.find(a.id) : maker.end();
      if (it != maker.end()) need(step, it->second);
    });
    const Code code = code_[at].code;
    if (code != Code::Load && code != Code::Store) continue;
    const Touched here = touched_by(code_[at]);
    // One store waits for another, and thus for all that the other waits for.
    const auto last = std::find_if(stores.rbegin(), stores.rend(), [&](const auto& store) {
      return code == Code::Store || may_overlap(here, store.first);
    });
    if (last != stores.rend()) need(step, last->second);
    if (code == Code::Store) {
      std::erase_if(loads, [&](const auto& load) {
        const bool waits = may_overlap(here, load.first);
        if (waits) need(step, load.second);
        return waits;
      });
    }
    (code == Code::Load ? loads : stores).emplace_back(here, step);
  }
  for (size_t s = 0; s < steps_.size(); s++) {
    if (steps_[s].lazy) continue;
    for (const size_t source : steps_[s].sources) wait_for_sources(s, source);
    if (steps_[s].missing == 0) ready_.insert(s);
  }
}

void Order::wait_for_sources(size_t step, size_t source) {
  if (steps_[source].lazy) {
    for (const size_t further : steps_[source].sources) wait_for_sources(step, further);
    return;
  }
  std::vector<size_t>& after = steps_[source].after;
  if (std::count(after.begin(), after.end(), step) > 0) return;
  after.push_back(step);
  steps_[step].missing++;
}

// Values that wait to be read, more than before.
int Order::added(const Step& s) const {
  int n = s.registers;
  for (const size_t source : s.sources) {
    const Step& from = steps_[source];
    if (!from.placed) n += added(from);
    if (from.unread == 1) n -= from.registers;
  }
  return n;
}

// What begins now, or nothing.
std::optional<size_t> Order::next() {
  while (first_ < steps_.size() && (steps_[first_].placed || steps_[first_].lazy)) first_++;
  for (const size_t s : ready_) {
    // Values that a branch does not need would be stored and loaded again around it.
    if (steps_[s].part > steps_[first_].part) break;
    const int n = added(steps_[s]);
    if (n <= 0 || alive_ + n <= most_alive_ || s == first_) return s;
  }
  // A copy that waits for what comes late in another is no reason to wait for ever.
  if (coming_.empty() && !ready_.empty()) return *ready_.begin();
  return std::nullopt;
}

void Order::place(size_t step, int cycle) {
  Step& s = steps_[step];
  s.placed = true;
  for (const size_t source : s.sources) {
    if (!steps_[source].placed) place(source, cycle);
    if (--steps_[source].unread == 0) alive_ -= steps_[source].registers;
  }
  alive_ += s.registers;
  placed_.push_back(s.at);
  for (const size_t later : s.after) {
    Step& reader = steps_[later];
    reader.cycle = std::max(reader.cycle, cycle + cycles(code_[s.at]));
    if (--reader.missing == 0) coming_[reader.cycle].push_back(later);
  }
}

void Order::run() {
  constexpr int kWidth = 4;  // operations that begin in a cycle
  for (int cycle = 0; !ready_.empty() || !coming_.empty(); cycle++) {
    for (int n = 0; n < kWidth;) {
      for (auto it = coming_.begin(); it != coming_.end() && it->first <= cycle;) {
        ready_.insert(it->second.begin(), it->second.end());
        it = coming_.erase(it);
      }
      const std::optional<size_t> step = next();
      if (!step) break;
      ready_.erase(*step);
      const Instruction& i = code_[steps_[*step].at];
      n += timed_ && i.code == Code::Op && is_data(i.dst);
      place(*step, cycle);
    }
  }
  for (size_t s = 0; s < steps_.size(); s++) {
    if (!steps_[s].placed) place(s, 0);  // what only later code reads
  }
  std::vector<Instruction> sorted;
  for (const size_t at : placed_) sorted.push_back(std::move(code_[at]));
  std::move(sorted.begin(), sorted.end(), code_.begin() + static_cast<ptrdiff_t>(bounds_[0]));
}

}  // namespace

void interleave(std::vector<Instruction>& code, const std::vector<size_t>& starts, int registers) {
  std::vector<size_t> bounds = starts;
  bounds.push_back(code.size());
  for (size_t c = 0; c + 1 < bounds.size(); c++) {
    if (!is_long_run(code, bounds[c], bounds[c + 1])) return;
  }
  if (starts.empty() ||
      !std::all_of(code.begin() + static_cast<ptrdiff_t>(starts[0]), code.end(), movable)) {
    return;
  }
  bool timed = true;
  for (size_t c = 0; c + 1 < bounds.size(); c++) {
    timed &= is_long_arithmetic(code, bounds[c], bounds[c + 1]);
  }
  if (!timed && (starts.size() < 2 || loads_what_it_stores(code, starts[0]))) return;
  Order(code, std::move(bounds), registers, timed).run();
}

}  // namespace lazuli
