// How often the values of a program are used.
#pragma once

#include <vector>

#include "ir/program.h"

namespace lazuli {

/// The number of operands that are a value, by its id.
class Uses {
 public:
  int& operator[](int id) {
    const auto i = static_cast<size_t>(id);
    if (i >= counts_.size()) counts_.resize(2 * i + 64);
    return counts_[i];
  }
  int of(int id) const {
    const auto i = static_cast<size_t>(id);
    return i < counts_.size() ? counts_[i] : 0;
  }

 private:
  std::vector<int> counts_;
};

inline bool is_value(const Operand& x, int id) {
  return x.kind == Operand::Kind::Value && x.id == id;
}

/// Adds the uses in a block, and in the loops and branches inside.
inline void count_uses(const std::vector<Instruction>& block, Uses& uses) {
  const auto use = [&](const Operand& x) {
    if (x.kind == Operand::Kind::Value) uses[x.id]++;
  };
  for (const Instruction& i : block) {
    for (const Operand& a : i.args) use(a);
    for (const Phi& p : i.phis) {
      use(p.init);
      use(p.next);
    }
    use(i.begin);
    use(i.end);
    count_uses(i.body, uses);
  }
}

}  // namespace lazuli
