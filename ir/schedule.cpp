#include "ir/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <sstream>

#include "core/error.h"
#include "ir/dots.h"
#include "ir/footprint.h"
#include "ir/index.h"
#include "ir/limits.h"
#include "ir/program.h"

namespace lazuli {
namespace {

constexpr std::string_view kLoopKinds[] = {"serial",   "unroll", "ilp", "vector",
                                           "parallel", "group",  "item"};
constexpr std::string_view kScopes[] = {"reg", "scratch", "local", "shared", "each", "argument"};

using Words = std::vector<std::string>;

template <typename... Args>
[[noreturn]] void complain(const Step& step, fmt::format_string<Args...> text, Args&&... args) {
  user_error("schedule: `{}`: {}", print_step(step),
             fmt::format(text, std::forward<Args>(args)...));
}

template <typename... Args>
void check(const Step& step, bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) complain(step, text, std::forward<Args>(args)...);
}

int64_t number_of(const Step& step, const std::string& word) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), v);
  check(step, error == std::errc() && end == word.data() + word.size(), "'{}' is not a number",
        word);
  return v;
}

size_t find_loop(const Step& step, const Stage& s, const std::string& loop_name) {
  for (size_t i = 0; i < s.loops.size(); i++) {
    if (s.loops[i].name == loop_name) return i;
  }
  std::string known;
  for (const Loop& l : s.loops) known += " " + l.name;
  complain(step, "stage {} has no loop '{}'; it has{}", s.name, loop_name, known);
}

size_t stage_index(const Kernel& k, const Stage* s) {
  return static_cast<size_t>(
      std::find_if(k.stages.begin(), k.stages.end(), [&](const auto& p) { return p.get() == s; }) -
      k.stages.begin());
}

void split(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  const size_t i = find_loop(step, *s, step.args[1]);
  const int64_t factor = number_of(step, step.args[4]);
  check(step, factor >= 1, "the factor is not positive");
  check(step, s->loops[i].kind == LoopKind::Serial, "loop {} is marked {} already; split first",
        step.args[1], kLoopKinds[static_cast<size_t>(s->loops[i].kind)]);
  Loop outer = s->loops[i], inner = s->loops[i];
  inner.name = step.args[3];
  inner.extent = factor;
  outer.name = step.args[2];
  outer.stride *= factor;
  outer.extent = (outer.extent + factor - 1) / factor;
  s->loops[i] = outer;
  s->loops.insert(s->loops.begin() + static_cast<ptrdiff_t>(i) + 1, inner);
  std::set<std::string> names;
  for (const Loop& l : s->loops) {
    check(step, names.insert(l.name).second, "stage {} would have two loops '{}'", s->name, l.name);
  }
}

void order(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  std::vector<Loop> loops;
  std::set<size_t> seen;
  for (size_t i = 1; i < step.args.size(); i++) {
    const size_t l = find_loop(step, *s, step.args[i]);
    check(step, seen.insert(l).second, "loop {} stands twice", step.args[i]);
    loops.push_back(s->loops[l]);
  }
  check(step, loops.size() == s->loops.size(), "names {} of the {} loops of {}", loops.size(),
        s->loops.size(), s->name);
  s->loops = std::move(loops);
}

void set_kind(Kernel& k, const Step& step) {
  const auto kind = static_cast<LoopKind>(
      std::find(std::begin(kLoopKinds), std::end(kLoopKinds), step.op) - std::begin(kLoopKinds));
  Stage* s = k.find_stage(step.args[0]);
  for (size_t i = 1; i < step.args.size(); i++) {
    Loop& l = s->loops[find_loop(step, *s, step.args[i])];
    if (kind == LoopKind::Vector) {
      check(step, l.stride == 1, "loop {} walks in steps of {}; a vector takes neighbours", l.name,
            l.stride);
      for (const Loop& o : s->loops) {
        check(step, o.kind != LoopKind::Vector || o.name == l.name,
              "stage {} has the vector loop {}", s->name, o.name);
      }
    }
    l.kind = kind;
  }
}

void attach(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  Stage* host = k.find_stage(step.args[1]);
  find_loop(step, *host, step.args[2]);
  for (const Stage* h = host; h; h = h->at) {
    check(step, h != s, "{} would be computed inside itself", s->name);
  }
  s->at = host;
  s->at_loop = step.args[2];
}

