// Pictures of a tensor graph.
#pragma once

#include <span>
#include <string>

#include "core/node.h"

namespace lazuli::cli {

/// The graph as an SVG picture: sources above users, one row for each distance from the leaves;
/// nodes have the numbers of print_graph.
std::string draw_svg(std::span<const NodeRef> roots);

}  // namespace lazuli::cli
