#include "ir/factor_axes.h"

#include <utility>

#include "ir/fuse.h"

namespace lazuli {
namespace {

// Units may come and go. False for any other reshape.
bool through_reshape(const Node& n, Ints& labels) {
  const Shape &to = n.shape, &from = n.src[0]->shape;
  Ints out(from.size(), -1);
  size_t i = 0;
  for (size_t a = 0; a < to.size(); a++) {
    if (to[a] == 1) continue;
    while (i < from.size() && from[i] == 1) i++;
    if (i == from.size() || from[i] != to[a]) return false;
    out[i++] = labels[a];
  }
  while (i < from.size() && from[i] == 1) i++;
  labels = std::move(out);
  return i == from.size();
}

void through_permute(const Node& n, Ints& labels) {
  const Ints before = labels;
  for (size_t a = 0; a < before.size(); a++) {
    labels[static_cast<size_t>(n.ints()[a])] = before[a];
  }
}

void through_expand(const Node& n, Ints& labels) {
  for (size_t a = 0; a < labels.size(); a++) {
    if (n.src[0]->shape[a] == 1) labels[a] = -1;
  }
}

}  // namespace

Ints own_axes(const Node& x) {
  Ints labels;
  for (size_t a = 0; a < x.shape.size(); a++) {
    labels.push_back(x.shape[a] == 1 ? -1 : static_cast<int64_t>(a));
  }
  return labels;
}

bool follow_axes(const Node& move, Ints& labels) {
  switch (move.op) {
    case Op::Reshape:
      return through_reshape(move, labels);
    case Op::Permute:
      through_permute(move, labels);
      return true;
    case Op::Expand:
      through_expand(move, labels);
      return true;
    case Op::Shrink:
      return true;
    default:
      return false;
  }
}

std::optional<AxesBelow> axes_below(const NodeRef& factor) {
  AxesBelow r{factor, own_axes(*factor)};
  while (!r.below->realised() && is_move(*r.below)) {
    if (!follow_axes(*r.below, r.labels)) return {};
    r.below = r.below->src[0];
  }
  return r;
}

}  // namespace lazuli