void set_scope(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  const auto it = std::find(std::begin(kScopes), std::end(kScopes) - 1, step.args[1]);
  check(step, it != std::end(kScopes) - 1, "a scope is reg, scratch, local, shared or each");
  check(step, v->slot < 0, "{} is an output of the kernel and lives there", v->name);
  v->scope = static_cast<Scope>(it - std::begin(kScopes));
}

void set_layout(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  const auto [s, same] = k.find_value(v->id);
  check(step, v->slot < 0, "{} is an output; its layout is row-major", v->name);
  Words layout(step.args.begin() + 1, step.args.end());
  std::map<int, int64_t> covered;
  for (const std::string& l : layout) {
    const Loop& loop = s->loops[find_loop(step, *s, l)];
    check(step, s->keeps(*v, loop.axis), "{} does not keep the axis of loop {}", v->name, l);
    covered[loop.axis]++;
  }
  for (const Loop& l : s->loops) {
    if (!s->keeps(*v, l.axis)) continue;
    check(step, std::find(layout.begin(), layout.end(), l.name) != layout.end(),
          "leaves out loop {}; two elements would share a place", l.name);
  }
  v->layout = std::move(layout);
}

void set_inplace(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  Value* w = k.find_value(step.args[1]);
  check(step, v != w, "a value is in its own place already");
  check(step, v->expr->dtype == w->expr->dtype, "{} is {} but {} is {}", v->name,
        name(v->expr->dtype), w->name, name(w->expr->dtype));
  check(step, v->dims.size() == w->dims.size(), "{} has {} dimensions but {} has {}", v->name,
        v->dims.size(), w->name, w->dims.size());
  for (size_t d = 0; d < v->dims.size(); d++) {
    check(step, v->dims[d]->hi == w->dims[d]->hi, "dimension {} differs in size", d);
  }
  check(step, v->slot < 0 && w->alias < 0, "{} has a place of its own",
        v->slot < 0 ? w->name : v->name);
  v->alias = w->id;
}

void set_stream(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  check(step, v->slot >= 0 && !v->reduces(),
        "only an element-wise output is stored once and not read back");
  v->stream = true;
}

void fuse(Kernel& k, const Step& step) {
  Stage* a = k.find_stage(step.args[0]);
  Stage* b = k.find_stage(step.args[1]);
  const size_t from = stage_index(k, a), to = stage_index(k, b);
  check(step, from < to, "{} does not come before {}", a->name, b->name);
  check(step,
        std::equal(a->axes.begin(), a->axes.end(), b->axes.begin(), b->axes.end(), NodeEqual()),
        "the stages do not run over the same axes");
  check(step, a->limit == b->limit && a->begin == b->begin, "the stages have different bounds");
  const auto reads = [&](const Stage& s, const Stage& of, bool reduced_only) {
    for (int id : values_read(s)) {
      for (const Value& v : of.values) {
        if (v.id == id && (v.reduces() || !reduced_only)) return true;
      }
    }
    return false;
  };
  check(step, !reads(*b, *a, true),
        "{} reads a reduction of {}, which is known after its loops only", b->name, a->name);
  check(step, reads_in_place(Reads(k), *b, *a), "{} reads {} elsewhere than at its own point",
        b->name, a->name);
  // b is computed where a is if that can be, else a where b is. Outputs keep their place.
  const auto between = [&](auto f) {
    return std::find_if(k.stages.begin() + static_cast<ptrdiff_t>(from) + 1,
                        k.stages.begin() + static_cast<ptrdiff_t>(to), f);
  };
  const auto end = k.stages.begin() + static_cast<ptrdiff_t>(to);
  const bool stored =
      std::any_of(b->values.begin(), b->values.end(), [](const Value& v) { return v.slot >= 0; });
  const bool early = !stored && between([&](const auto& s) { return reads(*b, *s, false); }) == end;
  const auto reader = between([&](const auto& s) { return reads(*s, *a, false); });
  check(step, early || reader == end, "{} lies between and reads {}", (*reader)->name, a->name);
  for (const auto& s : k.stages) {
    check(step, s->at != b, "{} is attached to {}", s->name, b->name);
  }
  std::erase_if(a->bound, [&](const auto& own) {
    const auto other = b->bound.find(own.first);
    return other == b->bound.end() || other->second != own.second;
  });
  for (Value& v : b->values) {
    check(step, v.layout.empty(), "{} has a storage order already", v.name);
    a->values.push_back(std::move(v));
  }
  if (!early) std::swap(k.stages[from], k.stages[to]);
  k.stages.erase(k.stages.begin() + static_cast<ptrdiff_t>(early ? to : from));
}

