// Neighbours that are copied one by one, copied together.
#pragma once

#include "ir/program.h"

namespace lazuli {

/// Loops over the few rows of a tile copy single elements, since such a loop is no vector of the
/// kernel. Where a block loads neighbours of an argument and stores them as neighbours elsewhere,
/// they are loaded and stored as vectors of two, four or more.
void join_copies(Program& program);

}  // namespace lazuli
