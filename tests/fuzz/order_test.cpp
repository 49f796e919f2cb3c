// Random programs of assignments, views, slices, reads and captured steps, against a model that
// computes at once: what a statement sees must be what the statements before it left, whatever was
// computed when. A program is a list of numbers, each the seed of one statement, which makes what
// it finds possible; that is what lets a failing program be cut short. (order_numpy_test.cpp
// holds lazuli against NumPy in the same way.)
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "nn/lazuli.h"
#include "tests/fuzz/order_operations.h"
#include "tests/fuzz/settings.h"

namespace lazuli::order {
namespace {

// ---- programs

class OrderRandom {
 public:
  explicit OrderRandom(uint64_t seed) : bits_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(bits_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int64_t one_in) { return below(one_in) == 0; }

 private:
  std::mt19937_64 bits_;
};

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("in the middle") {}
};

struct Reading {
  std::string name;
  Shape shape;
  Numbers values;
};

// The variables of a program, what it has read, and its text. V is Model or Tensor; choices depend
// on shapes, dtypes and which variables name one tensor alone, so that both make the same ones.
template <typename V>
class World {
 public:
  explicit World(bool write_text) : writes_text_(write_text) {}

  void run(const std::vector<uint64_t>& program) {
    start();
    for (uint64_t seed : program) statement(seed);
    for (size_t i = 0; i < variables_.size(); i++) read(i);
  }

  const std::vector<Reading>& readings() const { return readings_; }
  const std::string& program() const { return text_; }

 private:
  struct Value {
    V v;
    std::string name;
  };
  // A captured function: of two tensors of these shapes and dtypes, and of what `finds` names.
  struct Step {
    uint64_t seed;
    Shape shapes[2];
    DType dtypes[2];
    size_t finds;
    Shape found_shape;
    DType found_dtype;
    std::function<V(V&, V&, bool)> call;
  };

  static constexpr int64_t kFixed = 3;  // variables that are never made to name another tensor

  template <typename... A>
  void line(fmt::format_string<A...> format, A&&... arguments) {
    if (writes_text_) text_ += indent_ + fmt::format(format, std::forward<A>(arguments)...) + "\n";
  }
  static std::string list(const auto& v) { return fmt::format("{{{}}}", fmt::join(v, ", ")); }

  void start() {
    for (int i = 0; i < kFixed; i++) {
      OrderRandom r(static_cast<uint64_t>(i) + 77);
      fresh(r, i == 1 ? DType::F64 : DType::I64,
            i == 0   ? Shape{4, 3}
            : i == 1 ? Shape{5}
                     : Shape{3});
    }
  }

  void add(V v, std::string how) {
    // A few variables, so that they meet often.
    constexpr size_t kMost = 7;
    if (variables_.size() < kMost) {
      variables_.push_back({v, fmt::format("v{}", variables_.size())});
      line("lz::Tensor {} = {};", variables_.back().name, how);
      return;
    }
    const size_t i = kFixed + next_++ % (kMost - kFixed);
    line("{} = {};", variables_[i].name, how);
    variables_[i].v = v;
  }

  void fresh(OrderRandom& r, DType dtype, const Shape& shape) {
    Numbers values;
    for (int64_t i = 0; i < numel(shape); i++) values.push_back(r.between(-9, 9));
    add(made(static_cast<const V*>(nullptr), shape, dtype, values),
        fmt::format("lz::Tensor::from<{}>({}, {})", dtype == DType::I64 ? "int64_t" : "double",
                    list(values), list(shape)));
  }

  Shape some_shape(OrderRandom& r) {
    Shape s;
    for (int64_t k = r.below(4); k > 0; k--) s.push_back(r.chance(12) ? 0 : r.between(1, 4));
    return s;
  }

