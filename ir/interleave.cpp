#include "ir/interleave.h"

#include <algorithm>
#include <set>
#include <unordered_map>

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
      return false;
    case Code::If:
      return std::all_of(i.body.begin(), i.body.end(), [](const Instruction& inner) {
        return movable(inner) && inner.code != Code::Load && inner.code != Code::Store;
      });
    default:
      return true;
  }
}

bool may_move(const std::vector<Instruction>& code, size_t begin) {
  std::set<int> loaded, stored;
  for (size_t i = begin; i < code.size(); i++) {
    if (!movable(code[i])) return false;
    if (code[i].code == Code::Load) loaded.insert(code[i].memory);
    if (code[i].code == Code::Store) stored.insert(code[i].memory);
  }
  return std::none_of(stored.begin(), stored.end(), [&](int m) { return loaded.count(m) > 0; });
}

// Which instructions are placed already, as far as the copies of one loop need to know.
class Placed {
 public:
  Placed(const std::vector<Instruction>& code, const std::vector<size_t>& bounds)
      : stores_(bounds.size() - 1) {
    for (size_t copy = 0; copy + 1 < bounds.size(); copy++) {
      for (size_t i = bounds[copy]; i < bounds[copy + 1]; i++) {
        set_waiting(code[i], true);
        stores_[copy] += code[i].code == Code::Store;
      }
    }
  }

  bool ready(const Instruction& i, size_t copy) const {
    if (i.code == Code::Store) {
      for (size_t c = 0; c < copy; c++) {
        if (stores_[c] > 0) return false;
      }
    }
    return knows_sources(i);
  }

  void add(const Instruction& i, size_t copy) {
    set_waiting(i, false);
    stores_[copy] -= i.code == Code::Store;
  }

 private:
  void set_waiting(const Instruction& i, bool waits) {
    if (i.dst.id >= 0) waiting_[i.dst.id] = waits;
    for (const Phi& phi : i.phis) waiting_[phi.dst.id] = waits;
  }

  bool is_waiting(const Operand& x) const {
    const auto it = x.kind == Operand::Kind::Value ? waiting_.find(x.id) : waiting_.end();
    return it != waiting_.end() && it->second;
  }

  // What the body of an If makes itself waits for nothing.
  bool knows_sources(const Instruction& i) const {
    return std::none_of(i.args.begin(), i.args.end(),
                        [&](const Operand& a) { return is_waiting(a); }) &&
           std::none_of(i.phis.begin(), i.phis.end(),
                        [&](const Phi& p) { return is_waiting(p.init) || is_waiting(p.next); }) &&
           std::all_of(i.body.begin(), i.body.end(),
                       [&](const Instruction& inner) { return knows_sources(inner); });
  }

  std::unordered_map<int, bool> waiting_;
  std::vector<int> stores_;  // not placed yet, of each copy
};

}  // namespace

void interleave(std::vector<Instruction>& code, const std::vector<size_t>& starts) {
  std::vector<size_t> bounds = starts;
  bounds.push_back(code.size());
  for (size_t c = 0; c + 1 < bounds.size(); c++) {
    if (!is_long_run(code, bounds[c], bounds[c + 1])) return;
  }
  if (starts.size() < 2 || !may_move(code, starts[0])) return;
  Placed placed(code, bounds);
  std::vector<size_t> next = starts;
  std::vector<Instruction> merged;
  while (merged.size() < code.size() - starts[0]) {
    // The first copy that is not through is always ready.
    for (size_t c = 0; c < next.size(); c++) {
      if (next[c] == bounds[c + 1] || !placed.ready(code[next[c]], c)) continue;
      placed.add(code[next[c]], c);
      merged.push_back(std::move(code[next[c]++]));
    }
  }
  std::move(merged.begin(), merged.end(), code.begin() + static_cast<ptrdiff_t>(starts[0]));
}

}  // namespace lazuli