void check_new_stage(const Kernel& k, const Step& step, const std::string& stage_name) {
  for (const auto& s : k.stages) {
    check(step, s->name != stage_name, "there is a stage {} already", stage_name);
  }
}

// Puts what `f` makes of a read in its place; null leaves it.
void replace_reads(Kernel& k, const std::function<NodeRef(const NodeRef&)>& f) {
  for (const auto& s : k.stages) {
    for (Value& v : s->values) {
      Substitution map;
      visit(v.expr, [&](const NodeRef& n) {
        if (n->op != Op::Read) return;
        if (NodeRef r = f(n)) map[n] = std::move(r);
      });
      if (!map.empty()) v.expr = substitute(v.expr, map);
    }
  }
}

// The stage made last comes to stand before `s`.
void place_before(Kernel& k, const Stage* s) {
  auto stage = std::move(k.stages.back());
  k.stages.pop_back();
  k.stages.insert(k.stages.begin() + static_cast<ptrdiff_t>(stage_index(k, s)), std::move(stage));
}

// A new stage for `expr` over fresh axes, standing before `s`; returns what `s` reads in its place.
NodeRef stage_out(Kernel& k, Stage* s, const NodeRef& expr, const std::string& stage_name) {
  std::vector<NodeRef> used, fresh;
  Substitution map;
  for (const NodeRef& a : s->axes) {
    if (!uses(expr, a)) continue;
    const auto& arg = std::get<VarArg>(a->arg);
    used.push_back(a);
    fresh.push_back(axis(arg.name, arg.extent));
    map[a] = fresh.back();
  }
  Stage* p = k.add_stage(stage_name, fresh);
  for (size_t i = 0; i < used.size(); i++) {
    for (const auto bounds : {&Stage::limit, &Stage::begin, &Stage::bound}) {
      for (const auto& [a, bound] : s->*bounds) {
        if (s->axes[static_cast<size_t>(a)].get() != used[i].get()) continue;
        bool inside = true;
        visit(bound,
              [&](const NodeRef& n) { inside &= !contains(s->axes, n) || map.count(n) > 0; });
        if (inside) (p->*bounds)[static_cast<int>(i)] = substitute(bound, map);
      }
    }
  }
  const int id = k.add_value(p, stage_name, substitute(expr, map), fresh);
  place_before(k, s);
  return read(id, expr->dtype, used);
}

// The factor of a product that a step names: `S i`, of the sum in stage S.
struct Factor {
  Stage* stage;
  int sum;  // value
  size_t place;
  NodeRef expr;
};

Factor find_factor(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  const int64_t factor = number_of(step, step.args[1]);
  check(step, factor == 0 || factor == 1, "a product has factors 0 and 1");
  for (const Value& v : s->values) {
    const NodeRef& of_two = combination(v);
    const bool fits = is_elementwise(of_two->op) && of_two->src.size() == 2;
    if (v.reduce != Op::ReduceAdd || !fits) continue;
    const auto place = static_cast<size_t>(factor);
    return {s, v.id, place, of_two->src[place]};
  }
  complain(step, "{} has no value that sums a product", s->name);
}

void replace_factor(Kernel& k, const Factor& f, const NodeRef& by) {
  Value& sum = *k.find_value(f.sum).second;
  const NodeRef of_two = combination(sum);
  Sources src = of_two->src;
  src[f.place] = by;
  sum.expr = substitute(sum.expr, {{of_two, scalar_op(of_two->op, of_two->dtype, std::move(src))}});
}

void pack(Kernel& k, const Step& step) {
  const Factor f = find_factor(k, step);
  check_new_stage(k, step, step.args[2]);
  replace_factor(k, f, stage_out(k, f.stage, f.expr, step.args[2]));
}

