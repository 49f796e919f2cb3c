// Loops that pack panels, found in the loop program.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// What a loop copies: rows of an argument to consecutive scratch memory, vectors of it unchanged.
struct PackedPanel {
  int memory = -1;
  DType dtype = DType::F32;
  Operand from;                        // element of the argument at which the first row begins
  int64_t row = 0, rows = 0;           // elements from row to row of it, and how many
  int64_t to = 0, width = 0;           // first element of the panel, and of a row of it
  std::map<int64_t, int64_t> vectors;  // place in a row of the panel -> in one of the argument
  int lanes = 1;
};

/// Nothing if the loop does anything else, or packs few rows.
std::optional<PackedPanel> packed_panel(const Instruction& loop);

/// Whether an argument of so many bytes, of which panels are packed, comes from beyond L2: there is
/// no room for it, or, where the last cache is far, only without what it is multiplied with. On
/// Xeons of the fifth generation 784 by 512 weights take 0.92 of the time for 128 rows if that is
/// foreseen. Of several threads each has room for its part.
inline bool leaves_l2(int64_t bytes, const Target& target) {
  return bytes > target.l2 || (target.far_l3 && target.threads <= 1 && bytes >= target.l2 / 2);
}

/// The value of an integer constant.
inline std::optional<int64_t> constant_of(const Operand& x) {
  if (x.kind != Operand::Kind::Constant) return {};
  return static_cast<int64_t>(x.bits);
}

/// What the loop carries as `x`; null if it does not.
const Phi* phi_of(const Instruction& loop, const Operand& x);

}  // namespace lazuli
