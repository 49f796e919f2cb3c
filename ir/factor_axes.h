// Which axes of a product walk which of what its factors are made of.
#pragma once

#include <optional>

#include "core/node.h"

namespace lazuli {

/// Each axis of `x` by its own number, -1 for those of size 1.
Ints own_axes(const Node& x);

/// `labels` names the axes of a reshape, a permute, an expand or a shrink, and is made to name those
/// of its source: -1 where nothing walks it. False if it is another op, or a reshape by which more
/// than units come and go.
bool follow_axes(const Node& move, Ints& labels);

/// What a factor is made of by such moves.
struct AxesBelow {
  NodeRef below;  // no move, or realised
  Ints labels;    // for each of its axes, the axis of the factor that walks it, or -1
};

/// nullopt if another movement op is in between.
std::optional<AxesBelow> axes_below(const NodeRef& factor);

}  // namespace lazuli
