// Loops that pack panels, found in the loop program.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "ir/program.h"

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

/// The value of an integer constant.
inline std::optional<int64_t> constant_of(const Operand& x) {
  if (x.kind != Operand::Kind::Constant) return {};
  return static_cast<int64_t>(x.bits);
}

/// What the loop carries as `x`; null if it does not.
const Phi* phi_of(const Instruction& loop, const Operand& x);

}  // namespace lazuli
