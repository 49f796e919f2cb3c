// Emission of loads and stores: see ir/emit.h.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "ir/emit.h"
#include "ir/zip_rounds.h"

namespace lazuli {
namespace {

std::vector<const Node*> pointers(const std::vector<NodeRef>& v) {
  return {v.begin(), v.end()};
}

}  // namespace

// ---- memory

Operand Emitter::pointer(int memory, DType dtype, const NodeRef& i) {
  const Key key{kPointer, memory, static_cast<int64_t>(dtype), i.get(), nullptr};
  if (const Operand* known = find(key)) return *known;
  return remember(key, i, {}, pointer_at(memory, dtype, emit(i)));
}

Operand Emitter::pointer_at(int memory, DType dtype, const Operand& i) {
  return push({.code = Code::Pointer, .args = {i}, .memory = memory}, i.level, dtype, 1);
}

// Steps of Reach for a sum over sizes.
namespace {
void encode(const NodeRef& n, const std::vector<KernelSize>& sizes, std::vector<int64_t>& code) {
  if (n->op == Op::Var) {
    for (const KernelSize& s : sizes) {
      if (s.variable == n) code.insert(code.end(), {Reach::kSize, s.slot, s.least});
    }
    return;
  }
  if (n->op == Op::FDiv) {
    encode(n->src[0], sizes, code);
    code.insert(code.end(), {Reach::kOver, n->integer()});
    return;
  }
  const LinearForm form = linear_form(n);
  code.insert(code.end(), {Reach::kConstant, form.constant});
  for (const auto& [atom, c] : form.terms) {
    encode(atom, sizes, code);
    code.insert(code.end(), {Reach::kTimes, c, Reach::kPlus});
  }
}

bool can_encode(const NodeRef& n) {
  bool can = true;
  visit(n, [&](const NodeRef& x) {
    can &= x->op == Op::Var || x->op == Op::Lin || x->op == Op::FDiv || x->op == Op::Const;
  });
  return can;
}
}  // namespace

void Emitter::loop_ends_at(const NodeRef& variable, const NodeRef& end) {
  if (only_sizes(end, sizes_) && can_encode(end)) {
    loop_ends_[variable] = end;
    ending_.push_back(variable);
  }
}

NodeRef Emitter::without_masks(const NodeRef& n) const {
  if (loop_ends_.empty()) return n;
  Substitution known;
  visit(n, [&](const NodeRef& mask) {
    if (mask->op != Op::Lt || mask->src[0]->dtype != DType::I64) return;
    const NodeRef end = upper_bound(mask->src[0], loop_ends_, sizes_);
    if (!end) return;
    Substitution sizes;
    visit(mask->src[1], [&](const NodeRef& x) {
      for (const KernelSize& s : kernel_.sizes) {
        if (x->op != Op::Load || x->integer() != s.slot) continue;
        sizes[x] = index_add(s.variable, index_const(s.least));
      }
    });
    const NodeRef size = substitute(mask->src[1], sizes);
    if (index_add(size, end, -1)->lo >= 0) known[mask] = scalar_const(Scalar(true), DType::Bool);
  });
  return known.empty() ? n : substitute(n, known);
}

void Emitter::touch(int memory, const NodeRef& index) {
  if (memory < 0 || sizes_.empty()) return;
  NodeRef end = upper_bound(index, loop_ends_, sizes_);
  const int64_t size = kernel_.arguments[static_cast<size_t>(memory)].size;
  if (!end || !can_encode(end)) end = index_const(index->hi < size ? index->hi + 1 : size);
  LinearForm form = linear_form(end);
  const int64_t constant = std::exchange(form.constant, 0);
  const NodeRef part = from_linear(std::move(form));
  const auto [it, is_new] = reaches_.try_emplace({memory, part.get()}, part, constant);
  if (!is_new) it->second.second = std::max(it->second.second, constant);
}

void Emitter::finish_reaches() {
  program_.has_sizes = !sizes_.empty();
  for (const auto& [key, reach] : reaches_) {
    Reach r{key.first, {}};
    encode(index_add(reach.first, index_const(reach.second)), kernel_.sizes, r.code);
    program_.reaches.push_back(std::move(r));
  }
}

void Emitter::stray(int memory) {
  if (memory >= 0) program_.arguments[static_cast<size_t>(memory)].strays = true;
}

Operand Emitter::load(const Access& a) {
  touch(a.memory, a.index);
  const NodeRef lane = lane_of(a.index);
  if (!lane && !(a.valid && lane_of(a.valid))) return load_scalar(a);
  if (!lane && a.index->lo >= 0 && a.index->hi < a.size) {  // one element that exists
    Access whole = a;
    whole.valid = {};
    stray(a.memory);
    const Operand x = widen(load_scalar(whole), lanes_);
    return op(Op::Where, a.dtype, {emit(a.valid), x, constant(a.dtype, 0)});
  }
  if (!lane) return gather(a, lane_of(a.valid));
  LinearForm form = linear_form(a.index);
  const int64_t step = form.coefficient(lane);
  const NodeRef rest = index_add(a.index, lane, -step);
  if (lane_of(rest)) {
    const std::optional<Operand> repeated = load_repeated(a, lane);
    return repeated ? *repeated : gather(a, lane);
  }
  if (step == 1) return load_vector(a, lane, linear_form(rest));
  const bool in_all_lanes = live_lanes(lane) == lanes_ && !(a.valid && lane_of(a.valid));
  if (step == -1 && lanes_ > 1 && in_all_lanes) {
    const NodeRef last = index_add(rest, index_const(1 - lanes_));
    const Operand x = load_vector(a, lane_variable(lanes_), linear_form(last));
    return push({.code = Code::Permute, .args = {x}, .imm = lanes_ - 1, .step = -1}, x.level,
                a.dtype, lanes_);
  }
  // Shuffles are cheaper than the loads of single elements.
  constexpr int kManyLanes = 16;
  const bool near = step == 2 || (step == 4 && lanes_ >= kManyLanes);
  if (!near || lanes_ == 1 || (a.valid && lane_of(a.valid))) return gather(a, lane);
  return load_strided(a, rest, step, live_lanes(lane));
}

// Elements `step` apart, a power of two: the even ones of those half as far apart, of which nothing
// behind the last is touched.
Operand Emitter::load_strided(const Access& a, const NodeRef& first, int64_t step, int64_t live) {
  if (step == 1) return load_vector(a, lane_variable(live), linear_form(first));
  const int64_t half = lanes_ / 2;
  const Operand low = load_strided(a, first, step / 2, 2 * std::min(live, half) - 1);
  if (live <= half)
    return push({.code = Code::Evens, .args = {low, low}}, low.level, a.dtype, lanes_);
  const NodeRef second = index_add(first, index_const((lanes_ - 1) * step / 2));
  const Operand high = load_strided(a, second, step / 2, 2 * (live - half));
  return push({.code = Code::Evens, .args = {low, high}}, std::max(low.level, high.level), a.dtype,
              lanes_);
}

// Which lanes are ever valid, if these are all of them at once and lie a fixed number of elements
// apart.
std::optional<Emitter::Together> Emitter::lanes_together(const Access& a, const NodeRef& lane) {
  Together all;
  NodeRef first;
  for (int64_t q = 0; q < live_lanes(lane); q++) {
    const Substitution at{{lane, index_const(q)}};
    if (a.valid) {
      const NodeRef valid = substitute(a.valid, at);
      if (valid->op == Op::Const && valid->hi == 0) continue;
      if (!all.lanes.empty() && valid.get() != all.valid.get()) return {};
      all.valid = valid;
    }
    const NodeRef index = substitute(a.index, at);
    if (!first) first = index;
    const NodeRef apart = index_add(index, first, -1);
    if (apart->op != Op::Const) return {};
    all.lanes.push_back(q);
    all.elements.push_back(apart->lo);
  }
  if (all.lanes.empty()) return {};
  if (all.valid && all.valid->op == Op::Const) all.valid = {};
  const int64_t lowest = *std::min_element(all.elements.begin(), all.elements.end());
  all.lowest = index_add(first, index_const(lowest));
  for (int64_t& element : all.elements) element -= lowest;
  return all;
}

// Each element several times, as what grows an image reads it: loaded once, and each lane takes its
// own. Lanes that are never valid are left out, and zero afterwards. Of an argument, nothing behind
// the last element is touched.
std::optional<Operand> Emitter::load_repeated(const Access& a, const NodeRef& lane) {
  if (lanes_ == 1 || live_lanes(lane) < lanes_) return {};
  if (a.dtype == DType::Bool) {
    Access bytes = a;
    bytes.dtype = DType::U8;
    const std::optional<Operand> x = load_repeated(bytes, lane);
    return x ? std::optional(op(Op::Ne, DType::Bool, {*x, constant(DType::U8, 0)})) : std::nullopt;
  }
  const bool has_holes = a.valid && lane_of(a.valid);
  const std::optional<Together> all = lanes_together(a, lane);
  // A few single loads do as well.
  if (!all || 2 * static_cast<int64_t>(all->lanes.size()) < lanes_) return {};
  Access once = a;
  once.index = all->lowest;
  once.valid = all->valid;
  // Lane q reads element (before + q) / repeat, counted from that of the first lane.
  const auto is_repeated = [&](int64_t repeat, int64_t before) {
    const int64_t first = (before + all->lanes[0]) / repeat;
    for (size_t i = 0; i < all->lanes.size(); i++) {
      if ((before + all->lanes[i]) / repeat - first != all->elements[i]) return false;
    }
    return first == 0;
  };
  for (int repeat = 2; repeat <= lanes_; repeat++) {
    for (int64_t before = 0; before < repeat; before++) {
      if (!is_repeated(repeat, before)) continue;
      const NodeRef whole = lane_variable(all->elements.back() + 1);
      const Operand x = load_vector(once, whole, linear_form(once.index));
      const Operand r = push({.code = Code::Permute, .args = {x}, .imm = before, .repeat = repeat},
                             x.level, a.dtype, lanes_);
      return has_holes ? op(Op::Where, a.dtype, {emit(a.valid), r, constant(a.dtype, 0)}) : r;
    }
  }
  return {};
}

Operand Emitter::load_scalar(const Access& a) {
  LinearForm form = linear_form(a.index);
  if (!a.valid) {
    const int64_t offset = form.constant;
    form.constant = 0;
    const Operand p = pointer(a.memory, a.dtype, from_linear(form));
    return push({.code = Code::Load, .args = {p}, .imm = offset, .memory = a.memory},
                std::max(p.level, a.level), a.dtype, 1);
  }
  const Operand valid = emit(a.valid);
  Instruction i{.code = Code::Load, .memory = a.memory};
  const Operand p = guarded_pointer(a, std::move(form), 1, valid, i.imm);
  i.args = {p};
  const Operand x = push(std::move(i), std::max(p.level, a.level), a.dtype, 1);
  return op(Op::Where, a.dtype, {valid, x, constant(a.dtype, 0)});
}

// Where `live` elements from `form` on are, or others that exist if they are not `valid`. What
// changes inside of the loops in which that is known is added afterwards, where it stays in the
// array: the choice moves out. `offset` is the constant part of the address.
Operand Emitter::guarded_pointer(const Access& a, LinearForm form, int64_t live,
                                 const Operand& valid, int64_t& offset) {
  stray(a.memory);
  LinearForm outer, inner;
  for (const auto& term : form.terms) {
    (emit(term.first).level > valid.level ? inner : outer).terms.push_back(term);
  }
  (form.constant > 0 ? inner : outer).constant = form.constant;
  const NodeRef inside = from_linear(inner);
  if (inner.terms.empty() || inside->lo < 0 || inside->hi > a.size - live) {
    const Operand at = op(Op::Where, DType::I64, {valid, emit(from_linear(form)), index(0)});
    return pointer_at(a.memory, a.dtype, at);
  }
  offset = inner.constant;
  form.constant = outer.constant;
  const NodeRef whole = from_linear(form);
  const Key key{kPointer, a.memory, static_cast<int64_t>(a.dtype), whole.get(), a.valid.get()};
  if (const Operand* known = find(key)) return *known;
  inner.constant = 0;
  const Operand first = op(Op::Where, DType::I64, {valid, emit(from_linear(outer)), index(0)});
  const Operand at = op(Op::Add, DType::I64, {first, emit(from_linear(inner))});
  return remember(key, whole, a.valid, pointer_at(a.memory, a.dtype, at));
}

Operand Emitter::load_vector(const Access& a, const NodeRef& lane, const LinearForm& scalar_part) {
  LinearForm form = scalar_part;
  const int64_t live = live_lanes(lane);
  Instruction i{.code = Code::Load, .memory = a.memory};
  if (!a.padded && live < lanes_) i.mask = static_cast<int>(live);
  const bool same_for_all = a.valid && !lane_of(a.valid);
  if (same_for_all && a.size >= live) {
    const Operand valid = emit(a.valid);
    const Operand p = guarded_pointer(a, std::move(form), live, valid, i.imm);
    i.args = {p};
    const Operand x = push(std::move(i), std::max(p.level, a.level), a.dtype, lanes_);
    return op(Op::Where, a.dtype, {valid, x, constant(a.dtype, 0)});
  }
  const auto emit_mask = [&] {
    const Operand mask = widen(emit(a.valid), lanes_);
    if (i.mask == 0) return mask;
    i.mask = 0;
    return op(Op::And, DType::Bool, {mask, lane_numbers(DType::Bool, live)});
  };
  // A masked load from a page that is not there takes hundreds of cycles, though it asks for none
  // of its elements. Far from an array there may be none.
  constexpr int64_t kFar = 64 << 10;
  const NodeRef whole = from_linear(form);
  const int64_t near = kFar / size_of(a.dtype);
  if (a.valid && (whole->lo < -near || whole->hi > a.size + near)) {
    stray(a.memory);
    const Operand mask = emit_mask();
    const Operand any = push({.code = Code::Any, .args = {mask}}, mask.level, DType::Bool, 1);
    const Operand at = op(Op::Where, DType::I64, {any, emit(whole), index(0)});
    i.args = {pointer_at(a.memory, a.dtype, at), mask};
  } else {
    i.imm = form.constant;
    form.constant = 0;
    i.args = {pointer(a.memory, a.dtype, from_linear(form))};
    if (a.valid) i.args.push_back(emit_mask());
  }
  int level = a.level;
  for (const Operand& x : i.args) level = std::max(level, x.level);
  return push(std::move(i), level, a.dtype, lanes_);
}

// Lanes that are valid together, or never: what is loaded is chosen once, not for each of them.
std::optional<Operand> Emitter::gather_together(const Access& a, const NodeRef& lane) {
  if (!a.valid) return {};
  const std::optional<Together> lanes = lanes_together(a, lane);
  if (!lanes || !lanes->valid || lanes->lanes.size() == 1) return {};
  const int64_t last = *std::max_element(lanes->elements.begin(), lanes->elements.end());
  if (a.size <= last) return {};
  Access once = a;
  once.valid = lanes->valid;
  const Operand valid = emit(once.valid);
  int64_t offset = 0;
  const Operand p = guarded_pointer(once, linear_form(lanes->lowest), last + 1, valid, offset);
  const auto load_at = [&](int64_t element) {
    return push({.code = Code::Load, .args = {p}, .imm = offset + element, .memory = a.memory},
                std::max(p.level, a.level), a.dtype, 1);
  };
  const Operand zero = constant(a.dtype, 0);
  if (last == 0)  // one element
    return op(Op::Where, a.dtype, {widen(emit(a.valid), lanes_), load_at(0), zero});
  Operand r = zero;
  r.lanes = lanes_;
  for (size_t i = 0; i < lanes->lanes.size(); i++) {
    const Operand x = load_at(lanes->elements[i]);
    r = push({.code = Code::Insert, .args = {r, x}, .imm = lanes->lanes[i]},
             std::max(r.level, x.level), a.dtype, lanes_);
  }
  return op(Op::Where, a.dtype, {valid, r, zero});
}

// One scalar load for each live lane. Of what its place and validity read from registers, each has
// the element of its lane.
Operand Emitter::gather(const Access& a, const NodeRef& lane) {
  // As bytes that are compared once: a bit's way into a mask register is five instructions.
  if (a.dtype == DType::Bool) {
    Access bytes = a;
    bytes.dtype = DType::U8;
    return op(Op::Ne, DType::Bool, {gather(bytes, lane), constant(DType::U8, 0)});
  }
  if (const std::optional<Operand> x = gather_together(a, lane)) return *x;
  std::vector<std::pair<NodeRef, Operand>> held;
  for (const NodeRef& n : {a.index, a.valid}) {
    if (!n) continue;
    visit(n, [&](const NodeRef& x) {
      if (x->op != Op::Read || !lane_of(x)) return;
      const auto id = static_cast<int>(x->integer());
      if (kernel_.find_value(id).second->scope == Scope::Register) held.push_back({x, emit(x)});
    });
  }
  Operand r = constant(a.dtype, 0);
  r.lanes = lanes_;
  for (int64_t q = 0; q < live_lanes(lane); q++) {
    const Substitution at{{lane, index_const(q)}};
    for (const auto& [read, wide] : held) {
      const NodeRef one = substitute(read, at);
      const Operand x = wide.lanes == 1 ? wide
                                        : push({.code = Code::Extract, .args = {wide}, .imm = q},
                                               wide.level, wide.dtype, 1);
      forward(static_cast<int>(read->integer()), {one->src.begin(), one->src.end()}, x);
    }
    Access one = a;
    one.index = substitute(a.index, at);
    if (a.valid) {
      one.valid = substitute(a.valid, at);
      if (one.valid->op == Op::Const) {
        if (one.valid->hi == 0) continue;  // the lane stays zero
        one.valid = {};
      }
    }
    const Operand x = load_scalar(one);
    r = push({.code = Code::Insert, .args = {r, x}, .imm = q}, std::max(r.level, x.level), a.dtype,
             lanes_);
  }
  return r;
}

void Emitter::store(int memory, DType dtype, const NodeRef& at, const Operand& v, bool padded,
                    bool stream) {
  touch(memory, at);
  const NodeRef lane = lane_of(at);
  LinearForm form = linear_form(at);
  if (lane) {
    const int64_t step = form.coefficient(lane);
    const NodeRef rest = index_add(at, lane, -step);
    const bool in_gaps = step == 2 || (step == 4 && lanes_ >= 4),
               single = (step != 1 && !in_gaps) || lane_of(rest);
    if (single) {
      const Operand wide = widen(v, lanes_);
      for (int64_t q = 0; q < live_lanes(lane); q++) {
        const Operand x =
            push({.code = Code::Extract, .args = {wide}, .imm = q}, depth(), v.dtype, 1);
        store(memory, dtype, substitute(at, {{lane, index_const(q)}}), x, padded, false);
      }
      return;
    }
    form = linear_form(rest);
    if (in_gaps) {
      Instruction i{.code = Code::Store, .memory = memory, .step = static_cast<int>(step)};
      i.imm = form.constant;
      form.constant = 0;
      i.args = {pointer(memory, dtype, from_linear(form)), widen(v, lanes_)};
      i.mask = static_cast<int>(live_lanes(lane));
      top().code.push_back(std::move(i));
      return;
    }
  }
  ensure(lane || v.lanes == 1, "a vector is stored to one element");
  // Only whole, aligned vectors bypass the cache.
  bool aligned = lane && live_lanes(lane) == lanes_ && form.constant % lanes_ == 0;
  for (const auto& [atom, c] : form.terms) aligned &= c % lanes_ == 0;
  Instruction i{.code = Code::Store, .memory = memory};
  i.imm = form.constant;
  form.constant = 0;
  i.args = {pointer(memory, dtype, from_linear(form)), lane ? widen(v, lanes_) : v};
  i.flag = stream && aligned;
  if (stream && !aligned && memory >= 0)
    program_.arguments[static_cast<size_t>(memory)].streamed = true;
  if (lane && !padded && live_lanes(lane) < lanes_) i.mask = static_cast<int>(live_lanes(lane));
  top().code.push_back(std::move(i));
}

// The strided stores that fill each other's gaps with the one at `first`, if nothing between them
// could see its elements, in the order of their elements; or none.
static std::vector<size_t> find_partners(const std::vector<Instruction>& code, size_t first) {
  const Instruction& s = code[first];
  std::map<int64_t, size_t> found;  // by what is added to the pointer
  for (size_t i = first; i < code.size(); i++) {
    const Instruction& c = code[i];
    const bool store = c.code == Code::Store && c.memory == s.memory;
    if (store && c.step == s.step && c.args[0].id == s.args[0].id && c.mask == s.mask)
      found.emplace(c.imm, i);
    const bool sees = c.code == Code::Loop || c.code == Code::If || c.code == Code::Barrier ||
                      c.code == Code::TileDot || (c.code == Code::Load && c.memory == s.memory) ||
                      (store && c.step == 1);
    if (sees) break;
  }
  for (int64_t from = s.imm; from > s.imm - s.step; from--) {
    std::vector<size_t> all;
    for (auto it = found.find(from);
         it != found.end() && it->first == from + static_cast<int64_t>(all.size()) &&
         static_cast<int>(all.size()) < s.step;
         ++it) {
      all.push_back(it->second);
    }
    if (static_cast<int>(all.size()) == s.step) return all;
  }
  return {};
}

// Strided stores that fill each other's gaps become stores of whole vectors; another becomes one
// store for each lane.
void Emitter::settle_strided(std::vector<Instruction>& code) {
  const auto strided = [](const Instruction& i) { return i.code == Code::Store && i.step > 1; };
  if (std::none_of(code.begin(), code.end(), strided)) return;
  std::map<size_t, std::vector<size_t>> partners;  // by the last of them
  std::vector<bool> taken(code.size());
  for (size_t i = 0; i < code.size(); i++) {
    if (!strided(code[i]) || taken[i]) continue;
    std::vector<size_t> all = find_partners(code, i);
    if (all.empty() || std::any_of(all.begin(), all.end(), [&](size_t p) { return taken[p]; }))
      continue;
    for (const size_t p : all) taken[p] = true;
    const size_t last = *std::max_element(all.begin(), all.end());
    partners.emplace(last, std::move(all));
  }
  std::vector<Instruction> out;
  const auto make = [&](Instruction i, DType dtype, int lanes) {
    Operand like;
    like.dtype = dtype;
    like.lanes = lanes;
    i.dst = new_value_like(like, 0);
    out.push_back(std::move(i));
    return out.back().dst;
  };
  const auto put = [&](const Instruction& s, int64_t offset, const Operand& v, int mask) {
    Instruction i{.code = Code::Store, .args = {s.args[0], v}, .imm = offset, .memory = s.memory};
    i.mask = mask;
    out.push_back(std::move(i));
  };
  for (size_t i = 0; i < code.size(); i++) {
    if (!strided(code[i])) {
      out.push_back(std::move(code[i]));
      continue;
    }
    const Instruction& s = code[i];
    const auto all = partners.find(i);
    if (all != partners.end()) {
      std::vector<Operand> vectors;
      for (const size_t p : all->second) vectors.push_back(code[p].args[1]);
      vectors = zip_rounds(
          std::move(vectors), s.step, [&](const Operand& x, const Operand& y, bool high, int) {
            return make({.code = Code::Zip, .args = {x, y}, .flag = high}, x.dtype, lanes_);
          });
      const int64_t first = code[all->second[0]].imm;
      for (size_t k = 0; k < vectors.size(); k++) {
        const int from = static_cast<int>(k) * lanes_, count = s.step * s.mask - from;
        if (count > 0) put(s, first + from, vectors[k], count < lanes_ ? count : 0);
      }
    } else if (!taken[i]) {
      const Operand& v = s.args[1];
      for (int q = 0; q < s.mask; q++) {
        put(s, s.imm + s.step * q, make({.code = Code::Extract, .args = {v}, .imm = q}, v.dtype, 1),
            0);
      }
    }
  }
  code = std::move(out);
}

// ---- places

void Emitter::new_version(Place& p) {
  p.version = ++versions_;
  version_level_[p.version] = depth();
}

void Emitter::completed(Place& p) {
  version_level_[p.version] = depth();
}

Operand Emitter::load_place(const Place& p, const NodeRef& flat, int level) {
  return load({p.memory, p.dtype, flat, {}, level, p.padded, 0});
}

void Emitter::store_place(const Place& p, const std::vector<NodeRef>& index, const Operand& v,
                          bool stream) {
  store(p.memory, p.dtype, p.flat(index), v, p.padded, stream);
}

void Emitter::keep_in_register(int value, const std::vector<NodeRef>& local, const Operand& v) {
  const Coordinates key{value, pointers(local)};
  registers_[key] = {v, local};
  top().registers.push_back(key);
}

void Emitter::forget_registers(int value) {
  auto it = registers_.lower_bound({value, {}});
  while (it != registers_.end() && it->first.first == value) it = registers_.erase(it);
}

void Emitter::forward(int value, const std::vector<NodeRef>& index, const Operand& v) {
  forwarded_[{value, pointers(index)}] = {v, index};
}

const Operand* Emitter::find_register(int value, const std::vector<NodeRef>& local) const {
  const auto it = registers_.find({value, pointers(local)});
  return it == registers_.end() ? nullptr : &it->second.value;
}

// A stored value: from registers, where the reader's tile has the same constants and the same lane
// variable as the writer's (rule L8), else from its place.
Operand Emitter::emit_read(const NodeRef& n) {
  const int id = static_cast<int>(n->integer());
  const std::vector<NodeRef> at(n->src.begin(), n->src.end());
  if (!forwarded_.empty()) {
    if (const auto it = forwarded_.find({id, pointers(at)}); it != forwarded_.end())
      return it->second.value;
  }
  const Place& p = place(id);
  const Key same_read{kRead, id, p.version, n.get(), nullptr};
  if (const Operand* known = find(same_read)) return *known;
  const auto [stage, value] = kernel_.find_value(id);
  require(p.version > 0,
          "lower {}: {} is read before stage {} has computed it; attach {} to a loop that encloses "
          "the reader",
          kernel_.name, value->name, stage->name, stage->name);
  if (value->scope == Scope::Register) {
    const std::vector<NodeRef> local = p.local(at);
    const Operand* r = find_register(id, local);
    if (!r && exchange_lanes(id, local)) r = find_register(id, local);
    if (!r) {
      std::string where;
      for (const NodeRef& l : local) where += fmt::format("[{}]", index_text(l));
      user_error(
          "lower {}: {}{} is not in registers; give {} the tile of its reader or the scope scratch",
          kernel_.name, value->name, where, value->name);
    }
    return *r;
  }
  const NodeRef flat = p.flat(at);
  const Key key{kPlaceLoad, p.memory, p.version, flat.get(), nullptr};
  if (const Operand* known = find(key)) return remember(same_read, n, {}, Operand(*known));
  const int level = std::min(version_level_[p.version], depth());
  return remember(same_read, n, {}, remember(key, flat, {}, load_place(p, flat, level)));
}

// The reader's lanes run along another axis than the registers': lanes x lanes registers are
// exchanged in log2(lanes) rounds of shuffles, after which the wanted ones exist. At an edge some
// of either are dead; zeros stand in for them.
bool Emitter::exchange_lanes(int value, const std::vector<NodeRef>& local) {
  size_t along = local.size();
  for (size_t d = 0; d < local.size(); d++) {
    if (lane_of(local[d])) along = d;
  }
  if (along == local.size()) return false;
  const NodeRef reader = lane_of(local[along]);
  const NodeRef first = index_add(local[along], reader, -1);
  if (first->op != Op::Const) return false;
  for (size_t other = 0; other < local.size(); other++) {
    if (other == along || local[other]->op != Op::Const) continue;
    for (int64_t live = lanes_; live > 0; live--) {
      if (exchange_square(value, local, along, other, first->lo, live)) return true;
    }
  }
  return false;
}

// Turns the registers with `live` lanes along dimension `other` around, into ones with lanes along
// dimension `along`.
bool Emitter::exchange_square(int value, const std::vector<NodeRef>& local, size_t along,
                              size_t other, int64_t first, int64_t live) {
  const auto count = static_cast<size_t>(lanes_);
  const NodeRef reader = lane_of(local[along]), writer = lane_variable(live);
  const NodeRef block = index_const(local[other]->lo / lanes_ * lanes_);
  std::vector<NodeRef> key = local;
  key[other] = index_add(block, writer);
  std::vector<Operand> rows;
  for (size_t q = 0; q < count; q++) {
    key[along] = index_const(first + static_cast<int64_t>(q));
    const Operand* r = find_register(value, key);
    if (!r && static_cast<int64_t>(q) < live_lanes(reader)) return false;
    if (!r) {
      Operand zero = constant(rows[0].dtype, 0);
      zero.lanes = lanes_;
      rows.push_back(zero);
    } else {
      rows.push_back(widen(*r, lanes_));
    }
  }
  for (size_t half = count / 2; half > 0; half /= 2) {
    std::vector<Operand> next = rows;
    for (size_t q = 0; q < count; q++) {
      if (q & half) continue;
      for (const bool high : {false, true}) {
        const std::vector<Operand> pair{rows[q], rows[q + half]};
        Instruction i{
            .code = Code::Exchange, .args = pair, .imm = static_cast<int64_t>(half), .flag = high};
        next[q + (high ? half : 0)] = push(std::move(i), level_of(pair), rows[q].dtype, lanes_);
      }
    }
    rows = next;
  }
  key[along] = index_add(index_const(first), reader);
  for (int64_t q = 0; q < live; q++) {
    key[other] = index_add(block, index_const(q));
    keep_in_register(value, key, rows[static_cast<size_t>(q)]);
  }
  return true;
}

}  // namespace lazuli
