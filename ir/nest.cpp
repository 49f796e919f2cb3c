#include "ir/nest.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "ir/schedule.h"

namespace lazuli {

Nest::Nest(const Kernel& kernel, const Target& target, int lanes)
    : kernel_(kernel), target_(target), emitter_(kernel, program_, lanes), reads_(kernel) {
  program_.name = kernel.name;
  program_.lanes = lanes;
  for (const KernelArgument& a : kernel.arguments)
    program_.arguments.push_back({a.name, a.dtype, a.size, a.output});
}

Program Nest::run() {
  for (const PhaseRoot& p : phases(kernel_)) {
    emit_phase(p.stage);
    phase_->waits = p.waits;
  }
  emitter_.finish_reaches();
  return std::move(program_);
}

void Nest::emit_phase(const Stage* root) {
  root_ = root;
  program_.phases.emplace_back();
  phase_ = &program_.phases.back();
  phase_->name = root->name;
  for (const bool tail : {false, true}) {
    tail_ = tail;
    if (tail && !phase_->has_tail) break;
    emitter_.begin_function();
    Region whole;
    for (const NodeRef& a : root->axes) {
      whole.base.push_back(index_const(0));
      whole.extent.push_back(a->hi + 1);
    }
    emit_stage(root, whole);
    (tail ? phase_->tail : phase_->body) = emitter_.end_function();
  }
}

// ---- attached stages and storage

namespace {
// What a thread stores of a shared value ends with a vector of its own: one that goes further would
// write to what is another thread's.
bool stores_whole_vectors(const Stage& s, const Value& v, const Region& region, int64_t lanes) {
  const std::vector<int> axes = axes_of(s, v);
  if (axes.empty()) return true;
  int last = axes.back();
  for (const Loop& l : s.loops) {
    if (!v.layout.empty() && l.name == v.layout.back()) last = l.axis;
  }
  const auto a = static_cast<size_t>(last);
  bool whole = region.extent[a] == s.axes[a]->hi + 1 || region.extent[a] % lanes == 0;
  for (const Loop& l : s.loops) {
    whole &= l.axis != last || l.kind != LoopKind::Parallel || l.stride % lanes == 0;
  }
  return whole;
}
}  // namespace

void Nest::make_place(const Stage* s, const Value& v, const Region& region) {
  Place& p = emitter_.place(v.id);
  const Value* alias = v.alias >= 0 ? kernel_.find_value(v.alias).second : nullptr;
  // Outputs and values that other phases see are stored whole, from index 0.
  const Scope scope = alias ? alias->scope : v.scope;
  const bool whole = scope == Scope::Argument || scope == Scope::Shared;
  const std::vector<int> axes = axes_of(*s, v);
  p.base.clear();
  for (int a : axes) p.base.push_back(whole ? index_const(0) : region.base[static_cast<size_t>(a)]);
  emitter_.new_version(p);
  if (v.scope == Scope::Register) {
    emitter_.forget_registers(v.id);
    return;
  }
  Region r = region;
  if (whole) {
    for (size_t a = 0; a < s->axes.size(); a++) r.extent[a] = s->axes[a]->hi + 1;
  }
  if (whole && parallel_variable_ && s != root_) {
    bool disjoint = false;
    for (int a : axes) disjoint |= uses(region.base[static_cast<size_t>(a)], parallel_variable_);
    require(disjoint,
            "lower {}: every iteration of the parallel loop of {} would store the same part of {}; "
            "attach {} elsewhere or make it a phase",
            kernel_.name, root_->name, v.name, s->name);
  }
  if (p.made) {
    if (alias || v.slot >= 0) return;
    Place again;
    lay_out(again, *s, v, r, emitter_.lanes());
    ensure(again.size <= p.size,
           fmt::format("kernel {}: storage of {} is needed larger than it was made", kernel_.name,
                       v.name));
    return;
  }
  p.made = true;
  p.dtype = v.expr->dtype;
  if (alias) {
    const Value& of = *alias;
    Place& other = emitter_.place(of.id);
    if (!other.made) {
      require(of.slot >= 0, "lower {}: {} is kept in place of {}, which has no memory yet",
              kernel_.name, v.name, of.name);
      Region all;
      const Stage* owner = kernel_.find_value(of.id).first;
      for (const NodeRef& a : owner->axes) all.extent.push_back(a->hi + 1);
      lay_out(other, *owner, of, all, emitter_.lanes());
      other.made = true;
      other.dtype = p.dtype;
      other.memory = of.slot;
    }
    p.memory = other.memory;
    p.offset = other.offset;
    p.size = other.size;
    p.components = other.components;
    p.padded = other.padded;
    return;
  }
  lay_out(p, *s, v, r, emitter_.lanes());
  if (v.scope == Scope::Shared) p.padded &= stores_whole_vectors(*s, v, region, emitter_.lanes());
  if (v.slot >= 0) {
    p.memory = v.slot;
    return;
  }
  p.memory = v.scope == Scope::Shared  ? Program::kShared
             : v.scope == Scope::Local ? Program::kLocal
                                       : Program::kScratch;
  int64_t& total = v.scope == Scope::Shared  ? program_.shared_bytes
                   : v.scope == Scope::Local ? program_.local_bytes
                                             : program_.scratch_bytes;
  const int64_t element = size_of(p.dtype);
  if (v.scope == Scope::Shared)
    program_.shared_places.push_back(total);
  else if (v.scope != Scope::Local)
    program_.scratch_places.push_back(total);
  p.offset = total / element;
  // A vector may begin at the last element; the next value begins on a cache line.
  total += ((p.size + emitter_.lanes()) * element + 63) / 64 * 64;
}

void Nest::place_attached(const Stage* s, size_t position, const Environment& e) {
  std::vector<Stage*> below;
  for (const auto& c : kernel_.stages) {
    if (is_below(c.get(), s, position)) below.push_back(c.get());
  }
  if (below.empty()) return;
  const Regions regions = footprints(reads_, below, s, {e.current, e.remaining});
  const auto here = [&](const Stage* c) {
    return c->at == s && c->at_loop == s->loops[position].name;
  };
  // Storage that outlives the loop which computes it: a reader sits outside that loop.
  std::vector<int> held;
  std::vector<const Stage*> all(below.begin(), below.end());
  all.push_back(s);
  for (const Stage* c : below) {
    if (here(c)) continue;
    const size_t at = loop_position(*c->at, c->at_loop);
    for (const Value& v : c->values) {
      if (v.slot >= 0 || emitter_.place(v.id).held) continue;
      const auto reader = std::find_if(all.begin(), all.end(), [&](const Stage* r) {
        return r != c && r != c->at && reads_.reads(r, v.id) && !is_below(r, c->at, at);
      });
      if (reader == all.end()) continue;
      require(v.scope != Scope::Register,
              "lower {}: {} is kept in registers, but {} reads it outside loop {}; give it the "
              "scope scratch",
              kernel_.name, v.name, (*reader)->name, c->at_loop);
      make_place(c, v, regions.at(c));
      emitter_.place(v.id).held = true;
      held.push_back(v.id);
    }
  }
  for (const Stage* c : below) {
    if (here(c)) emit_stage(c, regions.at(c));
  }
  for (int id : held) emitter_.place(id).held = false;
}

void Nest::emit_stage(const Stage* s, const Region& region) {
  for (const Value& v : s->values) {
    if (!emitter_.place(v.id).held) make_place(s, v, region);
  }
  const bool local = std::any_of(s->values.begin(), s->values.end(),
                                 [](const Value& v) { return v.scope == Scope::Local; });
  if (local) emitter_.barrier();
  Environment e;
  e.current = region.base;
  e.remaining = region.extent;
  e.region = &region;
  if (s == root_ && !s->loops.empty() && s->loops[0].kind == LoopKind::Parallel) {
    parallel_loops(s, e);
  } else {
    loops(s, 0, e);
  }
  if (local) emitter_.barrier();
  for (const Value& v : s->values) {
    Place& p = emitter_.place(v.id);
    if (p.held) emitter_.new_version(p);
    emitter_.completed(p);
  }
}

// ---- loops

void Nest::loops(const Stage* s, size_t position, Environment& e) {
  std::vector<const Value*> opened;
  for (const Value& v : s->values) {
    if (v.reduces() && !zeros_ && accumulation_position(s, v) == position) {
      open_accumulators(s, v, position, e);
      opened.push_back(&v);
    }
  }
  if (position == s->loops.size()) {
    leaf(s, e);
  } else {
    run_loop(s, position, e);
  }
  for (const Value* v : opened) finish(*v);
}

void Nest::run_loop(const Stage* s, size_t position, Environment& e) {
  switch (s->loops[position].kind) {
    case LoopKind::Vector:
      return vector_loop(s, position, e);
    case LoopKind::Unroll:
    case LoopKind::Ilp:
      return unrolled_loop(s, position, e);
    case LoopKind::Serial:
      return serial_loop(s, position, e);
    case LoopKind::Parallel:
      internal_error("a parallel loop inside a nest");
    default:
      user_error("lower {}: {} loops of stage {} are not built yet", kernel_.name,
                 s->loops[position].kind == LoopKind::Group ? "group" : "item", s->name);
  }
}

// One iteration: the axis moves, attached stages come first, then the inner loops.
void Nest::body(const Stage* s, size_t position, Environment& e, const NodeRef& iteration,
                int64_t remaining) {
  body(s, position, e, iteration, s->loops[position].stride, remaining);
}

void Nest::body(const Stage* s, size_t position, Environment& e, const NodeRef& iteration,
                int64_t stride, int64_t remaining) {
  const auto a = static_cast<size_t>(s->loops[position].axis);
  Environment inner = e;
  inner.current[a] = index_add(e.current[a], iteration, stride);
  inner.remaining[a] = remaining;
  inner.visited.resize(position + 1);
  inner.visited[position] = iteration;
  if (!zeros_) place_attached(s, position, inner);
  loops(s, position + 1, inner);
}

void Nest::vector_loop(const Stage* s, size_t position, Environment& e) {
  const Loop& l = s->loops[position];
  const auto a = static_cast<size_t>(l.axis);
  Environment inner = e;
  inner.lane = emitter_.lane_variable(std::min<int64_t>(e.remaining[a], emitter_.lanes()));
  inner.current[a] = index_add(e.current[a], inner.lane);
  inner.remaining[a] = 1;
  loops(s, position + 1, inner);
}

void Nest::unrolled_loop(const Stage* s, size_t position, Environment& e) {
  const Loop& l = s->loops[position];
  const int64_t n = e.remaining[static_cast<size_t>(l.axis)];
  const auto iteration = [&](int64_t q, int64_t remaining) {
    Environment inner = e;
    if (l.kind == LoopKind::Ilp) inner.ilp.emplace_back(l.axis, q);
    body(s, position, inner, index_const(q), remaining);
  };
  if (const auto parts = e.parts.find(l.axis); parts != e.parts.end()) {
    for (int64_t q = 0; q < parts->second; q++) iteration(q, n);
    return;
  }
  std::vector<size_t> starts;
  for (int64_t q = 0; q < n / l.stride; q++) {
    starts.push_back(emitter_.position());
    iteration(q, l.stride);
  }
  const bool inmost =
      std::none_of(s->loops.begin() + static_cast<ptrdiff_t>(position) + 1, s->loops.end(),
                   [](const Loop& i) { return i.kind != LoopKind::Vector && i.extent > 1; });
  if (inmost) emitter_.interleave_copies(starts);
  if (n % l.stride) iteration(n / l.stride, n % l.stride);
}

// The first of the parallel loops ends at a bound that is a size: the phase has fewer iterations.
// Returns the others that have such bounds, whose iterations beyond them do nothing.
std::vector<size_t> Nest::bound_parallel(const Stage* s, size_t count, int64_t total) {
  std::vector<size_t> guarded;
  NodeSet along;
  for (size_t q = 0; q < count; q++) {
    const Loop& l = s->loops[q];
    const auto it = s->bound.find(l.axis);
    const bool outermost = along.insert(s->axes[static_cast<size_t>(l.axis)]).second;
    if (it == s->bound.end() || !outermost) continue;
    // (factor * variable + constant) / divisor, rounded down
    const bool divided = it->second->op == Op::FDiv;
    const LinearForm form = linear_form(divided ? it->second->src[0] : it->second);
    const int64_t divisor = divided ? it->second->integer() : 1;
    const auto size =
        std::find_if(kernel_.sizes.begin(), kernel_.sizes.end(), [&](const KernelSize& k) {
          return form.terms.size() == 1 && form.terms[0].first == k.variable;
        });
    // As far as those go who read what is stored here.
    std::vector<int64_t> beyond;
    for (int64_t unit : reader_steps(s, l.axis, true)) {
      if (l.stride % unit != 0) beyond.push_back(unit);
    }
    if (q > 0 || size == kernel_.sizes.end()) {
      // Others who read on count from where they begin.
      if (beyond.empty() && (total > 1 || q > 0)) guarded.push_back(q);
      continue;
    }
    const int64_t factor = form.terms[0].second;
    const int64_t all = (s->axes[static_cast<size_t>(l.axis)]->hi + 1) / l.stride;
    int64_t add = form.constant - factor * size->least - (divisor - 1);
    for (int64_t unit : beyond) add += divisor * (unit - 1);
    phase_->bound = {size->slot, factor, add, divisor * l.stride,
                     std::max<int64_t>(total / std::max<int64_t>(all, 1), 1)};
  }
  return guarded;
}

// The parallel loops stand outermost. One alone may have a ragged last iteration, which is a
// function of its own; several are counted by one variable, and a ragged one is two branches.
void Nest::parallel_loops(const Stage* s, Environment& e) {
  size_t count = 0;
  while (count < s->loops.size() && s->loops[count].kind == LoopKind::Parallel) count++;
  std::vector<int64_t> full, tails;
  int64_t total = 1;
  std::vector<int64_t> remaining = e.remaining;
  for (size_t q = 0; q < count; q++) {
    const Loop& l = s->loops[q];
    const auto a = static_cast<size_t>(l.axis);
    full.push_back(remaining[a] / l.stride);
    tails.push_back(remaining[a] % l.stride);
    const bool splits_again = std::any_of(s->loops.begin() + static_cast<ptrdiff_t>(q) + 1,
                                          s->loops.begin() + static_cast<ptrdiff_t>(count),
                                          [&](const Loop& m) { return m.axis == l.axis; });
    require(tails[q] == 0 || count == 1 || (s->bound.count(l.axis) == 0 && !splits_again),
            "lower {}: parallel loop {} of {} has a ragged end beside another parallel loop of its "
            "axis, or one that ends at a size; mark it alone",
            kernel_.name, l.name, s->name);
    remaining[a] = l.stride;
    total *= full[q] + (count > 1 && tails[q] > 0 ? 1 : 0);
  }
  phase_->count = total;
  phase_->has_tail = count == 1 && tails[0] > 0;
  std::vector<size_t> guarded = bound_parallel(s, count, total);
  const Loop& first = s->loops[0];
  if (tail_) {
    body(s, 0, e, index_const(full[0]), tails[0]);
    return;
  }
  if (total == 0) return;
  const NodeRef v = axis(first.name, total);
  if (const PhaseBound& b = phase_->bound; b.slot >= 0) {
    for (const KernelSize& k : kernel_.sizes) {
      if (k.slot != b.slot) continue;
      const NodeRef size = index_add(k.variable, index_const(k.least));
      const NodeRef end = index_add(index_mul(size, b.factor), index_const(b.add));
      emitter_.loop_ends_at(v, index_mul(divided_up(end, b.step), b.repeated));
    }
  }
  const bool ragged =
      count > 1 && std::any_of(tails.begin(), tails.end(), [](int64_t t) { return t > 0; });
  NodeRef rest = v;
  std::vector<NodeRef> iterations(count);
  for (size_t q = count; q-- > 0;) {
    const int64_t extent = full[q] + (ragged && tails[q] > 0 ? 1 : 0);
    std::tie(rest, iterations[q]) = index_divmod(rest, extent);
  }
  if (total > 1) {
    emitter_.open_loop(v, {.kind = Operand::Kind::Begin}, {.kind = Operand::Kind::End},
                       guarded.empty() && !ragged && innermost(s, count - 1));
    parallel_variable_ = v;
  }
  for (size_t q : guarded) {
    const Loop& l = s->loops[q];
    emitter_.open_if(emitter_.emit(
        scalar_op(Op::Lt, DType::Bool, {index_mul(iterations[q], l.stride), s->bound.at(l.axis)})));
  }
  parallel_iterations(s, iterations, ragged ? full : std::vector<int64_t>(), tails, e);
  for (size_t q = 0; q < guarded.size(); q++) emitter_.close_if();
  if (total > 1) emitter_.close_loop();
  parallel_variable_ = {};
}

// One iteration of the parallel loops from that of `e` on. Where the next one is ragged, its last
// iteration, behind the `full` ones, is another branch.
void Nest::parallel_iterations(const Stage* s, const std::vector<NodeRef>& iterations,
                               const std::vector<int64_t>& full, const std::vector<int64_t>& tails,
                               const Environment& e) {
  const size_t q = e.visited.size();
  if (q == iterations.size()) {
    Environment inner = e;
    return loops(s, q, inner);
  }
  const Loop& l = s->loops[q];
  const auto a = static_cast<size_t>(l.axis);
  const auto branch = [&](const NodeRef& iteration, int64_t remaining) {
    Environment inner = e;
    inner.current[a] = index_add(inner.current[a], iteration, l.stride);
    inner.remaining[a] = remaining;
    inner.visited.push_back(iteration);
    place_attached(s, q, inner);
    parallel_iterations(s, iterations, full, tails, inner);
  };
  if (full.empty() || tails[q] == 0) return branch(iterations[q], l.stride);
  const NodeRef end = index_const(full[q]);
  const auto guard = [&](const NodeRef& x, const NodeRef& y) {
    emitter_.open_if(emitter_.emit(scalar_op(Op::Lt, DType::Bool, {x, y})), true);
  };
  if (full[q] > 0) {
    guard(iterations[q], end);
    branch(iterations[q], l.stride);
    emitter_.close_if();
  }
  guard(index_const(full[q] - 1), iterations[q]);
  branch(end, tails[q]);
  emitter_.close_if();
}

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

// The innermost of the loops along an axis that end at its bound: serial ones with none of another
// kind around them but, where bounds are sizes, parallel ones. Null: there is none.
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
  const bool may_be_empty = steps && steps->lo < 1;
  if (may_be_empty)
    emitter_.open_if(emitter_.emit(scalar_op(Op::Lt, DType::Bool, {index_const(0), steps})));
  if (full == 1 || (steps && blocks->hi == 1)) {
    body(s, position, e, index_const(0), l.stride);
  } else if (full > 0) {
    const NodeRef v = axis(l.name, full);
    if (steps) emitter_.loop_ends_at(v, steps->op == Op::Min ? steps->src[0] : steps);
    emitter_.open_loop(v, Emitter::index(0), emitter_.emit(blocks), innermost(s, position));
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
  return by_size || !is_needed_beyond(s, position);
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

// Whether something that is computed inside the loop is needed of steps beyond the mask too.
bool Nest::is_needed_beyond(const Stage* s, size_t position) const {
  for (const auto& c : kernel_.stages) {
    if (!is_below(c.get(), s, position)) continue;
    for (const Value& v : c->values) {
      if (!c->limit.empty() && !v.zero_beyond) continue;  // those that read it stop there
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

// Where the loops over the axis of this one end.
NodeRef Nest::bounded_end(const Stage* s, size_t position, const Environment& e,
                          bool by_size) const {
  const Loop& l = s->loops[position];
  const auto a = static_cast<size_t>(l.axis);
  bool stores = false;
  for (const Value& v : s->values) stores |= s->keeps(v, l.axis) && (by_size || !v.zero_beyond);
  // The largest bound: of the whole region where it is stored, else of the tile.
  const NodeRef& limit = bounds_of(*s, by_size).at(l.axis);
  Substitution largest;
  for (size_t b = 0; b < s->axes.size(); b++) {
    if (b == a) continue;
    const NodeRef base = stores ? e.region->base[b] : e.current[b];
    const int64_t length = stores ? e.region->extent[b] : e.remaining[b];
    const bool falls = falls_along(limit, s->axes[b]);
    largest[s->axes[b]] = falls ? base : index_add(base, index_const(length - 1));
  }
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
  const NodeRef last = substitute(limit, largest);
  const auto rounded = [&](NodeRef end) {
    for (size_t u = units.size(); u-- > 0;) end = index_mul(steps_to(end, units[u]), units[u]);
    return end;
  };
  // Readers count their steps from where this region begins, or from the beginning of the axis.
  NodeRef end = rounded(at_least(index_add(last, base, -1), 0));
  if (!units.empty() && !(base->op == Op::Const && base->lo == 0)) {
    const NodeRef of_all = at_least(index_add(rounded(last), base, -1), 0);
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
