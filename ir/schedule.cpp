#include "ir/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "core/error.h"
#include "ir/index.h"
#include "ir/limits.h"

namespace lazuli {
namespace {

constexpr std::string_view kLoopKinds[] = {"serial",   "unroll", "ilp", "vector",
                                           "parallel", "group",  "item"};
constexpr std::string_view kScopes[] = {"reg", "scratch", "local", "shared", "argument"};

using Words = std::vector<std::string>;

int64_t number(const Step& step, const std::string& word) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), v);
  require(error == std::errc() && end == word.data() + word.size(),
          "schedule: `{}`: '{}' is not a number", print_step(step), word);
  return v;
}

size_t find_loop(const Step& step, const Stage& s, const std::string& loop_name) {
  for (size_t i = 0; i < s.loops.size(); i++) {
    if (s.loops[i].name == loop_name) return i;
  }
  std::string known;
  for (const Loop& l : s.loops) known += " " + l.name;
  user_error("schedule: `{}`: stage {} has no loop '{}'; it has{}", print_step(step), s.name,
             loop_name, known);
}

size_t stage_index(const Kernel& k, const Stage* s) {
  return static_cast<size_t>(
      std::find_if(k.stages.begin(), k.stages.end(), [&](const auto& p) { return p.get() == s; }) -
      k.stages.begin());
}

void split(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  const size_t i = find_loop(step, *s, step.args[1]);
  const int64_t factor = number(step, step.args[4]);
  require(factor >= 1, "schedule: `{}`: the factor is not positive", print_step(step));
  require(s->loops[i].kind == LoopKind::Serial,
          "schedule: `{}`: loop {} is marked {} already; split first", print_step(step),
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
    require(names.insert(l.name).second, "schedule: `{}`: stage {} would have two loops '{}'",
            print_step(step), s->name, l.name);
  }
}

void order(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  std::vector<Loop> loops;
  std::set<size_t> seen;
  for (size_t i = 1; i < step.args.size(); i++) {
    const size_t l = find_loop(step, *s, step.args[i]);
    require(seen.insert(l).second, "schedule: `{}`: loop {} stands twice", print_step(step),
            step.args[i]);
    loops.push_back(s->loops[l]);
  }
  require(loops.size() == s->loops.size(), "schedule: `{}`: names {} of the {} loops of {}",
          print_step(step), loops.size(), s->loops.size(), s->name);
  s->loops = std::move(loops);
}