void polyphase(Kernel& k, const Step& step) {
  const Factor f = find_factor(k, step);
  const int64_t n = number_of(step, step.args[3]);
  check(step, n >= 2, "the last axis has at least 2 phases, not {}", n);
  check_new_stage(k, step, step.args[2]);
  check(step, f.expr->op == Op::Read && !f.expr->src.empty(),
        "factor {} of {} is no read of a value", f.place, f.stage->name);
  const Value& whole = *k.find_value(static_cast<int>(f.expr->integer())).second;
  const auto& last = std::get<VarArg>(whole.dims.back()->arg);
  check(step, last.extent % n == 0, "{} elements along {} are not {} phases of one length",
        last.extent, last.name, n);
  std::vector<NodeRef> dims, index(f.expr->src.begin(), f.expr->src.end() - 1);
  for (size_t d = 0; d + 1 < whole.dims.size(); d++) {
    const auto& arg = std::get<VarArg>(whole.dims[d]->arg);
    dims.push_back(axis(arg.name, arg.extent));
  }
  std::vector<NodeRef> at = dims;
  const NodeRef phase = axis(last.name + ".p", n), place = axis(last.name, last.extent / n);
  at.push_back(index_add(phase, place, n));
  dims.push_back(phase);
  dims.push_back(place);
  const auto [quotient, remainder] = index_divmod(f.expr->src.back(), n);
  index.push_back(remainder);
  index.push_back(quotient);
  const NodeRef element = read(whole.id, f.expr->dtype, at);
  Stage* p = k.add_stage(step.args[2], dims);
  const int copy = k.add_value(p, step.args[2], element, dims);
  place_before(k, f.stage);
  replace_factor(k, f, read(copy, element->dtype, index));
}

// A stage before `s` for the sums, over all that s sums, of 128 times `factor`, a read of words;
// returns what s begins its sums with to make up for another factor that was raised by 128.
NodeRef correction(Kernel& k, Stage* s, const Value& v, const NodeRef& factor,
                   const std::string& stage_name) {
  std::vector<NodeRef> fresh, kept, at;
  Substitution map;
  NodeRef first;
  for (size_t i = 0; i < s->axes.size(); i++) {
    const NodeRef& a = s->axes[i];
    const bool keeps = s->keeps(v, static_cast<int>(i));
    if (!keeps) {
      const NodeRef zero = index_equal(a, index_const(0));
      first = first ? logical_and(first, zero) : zero;
    }
    if (!uses(factor, a)) continue;
    const auto& arg = std::get<VarArg>(a->arg);
    fresh.push_back(axis(arg.name, arg.extent));
    map[a] = fresh.back();
    if (!keeps) continue;
    kept.push_back(fresh.back());
    at.push_back(a);
  }
  const NodeRef zero = scalar_const(Scalar(0), DType::I32);
  Stage* c = k.add_stage(stage_name, fresh);
  const NodeRef term =
      scalar_op(Op::DotU8I8, DType::I32, {word_of_128(), substitute(factor, map), zero});
  const int id = k.add_value(c, stage_name, term, kept, Op::ReduceAdd);
  place_before(k, s);
  const NodeRef start = scalar_op(Op::Neg, DType::I32, {read(id, DType::I32, at)});
  return scalar_op(Op::Where, DType::I32, {first, start, zero});
}

// The axis of l counts words from then on.
void dot(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  Loop& loop = s->loops[find_loop(step, *s, step.args[1])];
  const std::optional<Op> op = find_dot(step.args[2]);
  check(step, op.has_value(), "there is no dot '{}'; dots are dot.u8i8, dot.i8, dot.i16 and dot.bf16",
        step.args[2]);
  const std::string corrections = s->name + ".start";
  for (const std::string& n : {step.args[3], step.args[4], corrections})
    check_new_stage(k, step, n);
  check(step, step.args[3] != step.args[4], "both factors would be stage {}", step.args[3]);
  NodeRef& a = s->axes[static_cast<size_t>(loop.axis)];
  check(step, loop.stride == 1 && loop.extent == a->hi + 1, "{} is split already", loop.name);
  check(step, s->values.size() == 1 && !s->is_triangular() && !s->keeps(s->values[0], loop.axis),
        "{} is not one sum along {}", s->name, loop.name);
  const Value& v = s->values[0];
  const std::optional<DotFactors> factors = dot_factors(v, *op);
  check(step, factors.has_value(), "{} is not a sum of products whose factors {} can hold", v.name,
        step.args[2]);
  const NodeRef along = a, product = v.expr;
  const int64_t multiple = step.args.size() > 5 ? number_of(step, step.args[5]) : 1;
  check(step, multiple > 0, "words come in multiples of {}; it must be positive", multiple);
  const int64_t terms = multiple * dot_terms(*op);
  loop.extent = (loop.extent + terms - 1) / terms * multiple;
  s->whole_steps = multiple == TileShape::kStep;
  a = axis(std::get<VarArg>(along->arg).name, loop.extent);
  s->bound.erase(loop.axis);
  Sources src;
  for (const size_t i : {factors->first, 1 - factors->first}) {
    const bool raised = factors->raised && i == factors->first;
    const NodeRef word = packed_word(*op, product->src[i], along, a, raised, k.sizes.empty());
    src.push_back(stage_out(k, s, word, step.args[3 + i]));
  }
  src.push_back(factors->raised ? correction(k, s, v, src[1], corrections)
                                : scalar_const(Scalar(0), dot_sum(*op)));
  s->values[0].expr = scalar_op(*op, product->dtype, std::move(src));
}

