// Which of its forms each convolution and each product of a graph takes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/node.h"
#include "ir/target.h"

namespace lazuli {

/// A sum written in another way.
struct SumForm {
  NodeRef sum;    // the node that takes most of the time
  NodeRef value;  // what the sum was
};

/// What was decided of one sum.
struct FormNote {
  NodeRef node;  // of the rewritten graph: where most of its time goes
  std::string text;
};

struct FormedGraph {
  std::vector<NodeRef> roots;
  std::vector<FormNote> notes;  // one for each sum that has more than one form
  bool changed = false;
  bool exact = true;  // no sum was replaced by Winograd's form
};

/// The sum, the same products in the same order, stored with these axes of its products last, and
/// then copied to where it belongs.
SumForm with_axes_last(const Node& sum, const Ints& axes);

/// Replaces convolutions and products in the simplified graph above `roots` by the form that a model
/// of the target predicts to be fastest, by shape and layout alone: as they are; convolutions also
/// by Winograd's form (ir/winograd.h) if target.winograd allows it, with their rows joined
/// (ir/joined_rows.h), or with their channels last (ir/channels_last.h); products of few rows also
/// with the lanes along these (ir/turned_product.h).
FormedGraph choose_forms(std::span<const NodeRef> roots, const Target& target);

}  // namespace lazuli
