#include "runtime/literals.h"

#include <map>
#include <tuple>

#include "core/error.h"

namespace lazuli {

LiteralUse::LiteralUse(std::span<const Literal> literals)
    : values_(literals.begin(), literals.end()), arguments_(literals.size(), -1) {}

bool LiteralUse::fits(std::span<const uint64_t> bits) const {
  ensure(bits.size() == values_.size(), "literals: another structure");
  for (size_t i = 0; i < bits.size(); i++) {
    const int argument = any_ ? arguments_[i] : -1;
    if (bits[i] != (argument < 0 ? values_[i].bits : bits[static_cast<size_t>(argument)])) {
      return false;
    }
  }
  return true;
}

LiteralUse LiteralUse::widened(std::span<const uint64_t> bits) const {
  LiteralUse out = *this;
  // By what a literal was before and is now. What was one argument, or one value, and is so again
  // stays one.
  std::map<std::tuple<int, DType, uint64_t, uint64_t>, int> first;
  for (size_t i = 0; i < bits.size(); i++) {
    const int argument = arguments_[i];
    const auto& [dtype, value] = values_[i];
    if (argument < 0 && bits[i] == value) continue;
    const uint64_t before = argument < 0 ? value : 0;
    const auto number = static_cast<int>(i);
    out.arguments_[i] = first.try_emplace({argument, dtype, before, bits[i]}, number).first->second;
    out.any_ = true;
  }
  return out;
}

}  // namespace lazuli
