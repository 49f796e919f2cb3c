#include "ir/limits.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/node_map.h"
#include "ir/footprint.h"
#include "ir/index.h"

namespace lazuli {
namespace {

// What is known of a value outside the bound. Zero is so for numbers alone: it may be 0 times an
// infinity. PlainZero is +0 in any row whose elements inside are numbers.
enum class Outside { Unknown, Zero, PlainZero, MinusInfinity };

bool is_zero(Outside o) {
  return o == Outside::Zero || o == Outside::PlainZero;
}

struct Mask {
  NodeRef axis, bound;  // elements with axis < bound are kept
  Outside outside = Outside::Unknown;
};

Outside classify(const NodeRef& n) {
  if (n->op != Op::Const || !is_float(n->dtype)) return Outside::Unknown;
  const double v = const_scalar(*n).as_double();
  if (v == 0) return std::signbit(v) ? Outside::Zero : Outside::PlainZero;
  return std::isinf(v) && v < 0 ? Outside::MinusInfinity : Outside::Unknown;
}

// where(condition, kept, c) or where(condition, c, kept), the condition comparing sums of axes.
std::optional<Mask> parse_mask(const Stage& s, const Value& v) {
  const NodeRef& e = v.expr;
  if (v.reduces() || e->op != Op::Where) return {};
  const NodeRef& c = e->src[0];
  if ((c->op != Op::Lt && c->op != Op::Le) || c->src[0]->dtype != DType::I64) return {};
  Mask m;
  const bool inverted = classify(e->src[1]) != Outside::Unknown;
  m.outside = classify(e->src[inverted ? 1 : 2]);
  if (m.outside == Outside::Unknown) return {};
  // Kept where room > 0.
  const bool inclusive = (c->op == Op::Le) != inverted;
  NodeRef room =
      inverted ? index_add(c->src[0], c->src[1], -1) : index_add(c->src[1], c->src[0], -1);
  if (inclusive) room = index_add(room, index_const(1));
  for (size_t a = s.axes.size(); a-- > 0;) {
    if (linear_form(room).coefficient(s.axes[a]) != -1) continue;
    const NodeRef bound = index_add(room, s.axes[a]);
    bool plain = true;
    visit(bound, [&](const NodeRef& n) {
      plain &= n->op == Op::Var || n->op == Op::Lin || n->op == Op::Const;
    });
    if (!plain || uses(bound, s.axes[a])) continue;
    m.axis = s.axes[a];
    m.bound = bound;
    return m;
  }
  return {};
}

class Limiter {
 public:
  Limiter(Kernel& kernel, const Stage& s, const Mask& mask, int mask_value)
      : kernel_(kernel), reads_(kernel) {
    outside_[mask_value] = mask.outside;
    name_axes(s, mask);
  }

  std::vector<std::string> run() {
    for (const auto& s : kernel_.stages) look_at(*s);
    while (drop_one()) {
    }
    bool any_zeros = false;
    for (const Stage* s : candidates_) {
      for (const Value& v : s->values) {
        any_zeros |= keeps(v, masks_.at(s)) && is_read_beyond(*s, v);
      }
    }
    std::vector<std::string> names;
    for (const auto& s : kernel_.stages) {
      if (!candidates_.count(s.get())) continue;
      const Mask& mask = masks_.at(s.get());
      for (size_t a = 0; a < s->axes.size(); a++) {
        if (s->axes[a].get() == mask.axis.get()) s->limit[static_cast<int>(a)] = mask.bound;
      }
      // Values that need no zeros get them too where others do: then each row ends for itself, and
      // not where the longest of a block does.
      for (Value& v : s->values) v.zero_beyond = any_zeros && keeps(v, mask) && may_be_filled(v);
      names.push_back(s->name);
    }
    return names;
  }

 private:
  static bool has_axes(const Stage& s, const Mask& mask) {
    bool all = s.limit.empty() && contains(s.axes, mask.axis) && !uses(mask.bound, mask.axis);
    visit(mask.bound, [&](const NodeRef& n) { all &= n->op != Op::Var || contains(s.axes, n); });
    return all;
  }

