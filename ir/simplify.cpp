#include "ir/simplify.h"

#include <unordered_map>

#include "core/error.h"
#include "core/evaluate.h"
#include "core/graph.h"

namespace lazuli {
namespace {

NodeRef zero(const Node& n) { return constant(Scalar(0), n.dtype, n.shape); }

// ---- rules: the node that stands for `n`, or null

NodeRef strip(const NodeRef& n) {
  const bool graph_only = n->op == Op::Fresh || n->op == Op::Detach || n->op == Op::CustomVjp;
  return graph_only ? n->src[0] : NodeRef();
}

NodeRef empty_array(const NodeRef& n) { return n->numel() == 0 ? zero(*n) : NodeRef(); }

NodeRef reduce_nothing(const NodeRef& n) {
  if (!is_reduce(n->op) || n->src[0]->numel() != 0) return {};
  return make({.op = Op::Const,
               .dtype = n->dtype,
               .shape = n->shape,
               .arg = ScalarBits{reduce_identity(n->op, n->dtype)}});
}

NodeRef indexed_nothing(const NodeRef& n) {
  if (n->op == Op::Scatter && n->src[1]->numel() == 0) return n->src[0];
  if (n->op == Op::Gather && n->src[0]->numel() == 0) return zero(*n);
  if (n->op == Op::Window && n->src[0]->numel() == 0) return zero(*n);
  return {};
}

NodeRef pad_nothing(const NodeRef& n) {
  const bool pads = n->op == Op::Pad || n->op == Op::Unwindow;
  return pads && n->src[0]->numel() == 0 ? zero(*n) : NodeRef();
}

NodeRef fold_constants(const NodeRef& n) {
  if (!is_elementwise(n->op)) return {};
  uint64_t bits[3];
  for (size_t i = 0; i < n->src.size(); i++) {
    if (n->src[i]->op != Op::Const) return {};
    bits[i] = std::get<ScalarBits>(n->src[i]->arg).bits;
  }
  const uint64_t r = evaluate(n->op, n->dtype, {bits, n->src.size()}, n->src.back()->dtype);
  return make({.op = Op::Const, .dtype = n->dtype, .shape = n->shape, .arg = ScalarBits{r}});
}

NodeRef move_constant(const NodeRef& n) {
  if (!is_movement(n->op) || n->src[0]->op != Op::Const) return {};
  const ScalarBits bits = std::get<ScalarBits>(n->src[0]->arg);
  if ((n->op == Op::Pad || n->op == Op::Unwindow) && bits.bits != 0) return {};
  return make({.op = Op::Const, .dtype = n->dtype, .shape = n->shape, .arg = bits});
}

struct Rule {
  const char* name;
  NodeRef (*apply)(const NodeRef&);
};
constexpr Rule kRules[] = {
    {"strip what only the graph needs", strip},
    {"an array without elements is a constant", empty_array},
    {"a reduction of nothing is its identity", reduce_nothing},
    {"nothing is scattered, or gathered from", indexed_nothing},
    {"zeros around nothing are zeros", pad_nothing},
    {"fold constants", fold_constants},
    {"a moved constant is a constant", move_constant},
};

}  // namespace

std::vector<NodeRef> simplify(std::span<const NodeRef> roots, std::vector<std::string>* trace) {
  std::unordered_map<const Node*, NodeRef> done;
  for (const NodeRef& n : topological(roots, true)) {
    if (n->realised() || is_leaf(n->op)) {
      done[n] = n->realised() || n->numel() > 0 ? n : zero(*n);
      continue;
    }
    Sources src;
    for (const NodeRef& s : n->src) src.push_back(done.at(s));
    NodeRef r = with_src(n, std::move(src));
    for (bool changed = true; changed && !is_leaf(r->op) && !r->realised();) {
      changed = false;
      for (const Rule& rule : kRules) {
        NodeRef next = rule.apply(r);
        if (!next) continue;
        if (trace) trace->push_back(fmt::format("{}: {}", rule.name, name(r->op)));
        r = std::move(next);
        changed = true;
        break;
      }
    }
    done[n] = r;
  }
  std::vector<NodeRef> out;
  for (const NodeRef& r : roots) out.push_back(done.at(r));
  return out;
}

}  // namespace lazuli
