#include "ir/limits.h"

#include <algorithm>
#include <cmath>
#include <functional>
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

// Elements with axis < bound are kept, or those with axis >= bound.
struct Mask {
  NodeRef axis, bound;
  bool from_below = false;
  Outside outside = Outside::Unknown;

  // Kept where this is positive.
  NodeRef room() const {
    return from_below ? index_add(index_add(axis, bound, -1), index_const(1))
                      : index_add(bound, axis, -1);
  }
  bool same_place(const Mask& o) const {
    return axis.get() == o.axis.get() && bound.get() == o.bound.get() && from_below == o.from_below;
  }
};

Outside classify(const NodeRef& n) {
  if (n->op != Op::Const || !is_float(n->dtype)) return Outside::Unknown;
  const double v = const_scalar(*n).as_double();
  if (v == 0) return std::signbit(v) ? Outside::Zero : Outside::PlainZero;
  return std::isinf(v) && v < 0 ? Outside::MinusInfinity : Outside::Unknown;
}

// What begins where `room` becomes positive, then what ends where it stops being so.
void add_masks(std::vector<Mask>& masks, const Stage& s, const NodeRef& room, Outside outside) {
  for (const bool from_below : {true, false}) {
    for (size_t a = s.axes.size(); a-- > 0;) {
      const NodeRef& x = s.axes[a];
      if (linear_form(room).coefficient(x) != (from_below ? 1 : -1)) continue;
      const NodeRef bound =
          from_below ? index_add(index_add(x, room, -1), index_const(1)) : index_add(room, x);
      bool plain = true;
      visit(bound, [&](const NodeRef& n) {
        plain &= n->op == Op::Var || n->op == Op::Lin || n->op == Op::Const;
      });
      if (!plain || uses(bound, x)) continue;
      masks.push_back({x, bound, from_below, outside});
      break;
    }
  }
}

// Adds what is positive, each of them, wherever a condition is `held`, as far as it compares sums
// of axes; returns what else it asks for.
std::vector<NodeRef> add_rooms(const NodeRef& condition, bool held, std::vector<NodeRef>& rooms) {
  std::vector<NodeRef> others, conditions{condition};
  for (size_t i = 0; i < conditions.size(); i++) {
    const NodeRef c = conditions[i];
    if (c->op == (held ? Op::And : Op::Or)) {
      conditions.insert(conditions.end(), c->src.begin(), c->src.end());
    } else if ((c->op == Op::Lt || c->op == Op::Le) && c->src[0]->dtype == DType::I64) {
      NodeRef room =
          held ? index_add(c->src[1], c->src[0], -1) : index_add(c->src[0], c->src[1], -1);
      if ((c->op == Op::Le) == held) room = index_add(room, index_const(1));
      rooms.push_back(std::move(room));
    } else {
      others.push_back(c);
    }
  }
  return others;
}

// Of where(condition, kept, c) or where(condition, c, kept), for each of the comparisons of sums of
// axes without which nothing is kept.
std::vector<Mask> parse_mask(const Stage& s, const NodeRef& e) {
  std::vector<Mask> masks;
  if (e->op != Op::Where) return masks;
  const bool inverted = classify(e->src[1]) != Outside::Unknown;
  const Outside outside = classify(e->src[inverted ? 1 : 2]);
  if (outside == Outside::Unknown) return masks;
  std::vector<NodeRef> rooms;
  add_rooms(e->src[0], !inverted, rooms);
  for (const NodeRef& room : rooms) add_masks(masks, s, room, outside);
  return masks;
}

// Whether both of its sides are long enough for steps of loops to lie outside.
bool is_triangle(const Mask& m) {
  constexpr int64_t kShort = 16;
  const LinearForm bound = linear_form(m.bound);
  const auto is_long = [&](const NodeRef& x) { return x->hi + 1 >= kShort; };
  return is_long(m.axis) && std::any_of(bound.terms.begin(), bound.terms.end(),
                                        [&](const auto& term) { return is_long(term.first); });
}

