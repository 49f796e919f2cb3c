#include "ir/simplify.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/graph.h"
#include "core/ops_creation.h"
#include "core/ops_reduce.h"
#include "core/ops_softmax.h"
#include "core/ops_sort.h"
#include "ir/math.h"
#include "ir/simplify_rules.h"
#include "runtime/reference/reference.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/run_plan.h"

namespace lazuli {
namespace {

using test::Elements;
using test::ew;

// Zeros of both signs, infinities, NaN and a few numbers.
NodeRef special(Shape shape, int64_t turn = 0) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double values[] = {0.0,       -0.0,       1,
                           -1,        2.5,        -3.25,
                           kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
  Elements v;
  for (int64_t i = 0; i < numel(shape); i++)
    v.push_back(to_bits(Scalar(values[(i * 5 + turn) % 9]), DType::F32));
  return test::buffer_of(DType::F32, std::move(shape), v);
}

// Small integers, whose sums are exact in any order.
NodeRef small_integers(Shape shape, int64_t turn = 0) {
  Elements v;
  for (int64_t i = 0; i < numel(shape); i++)
    v.push_back(to_bits(Scalar(static_cast<double>((i * 7 + turn) % 11 - 5)), DType::F32));
  return test::buffer_of(DType::F32, std::move(shape), v);
}
NodeRef whole(Shape shape, DType t, int64_t turn = 0) {
  Elements v;
  for (int64_t i = 0; i < numel(shape); i++)
    v.push_back(to_bits(Scalar((i * 37 + turn) % 251 - 120), t));
  return test::buffer_of(t, std::move(shape), v);
}
NodeRef full(double v, DType t, Shape s) {
  return constant(Scalar(v), t, std::move(s));
}

// Where rows of `columns` elements go, `places` of an axis of `size`: all conditions written out,
// as a gradient writes them. Along the columns a place moves by `step`.
NodeRef places_of_rows(int64_t rows, int64_t columns, int64_t size, int64_t step = 1) {
  const Shape shape{rows, columns};
  const auto number = [&](int64_t v) { return full(static_cast<double>(v), DType::I64, shape); };
  Elements v;
  for (int64_t i = 0; i < rows; i++) v.push_back(static_cast<uint64_t>(i * 5 % (size + 2) - 1));
  const NodeRef row = expand(test::buffer_of(DType::I64, {rows, 1}, v), shape);
  const NodeRef column = detail::coordinate(shape, 1);
  const auto inside = [&](const NodeRef& n, int64_t end) {
    return ew(Op::And, {ew(Op::Le, {number(0), n}), ew(Op::Lt, {n, number(end)})});
  };
  const NodeRef flat =
      ew(Op::Add, {ew(Op::Mul, {row, number(columns)}), ew(Op::Mul, {column, number(step)})});
  return ew(Op::Where,
            {ew(Op::And, {inside(row, size), inside(column, columns)}), flat, number(-1)});
}

// Rows that are taken in chunks.
constexpr int64_t kScanRow = 1 << 17;

NodeRef along_long_row(const NodeRef& rows) {
  return expand(reshape(rows, {rows->shape[0], 1}), {rows->shape[0], kScanRow});
}
// sum exp(z - max z), as a softmax has it.
NodeRef sum_of_powers(const NodeRef& z) {
  const NodeRef most = along_long_row(reduce(Op::ReduceMax, z, {1}));
  return reduce(Op::ReduceAdd, ew(Op::Exp, {ew(Op::Sub, {z, most})}), {1});
}

struct RuleCase {
  const char* rule;
  NodeRef root;
};

std::vector<RuleCase> rule_cases() {
  const NodeRef x = special({4, 6}), y = special({4, 6}, 3), i = whole({4, 6}, DType::I32);
  const NodeRef a = small_integers({4, 6}), b = small_integers({6, 5}, 2),
                condition = ew(Op::Lt, {x, y});
  // One is outside, one selects a negative zero.
  const NodeRef places =
      expand(test::buffer_of(DType::I64, {4, 1}, {0, 1, static_cast<uint64_t>(-2), 5}), {4, 6});
  const NodeRef none = full(0.0, DType::F32, {4, 6});
  const NodeRef row = expand(special({1, 6}), {4, 6}), row2 = expand(special({1, 6}, 4), {4, 6});
  const NodeRef outer = ew(Op::Mul, {expand(reshape(a, {4, 1, 6}), {4, 5, 6}),
                                     expand(reshape(permute(b, {1, 0}), {1, 5, 6}), {4, 5, 6})});
  const NodeRef outer2 =
      ew(Op::Mul, {expand(small_integers({4, 1, 6}, 8), {4, 5, 6}), outer->src[1]});
  const NodeRef empty = test::buffer_of(DType::F32, {0, 3}, {});
  // A product with the places of windows last: its sums, unwound and summed again, are an input
  // gradient.
  const NodeRef product = ew(Op::Mul, {expand(small_integers({1, 3, 4, 1}), {2, 3, 4, 2}),
                                       expand(small_integers({2, 3, 1, 2}, 5), {2, 3, 4, 2})});
  const NodeRef unwound = unwindow(reduce(Op::ReduceAdd, product, {1}), 1, 5, 1, 1);
  // Weights that are exact: exponentials of 0 and -inf, two of each in a row.
  Elements exponents;
  for (int64_t k = 0; k < 16; k++) {
    const double e = k % 4 < 2 ? 0 : -std::numeric_limits<double>::infinity();
    exponents.push_back(to_bits(Scalar(e), DType::F32));
  }
  const NodeRef logits = test::buffer_of(DType::F32, {4, 4}, exponents);
  const auto along_rows = [](const NodeRef& x) { return expand(reshape(x, {4, 1}), {4, 4}); };
  const NodeRef most = along_rows(reduce(Op::ReduceMax, logits, {1}));
  const NodeRef powers = ew(Op::Exp, {ew(Op::Sub, {logits, most})});
  const NodeRef weights = ew(Op::Div, {powers, along_rows(reduce(Op::ReduceAdd, powers, {1}))});
  const NodeRef weighted = ew(Op::Mul, {expand(reshape(weights, {4, 1, 4}), {4, 3, 4}),
                                        expand(small_integers({1, 3, 4}), {4, 3, 4})});
  // Long rows: 0 or -inf; with a NaN; the largest late and more than once.
  Elements steps, late;
  for (int64_t k = 0; k < 2 * kScanRow; k++) {
    const double e = k % 3 < 2 ? 0 : -std::numeric_limits<double>::infinity();
    steps.push_back(to_bits(Scalar(e), DType::F32));
    late.push_back(to_bits(Scalar(k % 70001 == 65000 ? 9 : k % 7), DType::F32));
  }
  const NodeRef long_steps = test::buffer_of(DType::F32, {2, kScanRow}, steps);
  const NodeRef long_late = test::buffer_of(DType::F32, {2, kScanRow}, late);
  const NodeRef long_whole = whole({2, kScanRow}, DType::I32);
  const NodeRef long_special = special({2, kScanRow});
  return {
      {"extremes of chunks", reduce(Op::ReduceMax, long_special, {1})},
      {"extremes of chunks", reduce(Op::ReduceMin, long_whole, {1})},
      {"exponentials of chunks", sum_of_powers(long_steps)},
      {"find the chunk first", argmax(Tensor(long_late), 1).node()},
      {"find the chunk first", argmin(Tensor(long_whole), 1).node()},
      {"find the chunk first", argmax(Tensor(long_special), 1).node()},
      {"strip what only the graph needs", ew(Op::Neg, {fresh(detach(x))})},
      {"an array without elements is a constant", ew(Op::Exp, {empty})},
      {"what reads no element is a constant", reduce(Op::ReduceMax, empty, {0})},
      {"fold constants", ew(Op::Exp, {full(1, DType::F32, {3})})},
      {"drop a neutral operand", ew(Op::Mul, {full(1, DType::F32, {4, 6}), x})},
      {"drop a neutral operand", ew(Op::Sub, {x, full(0, DType::F32, {4, 6})})},
      {"drop a neutral operand", ew(Op::Add, {x, full(-0.0, DType::F32, {4, 6})})},
      {"drop a neutral operand", ew(Op::Add, {full(0, DType::I32, {4, 6}), i})},
      {"an absorbing operand is the result", ew(Op::Mul, {i, full(0, DType::I32, {4, 6})})},
      {"choose between equals", ew(Op::Max, {x, x})},
      {"decide a constant condition", ew(Op::Where, {full(1, DType::Bool, {4, 6}), x, y})},
      {"decide a constant condition", ew(Op::Where, {ew(Op::Not, {condition}), x, y})},
      {"negate twice", ew(Op::Neg, {ew(Op::Neg, {x})})},
      {"absorb signs", ew(Op::Add, {x, ew(Op::Neg, {y})})},
      {"absorb signs", ew(Op::Mul, {ew(Op::Neg, {x}), ew(Op::Neg, {y})})},
      {"cast at once", cast(cast(i, DType::F64), DType::F32)},
      {"bitcast at once", bitcast(bitcast(x, DType::I32), DType::U32)},
      {"a condition as a number as a condition",
       ew(Op::Ne, {cast(condition, DType::I32), full(0, DType::I32, {4, 6})})},
      {"sort where only the elements are read", sort(Tensor(x)).values.node()},
      {"a moved constant is a constant", flip(full(2, DType::F32, {3}), {0})},
      {"an exponential that cannot overflow", ew(Op::Exp, {ew(Op::Neg, {ew(Op::Abs, {x})})})},
      {"an exponential that cannot overflow", powers},
      {"compose two of a kind", permute(permute(special({2, 3, 4}), {1, 2, 0}), {1, 2, 0})},
      {"compose two of a kind", flip(flip(x, {0}), {0, 1})},
      {"compose two of a kind", shrink(shrink(x, {1, 4, 0, 6}), {0, 2, 2, 5})},
      {"compose two of a kind", pad(pad(x, {1, 0, 0, 0}), {1, 1, 0, 2})},
      {"cut padding away", shrink(pad(x, {1, 1, 2, 0}), {1, 4, 3, 8})},
      {"cut padding away", shrink(pad(x, {2, 2, 0, 0}), {0, 3, 1, 5})},
      {"cut padding away", shrink(pad(x, {2, 2, 0, 0}), {0, 2, 1, 5})},
      {"pad first", pad(permute(special({2, 3, 4}), {2, 0, 1}), {1, 2, 0, 0, 3, 0})},
      {"pad first", pad(flip(x, {1}), {1, 0, 2, 3})},
      {"pad first", pad(window(x, 1, 3, 2, 1), {1, 1, 0, 0, 0, 0})},
      {"pad first", pad(reshape(x, {1, 4, 1, 6}), {0, 0, 1, 0, 0, 0, 0, 2})},
      {"take a part first", shrink(ew(Op::Exp, {x}), {1, 3, 0, 6})},
      {"take a part first", shrink(reduce(Op::ReduceMax, special({3, 4, 5}), {1}), {1, 3, 2, 4})},
      {"take a part first", shrink(permute(special({2, 3, 4}), {2, 0, 1}), {1, 3, 0, 1, 1, 3})},
      {"take a part first", shrink(flip(x, {1}), {0, 4, 1, 4})},
      {"take a part first", shrink(window(x, 1, 2, 2, 2), {1, 3, 1, 2, 0, 2})},
      {"windows side by side", window(x, 1, 2, 2, 1)},
      {"windows side by side", window(x, 0, 3, 3, 1)},
      {"permuting units is reshaping", permute(reshape(x, {4, 1, 6}), {1, 0, 2})},
      {"move before repeating", permute(row, {1, 0})},
      {"move before repeating", reshape(row, {4, 1, 6})},
      {"move before repeating", reshape(row, {1, 4, 2, 1, 3})},
      {"move before repeating", reshape(expand(special({2, 1, 1, 3}), {2, 4, 5, 3}), {2, 20, 3})},
      {"move along other axes before repeating", flip(pad(row, {0, 0, 1, 1}), {0, 1})},
      {"move along other axes before repeating", shrink(row, {1, 3, 2, 5})},
      {"units cannot be flipped", flip(reshape(x, {4, 1, 6}), {1, 2})},
      {"compute before repeating", ew(Op::Div, {row, row2})},
      {"split before permuting", reshape(permute(x, {1, 0}), {2, 3, 4})},
      {"permute before merging", permute(reshape(special({2, 3, 4}), {6, 4}), {1, 0})},
      {"compute before permuting", ew(Op::Add, {permute(x, {1, 0}), permute(y, {1, 0})})},
      {"compute before permuting",
       ew(Op::Max, {permute(x, {1, 0}), expand(special({6, 1}), {6, 4})})},
      {"repeat in another order",
       permute(ew(Op::Mul, {row, expand(special({4, 1}, 2), {4, 6})}), {1, 0})},
      {"merge axes after computing",
       ew(Op::Max,
          {reshape(ew(Op::Mul, {expand(special({4, 3, 1}), {4, 3, 2}), special({4, 3, 2}, 1)}),
                   {4, 6}),
           x})},
      {"pad after choosing",
       ew(Op::Where, {condition, none, pad(ew(Op::Exp, {special({3, 5})}), {1, 0, 0, 1})})},
      {"pad after choosing",
       ew(Op::Where, {condition, pad(ew(Op::Neg, {special({2, 6})}), {1, 1, 0, 0}), none})},
      {"reduce instead of permuting",
       reduce(Op::ReduceMax, permute(special({2, 3, 4}), {2, 0, 1}), {0})},
      {"unwindow by window", unwindow(expand(reshape(x, {4, 6, 1}), {4, 6, 3}), 1, 14, 2, 2)},
      {"unwindow by window", unwindow(expand(reshape(x, {4, 6, 1}), {4, 6, 3}), 1, 4, 1, 1)},
      {"do not reduce one element", reduce(Op::ReduceMax, reshape(x, {4, 1, 6}), {1, 2})},
      {"reduce what repeats by counting",
       reduce(Op::ReduceAdd, expand(small_integers({1, 6}), {4, 6}), {0, 1})},
      {"reduce what repeats by counting", reduce(Op::ReduceMax, row, {0})},
      {"reduce before repeating", reduce(Op::ReduceMax, row, {1})},
      {"read what one index selects",
       reduce(Op::ReduceAdd,
              ew(Op::Where, {ew(Op::Eq, {detail::coordinate({4, 6}, 1), places}), x, none}), {1})},
      {"read what one index selects",
       reduce(Op::ReduceAdd,
              ew(Op::Where, {ew(Op::Eq, {places, detail::coordinate({4, 6}, 1)}), x, none}), {1})},
      {"sum, then negate", reduce(Op::ReduceAdd, ew(Op::Neg, {a}), {1})},
      {"sum no padding", reduce(Op::ReduceAdd, pad(a, {0, 0, 2, 1}), {1})},
      {"sum no padding", reduce(Op::ReduceAdd, pad(special({3, 5}), {0, 0, 2, 1}), {1})},
      {"sum no padding", reduce(Op::ReduceAdd, pad(a, {1, 2, 0, 3}), {1})},
      {"sum no padding",
       reduce(Op::ReduceAdd, pad(small_integers({2, 3, 4}), {1, 0, 0, 2, 3, 1}), {0, 2})},
      {"sum each product", reduce(Op::ReduceAdd, ew(Op::Add, {outer, outer2}), {2})},
      {"divide last", reduce(Op::ReduceAdd, weighted, {2})},
      {"sum once",
       reduce(Op::ReduceAdd, reshape(reduce(Op::ReduceAdd, small_integers({2, 3, 4}), {1}), {4, 2}),
              {0})},
      {"sum once", reduce(Op::ReduceAdd, unwound, {2})},
      {"sum spread windows by residues",
       reduce(Op::ReduceAdd, unwindow(small_integers({4, 3, 2}), 0, 11, 3, 1), {2})},
      {"sum spread windows by residues",
       reduce(Op::ReduceAdd, unwindow(small_integers({4, 3, 2}), 0, 7, 2, 1), {2})},
      {"sum spread windows by residues",
       reduce(Op::ReduceAdd, unwindow(small_integers({4, 3, 2}), 1, 9, 2, 1), {2})},
      {"sum spread windows by residues",
       reduce(Op::ReduceAdd, unwindow(small_integers({4, 3, 5}), 0, 12, 2, 1), {2})},
      {"sum spread windows by residues",
       reduce(Op::ReduceAdd, unwindow(small_integers({3, 4, 6}), 1, 15, 3, 1), {2})},
      {"sum spread windows by residues",
       reduce(Op::ReduceAdd,
              unwindow(permute(reduce(Op::ReduceAdd,
                                      unwindow(small_integers({3, 4, 3, 5}), 1, 9, 2, 1), {3}),
                               {0, 1, 2}),
                       0, 7, 2, 1),
              {2})},
      {"scatter rows by their first places",
       scatter(small_integers({6, 9}), places_of_rows(40, 9, 6), small_integers({40, 9}, 3),
               Combine::Add)},
      {"scatter rows by their first places",
       scatter(small_integers({6, 9}), places_of_rows(7, 9, 6), small_integers({7, 9}, 3),
               Combine::Set)},
      {"move the factors", reduce(Op::ReduceAdd, flip(outer, {2}), {2})},
      {"move the factors", reduce(Op::ReduceAdd, unwindow(product, 2, 5, 1, 1), {3})},
      {"reduce once", reduce(Op::ReduceMax, reduce(Op::ReduceMax, special({2, 3, 4}), {1}), {0})},
  };
}

Elements evaluate_graph(const NodeRef& root) {
  const NodeRef n = root;
  const bool computed = !n->realised();
  if (computed) realize_reference({&n, 1});
  Elements v = test::elements(*n);
  if (computed) n->set_storage(nullptr);  // rules do not look below a realised node
  return v;
}

TEST_SUITE_BEGIN("ir");

TEST_CASE("a permutation of what others read too comes to rest") {
  const NodeRef column = expand(special({4, 1}), {4, 3}), other = expand(special({4, 1}, 5), {4, 3});
  const NodeRef m = ew(Op::Add, {column, expand(special({1, 3}, 2), {4, 3})});
  const NodeRef roots[] = {permute(ew(Op::Mul, {m, other}), {1, 0}), m};
  const std::vector<NodeRef> simple = simplify(roots);
  for (size_t i = 0; i < 2; i++) {
    CHECK(test::difference(DType::F32, evaluate_graph(simple[i]), evaluate_graph(roots[i])) == 0);
  }
}

TEST_CASE("every rule applies to its example, and the value keeps its bits") {
  std::set<std::string> seen;
  for (const RuleCase& c : rule_cases()) {
    CAPTURE(std::string(c.rule));
    std::vector<std::string> trace;
    const NodeRef root = c.root;
    const NodeRef simple = simplify({&root, 1}, &trace)[0];
    bool applied = false;
    for (const std::string& t : trace) applied |= t.starts_with(std::string(c.rule) + ":");
    CHECK(applied);
    CHECK(simple->shape == root->shape);
    CHECK(simple->dtype == root->dtype);
    const Elements got = evaluate_graph(simple), want = evaluate_graph(root);
    CHECK(test::difference(root->dtype, got, want) == 0);
    if (root->dtype == DType::F32) {
      // Zeros keep their signs too; NaN has many spellings.
      for (size_t k = 0; k < want.size(); k++) {
        const bool nan = (want[k] & 0x7fffffff) > 0x7f800000;
        CHECK((nan || got[k] == want[k]));
      }
    }
    seen.insert(c.rule);
  }
  for (const auto& table : {algebra_rules(), movement_rules(), reduction_rules()}) {
    for (const Rule& rule : table) {
      CAPTURE(std::string(rule.name));
      CHECK(seen.count(rule.name) == 1);
    }
  }
}

TEST_CASE("rows are scattered by their first places only where these say all") {
  const auto shape_of_places = [](const NodeRef& places, const Shape& base) {
    const NodeRef root =
        scatter(small_integers(base), places, small_integers(places->shape), Combine::Add);
    const NodeRef simple = simplify({&root, 1})[0];
    CHECK(test::difference(DType::F32, evaluate_graph(simple), evaluate_graph(root)) == 0);
    return simple->src[1]->shape;
  };
  CHECK(shape_of_places(places_of_rows(5, 9, 6), {6, 9}) == Shape{5, 1});
  // Short rows, every second element, rows backwards, and an axis that is turned.
  CHECK(shape_of_places(places_of_rows(5, 7, 6), {6, 7}) == Shape{5, 7});
  CHECK(shape_of_places(places_of_rows(5, 9, 6, 2), {6, 18}) == Shape{5, 9});
  CHECK(shape_of_places(places_of_rows(5, 9, 6, -1), {6, 9}) == Shape{5, 9});
  CHECK(shape_of_places(permute(places_of_rows(9, 10, 6), {1, 0}), {6, 10}) == Shape{10, 9});
  // A part of each row, and places that are an array.
  const NodeRef whole_rows = places_of_rows(5, 9, 6), column = detail::coordinate({5, 9}, 1);
  const NodeRef some = ew(Op::Lt, {column, full(7, DType::I64, {5, 9})});
  const NodeRef none = full(-1, DType::I64, {5, 9});
  CHECK(shape_of_places(ew(Op::Where, {some, whole_rows, none}), {6, 9}) == Shape{5, 9});
  CHECK(shape_of_places(whole({5, 9}, DType::I64), {6, 9}) == Shape{5, 9});
  // Many ways through few nodes, which nobody walks all: 2^60 of them.
  NodeRef twice = column;
  for (int i = 0; i < 60; i++) twice = ew(Op::Add, {twice, twice});
  const NodeRef row = expand(small_integers({5, 1}), {5, 9}), zero = full(0, DType::F32, {5, 9});
  const NodeRef places = ew(Op::Where, {ew(Op::Lt, {row, zero}), twice, none});
  CHECK(shape_of_places(places, {6, 9}) == Shape{5, 9});
}

TEST_CASE("what is simple stays as it is") {
  for (uint64_t seed = 0; seed < 200; seed++) {
    CAPTURE(seed);
    const std::vector<NodeRef> roots = test::random_graph(seed, 30);
    const std::vector<NodeRef> once = simplify(roots), twice = simplify(once);
    for (size_t i = 0; i < roots.size(); i++) CHECK(twice[i].get() == once[i].get());
  }
}

// Rows 8 to 16 of what `ops` sines make of an array of 64.
NodeRef rows_of_sines(int ops) {
  NodeRef n = special({64, 2});
  for (int i = 0; i < ops; i++) n = ew(Op::Sin, {n});
  return shrink_axis(n, 0, 8, 16);
}

TEST_CASE("a slice reaches the leaves of a deep graph") {
  for (const int ops : {47, 48, 49, 200, 1000}) {
    CAPTURE(ops);
    const NodeRef root = rows_of_sines(ops);
    bool settled = false;
    const NodeRef simple = simplify({&root, 1}, nullptr, &settled)[0];
    CHECK(settled);
    const std::vector<NodeRef> nodes = topological({&simple, 1});
    CHECK(std::count_if(nodes.begin(), nodes.end(), [](const NodeRef& n) {
            return n->op == Op::Sin && n->shape == Shape{8, 2};
          }) == ops);
    CHECK(simplify({&simple, 1})[0].get() == simple.get());
  }
}

TEST_CASE("a graph too large for more passes is said not to be settled") {
  const NodeRef root = rows_of_sines(60'000);
  bool settled = true;
  simplify({&root, 1}, nullptr, &settled);
  CHECK(!settled);
}

TEST_CASE("a checkpoint keeps the cone over it apart from the original") {
  const NodeRef x = special({4, 6});
  const NodeRef again = make({.op = Op::Checkpoint,
                              .dtype = x->dtype,
                              .shape = x->shape,
                              .arg = next_serial(),
                              .src = {x}});
  const std::vector<NodeRef> roots{ew(Op::Exp, {x}), ew(Op::Exp, {again})};
  const std::vector<NodeRef> simple = simplify(roots);
  CHECK(simple[0].get() != simple[1].get());
}

TEST_CASE("weights are divided first where their exponentials may be large") {
  const Elements large(16, to_bits(Scalar(85.0), DType::F32));
  const NodeRef powers = ew(Op::Exp, {test::buffer_of(DType::F32, {4, 4}, large)});
  const NodeRef sums = expand(reshape(reduce(Op::ReduceAdd, powers, {1}), {4, 1}), {4, 4});
  const NodeRef weights = ew(Op::Div, {powers, sums});
  const NodeRef hundred = constant(100, DType::F32, {4, 4});
  const NodeRef root = reduce(Op::ReduceAdd, ew(Op::Mul, {weights, hundred}), {1});
  const Elements got = evaluate_graph(simplify({&root, 1})[0]);
  for (uint64_t bits : got) CHECK(from_bits(bits, DType::F32).as_double() == 100);
}

TEST_CASE("a maximum taken off along another axis does not bound the exponentials") {
  Elements places;
  for (int64_t k = 0; k < 16; k++) {
    places.push_back(to_bits(Scalar(9.6 * static_cast<double>(k)), DType::F32));
  }
  const NodeRef z = test::buffer_of(DType::F32, {4, 4}, places);
  const NodeRef most = expand(reshape(reduce(Op::ReduceMax, z, {1}), {1, 4}), {4, 4});
  const NodeRef powers = ew(Op::Exp, {ew(Op::Sub, {z, most})});
  const NodeRef sums = expand(reshape(reduce(Op::ReduceAdd, powers, {1}), {4, 1}), {4, 4});
  const NodeRef million = constant(1e6, DType::F32, {4, 4});
  const NodeRef product = ew(Op::Mul, {ew(Op::Div, {powers, sums}), million});
  const NodeRef root = reduce(Op::ReduceAdd, product, {1});
  for (uint64_t bits : evaluate_graph(simplify({&root, 1})[0])) {
    CHECK(from_bits(bits, DType::F32).as_double() == doctest::Approx(1e6));
  }
}

TEST_CASE("only exponentials of what is not positive are promised to be") {
  const NodeRef x = special({4, 6}), y = special({4, 6}, 3), minus = full(-0.5, DType::F32, {4, 6});
  const NodeRef zero = full(0.0, DType::F32, {4, 6}), square = ew(Op::Mul, {x, x});
  const auto along = [](const NodeRef& rows) { return expand(reshape(rows, {4, 1}), {4, 6}); };
  const NodeRef top = reduce(Op::ReduceMax, x, {1});
  const auto off = [&](const NodeRef& from) { return ew(Op::Sub, {x, along(from)}); };
  // The greatest of a row, or another number where `limit` stands.
  const auto replaced = [&](Op compare, double limit) {
    const NodeRef at = ew(compare, {top, full(limit, DType::F32, {4})});
    return ew(Op::Where, {at, full(0.0, DType::F32, {4}), top});
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const NodeRef wide = special({4, 4});
  const NodeRef columns = expand(reshape(reduce(Op::ReduceMax, wide, {1}), {1, 4}), {4, 4});
  const NodeRef promised[] = {
      ew(Op::Neg, {square}),
      ew(Op::Mul, {ew(Op::Mul, {minus, x}), x}),
      ew(Op::Mul, {x, ew(Op::Mul, {y, ew(Op::Mul, {ew(Op::Mul, {y, minus}), x})})}),
      ew(Op::Min, {x, zero}),
      ew(Op::Sub, {minus, square}),
      expand(reshape(ew(Op::Neg, {reduce(Op::ReduceAdd, square, {1})}), {4, 1}), {4, 6}),
      off(top),
      off(replaced(Op::Eq, -infinity)),
  };
  const NodeRef others[] = {
      x,
      square,
      ew(Op::Mul, {ew(Op::Mul, {minus, x}), y}),
      ew(Op::Max, {x, zero}),
      ew(Op::Sub, {square, minus}),
      ew(Op::Sub, {y, along(top)}),
      off(reduce(Op::ReduceMin, x, {1})),
      off(replaced(Op::Eq, infinity)),
      off(replaced(Op::Lt, 0)),
      ew(Op::Sub, {wide, columns}),
  };
  const auto is_promised = [](const NodeRef& of) {
    const NodeRef root = ew(Op::Exp, {of});
    const std::vector<NodeRef> simple = simplify({&root, 1});
    for (const NodeRef& n : topological(simple)) {
      if (n->op == Op::Exp) return is_not_positive_exp(*n);
    }
    return false;
  };
  for (const NodeRef& n : promised) CHECK(is_promised(n));
  for (const NodeRef& n : others) CHECK(!is_promised(n));
}

TEST_CASE("exponentials of chunks meet every kind of row") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // Far below zero with a chunk of nothing; nothing at all; an infinity; a NaN; plain numbers.
  const auto element = [](int64_t row, int64_t k) -> double {
    const bool first = k < 2048, one = k == 70000;
    switch (row) {
      case 0:
        return first ? -kInfinity : -300 - static_cast<double>(k % 5);
      case 1:
        return -kInfinity;
      case 2:
        return one ? kInfinity : 1;
      case 3:
        return one ? std::numeric_limits<double>::quiet_NaN() : 1;
      default:
        return static_cast<double>(k % 1000) * 0.01;
    }
  };
  Elements values;
  for (int64_t k = 0; k < 5 * kScanRow; k++) {
    values.push_back(to_bits(Scalar(element(k / kScanRow, k % kScanRow)), DType::F32));
  }
  const NodeRef z = test::buffer_of(DType::F32, {5, kScanRow}, values);
  for (const NodeRef& root : {sum_of_powers(z), logsumexp(Tensor(z), {1}).node()}) {
    std::vector<std::string> trace;
    const NodeRef simple = simplify({&root, 1}, &trace)[0];
    CHECK(std::any_of(trace.begin(), trace.end(), [](const std::string& t) {
      return t.starts_with("exponentials of chunks:");
    }));
    const Elements got = evaluate_graph(simple), want = evaluate_graph(root);
    for (size_t row = 0; row < 5; row++) {
      CAPTURE(row);
      const double g = from_bits(got[row], DType::F32).as_double();
      const double w = from_bits(want[row], DType::F32).as_double();
      CHECK(((std::isnan(g) && std::isnan(w)) || g == w || g == doctest::Approx(w)));
    }
  }
}

TEST_CASE("rows that are short, divide badly or are costly to read twice stay whole") {
  const auto holds_chunks = [](const NodeRef& root) {
    std::vector<std::string> trace;
    simplify({&root, 1}, &trace);
    return std::any_of(trace.begin(), trace.end(),
                       [](const std::string& t) { return t.find("chunk") != std::string::npos; });
  };
  CHECK(holds_chunks(reduce(Op::ReduceMax, small_integers({2, kScanRow}), {1})));
  CHECK(!holds_chunks(reduce(Op::ReduceMax, small_integers({2, kScanRow / 2}), {1})));
  CHECK(!holds_chunks(reduce(Op::ReduceMax, small_integers({2, 131101}), {1})));  // a prime
  CHECK(!holds_chunks(reduce(Op::ReduceMax, small_integers({kScanRow, 2}), {0})));
  const NodeRef product = ew(Op::Mul, {expand(small_integers({1, kScanRow, 2}), {2, kScanRow, 2}),
                                       expand(small_integers({2, 1, 2}), {2, kScanRow, 2})});
  CHECK(!holds_chunks(reduce(Op::ReduceMax, reduce(Op::ReduceAdd, product, {2}), {1})));
}

TEST_CASE("the input gradient of a convolution is one sum of products") {
  const NodeRef product = ew(Op::Mul, {expand(small_integers({1, 3, 4, 1}), {2, 3, 4, 2}),
                                       expand(small_integers({2, 3, 1, 2}, 5), {2, 3, 4, 2})});
  const NodeRef root =
      reduce(Op::ReduceAdd, unwindow(reduce(Op::ReduceAdd, product, {1}), 1, 5, 1, 1), {2});
  const NodeRef simple = simplify({&root, 1})[0];
  CHECK(simple->op == Op::ReduceAdd);
  CHECK(simple->src[0]->op == Op::Mul);
  for (const NodeRef& n : topological({&simple, 1})) CHECK(n->op != Op::Unwindow);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
