// What a traced graph says of the values that differ from size to size.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/graph.h"
#include "core/lazy_buffer.h"
#include "core/symbolic.h"

namespace lazuli {
namespace {

NodeRef realised_scalar(uint64_t bits, DType dtype) {
  const Ref<Storage> storage = make_storage(static_cast<size_t>(size_of(dtype)));
  std::memcpy(storage->data(), &bits, static_cast<size_t>(size_of(dtype)));
  return buffer(dtype, {}, storage);
}

bool same_but_ones(const Shape& a, const Shape& b) {
  const auto without = [](const Shape& s) {
    Shape out;
    for (int64_t n : s) {
      if (n != 1) out.push_back(n);
    }
    return out;
  };
  return without(a) == without(b);
}

}  // namespace

std::vector<NodeRef> SymbolicGraph::values(const SymbolicTrace& trace) const {
  std::vector<NodeRef> values(extras_.size()), at(pairs_.size());
  for (size_t d = 0; d < dims_.size(); d++) {
    values[d] = realised_scalar(to_bits(Scalar(trace.sizes[d]), DType::I64), DType::I64);
  }
  if (trace.roots.size() != root_pairs_.size()) {
    user_error(
        "jit: the function gives or changes another number of tensors at another size of {}; "
        "let it be the same at all sizes, or declare no dimension",
        names());
  }
  const auto assign = [&](int i, const NodeRef& n) {
    NodeRef& known = at[static_cast<size_t>(i)];
    const Pair& p = pairs_[static_cast<size_t>(i)];
    if (known && known != n) differs(p.op, std::string(name(known->op)), std::string(name(n->op)));
    known = n;
  };
  for (size_t r = 0; r < trace.roots.size(); r++) assign(root_pairs_[r], trace.roots[r]);
  // Users come after their sources.
  for (size_t i = pairs_.size(); i-- > 0;) {
    if (!at[i]) continue;
    std::vector<NodeRef> sources;
    match(pairs_[i], at[i], trace.sizes, trace, sources, values);
    for (size_t s = 0; s < sources.size(); s++) assign(pairs_[i].src[s], sources[s]);
  }
  for (size_t e = 0; e < values.size(); e++) {
    if (!values[e]) values[e] = realised_scalar(0, extras_[e].leaf->dtype);
  }
  return values;
}

// What `n` reduces, as p does. Axes of size 1 need not be reduced.
NodeRef SymbolicGraph::reduced(const Pair& p, const NodeRef& n,
                               std::span<const int64_t> sizes) const {
  const Shape from = shape_at(source(p, 0).axes, sizes);
  const NodeRef m = n->op == Op::Reshape && !n->realised() ? n->src[0] : n;
  if (m->op == p.op && !m->realised() && m->src[0]->shape == from) {
    const Ints &want = p.upper->ints(), &have = m->ints();
    bool same = std::all_of(have.begin(), have.end(), [&](int64_t a) { return contains(want, a); });
    for (int64_t a : want) same = same && (contains(have, a) || from[static_cast<size_t>(a)] == 1);
    if (same) return m->src[0];
  }
  int64_t count = 1;
  for (int64_t a : p.upper->ints()) count *= from[static_cast<size_t>(a)];
  if (count != 1) {
    differs(p.op, std::string(name(p.op)) + arg_text(*p.upper),
            std::string(name(m->op)) + arg_text(*m));
  }
  return m;
}

void SymbolicGraph::match(const Pair& p, const NodeRef& n, std::span<const int64_t> sizes,
                          const SymbolicTrace& trace, std::vector<NodeRef>& sources,
                          std::vector<NodeRef>& values) const {
  const Shape shape = shape_at(p.axes, sizes);
  const bool here = !n->realised() && n->op == p.op;
  const auto keep = [&](int extra, const NodeRef& value) {
    values[static_cast<size_t>(extra)] = value;
  };
  if (p.op == Op::Reshape && !p.src.empty()) {
    // A chain of reshapes is one, or none.
    sources.push_back(here ? n->src[0] : n);
    return;
  }
  const auto does_nothing = [&] { return shape_at(source(p, 0).axes, sizes) == shape; };
  if (p.op == Op::Expand && !p.src.empty() && does_nothing() && same_but_ones(n->shape, shape)) {
    sources.push_back(n);
    return;
  }
  if (is_reduce(p.op) && same_but_ones(n->shape, shape)) {
    sources.push_back(reduced(p, n, sizes));
    return;
  }
  if (n->shape != shape) differs(p.op, to_string(shape), to_string(n->shape));
  if (p.src.empty()) {
    if (p.slot >= 0) {
      if (trace.slots[static_cast<size_t>(p.slot)] != n) differs(p.op, "one tensor", "another");
    } else if (p.upper->realised()) {
      if (!n->realised() || n->dtype != p.upper->dtype) {
        differs(p.op, "an array", std::string(name(n->op)));
      }
      if (p.extra >= 0) keep(p.extra, n);
      if (p.extra < 0 && n != p.upper) differs(p.op, "one array", "another");
    } else if (!here || (p.extra < 0 && n->arg != p.upper->arg && p.op != Op::Iota)) {
      differs(p.op, arg_text(*p.upper), here ? arg_text(*n) : std::string(name(n->op)));
    } else if (p.extra >= 0) {
      keep(p.extra, realised_scalar(std::get<ScalarBits>(n->arg).bits, n->dtype));
    }
    return;
  }
  if (may_do_nothing(p.op)) {
    const bool nothing = does_nothing();
    if (!nothing && !here) differs(p.op, to_string(shape), std::string(name(n->op)));
    sources.push_back(nothing ? n : n->src[0]);
    if (p.op == Op::Expand) return;
    for (size_t i = 0; i < shape.size(); i++) {
      const int64_t begin = nothing ? 0 : n->ints()[2 * i];
      if (const auto it = p.shifts.find(i); it != p.shifts.end()) {
        keep(it->second, realised_scalar(to_bits(Scalar(begin), DType::I64), DType::I64));
      } else if (begin != argument(p.upper, p.op, 2 * i, i)) {
        differs(p.op, arg_text(*p.upper), arg_text(*n));
      }
    }
    return;
  }
  const bool counted = p.op == Op::Fresh || p.op == Op::Checkpoint;
  if (!here || n->src.size() != p.src.size() || n->dtype != p.upper->dtype ||
      (!counted && n->arg != p.upper->arg)) {
    differs(p.op, std::string(name(p.op)) + arg_text(*p.upper),
            std::string(name(n->op)) + arg_text(*n));
  }
  if (p.places && !same_places(n->src[0], n->src[1])) {
    differs(p.op, to_string(n->src[0]->shape), to_string(n->src[1]->shape));
  }
  sources.assign(n->src.begin(), n->src.end());
}

}  // namespace lazuli
