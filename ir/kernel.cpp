#include "ir/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "ir/index.h"

namespace lazuli {
namespace {

int64_t extent_of(const NodeRef& axis) {
  return std::get<VarArg>(axis->arg).extent;
}
const std::string& name_of(const NodeRef& axis) {
  return std::get<VarArg>(axis->arg).name;
}

// `wanted`, or with a number behind it where `taken` holds it already.
template <typename Taken>
std::string unique_name(const std::string& wanted, const Taken& taken) {
  std::string r = wanted;
  for (int i = 2; taken(r); i++) r = fmt::format("{}_{}", wanted, i);
  return r;
}

// require() for a value of a kernel: there are many, and only one that fails needs a text.
struct Expect {
  const Kernel& kernel;
  const Value& value;

  template <typename... Args>
  void operator()(bool ok, fmt::format_string<Args...> text, Args&&... args) const {
    if (ok) return;
    user_error("kernel {}: value {}: {}", kernel.name, value.name,
               fmt::format(text, std::forward<Args>(args)...));
  }
};

void verify_expression(const Kernel& kernel, const Stage& stage, const Value& value,
                       const std::set<int>& known) {
  const Expect expect{kernel, value};
  visit(value.expr, [&](const NodeRef& n) {
    expect(n->shape.empty(), "the {} in its expression has shape {}; expressions are scalar",
           name(n->op), to_string(n->shape));
    if (n->op == Op::Var) {
      const bool is_size = std::any_of(kernel.sizes.begin(), kernel.sizes.end(),
                                       [&](const KernelSize& s) { return s.variable == n; });
      expect(is_size || contains(stage.axes, n),
             "uses axis {}, which stage {} does not have; add it to the stage's axes", name_of(n),
             stage.name);
    } else if (n->op == Op::Load) {
      const int64_t slot = n->integer();
      const auto count = static_cast<int64_t>(kernel.arguments.size());
      expect(slot >= 0 && slot < count, "loads argument {} of {}", slot, count);
      const KernelArgument& a = kernel.arguments[static_cast<size_t>(slot)];
      const bool is_word = n->dtype == DType::I32 && size_of(a.dtype) < size_of(DType::I32) &&
                           a.dtype != DType::Bool && n->src.size() == 1;
      expect(a.dtype == n->dtype || is_word, "loads {} as {}, but it holds {}", a.name,
             name(n->dtype), name(a.dtype));
      expect(!a.output, "loads {}, an output of the kernel; read the value instead", a.name);
      expect(n->src.size() < 3 && n->src[0]->dtype == DType::I64,
             "a load takes an i64 index and a mask");
      expect(n->src.size() < 2 || n->src[1]->dtype == DType::Bool,
             "the mask of a load is {}, not bool", name(n->src.back()->dtype));
    } else if (n->op == Op::Read) {
      const int id = static_cast<int>(n->integer());
      expect(known.count(id) > 0, "reads value {}, which no earlier stage makes", id);
      const auto [owner, read] = kernel.find_value(id);
      expect(read->dims.size() == n->src.size(), "reads {} with {} coordinates; it has {}",
             read->name, n->src.size(), read->dims.size());
      expect(read->expr->dtype == n->dtype, "reads {} as {}, but it is {}", read->name,
             name(n->dtype), name(read->expr->dtype));
      expect(owner != &stage || !read->reduces(),
             "reads the reduced value {} of its own stage; put it in a later stage", read->name);
    } else {
      const bool index = n->op == Op::Lin || n->op == Op::FDiv || n->op == Op::FMod;
      expect(index || n->op == Op::Const || is_elementwise(n->op),
             "{} cannot stand in a kernel's expression", name(n->op));
    }
  });
}

void verify_place(const Stage& s, const Value& v, const Expect& expect) {
  const auto of = std::find_if(s.values.begin(), s.values.end(),
                               [&](const Value& o) { return o.id == v.place_of; });
  expect(of < s.values.begin() + (&v - s.values.data()),
         "is the place of value {}, which is no earlier one of its stage", v.place_of);
  expect(is_extreme(*of) && std::equal(of->dims.begin(), of->dims.end(), v.dims.begin(),
                                       v.dims.end(), NodeEqual()),
         "is the place of {}, which is not the largest or smallest element of the same rows",
         of->name);
  expect(place_of(s, *of) == &v, "is another place of {}, which has one", of->name);
  expect(v.reduce == Op::ReduceMin && v.dims.size() + 1 == s.axes.size() &&
             contains(s.axes, v.expr.get()) && !contains(v.dims, v.expr.get()),
         "is a place, and so the least index along the one axis that it does not keep");
}

}  // namespace

const NodeRef& combination(const Value& v) {
  const NodeRef* r = &v.expr;
  const auto is_of_one = [](const Node& n) {
    const bool square = n.op == Op::Mul && n.src[0].get() == n.src[1].get();
    return square || n.op == Op::Abs;
  };
  while (is_of_one(**r)) r = &(*r)->src[0];
  const bool combines = is_elementwise((*r)->op) && (*r)->src.size() >= 2;
  return combines ? *r : v.expr;
}

const NodeRef& factor(const Value& v, int place) {
  return combination(v)->src[static_cast<size_t>(place)];
}

bool is_extreme(const Value& v) {
  return (v.reduce == Op::ReduceMax || v.reduce == Op::ReduceMin) && v.place_of < 0;
}

bool same_domain(const Stage& a, const Stage& b) {
  return a.axes == b.axes && a.limit == b.limit && a.begin == b.begin && a.bound == b.bound;
}

const Value* place_of(const Stage& stage, const Value& v) {
  const auto it = std::find_if(stage.values.begin(), stage.values.end(),
                               [&](const Value& p) { return p.place_of == v.id; });
  return it == stage.values.end() ? nullptr : &*it;
}

bool Stage::keeps(const Value& v, int axis) const {
  return contains(v.dims, axes[static_cast<size_t>(axis)]);
}

int Kernel::add_argument(std::string arg_name, DType dtype, int64_t size, bool output) {
  arguments.push_back({std::move(arg_name), dtype, size, output});
  return static_cast<int>(arguments.size()) - 1;
}

const Loop* coarser_inside(const Stage& s, const Loop& loop) {
  const auto inside = s.loops.begin() + (&loop - s.loops.data()) + 1;
  const auto it = std::find_if(inside, s.loops.end(), [&](const Loop& l) {
    return l.axis == loop.axis && l.stride > loop.stride;
  });
  return it == s.loops.end() ? nullptr : &*it;
}

std::vector<Loop> whole_loops(std::span<const NodeRef> axes) {
  std::vector<Loop> loops;
  for (const NodeRef& a : axes) {
    Loop loop;
    loop.name = unique_name(name_of(a), [&](const std::string& n) {
      return std::any_of(loops.begin(), loops.end(), [&](const Loop& l) { return l.name == n; });
    });
    loop.axis = static_cast<int>(loops.size());
    loop.extent = extent_of(a);
    loops.push_back(std::move(loop));
  }
  return loops;
}

Stage* Kernel::add_stage(std::string stage_name, std::vector<NodeRef> axes) {
  auto stage = std::make_unique<Stage>();
  stage->name = unique_name(stage_name, [&](const std::string& n) {
    return std::any_of(stages.begin(), stages.end(), [&](const auto& s) { return s->name == n; });
  });
  stage->axes = std::move(axes);
  stage->loops = whole_loops(stage->axes);
  stages.push_back(std::move(stage));
  return stages.back().get();
}

int Kernel::add_value(Stage* stage, std::string value_name, NodeRef expr, std::vector<NodeRef> dims,
                      Op reduce, int slot) {
  Value v;
  v.id = value_count++;
  v.name = unique_name(value_name, [&](const std::string& n) {
    return std::any_of(stages.begin(), stages.end(), [&](const auto& s) {
      return std::any_of(s->values.begin(), s->values.end(),
                         [&](const Value& o) { return o.name == n; });
    });
  });
  v.expr = std::move(expr);
  v.dims = std::move(dims);
  v.reduce = reduce;
  v.slot = slot;
  if (slot >= 0) v.scope = Scope::Argument;
  stage->values.push_back(std::move(v));
  return stage->values.back().id;
}

Stage* Kernel::find_stage(const std::string& stage_name) const {
  for (const auto& s : stages) {
    if (s->name == stage_name) return s.get();
  }
  user_error("kernel {}: there is no stage '{}'", name, stage_name);
}

std::pair<Stage*, Value*> Kernel::find_value(int id) const {
  for (const auto& s : stages) {
    for (Value& v : s->values) {
      if (v.id == id) return {s.get(), &v};
    }
  }
  internal_error(fmt::format("kernel {} has no value {}", name, id));
}

Value* Kernel::find_value(const std::string& value_name) const {
  for (const auto& s : stages) {
    for (Value& v : s->values) {
      if (v.name == value_name) return &v;
    }
  }
  user_error("kernel {}: there is no value '{}'", name, value_name);
}

bool contains(std::span<const NodeRef> list, const Node* node) {
  return std::any_of(list.begin(), list.end(), [&](const NodeRef& n) { return n.get() == node; });
}

NodeRef axis(std::string name, int64_t extent) {
  ensure(extent > 0, "an axis of a kernel has at least one element");
  return make({.op = Op::Var,
               .dtype = DType::I64,
               .arg = VarArg{next_serial(), extent, std::move(name)},
               .lo = 0,
               .hi = extent - 1});
}

NodeRef load(int slot, DType dtype, const NodeRef& flat, const NodeRef& valid) {
  Sources src{flat};
  if (valid) {
    if (valid->op == Op::Const) {
      if (std::get<ScalarBits>(valid->arg).bits == 0) return scalar_const(Scalar(0), dtype);
    } else {
      src.push_back(valid);
    }
  }
  const auto [lo, hi] = dtype_interval(dtype);
  return make({.op = Op::Load,
               .dtype = dtype,
               .arg = static_cast<int64_t>(slot),
               .src = std::move(src),
               .lo = lo,
               .hi = hi});
}

NodeRef read(int value, DType dtype, std::vector<NodeRef> index) {
  const auto [lo, hi] = dtype_interval(dtype);
  return make({.op = Op::Read,
               .dtype = dtype,
               .arg = static_cast<int64_t>(value),
               .src = Sources(index.begin(), index.end()),
               .lo = lo,
               .hi = hi});
}

void verify_algorithm(const Kernel& kernel) {
  std::set<int> known;
  for (const auto& s : kernel.stages) {
    require(!s->values.empty(), "kernel {}: stage {} computes nothing", kernel.name, s->name);
    for (const NodeRef& a : s->axes) {
      require(a->op == Op::Var, "kernel {}: an axis of stage {} is a {}", kernel.name, s->name,
              name(a->op));
    }
    for (const Value& v : s->values) {
      const Expect expect{kernel, v};
      expect(v.expr != nullptr, "has no expression");
      std::set<const Node*> kept;
      for (const NodeRef& d : v.dims) {
        expect(contains(s->axes, d), "a dimension is no axis of stage {}", s->name);
        expect(kept.insert(d.get()).second, "keeps axis {} twice", name_of(d));
      }
      expect(v.reduces() || kept.size() == s->axes.size(),
             "keeps {} of {} axes but has no reduction", kept.size(), s->axes.size());
      if (v.reduces()) expect(is_reduce(v.reduce), "{} is not a reduction", name(v.reduce));
      verify_expression(kernel, *s, v, known);
      if (v.place_of >= 0) verify_place(*s, v, expect);
      if (v.slot >= 0) {
        expect(v.slot < static_cast<int>(kernel.arguments.size()), "there is no argument {}",
               v.slot);
        const KernelArgument& a = kernel.arguments[static_cast<size_t>(v.slot)];
        expect(a.output, "is stored to {}, which is no output", a.name);
        expect(a.dtype == v.expr->dtype, "is {} but {} holds {}", name(v.expr->dtype), a.name,
               name(a.dtype));
        int64_t size = 1;
        for (const NodeRef& d : v.dims) size *= extent_of(d);
        expect(size == a.size, "has {} elements but {} has {}", size, a.name, a.size);
      }
      known.insert(v.id);
    }
  }
}

Kernel clone(const Kernel& kernel) {
  Kernel copy;
  copy.name = kernel.name;
  copy.arguments = kernel.arguments;
  copy.schedule = kernel.schedule;
  copy.reasons = kernel.reasons;
  copy.choices = kernel.choices;
  copy.sizes = kernel.sizes;
  copy.value_count = kernel.value_count;
  std::unordered_map<const Stage*, Stage*> twin;
  for (const auto& s : kernel.stages) {
    copy.stages.push_back(std::make_unique<Stage>(*s));
    twin[s.get()] = copy.stages.back().get();
  }
  for (const auto& s : copy.stages) {
    if (s->at) s->at = twin.at(s->at);
  }
  return copy;
}

}  // namespace lazuli