  Items some_items(OrderRandom& r, const Shape& shape) {
    Items items;
    const bool list = r.chance(3);
    bool has_list = false, has_rest = false;
    const size_t named = static_cast<size_t>(r.below(static_cast<int64_t>(shape.size()) + 1));
    for (size_t k = 0; k < named;) {
      const int64_t n = shape[k];
      Item i;
      const int64_t kind = r.below(8);
      if (kind == 0) {
        i.kind = Item::New;
      } else if (kind == 1 && !has_rest && named == shape.size()) {
        i.kind = Item::Rest;  // of no axes
        has_rest = true;
      } else if (list && !has_list && n > 0 && r.chance(2)) {
        i.kind = Item::List;
        has_list = true;
        i.list_shape = r.chance(2) ? Shape{r.between(1, 4)} : Shape{2, r.between(1, 2)};
        for (int64_t j = 0; j < numel(i.list_shape); j++) i.list.push_back(r.between(-n, n - 1));
      } else if (!list && n > 0 && r.chance(3)) {
        i.kind = Item::Number;
        i.number = r.between(-n, n - 1);
      } else {
        if (r.chance(2)) i.slice.begin = r.between(-n - 1, n + 1);
        if (r.chance(2)) i.slice.end = r.between(-n - 1, n + 1);
        i.slice.step = r.chance(3) ? (r.chance(2) ? -1 : -2) : r.between(1, 2);
      }
      k += i.kind != Item::New && i.kind != Item::Rest;
      items.push_back(std::move(i));
    }
    return items;
  }

  // What is computed from `from`, by one to three operations.
  Value expression(OrderRandom& r, Value from) {
    for (int64_t n = r.between(1, 3); n > 0; n--) from = operation(r, from);
    return from;
  }
  Value operation(OrderRandom& r, const Value& a) {
    const Shape shape = shape_of(a.v);
    const auto rank = static_cast<int64_t>(shape.size());
    const auto axis = [&] { return r.below(rank); };
    const bool is_float_value = is_float(dtype_of(a.v));
    const auto kept = [&](V v, std::string name) -> Value {
      if (!is_float_value) return {v, name};
      return {bounded(v), fmt::format("lz::clamp({}, -{}, {})", name, kBound, kBound)};
    };
    switch (rank == 0 ? r.below(4) : r.below(12)) {
      case 0: {
        const int64_t by = r.between(-2, 2);
        return kept(scaled(a.v, by), fmt::format("{} * {}", a.name, by));
      }
      case 1: {
        const Items items = some_items(r, shape);
        return {taken(a.v, items), fmt::format("lz::getitem({}, {})", a.name, text(items))};
      }
      case 2: {
        Shape to = shape;
        if (r.chance(2))
          to.insert(to.begin(), r.between(1, 3));
        else
          for (int64_t& n : to) n = n == 1 ? r.between(1, 3) : n;
        if (numel(to) > 200) return a;
        return {expanded(a.v, to), fmt::format("lz::expand({}, {})", a.name, list(to))};
      }
      case 3:  // nothing but another tensor
        return {same_values(a.v), fmt::format("lz::dropout({}, 0.5, false)", a.name)};
      case 4: {
        const int64_t i = axis(), j = axis();
        return {transposed(a.v, i, j), fmt::format("lz::transpose({}, {}, {})", a.name, i, j)};
      }
      case 5: {
        const int64_t i = axis();
        return {flipped(a.v, i), fmt::format("lz::flip({}, {{{}}})", a.name, i)};
      }
      case 6: {
        Shape to = shape;
        std::reverse(to.begin(), to.end());
        if (r.chance(2)) to = {numel(shape)};
        return {reshaped(a.v, to), fmt::format("lz::reshape({}, {})", a.name, list(to))};
      }
      case 7: {
        const int64_t i = axis();
        return kept(summed(a.v, i), fmt::format("lz::sum({}, {{{}}}, true)", a.name, i));
      }
      case 8: {
        const int64_t i = axis();
        return kept(running(a.v, i), fmt::format("lz::cumsum({}, {})", a.name, i));
      }
      case 9:
        return {ordered(a.v), fmt::format("lz::sort({}).values", a.name)};
      default: {
        const int op = static_cast<int>(r.below(3));
        const Value b = operand(r, a);
        return kept(pairwise(a.v, b.v, op),
                    op == 2 ? fmt::format("lz::maximum({}, {})", a.name, b.name)
                            : fmt::format("({} {} {})", a.name, op ? "-" : "+", b.name));
      }
    }
  }

