// Leaves of a nest: values, and the accumulators of reductions (rules L6, L7 of ir/nest.h).

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/evaluate.h"
#include "ir/dots.h"
#include "ir/nest.h"

namespace lazuli {

Op combining_op(Op reduce, DType dtype) {
  const Op op = combiner(reduce);
  if (dtype != DType::Bool) return op;
  return op == Op::Add || op == Op::Max ? Op::Or : Op::And;
}

namespace {

// Dots say what they are summed in. Reductions of 16-bit floats are accumulated in f32 and rounded
// when they are stored; the least or greatest of indices that fit is found in 32 bits.
DType accumulator_of(const Value& v) {
  if (is_dot(v.expr->op)) return v.expr->src[2]->dtype;
  return is_narrow_index(v) ? DType::I32 : accumulator(v.expr->dtype);
}

// A place begins with 0: where no element exceeds what its extreme begins with, all are equal to
// that, and the first of them is the place.
uint64_t identity_of(const Value& v, DType dtype) {
  return v.place_of >= 0 ? 0 : reduce_identity(v.reduce, dtype);
}

}  // namespace

bool is_narrow_index(const Value& v) {
  const bool extremum = v.reduce == Op::ReduceMin || v.reduce == Op::ReduceMax;
  return extremum && v.expr->dtype == DType::I64 && v.expr->lo >= INT32_MIN &&
         v.expr->hi <= INT32_MAX;
}

size_t Nest::accumulation_position(const Stage* s, const Value& v) const {
  size_t p = s->loops.size();
  while (p > 0 && (!s->keeps(v, s->loops[p - 1].axis) || s->loops[p - 1].is_unrolled())) p--;
  while (p < s->loops.size() && s->keeps(v, s->loops[p].axis)) p++;
  return p;
}

void Nest::open_accumulators(const Stage* s, const Value& v, size_t position,
                             const Environment& e) {
  Accumulators g;
  g.frame = emitter_.depth();
  bool later = false;
  for (size_t q = 0; q < position; q++) {
    if (s->keeps(v, s->loops[q].axis) || q >= e.visited.size() || !e.visited[q]) continue;
    const NodeRef first = index_equal(e.visited[q], index_const(0));
    if (first->op == Op::Const) {
      later |= first->lo == 0;
    } else {
      g.first = g.first ? logical_and(g.first, first) : first;
    }
  }
  if (later) g.first = scalar_const(Scalar(false), DType::Bool);
  require(!g.first || v.scope != Scope::Register,
          "lower {}: {} is kept in registers, but a loop over what it sums stands outside its "
          "tile; give it a scope with memory",
          kernel_.name, v.name);
  accumulators_[v.id] = std::move(g);
}

// The partial result of outer reduction loops, which lives in the value's own storage; `initial` on
// the first visit.
Operand Nest::stored_partial(const Value& v, const Accumulators& g,
                             const std::vector<NodeRef>& index, const Operand& initial) {
  const Place& p = emitter_.place(v.id);
  Operand stored = emitter_.load_place(p, p.flat(index), g.frame);
  if (stored.dtype != initial.dtype) stored = emitter_.convert(stored, initial.dtype);
  if (g.first->op == Op::Const) return stored;
  return emitter_.op_in_frame(g.frame, Op::Where, {emitter_.emit(g.first), initial, stored});
}

Cell& Nest::accumulator(const Stage* s, const Value& v, const NodeRef& term,
                        const std::vector<NodeRef>& index, const Environment& e, bool across) {
  Accumulators& g = accumulators_.at(v.id);
  std::vector<std::pair<int, int64_t>> ilp;  // of loops over what v sums
  for (const auto& [axis, q] : e.ilp) {
    if (!s->keeps(v, axis)) ilp.emplace_back(axis, q);
  }
  for (auto& entry : g.entries) {
    const bool same = entry.ilp == ilp && std::equal(entry.index.begin(), entry.index.end(),
                                                     index.begin(), index.end(), NodeEqual());
    if (!same) continue;
    emitter_.carry(entry.cell.get(), g.frame);
    return *entry.cell;
  }
  auto cell = std::make_unique<Cell>();
  cell->across_lanes = across;
  bool vector = across;
  for (const NodeRef& i : index) vector |= emitter_.lane_of(i) != nullptr;
  const DType dtype = accumulator_of(v);
  cell->current = Emitter::constant(dtype, identity_of(v, dtype));
  cell->current.lanes = vector ? emitter_.lanes() : 1;
  if (const NodeRef start = is_dot(term->op) ? dot_start(term) : NodeRef()) {
    require(!across && ilp.empty(),
            "lower {}: the sum {} begins with a correction, and has several accumulators of an "
            "element; keep its summed loops serial or unrolled",
            kernel_.name, v.name);
    cell->current = emitter_.widen(emitter_.emit(start), cell->current.lanes);
  }
  g.split |= across || !ilp.empty();
  if (g.first && !g.split) cell->current = stored_partial(v, g, index, cell->current);
  g.entries.push_back({index, std::move(ilp), std::move(cell)});
  emitter_.carry(g.entries.back().cell.get(), g.frame);
  return *g.entries.back().cell;
}

namespace {

// To clear a large table takes longer than to make a small one.
void clear_table(Substitution& map) {
  constexpr size_t kLarge = 1024;
  if (map.bucket_count() > kLarge) {
    map = Substitution();
  } else {
    map.clear();
  }
}

}  // namespace

void Nest::leaf(const Stage* s, Environment& e) {
  emitter_.clear_forwarded();
  Substitution& at = leaf_axes_;
  Substitution& memo = leaf_memo_;
  for (size_t a = 0; a < s->axes.size(); a++) at[s->axes[a]] = e.current[a];
  for (const Value& v : s->values) {
    std::vector<NodeRef> index;
    bool lane_kept = false;
    for (const NodeRef& d : v.dims) {
      index.push_back(at.at(d));
      lane_kept |= e.lane && emitter_.lane_of(index.back());
    }
    if (zeros_) {
      if (v.zero_beyond) keep(v, index, Emitter::constant(v.expr->dtype, 0));
      continue;
    }
    const NodeRef x = emitter_.without_masks(substitute(v.expr, at, memo));
    if (!v.reduces()) {
      const Operand r = emitter_.emit(x);
      emitter_.forward(v.id, index, r);
      keep(v, index, r);
      continue;
    }
    if (v.place_of >= 0) continue;  // with its extreme
    const bool across = e.lane && !lane_kept;
    Cell& cell = accumulator(s, v, x, index, e, across);
    if (const Value* place = place_of(*s, v)) {
      const NodeRef at_place = substitute(place->expr, at, memo);
      Cell& p = accumulator(s, *place, at_place, index, e, across);
      accumulate_place(s, v, x, at_place, cell, p, e);
    } else {
      accumulate(v, x, cell, e);
    }
  }
  clear_table(at);
  clear_table(memo);
}

void Nest::accumulate(const Value& v, const NodeRef& term, Cell& c, const Environment& e) {
  const DType dtype = accumulator_of(v);
  const bool dot = is_dot(term->op) && has_dot(target_, term->op, c.current.lanes);
  const NodeRef x = is_dot(term->op) && !dot ? plain_products(term) : term;
  const bool product = v.reduce == Op::ReduceAdd && x->op == Op::Mul && x->dtype == dtype &&
                       is_float(dtype) && target_.has_fma;
  std::vector<Operand> args;
  if (product || dot) {
    args = {emitter_.emit(x->src[0]), emitter_.emit(x->src[1])};
  } else {
    args = {is_narrow_index(v) ? emitter_.emit_narrow(x) : emitter_.emit(x)};
    if (args[0].dtype != dtype) args[0] = emitter_.convert(args[0], dtype);
  }
  if (c.across_lanes) {
    Operand neutral = product || dot ? Emitter::constant(args[0].dtype, 0)
                                     : Emitter::constant(dtype, reduce_identity(v.reduce, dtype));
    for (Operand& a : args) a = emitter_.only_live(e.lane, a, neutral);
  }
  for (Operand& a : args) a = emitter_.widen(a, c.current.lanes);
  if (product || dot) {
    c.current = emitter_.op_here(dot ? x->op : Op::Fma, {args[0], args[1], c.current});
  } else {
    c.current = emitter_.op_here(combining_op(v.reduce, dtype), {c.current, args[0]},
                                 nan_elsewhere_.count(v.id) > 0);
  }
}

namespace {

// Whether each accumulator of v meets its terms in the order of their indices.
bool is_ascending(const Stage& s, const Value& v) {
  int64_t outer = std::numeric_limits<int64_t>::max();
  for (const Loop& l : s.loops) {
    const bool apart = l.kind == LoopKind::Ilp || l.kind == LoopKind::Vector;
    if (s.keeps(v, l.axis) || apart || l.extent == 1) continue;
    if (l.stride > outer) return false;
    outer = l.stride;
  }
  return true;
}

}  // namespace

// A term becomes the extreme if it exceeds it, or is the first NaN. Where terms do not come in the
// order of their indices, so does one that is equal, and stands before it.
void Nest::accumulate_place(const Stage* s, const Value& v, const NodeRef& term,
                            const NodeRef& index, Cell& extreme, Cell& place,
                            const Environment& e) {
  const DType dtype = accumulator_of(v);
  Operand x = emitter_.emit(term);
  if (x.dtype != dtype) x = emitter_.convert(x, dtype);
  if (extreme.across_lanes) {
    x = emitter_.only_live(e.lane, x, Emitter::constant(dtype, reduce_identity(v.reduce, dtype)));
  }
  x = emitter_.widen(x, extreme.current.lanes);
  Operand at = emitter_.emit_narrow(index);
  if (at.dtype != place.current.dtype) at = emitter_.convert(at, place.current.dtype);
  at = emitter_.widen(at, place.current.lanes);
  const auto op = [&](Op o, std::vector<Operand> args) {
    return emitter_.op_here(o, std::move(args));
  };
  const Operand m = extreme.current, &low = v.reduce == Op::ReduceMax ? m : x,
                &high = v.reduce == Op::ReduceMax ? x : m;
  Operand takes = !is_float(dtype)
                      ? op(Op::Lt, {low, high})
                      : op(Op::And, {op(Op::Not, {op(Op::Le, {high, low})}), op(Op::Eq, {m, m})});
  if (!is_ascending(*s, v)) {
    Operand same = op(Op::Eq, {x, m});
    if (is_float(dtype)) {
      const Operand both = op(Op::And, {op(Op::Ne, {x, x}), op(Op::Ne, {m, m})});
      same = op(Op::Or, {same, both});
    }
    const Operand former = op(Op::And, {same, op(Op::Lt, {at, place.current})});
    takes = op(Op::Or, {takes, former});
  }
  place.current = op(Op::Where, {takes, at, place.current});
  // Who sees the extreme sees the sign of a zero, which no comparison tells.
  extreme.current =
      is_seen(v) ? op(combining_op(v.reduce, dtype), {m, x}) : op(Op::Where, {takes, x, m});
}

namespace {

// A fixed tree, of pairs.
Operand combine(Emitter& emitter, Op op, std::vector<Operand> parts, bool unordered = false) {
  while (parts.size() > 1) {
    std::vector<Operand> next;
    for (size_t p = 0; p + 1 < parts.size(); p += 2)
      next.push_back(emitter.op_here(op, {parts[p], parts[p + 1]}, unordered));
    if (parts.size() % 2) next.push_back(parts.back());
    parts = std::move(next);
  }
  return parts[0];
}

}  // namespace

void Nest::finish(const Value& v, const Value* place) {
  Accumulators g = std::move(accumulators_.at(v.id)), at;
  accumulators_.erase(v.id);
  if (place) {
    at = std::move(accumulators_.at(place->id));
    accumulators_.erase(place->id);
  }
  const Op op = combining_op(v.reduce, accumulator_of(v));
  const bool unordered = nan_elsewhere_.count(v.id) > 0;
  std::vector<bool> done(g.entries.size());
  for (size_t i = 0; i < g.entries.size(); i++) {
    if (done[i]) continue;
    const std::vector<NodeRef>& index = g.entries[i].index;
    const bool across = g.entries[i].cell->across_lanes;
    std::vector<Operand> parts, places;
    for (size_t j = i; j < g.entries.size(); j++) {
      const auto& other = g.entries[j].index;
      if (!std::equal(index.begin(), index.end(), other.begin(), other.end(), NodeEqual()))
        continue;
      done[j] = true;
      parts.push_back(g.entries[j].cell->current);
      if (place) places.push_back(at.entries[j].cell->current);
    }
    Operand r = combine(emitter_, op, parts, unordered);
    if (across && r.lanes > 1) r = emitter_.lane_reduce(op, r, unordered);
    if (g.first && g.split) {
      const auto stored = [&](const Value& value, const Operand& part) {
        Operand nothing = Emitter::constant(part.dtype, identity_of(value, part.dtype));
        nothing.lanes = r.lanes;
        return stored_partial(value, g, index, nothing);
      };
      parts.push_back(stored(v, r));
      if (place) places.push_back(stored(*place, places[0]));
      r = emitter_.op_here(op, {parts.back(), r}, unordered);
    }
    const Operand found = place ? place_among(parts, places, r, across) : Operand();
    if (r.dtype != v.expr->dtype) r = emitter_.convert(r, v.expr->dtype);
    if (!place || g.first || is_seen(v)) keep(v, index, r);
    if (place) keep(*place, index, emitter_.convert(found, place->expr->dtype));
  }
}

bool Nest::is_seen(const Value& v) const {
  return v.slot >= 0 || reads_.is_read(v.id);
}

// The least of the places at which parts of a row are equal to its extreme.
Operand Nest::place_among(const std::vector<Operand>& parts, const std::vector<Operand>& places,
                          const Operand& extreme, bool across) {
  if (parts.size() == 1 && parts[0].lanes == extreme.lanes) return places[0];
  std::vector<Operand> found, lanes;
  for (size_t i = 0; i < parts.size(); i++) {
    const Operand& part = parts[i];
    Operand is = emitter_.op_here(Op::Eq, {part, emitter_.widen(extreme, part.lanes)});
    if (is_float(part.dtype)) {
      is = emitter_.op_here(Op::Or, {is, emitter_.op_here(Op::Ne, {part, part})});
    }
    const DType dtype = places[i].dtype;
    const Operand none =
        emitter_.widen(Emitter::constant(dtype, reduce_identity(Op::ReduceMin, dtype)), part.lanes);
    const bool of_lanes = across && part.lanes > 1;
    (of_lanes ? lanes : found).push_back(emitter_.op_here(Op::Where, {is, places[i], none}));
  }
  if (!lanes.empty()) {
    found.push_back(emitter_.lane_reduce(Op::Min, combine(emitter_, Op::Min, lanes)));
  }
  return combine(emitter_, Op::Min, found);
}

void Nest::keep(const Value& v, const std::vector<NodeRef>& index, const Operand& r) {
  const Place& p = emitter_.place(v.id);
  if (v.scope == Scope::Register) {
    emitter_.keep_in_register(v.id, p.local(index), r);
  } else {
    emitter_.store_place(p, index, r, v.stream);
  }
}

}  // namespace lazuli
