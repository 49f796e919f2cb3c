// What a block has just stored, taken from its register where it is loaded again.
#pragma once

#include "ir/program.h"

namespace lazuli {

/// A stage that stores a row's ragged end and another that reads it meet in memory. A core hands a
/// whole vector from a store to the load of it; of a vector of which only some lanes are stored the
/// load waits until a cache has them, and if that line was another core's, until it has come. Such
/// loads become the stored vector, with zeros in the lanes that are not loaded.
void forward_stores(Program& program);

}  // namespace lazuli