  // Of the dtype of `a`, to be broadcast to its shape: a variable that fits, or a part of `a`.
  Value operand(OrderRandom& r, const Value& a) {
    std::vector<Value> fitting;
    for (const Value& v : variables_) {
      if (fits(shape_of(v.v), shape_of(a.v))) fitting.push_back(v);
    }
    if (fitting.empty() || r.chance(4)) return a;
    Value b = fitting[static_cast<size_t>(r.below(static_cast<int64_t>(fitting.size())))];
    if (dtype_of(b.v) == dtype_of(a.v)) return b;
    return {converted(bounded(b.v), dtype_of(a.v)),
            fmt::format("lz::clamp({}, -{}, {}).to({})", b.name, kBound, kBound,
                        dtype_of(a.v) == DType::I64 ? "lz::DType::I64" : "lz::DType::F64")};
  }
  static bool fits(const Shape& from, const Shape& to) {
    if (from.size() > to.size()) return false;
    for (size_t k = 0; k < from.size(); k++) {
      const int64_t n = to[to.size() - from.size() + k];
      if (from[k] != n && from[k] != 1) return false;
    }
    return true;
  }

  // Writes to `to`; never makes or renames a variable.
  void mutation(OrderRandom& r, Value& to) {
    const Shape shape = shape_of(to.v);
    const bool is_float_value = is_float(dtype_of(to.v));
    switch (r.below(6)) {
      case 0: {
        const Value b = operand(r, to);
        assign(to.v, b.v);
        return line("{}.assign_({});", to.name, b.name);
      }
      case 1: {
        const Value b = operand(r, to);
        const int op = static_cast<int>(r.below(3));
        update(to.v, b.v, op);
        if (op == 2) return line("{}.assign_(lz::maximum({}, {}));", to.name, to.name, b.name);
        return line("{} {}= {};", to.name, op ? "-" : "+", b.name);
      }
      case 2: {
        const int64_t by = is_float_value ? r.between(-1, 1) : r.between(-3, 3);
        update(to.v, by);
        return line("{} *= {};", to.name, by);
      }
      case 3: {
        const Items items = some_items(r, shape);
        const int64_t v = r.between(-99, 99);
        write(to.v, items, v);
        return line("{}.set_({}, {});", to.name, text(items), v);
      }
      case 4: {
        // From another place of the same tensor, shifted along the first axis.
        if (shape.empty() || shape[0] < 2) return;
        const int64_t by = r.between(1, shape[0] - 1);
        Items here(1), there(1);
        here[0].slice.begin = by;
        there[0].slice.end = -by;
        if (r.chance(2)) std::swap(here, there);
        if (r.chance(2)) {  // and backwards
          const auto [begin, count] = range_of(there[0].slice, shape[0]);
          there[0].slice = {begin + count - 1, begin ? std::optional(begin - 1) : std::nullopt, -1};
        }
        write(to.v, here, taken(to.v, there));
        return line("{}.set_({}, lz::getitem({}, {}));", to.name, text(here), to.name, text(there));
      }
      default: {
        const Items items = some_items(r, shape);
        const Value part{taken(to.v, items),
                         fmt::format("lz::getitem({}, {})", to.name, text(items))};
        const Value b = operand(r, part);
        write(to.v, items, b.v);
        return line("{}.set_({}, {});", to.name, text(items), b.name);
      }
    }
  }

  Value& any(OrderRandom& r) {
    return variables_[static_cast<size_t>(r.below(static_cast<int64_t>(variables_.size())))];
  }

  void statement(uint64_t seed) {
    OrderRandom r(seed);
    switch (r.below(20)) {
      case 0:
        return fresh(r, r.chance(2) ? DType::I64 : DType::F64, some_shape(r));
      case 1:
      case 2: {
        const Value a = any(r);
        return add(a.v, a.name);  // another name of the same tensor
      }
      case 3:
      case 4:
      case 5: {
        const Value e = expression(r, any(r));
        return add(e.v, e.name);
      }
      case 6:
        return read(static_cast<size_t>(r.below(static_cast<int64_t>(variables_.size()))));
      case 7:
      case 8: {
        std::vector<V> all;
        std::vector<std::string> names;
        for (int64_t n = r.between(1, 3); n > 0; n--) {
          const Value& a = any(r);
          all.push_back(a.v);
          names.push_back(a.name);
        }
        line("lz::realize({});", fmt::join(names, ", "));
        return compute(all);
      }
      case 9:
        return failing(r);
      case 10:
        return define(r, seed);
      case 11:
      case 12:
      case 13:
        return call(r);
      default:
        return mutation(r, any(r));
    }
  }