  // What the masked axis and those of its bound are called in each stage: as in the mask's own or,
  // where they are others, as what it reads, or is read by, has them.
  void name_axes(const Stage& own, const Mask& mask) {
    masks_[&own] = mask;
    for (const auto& s : kernel_.stages) {
      if (has_axes(*s, mask)) masks_[s.get()] = mask;
    }
    for (bool again = true; std::exchange(again, false);) {
      for (const auto& reader : kernel_.stages) {
        for (const Reads::Read& r : reads_.of(reader.get())) {
          const auto [source, v] = kernel_.find_value(r.value);
          Substitution forward, backward;
          for (size_t d = 0; d < v->dims.size(); d++) {
            if (r.index[d]->op != Op::Var) continue;
            forward[v->dims[d]] = r.index[d];
            backward[r.index[d]] = v->dims[d];
          }
          again |= name_axes_by(source, reader.get(), forward);
          again |= name_axes_by(reader.get(), source, backward);
        }
      }
    }
  }

  bool name_axes_by(const Stage* known, const Stage* other, const Substitution& names) {
    const auto mask = masks_.find(known);
    if (mask == masks_.end() || masks_.count(other)) return false;
    const Mask renamed = {substitute(mask->second.axis, names),
                          substitute(mask->second.bound, names), mask->second.outside};
    return has_axes(*other, renamed) && masks_.emplace(other, renamed).second;
  }

  static bool keeps(const Value& v, const Mask& mask) { return contains(v.dims, mask.axis); }

  // A read at the reader's own point along the masked axis and the axes of the bound.
  bool same_point(const Stage& reader, const Reads::Read& r) const {
    const auto [source, v] = kernel_.find_value(r.value);
    const auto here = masks_.find(&reader), there = masks_.find(source);
    if (here == masks_.end() || there == masks_.end()) return false;
    Substitution names;
    for (size_t d = 0; d < v->dims.size(); d++) names[v->dims[d]] = r.index[d];
    return substitute(there->second.axis, names).get() == here->second.axis.get() &&
           substitute(there->second.bound, names).get() == here->second.bound.get();
  }

  void look_at(const Stage& s) {
    const auto named = masks_.find(&s);
    if (named == masks_.end()) return;
    const Mask& mask = named->second;
    bool possible = true;
    for (const Value& v : s.values) {
      const Outside o = outside_.count(v.id) ? outside_[v.id] : evaluate(s, v);
      if (keeps(v, mask)) {
        bool everywhere = true;  // a value for each of the places that the bound tells apart
        visit(mask.bound,
              [&](const NodeRef& n) { everywhere &= n->op != Op::Var || contains(v.dims, n); });
        if (everywhere && o != Outside::Unknown) outside_[v.id] = o;
        possible &= everywhere;
      } else {
        possible &= (v.reduce == Op::ReduceAdd && is_zero(o)) ||
                    (v.reduce == Op::ReduceMax && o == Outside::MinusInfinity);
      }
    }
    if (possible) candidates_.insert(&s);
  }

  bool may_be_filled(const Value& v) const {
    const auto o = outside_.find(v.id);
    return o != outside_.end() && o->second == Outside::PlainZero && !v.reduces() &&
           kernel_.sizes.empty();
  }

  // By who does not stop at the bound too.
  bool is_read_beyond(const Stage& s, const Value& v) const {
    if (v.slot >= 0) return true;
    for (const auto& reader : kernel_.stages) {
      for (const Reads::Read& r : reads_.of(reader.get())) {
        if (r.value != v.id) continue;
        if (reader.get() == &s ? !same_point(s, r)
                               : !candidates_.count(reader.get()) || !same_point(*reader, r)) {
          return true;
        }
      }
    }
    return false;
  }

  // A value that is read beyond the bound, but not computed there, must be plainly 0.
  bool drop_one() {
    for (const Stage* s : candidates_) {
      for (const Value& v : s->values) {
        if (may_be_filled(v) || !keeps(v, masks_.at(s)) || !is_read_beyond(*s, v)) continue;
        candidates_.erase(s);
        return true;
      }
    }
    return false;
  }

  Outside evaluate(const Stage& s, const Value& v) const {
    const Mask& mask = masks_.at(&s);
    const std::optional<Mask> own = parse_mask(s, v);
    if (own && own->axis.get() == mask.axis.get() && own->bound.get() == mask.bound.get()) {
      return own->outside;
    }
    NodeMap<Outside> known;
    visit(v.expr, [&](const NodeRef& n) { known[n.get()] = one(s, n, known); });
    return known.at(v.expr.get());
  }

  // What a read of a value that is reduced so over the masked axis reduces; null: it is none.
  NodeRef row_of(const NodeRef& n, Op reduce) const {
    if (n->op != Op::Read) return {};
    const auto [stage, v] = kernel_.find_value(static_cast<int>(n->integer()));
    const auto mask = masks_.find(stage);
    const bool is = v->reduce == reduce && mask != masks_.end() && !keeps(*v, mask->second);
    return is ? v->expr : NodeRef();
  }

