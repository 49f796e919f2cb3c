// Order of instructions in an unrolled loop.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/program.h"

namespace lazuli {

/// Puts the copies of a loop's body in the order in which an ideal processor would begin their
/// instructions: each as soon as what it needs is known, and of several the earlier in its copy.
/// Thus chains of dependent operations run side by side, those of different copies and those of
/// one; a real processor does not look far enough ahead to find them. Where twice as many values
/// wait to be read as there are `registers`, nothing begins that adds to them, but for what comes
/// first.
///
/// What costs no operation, as a load, comes right before what reads it first. Nothing crosses a
/// branch that it stands behind. The order of stores stays, and that of a load and a store that may
/// touch the same element.
///
/// `starts` holds the first instruction of each copy; the last copy ends with `code`. Copies with
/// little arithmetic on floats just take turns, an instruction each, unless one loads what another
/// stores. Nothing is moved where a copy is short or contains a loop, a branch that touches memory,
/// a barrier or a product of tiles.
void interleave(std::vector<Instruction>& code, const std::vector<size_t>& starts, int registers);

}  // namespace lazuli
