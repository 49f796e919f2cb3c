#include "ir/emit.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/node_map.h"
#include "ir/math.h"

namespace lazuli {
namespace {

bool is_integer_index(const Node& n) {
  return n.dtype == DType::I64 && n.op != Op::Load && n.op != Op::Read;
}

bool fits_i32(const NodeRef& n) {
  return n->lo >= INT32_MIN && n->hi <= INT32_MAX;
}

}  // namespace

Emitter::Emitter(const Kernel& kernel, Program& program, int lanes, int registers)
    : kernel_(kernel), program_(program), lanes_(lanes), vector_registers_(registers) {
  for (const KernelSize& s : kernel.sizes) sizes_[s.variable] = s.slot;
}

int Emitter::level_of(const std::vector<Operand>& args) {
  int level = 0;
  for (const Operand& a : args) level = std::max(level, a.level);
  return level;
}

// ---- frames

void Emitter::begin_function() {
  frames_.clear();
  loads_from_ = 0;
  frames_.emplace_back();
  memo_.clear();
  registers_.clear();
  forwarded_.clear();
  for (auto& [version, level] : version_level_) level = 0;
}

std::vector<Instruction> Emitter::end_function() {
  ensure(frames_.size() == 1, "a loop is still open at the end of a function");
  settle_strided(frames_[0].code);
  return std::move(frames_[0].code);
}

void Emitter::open_loop(const NodeRef& variable, const Operand& begin, const Operand& end,
                        bool innermost, int64_t usual_trips) {
  Frame f;
  f.variable = variable;
  f.begin = begin;
  f.end = end;
  f.innermost = innermost;
  f.usual_trips = usual_trips;
  f.counter = new_value_like({}, static_cast<int>(frames_.size()));
  frames_.push_back(std::move(f));
  bind(variable, top().counter);
}

void Emitter::bind(const NodeRef& variable, const Operand& value) {
  remember({kNode, 0, 0, variable.get(), nullptr}, variable, {}, value);
}

void Emitter::close_loop() {
  for (CarriedIndex& c : top().carried) {
    const Operand& x = c.phi.dst;
    const Operand step = widen(constant(x.dtype, to_bits(Scalar(c.step), x.dtype)), x.lanes);
    c.phi.next =
        push({.code = Code::Op, .op = Op::Add, .args = {x, step}}, depth(), x.dtype, x.lanes);
  }
  Frame f = leave();
  Instruction loop{.code = Code::Loop};
  loop.name = std::get<VarArg>(f.variable->arg).name;
  loop.dst = f.counter;
  loop.begin = f.begin;
  loop.end = f.end;
  loop.imm = f.usual_trips;
  loop.phis = std::move(f.phis);
  for (size_t i = 0; i < loop.phis.size(); i++) {
    loop.phis[i].next = f.cells[i]->current;
    f.cells[i]->current.level = depth();
  }
  for (CarriedIndex& c : f.carried) loop.phis.push_back(c.phi);
  loop.body = std::move(f.code);
  top().code.push_back(std::move(loop));
}

void Emitter::open_if(const Operand& condition, bool keeps_loads) {
  Frame f;
  f.condition = condition;
  f.is_if = true;
  f.loads_outside = loads_from_;
  if (keeps_loads) loads_from_ = static_cast<int>(frames_.size());
  frames_.push_back(std::move(f));
}

void Emitter::close_if() {
  Frame f = leave();
  loads_from_ = f.loads_outside;
  Instruction branch{.code = Code::If, .args = {f.condition}};
  branch.phis = std::move(f.phis);
  for (size_t i = 0; i < branch.phis.size(); i++) {
    Phi& p = branch.phis[i];
    p.next = f.cells[i]->current;
    p.dst.level = depth();
    f.cells[i]->current = p.dst;
  }
  branch.body = std::move(f.code);
  top().code.push_back(std::move(branch));
}

Emitter::Frame Emitter::leave() {
  Frame f = std::move(top());
  frames_.pop_back();
  settle_strided(f.code);
  for (const Key& k : f.keys) memo_.erase(k);
  for (const Coordinates& r : f.registers) registers_.erase(r);
  return f;
}

void Emitter::carry(Cell* cell, int frame) {
  for (size_t f = static_cast<size_t>(frame) + 1; f < frames_.size(); f++) {
    Frame& g = frames_[f];
    if (std::find(g.cells.begin(), g.cells.end(), cell) != g.cells.end()) continue;
    const Operand result = new_value_like(cell->current, static_cast<int>(f));
    g.phis.push_back({result, cell->current, {}});
    if (!g.is_if) cell->current = result;
    g.cells.push_back(cell);
  }
}

void Emitter::barrier() {
  if (top().code.empty() || top().code.back().code != Code::Barrier)
    top().code.push_back({.code = Code::Barrier});
}

// ---- values

Operand Emitter::constant(DType dtype, uint64_t bits) {
  return {.kind = Operand::Kind::Constant, .dtype = dtype, .bits = bits};
}

Operand Emitter::lane_numbers(DType dtype, int64_t live) const {
  return {.kind = Operand::Kind::Iota,
          .dtype = dtype,
          .lanes = lanes_,
          .bits = static_cast<uint64_t>(live)};
}

Operand Emitter::new_value_like(Operand v, int level) {
  v.kind = Operand::Kind::Value;
  v.bits = 0;
  v.id = program_.values++;
  v.level = level;
  return v;
}

Operand Emitter::index(int64_t v) {
  return constant(DType::I64, static_cast<uint64_t>(v));
}

Operand Emitter::push(Instruction i, int level, DType dtype, int lanes) {
  if (i.code == Code::Load) level = std::max(level, loads_from_);
  i.dst.kind = Operand::Kind::Value;
  i.dst.dtype = dtype;
  i.dst.lanes = lanes;
  i.dst.id = program_.values++;
  i.dst.level = level;
  i.dst.pointer = i.code == Code::Pointer;
  const Operand r = i.dst;
  frames_[static_cast<size_t>(level)].code.push_back(std::move(i));
  return r;
}

const Operand* Emitter::find(const Key& key) const {
  const auto it = memo_.find(key);
  return it == memo_.end() ? nullptr : &it->second.value;
}

Operand Emitter::remember(const Key& key, const NodeRef& node, const NodeRef& valid,
                          const Operand& v) {
  memo_[key] = {v, node, valid};
  frames_[static_cast<size_t>(v.level)].keys.push_back(key);
  return v;
}

Operand Emitter::op(Op o, DType dtype, std::vector<Operand> args) {
  int lanes = 1;
  for (const Operand& a : args) lanes = std::max(lanes, a.lanes);
  for (Operand& a : args) a = widen(a, lanes);
  const int level = level_of(args);
  return push({.code = Code::Op, .op = o, .args = std::move(args)}, level, dtype, lanes);
}

Operand Emitter::op_here(Op o, std::vector<Operand> args, bool unordered) {
  return op_in_frame(depth(), o, std::move(args), unordered);
}

Operand Emitter::op_in_frame(int frame, Op o, std::vector<Operand> args, bool unordered) {
  int lanes = 1;
  for (const Operand& a : args) lanes = std::max(lanes, a.lanes);
  for (Operand& a : args) a = widen(a, lanes);
  const DType dtype = info(o).rule == DTypeRule::Bool ? DType::Bool : args.back().dtype;
  const int level = std::max(frame, level_of(args));
  return push({.code = Code::Op, .op = o, .args = std::move(args), .flag = unordered}, level, dtype,
              lanes);
}

Operand Emitter::convert(const Operand& v, DType dtype) {
  return op(Op::Cast, dtype, {v});
}

Operand Emitter::lane_reduce(Op o, const Operand& v, bool unordered) {
  return push({.code = Code::LaneReduce, .op = o, .args = {v}, .flag = unordered}, depth(), v.dtype,
              1);
}

Operand Emitter::only_live(const NodeRef& lane, const Operand& v, const Operand& other) {
  if (live_lanes(lane) == lanes_) return v;
  const Operand mask = lane_numbers(DType::Bool, live_lanes(lane));
  return op_here(Op::Where, {mask, widen(v, lanes_), widen(other, lanes_)});
}

Operand Emitter::widen(Operand v, int lanes) {
  if (v.lanes == lanes) return v;
  if (v.kind == Operand::Kind::Constant) {
    v.lanes = lanes;
    return v;
  }
  ensure(v.lanes == 1 && v.kind != Operand::Kind::Iota,
         "a vector of one width is used where another is needed");
  // A splat lives where its scalar lives.
  const Key key{kSplat, v.id, static_cast<int64_t>(v.kind), nullptr, nullptr};
  if (const Operand* known = find(key)) return *known;
  return remember(key, {}, {}, push({.code = Code::Splat, .args = {v}}, v.level, v.dtype, lanes));
}

NodeRef Emitter::lane_variable(int64_t live) {
  NodeRef& v = lane_variables_[live];
  if (!v) v = axis("lane", live);
  return v;
}

NodeRef Emitter::lane_of(const NodeRef& n) {
  if (n->src.empty()) {
    if (n->op != Op::Var) return {};
    const auto it = lane_variables_.find(n->hi + 1);
    return it != lane_variables_.end() && it->second.get() == n.get() ? n : NodeRef();
  }
  const auto it = lane_memo_.find(n);
  if (it != lane_memo_.end()) return it->second;
  NodeRef r;
  for (const NodeRef& s : n->src) {
    if (NodeRef lane = lane_of(s)) r = lane;
  }
  return lane_memo_[n] = r;
}

Operand Emitter::emit(const NodeRef& n) {
  if (n->op == Op::Const) return constant(n->dtype, std::get<ScalarBits>(n->arg).bits);
  const Key key{kNode, 0, 0, n.get(), nullptr};
  if (const Operand* known = find(key)) return *known;
  if (n->op == Op::Var) {
    for (const KernelSize& s : kernel_.sizes) {
      if (s.variable != n) continue;
      const Operand size = load({s.slot, DType::I64, index_const(0), {}, 0, false, 1});
      return remember(key, n, {}, op(Op::Sub, DType::I64, {size, index(s.least)}));
    }
    ensure(lane_of(n) != nullptr, "a variable is used outside its loop: " + index_text(n));
    return lane_numbers(DType::I64);
  }
  switch (n->op) {
    case Op::Lin:
      return remember(key, n, {}, emit_sum(n));
    case Op::FDiv:
    case Op::FMod:
      return remember(key, n, {}, emit_division(n));
    case Op::Read:
      return emit_read(n);
    case Op::Load: {
      const auto slot = static_cast<int>(n->integer());
      const NodeRef valid = n->src.size() > 1 ? n->src[1] : NodeRef();
      const KernelArgument& a = kernel_.arguments[static_cast<size_t>(slot)];
      // A word holds several elements.
      const int64_t size = std::min(a.size, a.least) * size_of(a.dtype) / size_of(n->dtype);
      if (size == 0) return constant(n->dtype, 0);
      const Operand r = load({slot, n->dtype, n->src[0], valid, 0, false, size});
      return remember(key, n, {}, r);
    }
    default:
      return remember(key, n, {}, is_rare(*n) ? emit_rare(n) : emit_elementwise(n));
  }
}

// A Where whose first branch is seldom taken in any lane: what only that branch needs goes into an
// If. Its loads stay outside, since others may read the same later.
Operand Emitter::emit_rare(const NodeRef& n) {
  Operand condition = emit(n->src[0]);
  Operand usual = emit(n->src[2]);
  int level = std::max(condition.level, usual.level);
  std::vector<NodeRef> pending{n->src[1]};
  NodeSet entered;
  while (!pending.empty()) {
    const NodeRef s = std::move(pending.back());
    pending.pop_back();
    if (!entered.insert(s.get()).second) continue;
    if (const Operand* known = find({kNode, 0, 0, s.get(), nullptr})) {
      level = std::max(level, known->level);
    } else if (!is_elementwise(s->op)) {
      level = std::max(level, emit(s).level);
    } else {
      pending.insert(pending.end(), s->src.begin(), s->src.end());
    }
  }
  const int lanes = std::max(condition.lanes, usual.lanes);
  condition = widen(condition, lanes);
  usual = widen(usual, lanes);
  Operand any = condition;
  const NodeRef lane = lanes > 1 ? lane_of(n) : NodeRef();
  if (lane && live_lanes(lane) < lanes) {
    // The others hold zeros, for which a logarithm would take the branch.
    any = op_in_frame(
        level, Op::Where,
        {lane_numbers(DType::Bool, live_lanes(lane)), condition, constant(DType::Bool, 0)});
  }
  if (lanes > 1) any = push({.code = Code::Any, .args = {any}}, level, DType::Bool, 1);
  Frame& frame = frames_[static_cast<size_t>(level)];
  const size_t code = frame.code.size(), keys = frame.keys.size();
  const Operand seldom = widen(emit(n->src[1]), lanes);
  Operand next = seldom;
  if (lanes > 1) {
    const std::vector<Operand> args{condition, seldom, usual};
    next = push({.code = Code::Op, .op = Op::Where, .args = args}, level, n->dtype, lanes);
  }
  // Everything emitted at this level since the test belongs to the branch, and is unknown after it.
  Instruction branch{.code = Code::If, .args = {any}};
  const auto first = frame.code.begin() + static_cast<ptrdiff_t>(code);
  branch.body.assign(std::make_move_iterator(first), std::make_move_iterator(frame.code.end()));
  frame.code.erase(first, frame.code.end());
  for (size_t i = keys; i < frame.keys.size(); i++) memo_.erase(frame.keys[i]);
  frame.keys.resize(keys);
  const Operand result = new_value_like(usual, level);
  branch.phis.push_back({result, usual, next});
  frame.code.push_back(std::move(branch));
  return result;
}

// How much n grows with each iteration of the innermost loop, if that is where the top frame is and
// n can be carried in it; else 0.
int64_t Emitter::carried_step(const NodeRef& n) const {
  if (frames_.size() < 2 || !frames_.back().innermost) return 0;
  return linear_form(n).coefficient(frames_.back().variable);
}

// A phi that begins at `first`, plus the steps that the loop leaves out.
Operand Emitter::carry_by(int64_t step, const Operand& first) {
  CarriedIndex c;
  c.step = step;
  c.phi.init = first;
  if (top().begin.kind != Operand::Kind::Constant || top().begin.bits != 0) {
    Operand offset = op(Op::Mul, DType::I64, {top().begin, index(step)});
    if (first.dtype != DType::I64) offset = convert(offset, first.dtype);
    c.phi.init = op(Op::Add, first.dtype, {first, offset});
  }
  c.phi.dst = new_value_like(first, top().counter.level);
  top().carried.push_back(c);
  return c.phi.dst;
}

// An index that grows by a constant with the innermost loop is a phi; its first value is computed
// outside.
Operand Emitter::carried_index(const NodeRef& n) {
  const int64_t step = lane_of(n) ? 0 : carried_step(n);
  if (step == 0) return {};
  const Operand first = emit(index_add(n, top().variable, -step));
  return first.level < depth() ? carry_by(step, first) : Operand();
}

// The same of a vector with 32-bit lanes.
Operand Emitter::carried_narrow(const NodeRef& n) {
  const int64_t step = carried_step(n);
  if (step == 0 || std::abs(step) > INT32_MAX) return {};
  const NodeRef rest = index_add(n, top().variable, -step);
  if (!fits_i32(rest) || !lane_of(rest)) return {};
  const Operand first = emit_narrow(rest);
  return first.level < depth() ? carry_by(step, first) : Operand();
}

Operand Emitter::emit_sum(const NodeRef& n) {
  if (const Operand carried = carried_index(n); carried.kind != Operand::Kind::None) return carried;
  LinearForm form = linear_form(n);
  if (form.terms.size() == 1 && form.constant == 0) {
    return op(Op::Mul, DType::I64, {emit(form.terms[0].first), index(form.terms[0].second)});
  }
  if (form.terms.size() == 1) {
    const NodeRef term = from_linear({0, form.terms});
    return op(Op::Add, DType::I64, {emit(term), index(form.constant)});
  }
  // The terms known innermost are added last; the others form a sum of their own.
  std::vector<std::pair<int, int>> depths;
  for (const auto& [atom, c] : form.terms) {
    const Operand v = emit(atom);
    depths.emplace_back(v.lanes, v.level);
  }
  const auto last = *std::max_element(depths.begin(), depths.end());
  LinearForm outer, inner;
  outer.constant = form.constant;
  for (size_t i = 0; i < form.terms.size(); i++) {
    (depths[i] == last ? inner : outer).terms.push_back(form.terms[i]);
  }
  if (outer.terms.empty()) {  // all at one depth: peel one off
    outer.terms.push_back(inner.terms.front());
    inner.terms.erase(inner.terms.begin());
  }
  Operand r = emit(from_linear(outer));
  for (const auto& term : inner.terms) {
    r = op(Op::Add, DType::I64, {r, emit(from_linear({0, {term}}))});
  }
  return r;
}

Operand Emitter::emit_division(const NodeRef& n) {
  const int64_t d = n->integer();
  const NodeRef& x = n->src[0];
  const Operand a = emit(x);
  const bool division = n->op == Op::FDiv;
  if (std::has_single_bit(static_cast<uint64_t>(d))) {  // right for negative numbers too
    const int shift = std::countr_zero(static_cast<uint64_t>(d));
    return division ? op(Op::Shr, DType::I64, {a, index(shift)})
                    : op(Op::And, DType::I64, {a, index(d - 1)});
  }
  if (x->lo >= 0) return op(division ? Op::IDiv : Op::Rem, DType::I64, {a, index(d)});
  const Operand rest = op(Op::Rem, DType::I64, {a, index(d)});
  const Operand negative = op(Op::Lt, DType::Bool, {rest, index(0)});
  if (!division) {
    return op(Op::Where, DType::I64, {negative, op(Op::Add, DType::I64, {rest, index(d)}), rest});
  }
  const Operand q = op(Op::IDiv, DType::I64, {a, index(d)});
  return op(Op::Where, DType::I64, {negative, op(Op::Sub, DType::I64, {q, index(1)}), q});
}

// Vectors of indices are made with 32-bit lanes where they are only compared or converted.
Operand Emitter::emit_narrow(const NodeRef& n) {
  if (n->op == Op::Const) {
    return constant(DType::I32, std::get<ScalarBits>(n->arg).bits & 0xFFFFFFFFu);
  }
  const NodeRef lane = lane_of(n);
  if (n->op == Op::Where && fits_i32(n->src[1]) && fits_i32(n->src[2])) {
    return op(Op::Where, DType::I32,
              {emit(n->src[0]), emit_narrow(n->src[1]), emit_narrow(n->src[2])});
  }
  if (!lane) return op(Op::Cast, DType::I32, {emit(n)});
  if (n.get() == lane.get()) return lane_numbers(DType::I32);
  const Key key{kNarrow, 0, 0, n.get(), nullptr};
  if (const Operand* known = find(key)) return *known;
  Operand r = n->op == Op::Lin ? narrow_sum(n) : Operand();
  if (r.kind == Operand::Kind::None) r = op(Op::Cast, DType::I32, {emit(n)});
  return remember(key, n, {}, r);
}

// A sum with lanes whose terms fit 32 bits; nothing if they do not.
Operand Emitter::narrow_sum(const NodeRef& n) {
  if (const Operand carried = carried_narrow(n); carried.kind != Operand::Kind::None) {
    return carried;
  }
  LinearForm scalar = linear_form(n), vector;
  for (size_t i = scalar.terms.size(); i-- > 0;) {
    const auto& [atom, c] = scalar.terms[i];
    if (!lane_of(atom)) continue;
    if (!fits_i32(atom) || std::abs(c) > INT32_MAX) return {};
    vector.terms.push_back(scalar.terms[i]);
    scalar.terms.erase(scalar.terms.begin() + static_cast<ptrdiff_t>(i));
  }
  const NodeRef rest = from_linear(scalar);
  if (!fits_i32(rest)) return {};
  Operand r = emit_narrow(rest);
  for (const auto& [atom, c] : vector.terms) {
    Operand t = emit_narrow(atom);
    if (c != 1) t = op(Op::Mul, DType::I32, {t, constant(DType::I32, static_cast<uint32_t>(c))});
    const bool zero = r.kind == Operand::Kind::Constant && r.bits == 0;
    r = zero ? t : op(Op::Add, DType::I32, {r, t});
  }
  return r;
}

Operand Emitter::emit_elementwise(const NodeRef& n) {
  const bool reads_index = n->op == Op::Cast || has(n->op, kComparison);
  bool narrow = reads_index && n->src[0]->dtype == DType::I64 && lane_of(n) != nullptr;
  for (const NodeRef& s : n->src) narrow &= is_integer_index(*s) && fits_i32(s);
  if (narrow && n->op == Op::Cast && size_of(n->dtype) == 8 && is_int(n->dtype)) narrow = false;
  std::vector<Operand> args;
  for (const NodeRef& s : n->src) args.push_back(narrow ? emit_narrow(s) : emit(s));
  if (narrow && n->op == Op::Cast && n->dtype == DType::I32) return args[0];
  return op(n->op, n->dtype, std::move(args));
}

}  // namespace lazuli