  // The sum of a row of exp(x - its maximum), which has an element of 1; others may be 0.
  bool is_softmax_sum(const NodeRef& n) const {
    NodeRef e = row_of(n, Op::ReduceAdd);
    if (e && e->op == Op::Read) e = kernel_.find_value(static_cast<int>(e->integer())).second->expr;
    if (!e || e->op != Op::Exp || e->src[0]->op != Op::Sub) return false;
    return static_cast<bool>(row_of(e->src[0]->src[1], Op::ReduceMax));
  }

  // Whether the masked axis stays where others are reduced: all elements of those may be outside.
  bool reduces_across_rows(const NodeRef& root) const {
    bool does = false;
    visit(root, [&](const NodeRef& n) {
      if (n->op != Op::Read) return;
      const auto [stage, v] = kernel_.find_value(static_cast<int>(n->integer()));
      const auto mask = masks_.find(stage);
      does |= v->reduces() ? mask == masks_.end() || keeps(*v, mask->second)
                           : reduces_across_rows(v->expr);
    });
    return does;
  }

  Outside one(const Stage& s, const NodeRef& n, const NodeMap<Outside>& known) const {
    const auto of = [&](size_t i) { return known.at(n->src[i].get()); };
    switch (n->op) {
      case Op::Const:
        return classify(n);
      case Op::Read: {
        const auto it = outside_.find(static_cast<int>(n->integer()));
        if (it == outside_.end()) return Outside::Unknown;
        return same_point(s, {it->first, {n->src.begin(), n->src.end()}}) ? it->second
                                                                          : Outside::Unknown;
      }
      case Op::Cast:
        return is_float(n->dtype) && is_float(n->src[0]->dtype) ? of(0) : Outside::Unknown;
      case Op::Exp:
      case Op::Exp2:
        return of(0) == Outside::MinusInfinity ? Outside::PlainZero : Outside::Unknown;
      case Op::Where:
        if (of(1) == of(2)) return of(1);
        return is_zero(of(1)) && is_zero(of(2)) ? Outside::Zero : Outside::Unknown;
      case Op::Mul:
        return is_zero(of(0)) || is_zero(of(1)) ? Outside::Zero : Outside::Unknown;
      case Op::Div:
        if (of(0) == Outside::PlainZero && is_softmax_sum(n->src[1])) return of(0);
        return is_zero(of(0)) ? Outside::Zero : Outside::Unknown;
      case Op::Add:
      case Op::Sub:
        if (is_zero(of(0)) && is_zero(of(1))) return Outside::Zero;
        return of(0) == Outside::MinusInfinity && of(1) != Outside::MinusInfinity &&
                       ((masks_.at(&s).bound->lo >= 1 && !reduces_across_rows(n->src[1])) ||
                        exceeds_minus_infinity(n->src[1]))
                   ? Outside::MinusInfinity
                   : Outside::Unknown;
      default:
        return Outside::Unknown;
    }
  }

  // Of what may depend on no element inside of the bound: -inf less its own maximum is NaN.
  bool exceeds_minus_infinity(const NodeRef& n) const {
    const auto finite = [](const NodeRef& c) {
      return c->op == Op::Const && std::isfinite(const_scalar(*c).as_double());
    };
    if (n->op == Op::Max) return finite(n->src[0]) || finite(n->src[1]);
    if (n->op == Op::Min) return finite(n->src[1]) && exceeds_minus_infinity(n->src[0]);
    if (n->op != Op::Read) return false;
    const Value& v = *kernel_.find_value(static_cast<int>(n->integer())).second;
    return !v.reduces() && exceeds_minus_infinity(v.expr);
  }

  Kernel& kernel_;
  Reads reads_;
  std::map<const Stage*, Mask> masks_;
  std::map<int, Outside> outside_;
  std::set<const Stage*> candidates_;
};

}  // namespace

std::vector<std::string> limit_stages(Kernel& kernel, const Value& mask) {
  const Stage& s = *kernel.find_value(mask.id).first;
  const std::optional<Mask> m = parse_mask(s, mask);
  if (!m) return {};
  return Limiter(kernel, s, *m, mask.id).run();
}

std::vector<std::string> limit_at_masks(Kernel& kernel) {
  std::vector<std::string> masks;
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      if (limit_stages(kernel, v).size() > 1) masks.push_back(v.name);
    }
  }
  return masks;
}

}  // namespace lazuli
