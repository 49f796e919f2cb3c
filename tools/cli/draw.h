// Pictures of a tensor graph, and what they share with others.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/node.h"

namespace lazuli::cli {

/// The graph as an SVG picture: sources above users, one row for each distance from the leaves;
/// nodes have the numbers of print_graph.
std::string draw_svg(std::span<const NodeRef> roots);

/// `text` as it may stand in an SVG picture.
std::string escape(std::string_view text);

}  // namespace lazuli::cli