void lift(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  const int64_t wanted = number_of(step, step.args[1]);
  check_new_stage(k, step, step.args[2]);
  const std::vector<NodeRef> operands = operands_of(*s);
  check(step, wanted >= 0 && wanted < static_cast<int64_t>(operands.size()),
        "{} has {} loads and reads", s->name, operands.size());
  const NodeRef load = operands[static_cast<size_t>(wanted)];
  std::vector<Stage*> readers{s};
  for (size_t i = 3; i < step.args.size(); i++) {
    readers.push_back(k.find_stage(step.args[i]));
    const auto place = [&](const Stage* x) {
      return std::find_if(k.stages.begin(), k.stages.end(),
                          [&](const auto& y) { return y.get() == x; });
    };
    check(step, place(s) < place(readers.back()), "{} does not come after {}", step.args[i],
          s->name);
    check(step, contains(operands_of(*readers.back()), load), "{} does not have that load of {}",
          step.args[i], s->name);
  }
  const Substitution map{{load, stage_out(k, s, load, step.args[2])}};
  for (Stage* r : readers) {
    for (Value& v : r->values) v.expr = substitute(v.expr, map);
  }
}

// All of its loops are whole and without bounds, and nothing is computed inside them.
void check_untouched(const Kernel& k, const Step& step, const Stage& s) {
  check(step, !s.is_triangular() && s.bound.empty(), "{} has a bounded axis", s.name);
  for (const Loop& l : s.loops) {
    check(step,
          l.kind == LoopKind::Serial && l.extent == s.axes[static_cast<size_t>(l.axis)]->hi + 1,
          "loops of {} are split or marked already", s.name);
  }
  for (const auto& inside : k.stages) {
    check(step, inside->at != &s, "{} is computed inside {} already", inside->name, s.name);
  }
}

// As in Halide and TVM: the chunks are a stage of their own before S, whose values have the chunk
// in front, and S reduces what they give.
void rfactor(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  const int place = s->loops[find_loop(step, *s, step.args[1])].axis;
  const NodeRef along = s->axes[static_cast<size_t>(place)];
  check_new_stage(k, step, step.args[2]);
  const int64_t chunks = number_of(step, step.args[3]), terms = along->hi + 1;
  // Chunks of one index are of several terms where the sum is over more than that.
  const bool single =
      chunks == terms && s->values.size() == 1 && s->axes.size() > s->values[0].dims.size() + 1;
  check(step, chunks > 1 && (chunks < terms || single) && terms % chunks == 0,
        "{} terms are not {} chunks of several", terms, chunks);
  check(step, s->values.size() == 1 && s->values[0].reduces() && !s->keeps(s->values[0], place),
        "{} is not one reduction along {}", s->name, step.args[1]);
  check_untouched(k, step, *s);
  Value& v = s->values[0];
  const std::string name = std::get<VarArg>(along->arg).name + "c";
  const NodeRef chunk = axis(name, chunks), own = axis(name, chunks);
  std::vector<NodeRef> fresh{chunk}, dims{chunk}, index{own}, kept;
  Substitution map;
  for (const NodeRef& a : s->axes) {
    const bool is_along = a.get() == along.get();
    if (is_along && single) {
      map[a] = chunk;
      continue;
    }
    fresh.push_back(axis(std::get<VarArg>(a->arg).name, is_along ? terms / chunks : a->hi + 1));
    map[a] = is_along ? index_add(fresh.back(), chunk, terms / chunks) : fresh.back();
  }
  for (const NodeRef& d : v.dims) {
    dims.push_back(map.at(d));
    index.push_back(d);
  }
  for (size_t i = 0; i < s->axes.size(); i++) {
    if (s->keeps(v, static_cast<int>(i))) kept.push_back(s->axes[i]);
  }
  kept.push_back(own);
  Stage* p = k.add_stage(step.args[2], fresh);
  const int id = k.add_value(p, step.args[2], substitute(v.expr, map), dims, v.reduce);
  place_before(k, s);
  v.expr = read(id, v.expr->dtype, index);
  s->axes = kept;
  s->loops = whole_loops(kept);
}