  void read(size_t i) {
    const Value& a = variables_[i];
    line("check({});  // {}", a.name, readings_.size());
    readings_.push_back({a.name, shape_of(a.v), values_of(a.v)});
  }

  // Refused where it is written, and nothing changes.
  void failing(OrderRandom& r) {
    Value& a = any(r);
    if constexpr (std::is_same_v<V, Tensor>) {
      const auto refused = [](auto f) {
        try {
          f();
        } catch (const UserError&) {
          return;
        }
        throw InternalError("a statement that is wrong was not refused");
      };
      Tensor& t = a.v;
      if (r.chance(2))
        refused([&] { t.set_(Indices(t.shape().size() + 1, Index(0)), 1); });
      else
        refused([&] { t.assign_(zeros({7, 1, 1, 1, 1, 1})); });
    }
    line("// a statement on {} that is refused", a.name);
  }

  void define(OrderRandom& r, uint64_t seed) {
    // One of the variables that always name the same tensor.
    const auto found = static_cast<size_t>(r.below(kFixed));
    const Value a = any(r), b = any(r);
    Step s{seed,  {shape_of(a.v), shape_of(b.v)}, {dtype_of(a.v), dtype_of(b.v)},
           found, shape_of(variables_[found].v),  dtype_of(variables_[found].v),
           {}};
    const auto body = [this, seed, found](V x, V y, bool interrupt) {
      return inside(seed, found, std::move(x), std::move(y), interrupt);
    };
    if constexpr (std::is_same_v<V, Tensor>) {
      s.call = [step = jit(body)](V& x, V& y, bool interrupt) mutable {
        return step(x, y, interrupt);
      };
    } else {
      s.call = body;
      write_step(s, steps_.size());
    }
    steps_.push_back(std::move(s));
  }

  // The body of a captured function. What it may name are its arguments and the tensor it finds.
  V inside(uint64_t seed, size_t found, V x, V y, bool interrupt) {
    std::vector<Value> own{{std::move(x), "x"}, {std::move(y), "y"}, variables_[found]};
    std::swap(own, variables_);
    struct Restore {
      std::vector<Value>&variables, &own;
      ~Restore() { std::swap(own, variables); }
    } restore{variables_, own};
    OrderRandom r(seed + 1);
    for (int64_t n = r.between(1, 4); n > 0; n--) mutation(r, any(r));
    if (interrupt) throw Interrupted();
    const Value e = expression(r, any(r));
    line("return {};", e.name);
    return e.v;
  }

  void write_step(const Step& s, size_t number) {
    line("auto f{} = lz::jit([&](lz::Tensor x, lz::Tensor y, bool interrupt) {{", number);
    indent_ = "  ";
    const auto stand_in = [](const Shape& shape, DType dtype) {
      return make_model(shape, dtype, Numbers(static_cast<size_t>(numel(shape))));
    };
    if constexpr (std::is_same_v<V, Model>) {
      const Value outside = variables_[s.finds];
      variables_[s.finds].v = stand_in(s.found_shape, s.found_dtype);
      inside(s.seed, s.finds, stand_in(s.shapes[0], s.dtypes[0]),
             stand_in(s.shapes[1], s.dtypes[1]), false);
      variables_[s.finds] = outside;
    }
    indent_.clear();
    line("}});  // throws before it returns if `interrupt`");
  }

