#include "ir/nest.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "ir/index_bounds.h"
#include "ir/schedule.h"

namespace lazuli {

Nest::Nest(const Kernel& kernel, const Target& target, int lanes, std::set<int> nan_elsewhere)
    : kernel_(kernel),
      target_(target),
      emitter_(kernel, program_, lanes, target.vector_registers),
      reads_(kernel),
      nan_elsewhere_(std::move(nan_elsewhere)) {
  program_.name = kernel.name;
  program_.lanes = lanes;
  for (const KernelArgument& a : kernel.arguments)
    program_.arguments.push_back({a.name, a.dtype, a.size, a.output});
}

Program Nest::run() {
  for (const PhaseRoot& p : phases(kernel_)) {
    emit_phase(p.stage);
    phase_->waits = p.waits;
    phase_->each = p.each;
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
  const bool whole = crosses_phases(scope);
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
  if (whole && !parallel_variables_.empty() && s != root_) {
    bool disjoint = false;
    for (const NodeRef& variable : parallel_variables_) {
      for (int a : axes) disjoint |= uses(region.base[static_cast<size_t>(a)], variable);
    }
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
  const Region now{{e.current.begin(), e.current.end()}, {e.remaining.begin(), e.remaining.end()}};
  const Regions regions = footprints(reads_, below, s, now);
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
  for (const Value* v : opened) {
    if (v->place_of < 0) finish(*v, place_of(*s, *v));
  }
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
    if (l.kind == LoopKind::Ilp) e.ilp.emplace_back(l.axis, q);
    body(s, position, e, index_const(q), remaining);
    if (l.kind == LoopKind::Ilp) e.ilp.pop_back();
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
  SmallVector<int64_t, 8> remaining = e.remaining;
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
  if (count == 2 && !ragged && guarded.empty() && phase_->bound.slot < 0 && full[0] > 1 &&
      full[1] > 1 && packs_in_each(s, 1)) {
    return parallel_nest(s, full, tails, e);
  }
  NodeRef rest = v;
  std::vector<NodeRef> iterations(count);
  for (size_t q = count; q-- > 0;) {
    const int64_t extent = full[q] + (ragged && tails[q] > 0 ? 1 : 0);
    std::tie(rest, iterations[q]) = index_divmod(rest, extent);
  }
  if (total > 1) {
    emitter_.open_loop(v, {.kind = Operand::Kind::Begin}, {.kind = Operand::Kind::End},
                       guarded.empty() && !ragged && innermost(s, count - 1));
    parallel_variables_ = {v};
  }
  for (size_t q : guarded) {
    const Loop& l = s->loops[q];
    emitter_.open_if(emitter_.emit(
        scalar_op(Op::Lt, DType::Bool, {index_mul(iterations[q], l.stride), s->bound.at(l.axis)})));
  }
  parallel_iterations(s, iterations, ragged ? full : std::vector<int64_t>(), tails, e);
  for (size_t q = 0; q < guarded.size(); q++) emitter_.close_if();
  if (total > 1) emitter_.close_loop();
  parallel_variables_ = {};
}

// Whether a panel is made in each iteration of a loop.
bool Nest::packs_in_each(const Stage* s, size_t position) const {
  return std::any_of(kernel_.stages.begin(), kernel_.stages.end(), [&](const auto& c) {
    return c->at == s && c->at_loop == s->loops[position].name &&
           std::all_of(c->values.begin(), c->values.end(),
                       [](const Value& v) { return v.scope == Scope::Scratch; });
  });
}

// Two parallel loops over the iterations that one thread takes, each with a variable of its own:
// what the next iteration of the inner one packs is then seen to follow (ir/pack_ahead.h,
// ir/prefetch.h).
void Nest::parallel_nest(const Stage* s, const std::vector<int64_t>& full,
                         const std::vector<int64_t>& tails, const Environment& e) {
  const int64_t total = full[0] * full[1];
  const NodeRef begin = axis("begin", total + 1), end = axis("end", total + 1),
                outer = axis(s->loops[0].name, full[0]), inner = axis(s->loops[1].name, full[1]);
  emitter_.bind(begin, {.kind = Operand::Kind::Begin});
  emitter_.bind(end, {.kind = Operand::Kind::End});
  emitter_.open_loop(outer, emitter_.emit(index_divmod(begin, full[1]).first),
                     emitter_.emit(divided_up(end, full[1])), false, full[0]);
  const NodeRef before = index_mul(outer, full[1]);
  const auto within = [&](Op op, const NodeRef& x, int64_t limit) {
    return emitter_.emit(scalar_op(op, DType::I64, {index_add(x, before, -1), index_const(limit)}));
  };
  emitter_.open_loop(inner, within(Op::Max, begin, 0), within(Op::Min, end, full[1]),
                     innermost(s, 1), full[1]);
  parallel_variables_ = {outer, inner};
  parallel_iterations(s, {outer, inner}, {}, tails, e);
  emitter_.close_loop();
  emitter_.close_loop();
  parallel_variables_ = {};
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

}  // namespace lazuli