// Stage P reduces what S did, over axes of its own, and S copies it.
void cache(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  check_new_stage(k, step, step.args[1]);
  check(step, s->values.size() == 1 && s->values[0].reduces(), "{} is not one reduction", s->name);
  check_untouched(k, step, *s);
  Value& v = s->values[0];
  std::vector<NodeRef> fresh, dims, kept;
  Substitution map;
  for (size_t i = 0; i < s->axes.size(); i++) {
    const NodeRef& a = s->axes[i];
    fresh.push_back(axis(std::get<VarArg>(a->arg).name, a->hi + 1));
    map[a] = fresh.back();
    if (s->keeps(v, static_cast<int>(i))) kept.push_back(a);
  }
  for (const NodeRef& d : v.dims) dims.push_back(map.at(d));
  Stage* p = k.add_stage(step.args[1], fresh);
  const int id = k.add_value(p, step.args[1], substitute(v.expr, map), dims, v.reduce);
  place_before(k, s);
  v.expr = read(id, v.expr->dtype, v.dims);
  v.reduce = Op::Count_;
  s->axes = kept;
  s->loops = whole_loops(kept);
}

// Two whole axes of a stage, one after the other in the memory of its values, and the axis f that
// takes their place: extent(b)*a + b.
struct AxisPair {
  NodeRef a, b, f;

  int64_t inner() const { return b->hi + 1; }
  Substitution map() const {
    const auto [q, r] = index_divmod(f, inner());
    return {{a, q}, {b, r}};
  }
};

int place_in_loops(const Stage& s, const NodeRef& axis) {
  const auto it = std::find_if(s.axes.begin(), s.axes.end(),
                               [&](const NodeRef& x) { return x.get() == axis.get(); });
  return it == s.axes.end() ? -1 : static_cast<int>(it - s.axes.begin());
}

void check_pair(const Step& step, const Stage& s, const AxisPair& pair) {
  check(step, !s.is_triangular(), "{} has a bounded axis", s.name);
  const int a = place_in_loops(s, pair.a), b = place_in_loops(s, pair.b);
  check(step, a >= 0 && b >= 0, "{} has one of the axes {} and {} but not the other", s.name,
        step.args[1], step.args[2]);
  for (const Loop& l : s.loops) {
    if (l.axis != a && l.axis != b) continue;
    const NodeRef& axis = s.axes[static_cast<size_t>(l.axis)];
    check(step, l.stride == 1 && l.extent == axis->hi + 1 && a != b,
          "{} takes two whole axes, before they are split", step.op);
  }
  for (const Value& v : s.values) {
    bool together = false;
    for (size_t d = 0; d + 1 < v.dims.size(); d++) {
      together |= v.dims[d].get() == pair.a.get() && v.dims[d + 1].get() == pair.b.get();
    }
    const bool neither = !s.keeps(v, a) && !s.keeps(v, b);
    check(step, together || neither, "{} and {} are not neighbours in {}", step.args[1],
          step.args[2], v.name);
  }
}

// Stage s iterates over pair.f. What its values lose, a coordinate, goes to `merged`: the place of
// the first of the two.
void join_axes(Stage* s, const AxisPair& pair, const std::string& name,
               std::map<int, size_t>& merged) {
  const Substitution map = pair.map();
  for (Value& v : s->values) {
    v.expr = substitute(v.expr, map);
    for (size_t d = 0; d < v.dims.size(); d++) {
      if (v.dims[d].get() != pair.a.get()) continue;
      merged[v.id] = d;
      v.dims[d] = pair.f;
      v.dims.erase(v.dims.begin() + static_cast<ptrdiff_t>(d) + 1);
    }
  }
  const int outer = place_in_loops(*s, pair.a), inner = place_in_loops(*s, pair.b);
  // Rows of the outer axis that nobody needs are a part of the new one; other bounds shift.
  std::map<int, NodeRef> bounds;
  for (const auto& [axis, bound] : s->bound) {
    if (uses(bound, pair.a) || uses(bound, pair.b) || axis == inner) continue;
    const bool rows = axis == outer;
    const int place = rows ? inner : axis;
    bounds[place - (place > outer)] = rows ? index_mul(bound, pair.inner()) : bound;
  }
  s->bound = std::move(bounds);
  // The new axis takes the place of the inner one.
  s->axes[static_cast<size_t>(inner)] = pair.f;
  s->axes.erase(s->axes.begin() + outer);
  std::erase_if(s->loops, [&](const Loop& l) { return l.axis == outer; });
  std::string own = name;  // another stage may have a loop of that name
  const auto is_own = [&](const Loop& l) { return l.name == own && l.axis != inner; };
  while (std::any_of(s->loops.begin(), s->loops.end(), is_own)) own += "_";
  for (Loop& l : s->loops) {
    if (l.axis == inner) {
      l.name = own;
      l.extent = pair.f->hi + 1;
    }
    l.axis -= l.axis > outer;
  }
}

