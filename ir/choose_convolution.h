// Which of its forms each convolution of a graph takes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/node.h"
#include "ir/target.h"

namespace lazuli {

/// A sum written in another way.
struct ConvolutionForm {
  NodeRef sum;    // the node that takes most of the time
  NodeRef value;  // what the sum was
};

/// What was decided of one convolution.
struct ConvolutionNote {
  NodeRef node;  // of the rewritten graph: where most of its time goes
  std::string text;
};

struct ConvolutionGraph {
  std::vector<NodeRef> roots;
  std::vector<ConvolutionNote> notes;  // one for each convolution that has more than one form
  bool changed = false;
  bool exact = true;  // no sum was replaced by Winograd's form
};

/// Replaces convolutions in the simplified graph above `roots` by the form that a model of the
/// target predicts to be fastest, by shape alone: as they are, by Winograd's form (ir/winograd.h)
/// if target.winograd allows it, with their rows joined (ir/joined_rows.h), or with their channels
/// last (ir/channels_last.h).
ConvolutionGraph choose_convolutions(std::span<const NodeRef> roots, const Target& target);

}  // namespace lazuli