void set_kind(Kernel& k, const Step& step) {
  const auto kind = static_cast<LoopKind>(
      std::find(std::begin(kLoopKinds), std::end(kLoopKinds), step.op) - std::begin(kLoopKinds));
  Stage* s = k.find_stage(step.args[0]);
  for (size_t i = 1; i < step.args.size(); i++) {
    Loop& l = s->loops[find_loop(step, *s, step.args[i])];
    if (kind == LoopKind::Vector) {
      require(l.stride == 1,
              "schedule: `{}`: loop {} walks in steps of {}; a vector takes neighbours",
              print_step(step), l.name, l.stride);
      for (const Loop& o : s->loops) {
        require(o.kind != LoopKind::Vector || o.name == l.name,
                "schedule: `{}`: stage {} has the vector loop {}", print_step(step), s->name,
                o.name);
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
    require(h != s, "schedule: `{}`: {} would be computed inside itself", print_step(step),
            s->name);
  }
  s->at = host;
  s->at_loop = step.args[2];
}

void set_scope(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  const auto it = std::find(std::begin(kScopes), std::end(kScopes) - 1, step.args[1]);
  require(it != std::end(kScopes) - 1, "schedule: `{}`: a scope is reg, scratch, local or shared",
          print_step(step));
  require(v->slot < 0, "schedule: `{}`: {} is an output of the kernel and lives there",
          print_step(step), v->name);
  v->scope = static_cast<Scope>(it - std::begin(kScopes));
}

void set_layout(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  const auto [s, same] = k.find_value(v->id);
  require(v->slot < 0, "schedule: `{}`: {} is an output; its layout is row-major", print_step(step),
          v->name);
  Words layout(step.args.begin() + 1, step.args.end());
  std::map<int, int64_t> covered;
  for (const std::string& l : layout) {
    const Loop& loop = s->loops[find_loop(step, *s, l)];
    require(s->keeps(*v, loop.axis), "schedule: `{}`: {} does not keep the axis of loop {}",
            print_step(step), v->name, l);
    covered[loop.axis]++;
  }
  for (const Loop& l : s->loops) {
    if (!s->keeps(*v, l.axis)) continue;
    require(std::find(layout.begin(), layout.end(), l.name) != layout.end(),
            "schedule: `{}`: leaves out loop {}; two elements would share a place",
            print_step(step), l.name);
  }
  v->layout = std::move(layout);
}

void set_inplace(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  Value* w = k.find_value(step.args[1]);
  require(v != w, "schedule: `{}`: a value is in its own place already", print_step(step));
  require(v->expr->dtype == w->expr->dtype, "schedule: `{}`: {} is {} but {} is {}",
          print_step(step), v->name, name(v->expr->dtype), w->name, name(w->expr->dtype));
  require(v->dims.size() == w->dims.size(), "schedule: `{}`: {} has {} dimensions but {} has {}",
          print_step(step), v->name, v->dims.size(), w->name, w->dims.size());
  for (size_t d = 0; d < v->dims.size(); d++) {
    require(v->dims[d]->hi == w->dims[d]->hi, "schedule: `{}`: dimension {} differs in size",
            print_step(step), d);
  }
  require(v->slot < 0 && w->alias < 0, "schedule: `{}`: {} has a place of its own",
          print_step(step), v->slot < 0 ? w->name : v->name);
  v->alias = w->id;
}

void set_stream(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  require(v->slot >= 0 && !v->reduces(),
          "schedule: `{}`: only an element-wise output is stored once and not read back",
          print_step(step));
  v->stream = true;
}

void fuse(Kernel& k, const Step& step) {
  Stage* a = k.find_stage(step.args[0]);
  Stage* b = k.find_stage(step.args[1]);
  const size_t from = stage_index(k, a), to = stage_index(k, b);
  require(from < to, "schedule: `{}`: {} does not come before {}", print_step(step), a->name,
          b->name);
  require(std::equal(a->axes.begin(), a->axes.end(), b->axes.begin(), b->axes.end(), NodeEqual()),
          "schedule: `{}`: the stages do not run over the same axes", print_step(step));
  require(a->limit == b->limit, "schedule: `{}`: the stages have different bounds",
          print_step(step));
  const auto reads_of_a = [&](const Stage& s, bool reduced_only) {
    for (int id : values_read(s)) {
      for (const Value& v : a->values) {
        if (v.id == id && (v.reduces() || !reduced_only)) return true;
      }
    }
    return false;
  };
  require(!reads_of_a(*b, true),
          "schedule: `{}`: {} reads a reduction of {}, which is known after its loops only",
          print_step(step), b->name, a->name);
  for (size_t i = from + 1; i < to; i++) {
    require(!reads_of_a(*k.stages[i], false), "schedule: `{}`: {} lies between and reads {}",
            print_step(step), k.stages[i]->name, a->name);
  }
  for (const auto& s : k.stages) {
    require(s->at != b, "schedule: `{}`: {} is attached to {}", print_step(step), s->name, b->name);
  }
  for (Value& v : b->values) {
    require(v.layout.empty(), "schedule: `{}`: {} has a storage order already", print_step(step),
            v.name);
    a->values.push_back(std::move(v));
  }
  std::swap(k.stages[from], k.stages[to]);  // a stands where b stood
  k.stages.erase(k.stages.begin() + static_cast<ptrdiff_t>(from));
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
    for (const auto& [a, bound] : s->limit) {
      if (s->axes[static_cast<size_t>(a)].get() != used[i].get()) continue;
      bool inside = true;
      visit(bound, [&](const NodeRef& n) { inside &= n->op != Op::Var || map.count(n) > 0; });
      if (inside) p->limit[static_cast<int>(i)] = substitute(bound, map);
    }
  }
  const int id = k.add_value(p, stage_name, substitute(expr, map), fresh);
  auto stage = std::move(k.stages.back());
  k.stages.pop_back();
  k.stages.insert(k.stages.begin() + static_cast<ptrdiff_t>(stage_index(k, s)), std::move(stage));
  return read(id, expr->dtype, used);
}

void pack(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  const int64_t factor = number(step, step.args[1]);
  require(factor == 0 || factor == 1, "schedule: `{}`: a product has factors 0 and 1",
          print_step(step));
  for (const auto& other : k.stages) {
    require(other->name != step.args[2], "schedule: `{}`: there is a stage {} already",
            print_step(step), step.args[2]);
  }
  for (Value& v : s->values) {
    if (v.reduce != Op::ReduceAdd || v.expr->op != Op::Mul) continue;
    Sources src = v.expr->src;
    const int id = v.id;
    const DType dtype = v.expr->dtype;
    const auto i = static_cast<size_t>(factor);
    src[i] = stage_out(k, s, src[i], step.args[2]);
    k.find_value(id).second->expr = scalar_op(Op::Mul, dtype, std::move(src));
    return;
  }
  user_error("schedule: `{}`: {} has no value that sums a product", print_step(step), s->name);
}

void lift(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  const int64_t wanted = number(step, step.args[1]);
  for (const auto& other : k.stages) {
    require(other->name != step.args[2], "schedule: `{}`: there is a stage {} already",
            print_step(step), step.args[2]);
  }
  std::vector<NodeRef> loads;
  for (const Value& v : s->values) {
    visit(v.expr, [&](const NodeRef& n) {
      const bool known = std::any_of(loads.begin(), loads.end(),
                                     [&](const NodeRef& l) { return l.get() == n.get(); });
      if (n->op == Op::Load && !known) loads.push_back(n);
    });
  }
  require(wanted >= 0 && wanted < static_cast<int64_t>(loads.size()),
          "schedule: `{}`: {} has {} loads", print_step(step), s->name, loads.size());
  const NodeRef load = loads[static_cast<size_t>(wanted)];
  const Substitution map{{load, stage_out(k, s, load, step.args[2])}};
  for (Value& v : s->values) v.expr = substitute(v.expr, map);
}

// Axes a (outer) and b (inner) of stage S become f = extent(b)*a + b, in its values' dimensions and
// in all reads of them.
void flatten(Kernel& k, const Step& step) {
  Stage* s = k.find_stage(step.args[0]);
  const Loop outer = s->loops[find_loop(step, *s, step.args[1])];
  const Loop inner = s->loops[find_loop(step, *s, step.args[2])];
  require(s->limit.empty(), "schedule: `{}`: {} has a bounded axis", print_step(step), s->name);
  const auto whole = [](const Loop& l, const NodeRef& a) {
    return l.stride == 1 && l.extent == a->hi + 1;
  };
  const NodeRef a = s->axes[static_cast<size_t>(outer.axis)],
                b = s->axes[static_cast<size_t>(inner.axis)];
  require(whole(outer, a) && whole(inner, b) && a.get() != b.get(),
          "schedule: `{}`: flatten takes two whole axes, before they are split", print_step(step));
  for (const Value& v : s->values) {
    bool together = false;
    for (size_t d = 0; d + 1 < v.dims.size(); d++) {
      together |= v.dims[d].get() == a.get() && v.dims[d + 1].get() == b.get();
    }
    const bool neither = !s->keeps(v, outer.axis) && !s->keeps(v, inner.axis);
    require(together || neither, "schedule: `{}`: {} and {} are not neighbours in {}",
            print_step(step), step.args[1], step.args[2], v.name);
  }
  const int64_t n = b->hi + 1;
  const NodeRef f = axis(step.args[3], (a->hi + 1) * n);
  const auto [q, r] = index_divmod(f, n);
  const Substitution map{{a, q}, {b, r}};
  std::map<int, size_t> merged;  // value -> place of the first of the two coordinates
  for (Value& v : s->values) {
    v.expr = substitute(v.expr, map);
    for (size_t d = 0; d < v.dims.size(); d++) {
      if (v.dims[d].get() != a.get()) continue;
      merged[v.id] = d;
      v.dims[d] = f;
      v.dims.erase(v.dims.begin() + static_cast<ptrdiff_t>(d) + 1);
    }
  }
  // Reads of these values, now with one coordinate fewer.
  for (const auto& reader : k.stages) {
    for (Value& v : reader->values) {
      Substitution reads;
      visit(v.expr, [&](const NodeRef& x) {
        if (x->op != Op::Read) return;
        const auto it = merged.find(static_cast<int>(x->integer()));
        if (it == merged.end()) return;
        std::vector<NodeRef> index(x->src.begin(), x->src.end());
        const auto at = static_cast<ptrdiff_t>(it->second);
        index[it->second] = index_add(index[it->second + 1], index[it->second], n);
        index.erase(index.begin() + at + 1);
        reads[x] = read(it->first, x->dtype, std::move(index));
      });
      if (!reads.empty()) v.expr = substitute(v.expr, reads);
    }
  }
  // The new axis takes the place of the inner one.
  s->axes[static_cast<size_t>(inner.axis)] = f;
  s->axes.erase(s->axes.begin() + outer.axis);
  for (Loop& l : s->loops) {
    if (l.name == inner.name) {
      l.name = step.args[3];
      l.extent = f->hi + 1;
    }
  }
  s->loops.erase(s->loops.begin() + static_cast<ptrdiff_t>(find_loop(step, *s, outer.name)));
  for (Loop& l : s->loops) l.axis -= l.axis > outer.axis;
}

void limit(Kernel& k, const Step& step) {
  const Value* v = k.find_value(step.args[0]);
  require(!limit_stages(k, *v).empty(),
          "schedule: `{}`: {} does not mask an axis with a bound that its readers could stop at",
          print_step(step), v->name);
}

// Reads of V get their coordinates in the same new order.
void set_dims(Kernel& k, const Step& step) {
  Value* v = k.find_value(step.args[0]);
  require(v->slot < 0, "schedule: `{}`: {} is an output; its layout is row-major", print_step(step),
          v->name);
  std::vector<size_t> order;
  for (size_t i = 1; i < step.args.size(); i++)
    order.push_back(static_cast<size_t>(number(step, step.args[i])));
  std::vector<size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool permutation = sorted.size() == v->dims.size();
  for (size_t i = 0; permutation && i < sorted.size(); i++) permutation = sorted[i] == i;
  require(permutation, "schedule: `{}`: does not name each of the {} dimensions of {} once",
          print_step(step), v->dims.size(), v->name);
  const std::vector<NodeRef> old = v->dims;
  for (size_t i = 0; i < order.size(); i++) v->dims[i] = old[order[i]];
  for (const auto& s : k.stages) {
    for (Value& reader : s->values) {
      Substitution map;
      visit(reader.expr, [&](const NodeRef& n) {
        if (n->op != Op::Read || n->integer() != v->id) return;
        std::vector<NodeRef> index;
        for (size_t place : order) index.push_back(n->src[place]);
        map[n] = read(v->id, n->dtype, std::move(index));
      });
      if (!map.empty()) reader.expr = substitute(reader.expr, map);
    }
  }
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
    {"unroll", 1, kMany, set_kind, "unroll S l..."},
    {"ilp", 1, kMany, set_kind, "ilp S l..."},
    {"vector", 2, 2, set_kind, "vector S l"},
    {"parallel", 1, kMany, set_kind, "parallel S l..."},
    {"group", 1, kMany, set_kind, "group S l..."},
    {"item", 1, kMany, set_kind, "item S l..."},
    {"at", 3, 3, attach, "at S X l"},
    {"scope", 2, 2, set_scope, "scope V reg|scratch|shared|local"},
    {"store", 2, kMany, set_layout, "store V l..."},
    {"inplace", 2, 2, set_inplace, "inplace V W"},
    {"stream", 1, 1, set_stream, "stream V"},
    {"fuse", 2, 2, fuse, "fuse A B"},
    {"pack", 3, 3, pack, "pack S i P"},
    {"dims", 2, kMany, set_dims, "dims V n..."},
    {"limit", 1, 1, limit, "limit V"},
    {"lift", 3, 3, lift, "lift S n P"},
    {"flatten", 4, 4, flatten, "flatten S a b f"},
};

const StepKind& kind_of(const Step& step) {
  for (const StepKind& s : kSteps) {
    if (s.op != step.op) continue;
    require(step.args.size() >= s.min_args && step.args.size() <= s.max_args,
            "schedule: `{}`: the form is `{}`", print_step(step), s.usage);
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

std::vector<Step> parse_schedule(const std::string& text) {
  std::vector<Step> steps;
  std::string line, word;
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