// Reads of the values in `merged`, now with one coordinate fewer.
void join_coordinates(Kernel& k, const AxisPair& pair, const std::map<int, size_t>& merged) {
  replace_reads(k, [&](const NodeRef& x) -> NodeRef {
    const auto it = merged.find(static_cast<int>(x->integer()));
    if (it == merged.end()) return {};
    const size_t at = it->second;
    std::vector<NodeRef> index(x->src.begin(), x->src.end());
    index[at] = index_add(index[at + 1], index[at], pair.inner());
    index.erase(index.begin() + static_cast<ptrdiff_t>(at) + 1);
    return read(it->first, x->dtype, std::move(index));
  });
}

AxisPair pair_of(const Step& step, const Stage& s) {
  const Loop& outer = s.loops[find_loop(step, s, step.args[1])];
  const Loop& inner = s.loops[find_loop(step, s, step.args[2])];
  const NodeRef a = s.axes[static_cast<size_t>(outer.axis)],
                b = s.axes[static_cast<size_t>(inner.axis)];
  return {a, b, axis(step.args[3], (a->hi + 1) * (b->hi + 1))};
}

// Axes a and b of stage S become one, in its values' dimensions and in all reads of them.
void flatten(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  const AxisPair pair = pair_of(step, *s);
  check_pair(step, *s, pair);
  std::map<int, size_t> merged;
  join_axes(s, pair, step.args[3], merged);
  join_coordinates(k, pair, merged);
}

// The same in all stages that have these axes, which stay equal.
void merge(Kernel& k, const Step& step) {
  const AxisPair pair = pair_of(step, *k.find_stage(step.args[0]));
  std::vector<Stage*> stages;
  for (const auto& s : k.stages) {
    if (place_in_loops(*s, pair.a) < 0 && place_in_loops(*s, pair.b) < 0) continue;
    check_pair(step, *s, pair);
    stages.push_back(s.get());
  }
  std::map<int, size_t> merged;
  for (Stage* s : stages) join_axes(s, pair, step.args[3], merged);
  join_coordinates(k, pair, merged);
}

void limit(Kernel& k, const Step& step) {
  const Value* v = k.find_value(step.args[0]);
  check(step, !limit_stages(k, *v).empty(),
        "{} does not mask an axis with a bound that its readers could stop at", v->name);
}

// Reads of V get their coordinates in the same new order.
void set_dims(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  check(step, v->slot < 0, "{} is an output; its layout is row-major", v->name);
  std::vector<size_t> order;
  for (size_t i = 1; i < step.args.size(); i++)
    order.push_back(static_cast<size_t>(number_of(step, step.args[i])));
  std::vector<size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool permutation = sorted.size() == v->dims.size();
  for (size_t i = 0; permutation && i < sorted.size(); i++) permutation = sorted[i] == i;
  check(step, permutation, "does not name each of the {} dimensions of {} once", v->dims.size(),
        v->name);
  const std::vector<NodeRef> old = v->dims;
  for (size_t i = 0; i < order.size(); i++) v->dims[i] = old[order[i]];
  replace_reads(k, [&](const NodeRef& n) -> NodeRef {
    if (n->integer() != v->id) return {};
    std::vector<NodeRef> index;
    for (size_t place : order) index.push_back(n->src[place]);
    return read(v->id, n->dtype, std::move(index));
  });
}

struct StepKind {
  std::string_view op;
  size_t min_args, max_args;
  void (*apply)(Kernel&, const Step&);
  std::string_view usage;
};