class Limiter {
 public:
  Limiter(Kernel& kernel, const Stage& s, const Mask& mask) : kernel_(kernel), reads_(kernel) {
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
      bounds_of(*s, mask)[place_of(*s, mask.axis)] = mask.bound;
      // Values that need no zeros get them too where others do: then each row ends for itself, and
      // not where the longest of a block does.
      for (Value& v : s->values) v.zero_beyond |= any_zeros && keeps(v, mask) && may_be_filled(v);
      names.push_back(s->name);
    }
    return names;
  }

 private:
  static std::map<int, NodeRef>& bounds_of(Stage& s, const Mask& mask) {
    return mask.from_below ? s.begin : s.limit;
  }

  static int place_of(const Stage& s, const NodeRef& axis) {
    size_t a = 0;
    while (s.axes[a].get() != axis.get()) a++;
    return static_cast<int>(a);
  }

  // Bounded from the same side, or by the same mask from the other.
  static bool is_bounded(const Stage& s, const Mask& mask) {
    if (!(mask.from_below ? s.begin : s.limit).empty()) return true;
    const auto& others = mask.from_below ? s.limit : s.begin;
    return std::any_of(others.begin(), others.end(), [&](const auto& other) {
      const auto& [a, bound] = other;
      const Mask m{s.axes[static_cast<size_t>(a)], bound, !mask.from_below};
      return m.room().get() == mask.room().get();
    });
  }

  static bool has_axes(const Stage& s, const Mask& mask) {
    bool all = contains(s.axes, mask.axis) && !uses(mask.bound, mask.axis);
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
    Mask renamed = mask->second;
    renamed.axis = substitute(renamed.axis, names);
    renamed.bound = substitute(renamed.bound, names);
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
    bool possible = !is_bounded(s, mask);
    for (const Value& v : s.values) {
      const Outside o = evaluate(s, v);
      bool everywhere = true;  // a value for each of the places that the bound tells apart
      visit(mask.bound,
            [&](const NodeRef& n) { everywhere &= n->op != Op::Var || contains(v.dims, n); });
      if (keeps(v, mask)) {
        if (everywhere && o != Outside::Unknown) outside_[v.id] = o;
        possible &= everywhere;
      } else {
        possible &= (v.reduce == Op::ReduceAdd && is_zero(o)) ||
                    (v.reduce == Op::ReduceMax && o == Outside::MinusInfinity);
        // Where both are reduced, inner loops end for outer ones.
        possible &= everywhere || !mask.from_below;
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

  // A value that is read beyond the bound, but not computed there, must be plainly 0; zeros are
  // stored behind loops, not before them.
  bool drop_one() {
    for (const Stage* s : candidates_) {
      const Mask& mask = masks_.at(s);
      for (const Value& v : s->values) {
        const bool filled = may_be_filled(v) && !mask.from_below;
        if (filled || !keeps(v, mask) || !is_read_beyond(*s, v)) continue;
        candidates_.erase(s);
        return true;
      }
    }
    return false;
  }

  Outside evaluate(const Stage& s, const Value& v) const {
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

  // Whether there are elements inside wherever the axes are that `keeps` names.
  static bool meets_inside(const Mask& mask, const std::function<bool(const Node*)>& keeps) {
    const NodeRef room = mask.room();
    Substitution best;
    for (const auto& [x, by] : linear_form(room).terms) {
      if (!keeps(x.get())) best[x] = index_const(by > 0 ? x->hi : x->lo);
    }
    return substitute(room, best)->lo >= 1;
  }

  static bool keeps_all(const Mask& mask, const std::function<bool(const Node*)>& keeps) {
    const LinearForm room = linear_form(mask.room());
    return std::all_of(room.terms.begin(), room.terms.end(),
                       [&](const auto& term) { return keeps(term.first.get()); });
  }

  // Where an expression's masks by place do not make it -infinity: where all of these are positive;
  // nowhere, as far as is known, if it has other infinities or masks by place of another form.
  // False if there are masks of data.
  bool find_rooms(const NodeRef& root, std::vector<NodeRef>& rooms) const {
    bool all = true;
    std::set<const Node*> masking;  // constants that masks by place put there
    visit(root, [&](const NodeRef& n) {
      if (n->op != Op::Where) return;
      for (const bool held : {true, false}) {
        const NodeRef& other = n->src[held ? 2 : 1];
        if (classify(other) != Outside::MinusInfinity) continue;
        for (const NodeRef& other_condition : add_rooms(n->src[0], held, rooms)) {
          bool of_data = false;
          visit(other_condition,
                [&](const NodeRef& x) { of_data |= x->op == Op::Load || x->op == Op::Read; });
          all &= !of_data;
          if (!of_data) rooms.push_back(index_const(0));
        }
        masking.insert(other.get());
      }
    });
    visit(root, [&](const NodeRef& n) {
      if (n->op == Op::Const && is_float(n->dtype) && !masking.count(n.get())) {
        if (!std::isfinite(const_scalar(*n).as_double())) rooms.push_back(index_const(0));
      }
      if (n->op != Op::Read) return;
      const Value& v = *kernel_.find_value(static_cast<int>(n->integer())).second;
      if (v.reduces()) return;
      std::vector<NodeRef> inner;
      all &= find_rooms(v.expr, inner);
      Substitution names;
      for (size_t d = 0; d < v.dims.size(); d++) names[v.dims[d]] = n->src[d];
      for (const NodeRef& room : inner) rooms.push_back(substitute(room, names));
    });
    return all;
  }

  // Whether each row of `root` has an element that none of its masks makes -infinity, the rows
  // being where the axes are that `keeps` names. `unless_known`: what is said of masks of data.
  bool rows_have_numbers(const NodeRef& root, const std::function<bool(const Node*)>& keeps,
                         bool unless_known) const {
    std::vector<NodeRef> rooms;
    if (!find_rooms(root, rooms) && !unless_known) return false;
    if (rooms.size() == 1 && unless_known) return true;  // one mask meets each row (meets_inside)
    NodeRef along;
    std::vector<NodeRef> first{index_const(0)}, end;
    for (const NodeRef& room : rooms) {
      NodeRef x;
      int64_t by = 0;
      for (const auto& [atom, c] : linear_form(room).terms) {
        if (atom->op == Op::Var && keeps(atom.get())) continue;
        if (atom->op != Op::Var || x || (along && along.get() != atom.get())) return false;
        x = along = atom;
        by = c;
      }
      if (!x && room->lo < 1) return false;
      if (x && by != 1 && by != -1) return false;
      if (by == 1) first.push_back(index_add(index_add(x, room, -1), index_const(1)));
      if (by == -1) end.push_back(index_add(room, x));
    }
    if (along) end.push_back(index_const(along->hi + 1));
    for (const NodeRef& f : first) {
      for (const NodeRef& e : end) {
        if (index_add(e, f, -1)->lo < 1) return false;
      }
    }
    return true;
  }

  // Whether what is read, and taken from `masked`, depends on elements inside of the bound: all
  // that a maximum, say, is taken of may be outside. What comes for each element by itself is a
  // number. Rows are taken to have one where masks are of data, but not where whole rows are left
  // out.
  bool depends_on_inside(const Stage& s, const NodeRef& root, const NodeRef& masked) const {
    bool does = true;
    const auto own = masks_.find(&s);
    const auto meets = [&](const Mask& mask, const NodeRef& of, const auto& keeps) {
      const bool rows_left_out = keeps(mask.axis.get());
      return meets_inside(mask, keeps) &&
             (of ? rows_have_numbers(of, keeps, !rows_left_out) : !rows_left_out);
    };
    visit(root, [&](const NodeRef& n) {
      if (n->op == Op::Load && own != masks_.end()) {
        const auto keeps = [&](const Node* x) { return uses(n, x); };
        does &= keeps_all(own->second, keeps) || meets(own->second, masked, keeps);
      }
      if (n->op != Op::Read) return;
      const auto [stage, v] = kernel_.find_value(static_cast<int>(n->integer()));
      if (!v->reduces()) {
        does &= depends_on_inside(*stage, v->expr, {});
        return;
      }
      const auto mask = masks_.find(stage);
      const auto keeps = [&, value = v](const Node* x) { return contains(value->dims, x); };
      does &= mask != masks_.end() && !keeps_all(mask->second, keeps) &&
              meets(mask->second, v->expr, keeps);
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
        for (const Mask& m : parse_mask(s, n)) {
          if (m.same_place(masks_.at(&s))) return m.outside;
        }
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
                       (depends_on_inside(s, n->src[1], n->src[0]) ||
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
  std::vector<Mask> masks;
  visit(mask.expr, [&](const NodeRef& n) {
    for (const Mask& m : parse_mask(s, n)) {
      const bool whole = n.get() == mask.expr.get() && !mask.reduces();
      if (is_triangle(m) ? kernel.sizes.empty() || !m.from_below : whole && !m.from_below) {
        masks.push_back(m);
      }
    }
  });
  std::vector<std::string> names;
  for (const Mask& m : masks) {
    for (std::string& n : Limiter(kernel, s, m).run()) {
      if (std::find(names.begin(), names.end(), n) == names.end()) names.push_back(std::move(n));
    }
  }
  return names;
}

std::vector<std::string> limit_at_masks(Kernel& kernel) {
  std::vector<std::string> masks;
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      const std::vector<std::string> names = limit_stages(kernel, v);
      const bool more = std::any_of(names.begin(), names.end(), [&, own = s.get()](const auto& n) {
        return n != own->name || v.reduces();
      });
      if (more) masks.push_back(v.name);
    }
  }
  return masks;
}

}  // namespace lazuli
