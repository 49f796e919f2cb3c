// Serial loops: where they begin and end (L10 of ir/nest.h), and those that walk several parts at
// once (L11).
#include <algorithm>
#include <set>

#include "ir/nest.h"

namespace lazuli {

namespace {
NodeRef at_most(const NodeRef& x, int64_t most) {
  return x->hi <= most ? x : scalar_op(Op::Min, DType::I64, {x, index_const(most)});
}
NodeRef at_least(const NodeRef& x, int64_t least) {
  return x->lo >= least ? x : scalar_op(Op::Max, DType::I64, {x, index_const(least)});
}
NodeRef steps_to(const NodeRef& end, int64_t step) {
  return index_divmod(index_add(end, index_const(step - 1)), step).first;
}

// Is n the less the greater x is?
bool falls_along(const NodeRef& n, const NodeRef& x) {
  if (n->op == Op::FDiv) return falls_along(n->src[0], x);
  const LinearForm form = linear_form(n);
  return std::any_of(form.terms.begin(), form.terms.end(), [&](const auto& term) {
    const auto& [atom, c] = term;
    return atom->op == Op::FDiv ? c > 0 && falls_along(atom, x) : atom == x && c < 0;
  });
}

// The innermost of the loops along an axis that begin or end at its bound: serial ones with none of
// another kind around them but, where bounds are sizes, parallel ones. Null: there is none.
const Loop* last_bounded(const Stage& s, int axis, bool by_size) {
  const Loop* last = nullptr;
  for (const Loop& l : s.loops) {
    if (l.axis != axis) continue;
    if (l.kind != LoopKind::Serial && !(by_size && l.kind == LoopKind::Parallel)) break;
    last = &l;
  }
  return last;
}

// By how much that loop steps last: where it is serial, and each step of it some vectors side by
// side, by one of them.
int64_t last_step(const Stage& s, const Loop& last) {
  if (last.kind != LoopKind::Serial) return last.stride;
  int64_t step = last.stride;
  bool vector = false;
  for (const Loop* l = &last + 1; l != s.loops.data() + s.loops.size(); l++) {
    if (l->axis != last.axis) continue;
    if (!l->is_unrolled()) return last.stride;
    if (l->kind == LoopKind::Vector) vector = true;
    if (l->kind != LoopKind::Vector) step = l->stride;
  }
  return vector && last.stride % step == 0 ? step : last.stride;
}

bool begins_along(const Stage& s, const NodeRef& axis) {
  return std::any_of(s.begin.begin(), s.begin.end(), [&](const auto& bound) {
    return s.axes[static_cast<size_t>(bound.first)].get() == axis.get();
  });
}

const std::map<int, NodeRef>& bounds_of(const Stage& s, bool by_size) {
  return by_size ? s.bound : s.limit;
}
}  // namespace

void Nest::serial_loop(const Stage* s, size_t position, Environment& e) {
  const Loop& l = s->loops[position];
  const int64_t n = e.remaining[static_cast<size_t>(l.axis)];
  const int64_t full = n / l.stride, tail = n % l.stride;
  if (const Loop* coarse = coarser_inside(*s, l)) return parts_at_once(s, position, *coarse, e);
  if (full > 0 && ends_at(s, position, e, true) && last_step(*s, l) < l.stride) {
    return loop_to_vectors(s, position, e);
  }
  NodeRef steps;  // to the bound, a last shorter one counted too; null where there is none
  if (full > 0 && !zeros_ && ends_at_bound(s, position, e)) {
    steps = at_most(steps_to(trimmed_end(s, position, e), l.stride), full + (tail > 0));
    if (steps->lo == full + (tail > 0)) steps = {};  // all the way at all times
  }
  const NodeRef blocks = steps ? at_most(steps, full) : index_const(full);
  const NodeRef first =
      full > 0 && !zeros_ ? at_most(first_step(s, position, e), full) : index_const(0);
  const bool may_be_empty = blocks->lo <= first->hi && full > 0;
  if (may_be_empty)
    emitter_.open_if(emitter_.emit(scalar_op(Op::Lt, DType::Bool, {first, blocks})));
  if (full == 1 || (steps && blocks->hi == 1)) {
    body(s, position, e, index_const(0), l.stride);
  } else if (full > 0) {
    const NodeRef v = axis(l.name, full);
    if (steps) emitter_.loop_ends_at(v, steps->op == Op::Min ? steps->src[0] : steps);
    int64_t trips = (blocks->lo + blocks->hi - first->lo - first->hi) / 2;
    if (s->limit.count(l.axis) && s->begin.count(l.axis)) {
      const NodeRef width = index_add(s->limit.at(l.axis), s->begin.at(l.axis), -1);
      trips = std::min((width->lo + width->hi) / 2 / l.stride + 1, full);
    }
    emitter_.open_loop(v, emitter_.emit(first), emitter_.emit(blocks), innermost(s, position),
                       std::max<int64_t>(trips, 1));
    body(s, position, e, v, l.stride);
    emitter_.close_loop();
  }
  if (may_be_empty) emitter_.close_if();
  if (tail && !steps) {
    body(s, position, e, index_const(full), tail);
  } else if (tail && steps->hi > full) {
    emitter_.open_if(emitter_.emit(scalar_op(Op::Lt, DType::Bool, {index_const(full), steps})));
    body(s, position, e, index_const(full), tail);
    emitter_.close_if();
  }
  const auto zero = [](const Value& v) { return v.zero_beyond; };
  if (steps && std::any_of(s->values.begin(), s->values.end(), zero)) {
    zeros_ = true;
    zeros_beyond(s, position, e, steps);
    zeros_ = false;
  }
}

// Steps [from, to) of the loop, if there are any.
void Nest::steps_between(const Stage* s, size_t position, Environment& e, const NodeRef& v,
                         const NodeRef& from, const NodeRef& to, int64_t stride) {
  const bool may_be_empty = from->hi >= to->lo;
  if (may_be_empty) emitter_.open_if(emitter_.emit(scalar_op(Op::Lt, DType::Bool, {from, to})));
  emitter_.open_loop(v, emitter_.emit(from), emitter_.emit(to), innermost(s, position));
  body(s, position, e, v, stride, stride);
  emitter_.close_loop();
  if (may_be_empty) emitter_.close_if();
}

// What the loop would do from step `steps` on.
void Nest::zeros_beyond(const Stage* s, size_t position, Environment& e, const NodeRef& steps) {
  const Loop& l = s->loops[position];
  const int64_t n = e.remaining[static_cast<size_t>(l.axis)];
  const int64_t full = n / l.stride, tail = n % l.stride;
  if (steps->lo < full) {
    const NodeRef v = axis(l.name, full);
    steps_between(s, position, e, v, at_most(steps, full), index_const(full), l.stride);
  }
  if (!tail) return;
  const bool may_be_computed = steps->hi > full;
  if (may_be_computed) {
    const NodeRef computed = scalar_op(Op::Lt, DType::Bool, {index_const(full), steps});
    emitter_.open_if(emitter_.emit(scalar_op(Op::Not, DType::Bool, {computed})));
  }
  body(s, position, e, index_const(full), tail);
  if (may_be_computed) emitter_.close_if();
}

// Takes a step in each of the parts that loop `coarse` inside makes of the axis, which is written
// out, before the next one; then walks what is no whole part.
void Nest::parts_at_once(const Stage* s, size_t position, const Loop& coarse, Environment& e) {
  const Loop& l = s->loops[position];
  const int64_t n = e.remaining[static_cast<size_t>(l.axis)];
  const int64_t parts = n / coarse.stride, rest = n % coarse.stride;
  const auto walk = [&](int64_t from, int64_t length) {
    const int64_t first = from / l.stride, steps = length / l.stride, tail = length % l.stride;
    Environment inner = e;
    inner.parts[l.axis] = from == 0 ? std::max<int64_t>(parts, 1) : 1;
    if (steps == 1) {
      body(s, position, inner, index_const(first), l.stride);
    } else if (steps > 1) {
      const NodeRef v = axis(l.name, steps);
      emitter_.open_loop(v, Emitter::index(0), Emitter::index(steps), innermost(s, position));
      body(s, position, inner, index_add(v, index_const(first)), l.stride);
      emitter_.close_loop();
    }
    if (tail > 0) body(s, position, inner, index_const(first + steps), tail);
  };
  if (parts > 0) walk(0, coarse.stride);
  if (rest > 0) walk(parts * coarse.stride, rest);
}

// Ends at a bound that is a size: whole steps, and the last one in the vectors that it is made of,
// as many as there are; in halves of it first where its vectors share what other loops inside do.
void Nest::loop_to_vectors(const Stage* s, size_t position, Environment& e) {
  const Loop& l = s->loops[position];
  const int64_t n = e.remaining[static_cast<size_t>(l.axis)];
  const int64_t step = last_step(*s, l), all = n / step;
  const bool shares = std::any_of(s->loops.begin() + static_cast<ptrdiff_t>(position) + 1,
                                  s->loops.end(), [&](const Loop& o) { return o.axis != l.axis; });
  const NodeRef end = trimmed_end(s, position, e), vectors = steps_to(end, step);
  NodeRef from = index_const(0);
  for (int64_t stride = l.stride;;) {
    // The loop may end where all of the axis does, whatever the size says.
    const NodeRef to = index_divmod(vectors, stride / step).first,
                  to_at_most = at_most(to, n / stride);
    const NodeRef v = axis(l.name, n / stride);
    emitter_.loop_ends_at(v, to);
    steps_between(s, position, e, v, from, to_at_most, stride);
    if (stride == step) break;
    const bool halves = shares && stride % (2 * step) == 0;
    const int64_t next = halves ? stride / 2 : step;
    from = index_mul(to_at_most, stride / next);
    stride = next;
  }
  if (n % step == 0) return;
  emitter_.open_if(emitter_.emit(scalar_op(Op::Lt, DType::Bool, {index_const(all), vectors})));
  body(s, position, e, index_const(all), step, n % step);
  emitter_.close_if();
}

// No loop is emitted inside this one.
bool Nest::innermost(const Stage* s, size_t position) const {
  for (size_t q = position + 1; q < s->loops.size(); q++) {
    const Loop& l = s->loops[q];
    if (l.extent > 1 && !l.is_unrolled()) return false;
  }
  return std::none_of(kernel_.stages.begin(), kernel_.stages.end(),
                      [&](const auto& c) { return is_below(c.get(), s, position); });
}

// ---- triangular domains

// Whether the loops over an axis end at its bound at all. A sum that is kept in memory between its
// iterations begins there in the first of them: there must be one.
bool Nest::may_end(const Stage* s, int axis, bool by_size) const {
  const auto bound = bounds_of(*s, by_size).find(axis);
  if (bound == bounds_of(*s, by_size).end()) return false;
  if (bound->second->lo >= 1) return true;
  const auto first =
      std::find_if(s->loops.begin(), s->loops.end(), [&](const Loop& l) { return l.axis == axis; });
  return std::none_of(s->values.begin(), s->values.end(), [&](const Value& v) {
    return v.reduces() && !s->keeps(v, axis) &&
           first - s->loops.begin() < static_cast<ptrdiff_t>(accumulation_position(s, v));
  });
}

bool Nest::ends_at(const Stage* s, size_t position, const Environment& e, bool by_size) const {
  const int axis = s->loops[position].axis;
  const auto a = static_cast<size_t>(axis);
  if (!may_end(s, axis, by_size)) return false;
  const int64_t extent = e.region->extent[a];
  if (extent != s->axes[a]->hi + 1) {
    // A part of the axis: worth it for several steps, and what is in registers must be there.
    if (!by_size || extent <= s->loops[position].stride) return false;
    for (const Value& v : s->values) {
      if (v.scope == Scope::Register) return false;
    }
  }
  const Loop* last = last_bounded(*s, axis, by_size);
  if (!last || &s->loops[position] > last) return false;
  return by_size || !is_needed_outside(s, position, false);
}

bool Nest::ends_at_bound(const Stage* s, size_t position, const Environment& e) const {
  return ends_at(s, position, e, false) || ends_at(s, position, e, true);
}

// The steps of the bounded loops that come after stage s; where bounds are sizes, of those over
// axes along which the values of s are read by their axis `a`.
std::vector<int64_t> Nest::reader_steps(const Stage* s, int a, bool by_size) const {
  std::vector<int64_t> steps;
  std::set<std::pair<const Stage*, const Node*>> reached;
  reached.insert({s, s->axes[static_cast<size_t>(a)].get()});
  const auto self = std::find_if(kernel_.stages.begin(), kernel_.stages.end(),
                                 [&](const auto& other) { return other.get() == s; });
  // What is computed inside the loops of s moves with them.
  for (auto inner = self + 1; inner-- != kernel_.stages.begin();) {
    for (const Reads::Read& read : reads_.of(inner->get())) {
      const auto [stage, v] = kernel_.find_value(read.value);
      if (!is_below(stage, s, 0)) continue;
      for (size_t d = 0; d < v->dims.size(); d++) {
        for (const NodeRef& x : (*inner)->axes) {
          const bool moves = reached.count({inner->get(), x.get()}) && uses(read.index[d], x);
          if (moves) reached.insert({stage, v->dims[d].get()});
        }
      }
    }
  }
  for (auto reader = self + 1; reader != kernel_.stages.end(); ++reader) {
    for (const Reads::Read& read : reads_.of(reader->get())) {
      const auto [stage, v] = kernel_.find_value(read.value);
      for (size_t d = 0; d < v->dims.size(); d++) {
        if (!reached.count({stage, v->dims[d].get()})) continue;
        for (const NodeRef& x : (*reader)->axes) {
          if (uses(read.index[d], x)) reached.insert({reader->get(), x.get()});
        }
      }
    }
    for (const auto& [ra, bound] : bounds_of(**reader, by_size)) {
      const NodeRef& x = (*reader)->axes[static_cast<size_t>(ra)];
      if (by_size && !reached.count({reader->get(), x.get()})) continue;
      const Loop* const last =
          may_end(reader->get(), ra, by_size) ? last_bounded(**reader, ra, by_size) : nullptr;
      // A loop of less than a step does not end.
      const bool ends = last && last->stride <= x->hi + 1;
      steps.push_back(ends ? by_size ? last_step(**reader, *last) : last->stride : x->hi + 1);
    }
  }
  return steps;
}

// Whether something that is computed inside the loop is needed of steps beyond the mask too, or
// before it.
bool Nest::is_needed_outside(const Stage* s, size_t position, bool before) const {
  for (const auto& c : kernel_.stages) {
    if (!is_below(c.get(), s, position)) continue;
    for (const Value& v : c->values) {
      // Those that read it stop, or begin, there.
      if (before ? begins_along(*c, s->axes[static_cast<size_t>(s->loops[position].axis)])
                 : !c->limit.empty() && !v.zero_beyond)
        continue;
      if (v.slot >= 0) return true;
      for (const auto& reader : kernel_.stages) {
        if (reader.get() != s && !is_below(reader.get(), s, position) &&
            reads_.reads(reader.get(), v.id))
          return true;
      }
    }
  }
  return false;
}

// Whether something computed inside the loop is read after it.
bool Nest::leaves_values(const Stage* s, size_t position) const {
  for (const auto& c : kernel_.stages) {
    if (!is_below(c.get(), s, position)) continue;
    for (const auto& reader : kernel_.stages) {
      if (reader.get() != s && !is_below(reader.get(), s, position) &&
          reads_.reads(reader.get(), c.get()))
        return true;
    }
  }
  return false;
}

// The least or greatest bound of the axis of a loop, of all the region or of what is left in it.
NodeRef Nest::outermost_bound(const Stage* s, size_t position, const Environment& e,
                              const NodeRef& bound, bool whole, bool least) const {
  Substitution at;
  for (size_t b = 0; b < s->axes.size(); b++) {
    if (static_cast<int>(b) == s->loops[position].axis) continue;
    const NodeRef base = whole ? e.region->base[b] : e.current[b];
    const int64_t length = whole ? e.region->extent[b] : e.remaining[b];
    const bool first = falls_along(bound, s->axes[b]) != least;
    at[s->axes[b]] = first ? base : index_add(base, index_const(length - 1));
  }
  return substitute(bound, at);
}

// Whether the loops over an axis begin at a mask: sums begin outside of them.
bool Nest::may_begin(const Stage* s, int axis) const {
  const Loop* const last = s->begin.count(axis) ? last_bounded(*s, axis, false) : nullptr;
  if (!last) return false;
  for (size_t q = 0; q < s->loops.size() && &s->loops[q] <= last; q++) {
    if (s->loops[q].axis != axis) continue;
    if (coarser_inside(*s, s->loops[q]) || is_needed_outside(s, q, true)) return false;
    for (const Value& v : s->values) {
      if (v.reduces() && !s->keeps(v, axis) && q < accumulation_position(s, v)) return false;
    }
  }
  return true;
}

// The step of the loop in which its axis begins; 0: all the way.
NodeRef Nest::first_step(const Stage* s, size_t position, const Environment& e) const {
  const Loop& l = s->loops[position];
  const auto a = static_cast<size_t>(l.axis);
  const bool whole = e.region->extent[a] == s->axes[a]->hi + 1;
  if (!whole || !may_begin(s, l.axis) || &l > last_bounded(*s, l.axis, false)) {
    return index_const(0);
  }
  bool stores = false;
  for (const Value& v : s->values) stores |= s->keeps(v, l.axis);
  // A last, shorter step is always taken.
  NodeRef begin = at_least(outermost_bound(s, position, e, s->begin.at(l.axis), stores, true), 0);
  begin = at_most(begin, s->axes[a]->hi);
  // What is stored begins where those who come after it do, who round down to steps of their own.
  if (stores || leaves_values(s, position)) {
    const auto self = std::find_if(kernel_.stages.begin(), kernel_.stages.end(),
                                   [&](const auto& other) { return other.get() == s; });
    for (auto reader = kernel_.stages.end(); --reader != self;) {
      for (const auto& [ra, bound] : (*reader)->begin) {
        const Loop* const last =
            may_begin(reader->get(), ra) ? last_bounded(**reader, ra, false) : nullptr;
        if (!last) return index_const(0);
        begin = index_mul(index_divmod(begin, last->stride).first, last->stride);
      }
    }
  }
  const bool outermost =
      std::none_of(s->loops.begin(), s->loops.begin() + static_cast<ptrdiff_t>(position),
                   [&](const Loop& o) { return o.axis == l.axis; });
  if (!outermost) begin = at_least(index_add(begin, e.current[a], -1), 0);
  return index_divmod(begin, l.stride).first;
}

// Where the loops over the axis of this one end.
NodeRef Nest::bounded_end(const Stage* s, size_t position, const Environment& e,
                          bool by_size) const {
  const Loop& l = s->loops[position];
  const auto a = static_cast<size_t>(l.axis);
  bool stores = false;
  for (const Value& v : s->values) stores |= s->keeps(v, l.axis) && (by_size || !v.zero_beyond);
  // The largest bound: of the whole region where it is stored, else of the tile.
  const NodeRef last_one =
      outermost_bound(s, position, e, bounds_of(*s, by_size).at(l.axis), stores, false);
  // What is stored goes as far as those who come after it do, who round up to steps of their own:
  // none may see what was left out.
  std::vector<int64_t> units;  // outermost last
  if (stores || leaves_values(s, position)) {
    const Loop* const last = last_bounded(*s, l.axis, by_size);
    const int64_t own = &l == last && ends_at(s, position, e, true) ? last_step(*s, l) : l.stride;
    for (int64_t unit : reader_steps(s, l.axis, by_size)) {
      if ((units.empty() ? own : units.back()) % unit != 0) units.push_back(unit);
    }
  }
  const NodeRef& base = e.region->base[a];
  const auto rounded = [&](NodeRef end) {
    for (size_t u = units.size(); u-- > 0;) end = index_mul(steps_to(end, units[u]), units[u]);
    return end;
  };
  // Readers count their steps from where this region begins, or from the beginning of the axis.
  NodeRef end = rounded(at_least(index_add(last_one, base, -1), 0));
  if (!units.empty() && !(base->op == Op::Const && base->lo == 0)) {
    const NodeRef of_all = at_least(index_add(rounded(last_one), base, -1), 0);
    end = scalar_op(Op::Max, DType::I64, {end, of_all});
  }
  // An inner loop begins where outer ones have come to, which may be past the bound of its tile.
  const bool outermost =
      std::none_of(s->loops.begin(), s->loops.begin() + static_cast<ptrdiff_t>(position),
                   [&](const Loop& o) { return o.axis == l.axis; });
  if (!outermost) end = at_least(index_add(end, index_add(e.current[a], base, -1), -1), 0);
  return end;
}

NodeRef Nest::trimmed_end(const Stage* s, size_t position, const Environment& e) const {
  NodeRef end;
  for (const bool by_size : {false, true}) {
    if (!ends_at(s, position, e, by_size)) continue;
    const NodeRef one = bounded_end(s, position, e, by_size);
    end = end ? scalar_op(Op::Min, DType::I64, {end, one}) : one;
  }
  return end;
}

}  // namespace lazuli
