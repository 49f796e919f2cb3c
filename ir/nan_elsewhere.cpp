#include "ir/nan_elsewhere.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/node_map.h"
#include "ir/index.h"

namespace lazuli {
namespace {

// Is it NaN if any operand is?
bool propagates(const Node& n) {
  switch (n.op) {
    case Op::Add:
    case Op::Sub:
    case Op::Mul:
    case Op::Div:
    case Op::Neg:
    case Op::Abs:
    case Op::Sqrt:
    case Op::Rsqrt:
    case Op::Exp:
    case Op::Exp2:
    case Op::Log:
    case Op::Log2:
    case Op::Max:
    case Op::Min:
    case Op::Cast:
      return is_float(n.dtype) && std::all_of(n.src.begin(), n.src.end(),
                                              [](const NodeRef& s) { return is_float(s->dtype); });
    default:
      return false;
  }
}

// What is known of a value, or of an expression at a point, if one extreme may be any of its terms
// in rows that hold a NaN. A row is a point of the extreme's dims; those of its dims that were
// summed over since stand for rows of all their indices.
struct Known {
  std::optional<std::set<const Node*>> differs;  // in such rows it may have another value
  std::optional<std::set<const Node*>> is_nan;   // if such a row holds a NaN, it is NaN
  bool at_nan = false;                           // where the element at its point is NaN, it is NaN
};

class Rows {
 public:
  Rows(const Kernel& kernel, const Stage& stage, const Value& extreme)
      : kernel_(kernel), stage_(stage), extreme_(extreme) {}

  // Whether nothing that is stored differs but for NaN, which it has either way.
  bool same() {
    for (const auto& s : kernel_.stages) {
      for (const Value& v : s->values) {
        Known k = reduced(*s, v);
        if (v.id == extreme_.id) k = {Axes(), {}, false};
        if (failed_ || (v.slot >= 0 && k.differs)) return false;
        known_[v.id] = std::move(k);
      }
    }
    return true;
  }

 private:
  using Axes = std::set<const Node*>;

  static bool holds(const Axes& all, const Axes& some) {
    return std::includes(all.begin(), all.end(), some.begin(), some.end());
  }

  bool is_summed(const Node* axis) const {
    return std::any_of(stage_.axes.begin(), stage_.axes.end(),
                       [&](const NodeRef& a) { return a.get() == axis; }) &&
           !contains(extreme_.dims, axis);
  }

  // Whether all of a stage is computed, or as much as of the extreme's.
  bool is_whole(const Stage& s) const {
    const bool all = s.limit.empty() && s.begin.empty() && s.bound.empty();
    return all || same_domain(s, stage_);
  }

  static bool is_cut(const Stage& s, size_t axis) {
    const int a = static_cast<int>(axis);
    return s.is_triangular_along(a) || s.bound.count(a) > 0;
  }

  // Whether `v` sums over what the extreme is of.
  bool sums_all_elements(const Stage& s, const Value& v) const {
    return std::all_of(stage_.axes.begin(), stage_.axes.end(), [&](const NodeRef& a) {
      return !is_summed(a.get()) || (contains(s.axes, a.get()) && !contains(v.dims, a.get()));
    });
  }

  // NaN in both cases is the same in both.
  static Known settled(Known k) {
    if (k.differs && k.is_nan && holds(*k.is_nan, *k.differs)) k.differs.reset();
    return k;
  }

  // Of a value, at the point of the reader's own axes.
  Known read(const NodeRef& n) {
    const int id = static_cast<int>(n->integer());
    const auto it = known_.find(id);
    if (it == known_.end()) return {};
    Known k = it->second;
    const std::vector<NodeRef>& dims = kernel_.find_value(id).second->dims;
    bool in_place = true, elements = true;
    for (size_t d = 0; d < dims.size(); d++) {
      if (n->src[d].get() == dims[d].get()) continue;
      in_place &= !contains(extreme_.dims, dims[d].get());
      elements = false;
    }
    k.at_nan &= elements;
    if (in_place) return k;
    failed_ |= k.differs.has_value();
    return {};
  }

  Known expression(const NodeRef& root) {
    NodeMap<Known> known;
    visit(root, [&](const NodeRef& n) {
      Known k;
      if (n->op == Op::Read) {
        k = read(n);
      } else {
        const bool arithmetic = propagates(*n);
        for (const NodeRef& s : n->src) {
          const Known& of = known.at(s.get());
          if (of.differs) {
            if (!k.differs) k.differs.emplace();
            k.differs->insert(of.differs->begin(), of.differs->end());
          }
          if (!arithmetic) continue;
          if (of.is_nan && (!k.is_nan || holds(*of.is_nan, *k.is_nan))) k.is_nan = of.is_nan;
          k.at_nan |= of.at_nan;
        }
      }
      k.at_nan |= n.get() == extreme_.expr.get();
      known[n.get()] = settled(std::move(k));
    });
    return known.at(root.get());
  }

  Known reduced(const Stage& s, const Value& v) {
    Known k = expression(v.expr);
    if (!is_whole(s)) {  // beyond, it may be read as 0
      k.is_nan.reset();
      k.at_nan = false;
    }
    if (!v.reduces()) return k;
    const bool adds = v.reduce == Op::ReduceAdd && is_float(v.expr->dtype);
    if (!adds) k.is_nan.reset();
    if (adds && k.at_nan && !k.is_nan && sums_all_elements(s, v)) k.is_nan.emplace();
    k.at_nan = false;
    for (size_t a = 0; a < s.axes.size(); a++) {
      const Node* axis = s.axes[a].get();
      if (contains(v.dims, axis) || !contains(extreme_.dims, axis)) continue;
      if (k.differs) k.differs->insert(axis);
      // The sum of some rows says nothing of others.
      if (is_cut(s, a)) k.is_nan.reset();
      if (k.is_nan) k.is_nan->insert(axis);
    }
    return settled(std::move(k));
  }

  const Kernel& kernel_;
  const Stage& stage_;
  const Value& extreme_;
  std::map<int, Known> known_;
  bool failed_ = false;
};

}  // namespace

std::set<int> nan_elsewhere(const Kernel& kernel) {
  // Each by itself, and then all at once: that an extreme is NaN is never what shows a NaN.
  std::set<int> found;
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      const bool open = is_extreme(v) && is_float(v.expr->dtype) && v.slot < 0 && !place_of(*s, v);
      if (open && Rows(kernel, *s, v).same()) found.insert(v.id);
    }
  }
  return found;
}

}  // namespace lazuli