  void call(OrderRandom& r) {
    if (steps_.empty()) return;
    const auto number = static_cast<size_t>(r.below(static_cast<int64_t>(steps_.size())));
    Step& s = steps_[number];
    const Value& outside = variables_[s.finds];
    if (shape_of(outside.v) != s.found_shape || dtype_of(outside.v) != s.found_dtype) return;
    std::vector<size_t> fitting[2];
    for (size_t k = 0; k < 2; k++) {
      for (size_t i = 0; i < variables_.size(); i++) {
        const Value& v = variables_[i];
        if (shape_of(v.v) == s.shapes[k] && dtype_of(v.v) == s.dtypes[k] && !same(v.v, outside.v))
          fitting[k].push_back(i);
      }
      if (fitting[k].empty()) return;
    }
    const auto pick = [&](size_t k) -> Value& {
      return variables_[fitting[k][static_cast<size_t>(
          r.below(static_cast<int64_t>(fitting[k].size())))]];
    };
    Value a = pick(0), b = pick(1);
    if (r.chance(6)) return interrupted_call(s, number, a, b);
    const std::string text = fmt::format("f{}({}, {}, false)", number, a.name, b.name);
    quiet_ = std::exchange(writes_text_, false);
    V result = s.call(a.v, b.v, false);
    writes_text_ = quiet_;
    if constexpr (std::is_same_v<V, Model>) result = std::make_shared<Array>(*result);
    add(std::move(result), text);
  }

  void interrupted_call(Step& s, size_t number, Value& a, Value& b) {
    line("try {{ f{}({}, {}, true); }} catch (...) {{}}", number, a.name, b.name);
    if constexpr (std::is_same_v<V, Tensor>) {
      try {
        s.call(a.v, b.v, true);
      } catch (const Interrupted&) {
        return;
      }
      throw InternalError("a captured function that throws returned");
    }
  }

  bool writes_text_, quiet_ = false;
  std::string text_, indent_;
  std::vector<Value> variables_;
  std::vector<Step> steps_;
  std::vector<Reading> readings_;
  size_t next_ = 0;
};

// An empty string, or what is wrong.
std::string compare_devices(const std::vector<uint64_t>& program) {
  World<Model> model(false);
  model.run(program);
  World<Tensor> tensors(false);
  try {
    tensors.run(program);
  } catch (const std::exception& e) {
    return fmt::format("throws: {}", e.what());
  }
  for (size_t i = 0; i < model.readings().size(); i++) {
    const Reading &want = model.readings()[i], &got = tensors.readings().at(i);
    if (got.shape != want.shape)
      return fmt::format("reading {}, {}: shape {}, not {}", i, want.name, to_string(got.shape),
                         to_string(want.shape));
    if (got.values != want.values)
      return fmt::format("reading {}, {} of shape {}: {}, not {}", i, want.name,
                         to_string(got.shape), fmt::join(got.values, " "),
                         fmt::join(want.values, " "));
  }
  return "";
}

// A shorter program that is wrong still.
std::vector<uint64_t> shortened(std::vector<uint64_t> program) {
  for (size_t piece = program.size() / 2; piece > 0; piece /= 2) {
    for (size_t at = 0; at + piece <= program.size();) {
      std::vector<uint64_t> less = program;
      less.erase(less.begin() + static_cast<ptrdiff_t>(at),
                 less.begin() + static_cast<ptrdiff_t>(at + piece));
      if (compare_devices(less).empty())
        at += piece;
      else
        program = std::move(less);
    }
  }
  return program;
}

void fuzz(const char* device, double part) {
  Config config;
  config.device = device;
  Runtime runtime(config);
  const Runtime::Use use(runtime);
  const uint64_t first = test::first_seed();
  const test::FuzzTime time(part);
  uint64_t seed = first;
  size_t readings = 0;
  for (; time.left(); seed++) {
    std::mt19937_64 bits(seed);
    std::vector<uint64_t> program(5 + seed % 30);
    for (uint64_t& s : program) s = bits();
    std::string wrong = compare_devices(program);
    if (wrong.empty()) {
      readings += program.size();
      continue;
    }
    program = shortened(program);
    World<Model> shown(true);
    shown.run(program);
    FAIL_CHECK(fmt::format("FUZZ_SEED={} on {}: {}\n{}", seed, device, compare_devices(program),
                           shown.program()));
    if (seed - first > 200) break;
  }
  MESSAGE(fmt::format("{} programs, {} statements on {} from FUZZ_SEED={}", seed - first, readings,
                      device, first));
}

}  // namespace

TEST_SUITE("fuzz") {
  TEST_CASE("random programs of assignments, views and captured steps follow their order") {
    fuzz("reference", 0.1);
  }

  TEST_CASE("random programs of assignments follow their order on the cpu" *
            doctest::skip(!LAZULI_LLVM)) {
    fuzz("cpu", 0.2);
  }
}

}  // namespace lazuli::order
