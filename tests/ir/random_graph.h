// Random tensor graphs, heavy in movement, with every op of the graph that a plan must handle.
#pragma once

#include <cstdint>
#include <vector>

#include "core/node.h"

namespace lazuli::test {

/// Roots of a graph of about `size` nodes over small buffers; the same for equal seeds. Values stay moderate.
std::vector<NodeRef> random_graph(uint64_t seed, int size);

/// Whether that graph is of continuous functions, whose values are rounded; the others are exact on small integers.
bool is_smooth(uint64_t seed);

}  // namespace lazuli::test
