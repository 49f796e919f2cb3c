#include "ir/fuse.h"

#include <algorithm>

#include "core/error.h"
#include "core/graph.h"

namespace lazuli {

const Shape& space(const Node& n) { return is_reduce(n.op) ? n.src[0]->shape : n.shape; }

namespace {

bool is_library(Op op) { return op == Op::Scatter || op == Op::Scan || op == Op::ArgSort; }

// Marks what must have an array: roots, sources of library steps, arrays that are gathered from.
void mark_arrays(Partition& p, std::vector<uint8_t>& array) {
  const auto mark = [&](const Node* n) {
    while (n->op == Op::Reshape && !n->realised()) n = n->src[0];
    array[static_cast<size_t>(p.of(n))] = true;
  };
  for (const NodeRef& r : p.roots) mark(r);
  for (const NodeRef& n : p.nodes) {
    if (n->realised() || is_leaf(n->op)) continue;
    if (is_library(n->op)) {
      for (const NodeRef& s : n->src) mark(s);
    } else if (n->op == Op::Gather) {
      const Node* x = n->src[0];
      while (!x->realised() && (is_movement(x->op) || has(x->op, kIdentity))) x = x->src[0];
      if (x->op != Op::Const && x->op != Op::Iota) array[static_cast<size_t>(p.of(x))] = true;
    } else if (n->op == Op::Contiguous) {
      array[static_cast<size_t>(p.of(n))] = true;
    }
  }
}

}  // namespace

Partition partition(std::vector<NodeRef> roots, const Target&) {
  Partition p;
  p.roots = std::move(roots);
  p.nodes = topological(p.roots, true);
  const size_t count = p.nodes.size();
  for (size_t i = 0; i < count; i++) p.number[p.nodes[i]] = static_cast<int>(i);
  p.role.assign(count, Role::Leaf);
  p.group.assign(count, -1);
  p.finish.assign(count, 0);
  p.stored.assign(count, 0);
  p.labels.resize(count);
  std::vector<uint8_t> array(count, 0);
  std::vector<int> users(count, 0), weight(count, 0);
  mark_arrays(p, array);
  for (const NodeRef& n : p.nodes) {
    if (n->realised()) continue;
    for (const NodeRef& s : n->src) users[static_cast<size_t>(p.of(s))]++;
  }
  for (size_t i = 0; i < count; i++) {
    const Node& n = *p.nodes[i];
    if (n.realised() || n.op == Op::Buffer) {
      p.stored[i] = true;
      continue;
    }
    if (is_leaf(n.op) && !array[i]) continue;
    int w = 1;
    for (const NodeRef& s : n.src) w = std::min(w + weight[static_cast<size_t>(p.of(s))], 1 << 20);
    const bool moves = is_movement(n.op) || (has(n.op, kIdentity) && n.op != Op::Contiguous);
    const bool pointwise = is_elementwise(n.op) || n.op == Op::Gather;
    if (is_library(n.op)) {
      p.role[i] = Role::Library;
    } else if (!array[i] && w <= 64 && (moves || (pointwise && users[i] <= 1))) {
      p.role[i] = moves ? Role::Move : Role::Inline;
      weight[i] = w;
      continue;
    } else {
      p.role[i] = Role::Member;
    }
    if (n.numel() == 0) continue;
    p.stored[i] = true;
    p.group[i] = static_cast<int>(p.groups.size());
    p.labels[i] = anonymous(space(n));
    p.groups.push_back({{static_cast<int>(i)}, {}, p.role[i] == Role::Library, {}});
  }
  return p;
}

}  // namespace lazuli
