// Order of instructions among the copies of an unrolled loop.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/program.h"

namespace lazuli {

/// Merges the copies of a loop's body in turn, one instruction of each, so that a processor sees
/// their chains of dependent operations side by side: one copy of a long body fills its window.
/// `starts` holds the first instruction of each copy; the last copy ends with `code`. What a copy
/// needs of an earlier one and the order of stores stay. Nothing is moved where a copy is short,
/// contains a loop or a branch that touches memory, or reads memory that one writes.
void interleave(std::vector<Instruction>& code, const std::vector<size_t>& starts);

}  // namespace lazuli