constexpr size_t kMany = 1000;
constexpr StepKind kSteps[] = {
    {"split", 5, 5, split, "split S l outer inner N"},
    {"order", 1, kMany, order, "order S l..."},
    {"serial", 1, kMany, set_kind, "serial S l..."},
    {"unroll", 1, kMany, set_kind, "unroll S l..."},
    {"ilp", 1, kMany, set_kind, "ilp S l..."},
    {"vector", 2, 2, set_kind, "vector S l"},
    {"parallel", 1, kMany, set_kind, "parallel S l..."},
    {"group", 1, kMany, set_kind, "group S l..."},
    {"item", 1, kMany, set_kind, "item S l..."},
    {"at", 3, 3, attach, "at S X l"},
    {"scope", 2, 2, set_scope, "scope V reg|scratch|shared|each|local"},
    {"store", 2, kMany, set_layout, "store V l..."},
    {"inplace", 2, 2, set_inplace, "inplace V W"},
    {"stream", 1, 1, set_stream, "stream V"},
    {"fuse", 2, 2, fuse, "fuse A B"},
    {"pack", 3, 3, pack, "pack S i P"},
    {"polyphase", 4, 4, polyphase, "polyphase S i P n"},
    {"dot", 5, 6, dot, "dot S l D P Q [n]"},
    {"dims", 2, kMany, set_dims, "dims V n..."},
    {"limit", 1, 1, limit, "limit V"},
    {"lift", 3, kMany, lift, "lift S n P R..."},
    {"rfactor", 4, 4, rfactor, "rfactor S l P N"},
    {"cache", 2, 2, cache, "cache S P"},
    {"flatten", 4, 4, flatten, "flatten S a b f"},
    {"merge", 4, 4, merge, "merge S a b f"},
};

const StepKind& kind_of(const Step& step) {
  for (const StepKind& s : kSteps) {
    if (s.op != step.op) continue;
    check(step, step.args.size() >= s.min_args && step.args.size() <= s.max_args,
          "the form is `{}`", s.usage);
    return s;
  }
  std::string known;
  for (const StepKind& s : kSteps) known += fmt::format("{}{}", known.empty() ? "" : ", ", s.op);
  user_error("schedule: there is no step '{}'; steps are {}", step.op, known);
}

}  // namespace

std::vector<int> values_read(const Stage& stage) {
  std::set<int> ids;
  for (const Value& v : stage.values) {
    visit(v.expr, [&](const NodeRef& n) {
      if (n->op == Op::Read) ids.insert(static_cast<int>(n->integer()));
    });
  }
  return {ids.begin(), ids.end()};
}

std::vector<NodeRef> loads_of(const Stage& stage) {
  std::vector<NodeRef> loads;
  for (const Value& v : stage.values) {
    visit(v.expr, [&](const NodeRef& n) {
      if (n->op == Op::Load && !contains(loads, n)) loads.push_back(n);
    });
  }
  return loads;
}

std::vector<NodeRef> operands_of(const Stage& stage) {
  std::vector<NodeRef> operands = loads_of(stage);
  for (const Value& v : stage.values) {
    visit(v.expr, [&](const NodeRef& n) {
      if (n->op == Op::Read && !contains(operands, n)) operands.push_back(n);
    });
  }
  return operands;
}

std::vector<Step> parse_schedule(const std::string& text) {
  std::vector<Step> steps;
  std::string word;
  bool comment = false;
  std::vector<std::string> lines(1);
  for (char c : text) {
    comment = c != '\n' && (comment || c == '#');
    if (c == '\n' || (c == ';' && !comment)) {
      lines.emplace_back();
    } else if (!comment) {
      lines.back() += c;
    }
  }
  for (const std::string& l : lines) {
    std::istringstream words(l);
    Step step;
    if (!(words >> step.op)) continue;
    while (words >> word) step.args.push_back(word);
    kind_of(step);
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string print_step(const Step& step) {
  std::string r = step.op;
  for (const std::string& a : step.args) r += " " + a;
  return r;
}

void apply_step(Kernel& kernel, const Step& step) {
  kind_of(step).apply(kernel, step);
  kernel.schedule += print_step(step) + "\n";
}

void apply_schedule(Kernel& kernel, const std::string& text) {
  for (const Step& s : parse_schedule(text)) apply_step(kernel, s);
}

}  // namespace lazuli
