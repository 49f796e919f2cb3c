#include "ir/lower.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <random>

#include "core/error.h"
#include "ir/index.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

// A random schedule: splits, orders and kinds of loops, attachment and scopes. Many are not legal.
class RandomSchedule {
 public:
  explicit RandomSchedule(unsigned seed) : random_(seed) {}

  void apply(Kernel& k) {
    const size_t count = k.stages.size();
    for (size_t i = 0; i < count; i++) loops(k, *k.stages[i]);
    for (size_t i = 0; i + 1 < count; i++) {
      Stage* s = k.stages[i].get();
      if (pick(3) == 0) {
        scope(k, s, "shared");
        continue;
      }
      Stage* host = k.stages[i + 1 + pick(count - i - 1)].get();
      if (host->loops.empty()) {
        scope(k, s, "shared");
        continue;
      }
      apply_schedule(k, fmt::format("at {} {} {}", s->name, host->name,
                                    host->loops[pick(host->loops.size())].name));
      scope(k, s, pick(3) ? "scratch" : "reg");
    }
  }

 private:
  size_t pick(size_t n) { return random_() % n; }

  void scope(Kernel& k, Stage* s, const char* where) {
    std::vector<std::string> names;
    for (const Value& v : s->values) {
      if (v.slot < 0) names.push_back(v.name);
    }
    for (const std::string& n : names) apply_schedule(k, fmt::format("scope {} {}", n, where));
  }

  void loops(Kernel& k, Stage& s) {
    std::string order, kinds;
    std::vector<std::string> outer, inner;
    const std::vector<Loop> whole = s.loops;
    for (const Loop& l : whole) {
      switch (pick(3)) {
        case 0:
          outer.push_back(l.name);
          break;
        default: {
          const int64_t factor = 1 + static_cast<int64_t>(pick(9));
          apply_schedule(k, fmt::format("split {0} {1} {1}.o {1}.i {2}", s.name, l.name, factor));
          if (pick(4) == 0) {  // all coarse parts at once
            outer.push_back(l.name + ".i");
            inner.push_back(l.name + ".o");
            kinds += fmt::format("unroll {} {}\n", s.name, l.name + ".o");
            continue;
          }
          outer.push_back(l.name + ".o");
          inner.push_back(l.name + ".i");
          if (pick(2))
            kinds += fmt::format("{} {} {}\n", pick(2) ? "unroll" : "ilp", s.name, l.name + ".i");
        }
      }
    }
    std::shuffle(outer.begin(), outer.end(), random_);
    std::shuffle(inner.begin(), inner.end(), random_);
    if (!whole.empty() && pick(2)) {
      // One axis gets a vector loop, innermost.
      const std::string l = whole.back().name;
      const bool split = std::find(inner.begin(), inner.end(), l + ".i") != inner.end();
      if (!split) {
        apply_schedule(k, fmt::format("split {0} {1} {1} {1}.v 8", s.name, l));
        inner.push_back(l + ".v");
        kinds += fmt::format("vector {} {}.v\n", s.name, l);
      }
    }
    for (const auto* list : {&outer, &inner}) {
      for (const std::string& l : *list) order += " " + l;
    }
    if (!order.empty()) apply_schedule(k, fmt::format("order {}{}\n{}", s.name, order, kinds));
    if (pick(2) && !outer.empty()) {
      std::string parallel;
      for (size_t n = 0; n <= pick(outer.size()); n++) parallel += " " + outer[n];
      apply_schedule(k, fmt::format("parallel {}{}", s.name, parallel));
    }
  }

  std::mt19937 random_;
};

Kernel small_kernel(size_t which) {
  switch (which % 11) {
    case 0:
      return test::softmax(4, 19);
    case 1:
      return test::matmul(7, 13, 5, false, true, true);
    case 2:
      return test::layer_norm(3, 17);
    case 3:
      return test::conv3x3(2, 3, 4, 9);
    case 4:
      return test::column_sum(9, 21);
    case 5:
      return test::attention(2, 9, 4, false);
    case 6:
      return test::cross_entropy(3, 11);
    case 7:
      return test::layer_norm_backward(6, 10, 3);
    case 8:
      return test::column_extremes(9, 21);
    case 9:
      return test::column_extremes(21, 9, DType::I8, Op::ReduceMin);
    default:
      return test::chain(3, 11, DType::F64);
  }
}

// out[row, i] = a chain of sums and products of the elements pick(q), q < terms, of x behind
// step * i; rows end with the last element.
Kernel windows_of(DType t, int64_t step, int64_t terms, int64_t n,
                  const std::function<int64_t(int64_t q)>& pick) {
  const int64_t row_elements = step * (n - 1) + terms;
  Kernel k;
  k.name = "windows";
  const int x = k.add_argument("x", t, 3 * row_elements, false),
            out = k.add_argument("out", t, 3 * n, true);
  const NodeRef row = axis("row", 3), i = axis("i", n);
  const NodeRef first = index_add(index_mul(row, row_elements), i, step);
  NodeRef sum;
  for (int64_t q = 0; q < terms; q++) {
    const NodeRef term = load(x, t, index_add(first, index_const(pick(q))));
    sum = sum ? scalar_op(q % 2 ? Op::Mul : Op::Add, t, {sum, term}) : term;
  }
  k.add_value(k.add_stage("out", {row, i}), "out", sum, {row, i}, Op::Count_, out);
  return k;
}

TEST_SUITE("ir") {
  TEST_CASE("storage in the order of loops is as large as what they cover") {
    Kernel k = test::matmul(6, 40, 20, false, false, false);
    // Of n.o and n.u, which have one stride, the second has one iteration.
    apply_schedule(k,
                   "pack C 1 B; split B n n.o n.u 8; split B n.u n.u n.v 8; order B n.o k n.u n.v; "
                   "vector B n.v; store B n.o k n.u n.v; scope B shared");
    CHECK(test::difference(k, Target()) == "");
    CHECK(lower(k, Target()).shared_bytes == (20 * 40 + 8) * 4 + 32);
  }

  TEST_CASE("parts of an axis are walked at once, and what is no whole part after them") {
    const char* const steps =
        "split C m m.o m 12; split C m m.p m 4; split C n n n.v 8; order C m.o m n k m.p n.v; "
        "unroll C m.p; vector C n.v; ";
    for (const int64_t rows : {24, 12, 31, 5, 3, 1}) {
      for (const char* end : {"", "parallel C m.o"}) {
        CAPTURE(rows);
        Kernel k = test::matmul(rows, 19, 5, false, false, false);
        apply_schedule(k, std::string(steps) + end);
        CHECK(test::difference(k, Target()) == "");
      }
    }
    Kernel k = test::matmul(24, 8, 5, false, false, false);
    apply_schedule(k, std::string(steps) + "parallel C m.o");
    const std::string text = print_program(lower(k, Target()));
    INFO(text);
    CHECK(text.find(" m in 0..4") != std::string::npos);
    CHECK(text.find(" k in 0..5") == text.rfind(" k in 0..5"));
    // Parts of what is summed, too.
    for (const int64_t terms : {48, 53, 9}) {
      Kernel sum = test::total_sum(terms);
      apply_schedule(sum, "split out i i.o i 16; order out i i.o; unroll out i.o");
      CHECK(test::difference(sum, Target()) == "");
    }
  }

  TEST_CASE("parallel loops have ragged ends beside each other") {
    const std::string steps =
        "split C m m.o m 4; split C n n.o n 24; split C n n n.v 8; order C m.o n.o m n k n.v; "
        "vector C n.v; parallel C m.o n.o";
    for (const int64_t rows : {3, 8, 11}) {
      for (const int64_t columns : {8, 48, 55, 71}) {
        CAPTURE(rows);
        CAPTURE(columns);
        Kernel k = test::matmul(rows, columns, 5, false, false, false);
        apply_schedule(k, steps);
        CHECK(test::difference(k, Target()) == "");
      }
    }
    Kernel k = test::matmul(11, 71, 5, false, false, false);
    apply_schedule(k, steps);
    const Program program = lower(k, Target());
    CHECK(program.phases[0].count == 9);
    CHECK(!program.phases[0].has_tail);
    // Where one axis is two of them, the inner one would have another end in the last of the outer.
    Kernel twice = test::matmul(11, 71, 5, false, false, false);
    apply_schedule(twice, "split C m m.o m 4; order C m.o m n k; parallel C m.o m");
    CHECK_THROWS_WITH_AS(lower(twice, Target()),
                         "lower matmul: parallel loop m.o of C has a ragged end beside another "
                         "parallel loop of its axis, or one that ends at a size; mark it alone",
                         UserError);
  }

  TEST_CASE("every schedule that is accepted computes the algorithm") {
    int accepted = 0, refused = 0;
    for (unsigned seed = 0; seed < 400; seed++) {
      Kernel k = small_kernel(seed);
      try {
        RandomSchedule(seed).apply(k);
        const std::string d = test::difference(k, Target());
        INFO("seed ", seed, "\n", k.schedule);
        CHECK_MESSAGE(d.empty(), d.substr(0, 200));
        accepted++;
      } catch (const UserError&) {
        refused++;
      }
    }
    CHECK(accepted > 60);
    CHECK(refused > 20);
  }

  TEST_CASE("a sum takes its axis whole where one element of its terms is read beside it") {
    Kernel k;
    k.name = "first";
    const int x = k.add_argument("x", DType::F32, 15, false),
              out = k.add_argument("out", DType::F32, 5, true);
    const NodeRef i = axis("i", 5), j = axis("j", 3), m = axis("m", 5);
    const int term = k.add_value(k.add_stage("term", {i, j}), "term",
                                 load(x, DType::F32, index_add(index_mul(i, 3), j)), {i, j});
    const int sum = k.add_value(k.add_stage("sum", {i, j}), "sum", read(term, DType::F32, {i, j}),
                                {i}, Op::ReduceAdd);
    const NodeRef e =
        scalar_op(Op::Sub, DType::F32,
                  {read(sum, DType::F32, {m}), read(term, DType::F32, {m, index_const(0)})});
    k.add_value(k.add_stage("out", {m}), "out", e, {m}, Op::Count_, out);
    apply_schedule(k, "fuse term sum; at term out m");
    CHECK(test::difference(k, Target()) == "");
  }

  TEST_CASE("an index that grows with the innermost loop is carried, and edges are constants") {
    Kernel k = test::total_sum(20);
    apply_schedule(k, "split out i io iv 8; vector out iv");
    const Program p = lower(k, Target());
    CHECK(print_program(p) ==
          "argument in x: f32[20]\n"
          "argument out out: f32[1]\n"
          "phase out of 1 {\n"
          "  for %0 io in 0..2, %1: f32x8 = 0, %2: i64 = 0 {\n"
          "    %3: ptr.f32 = x + %2\n"
          "    %4: f32x8 = load %3[0]\n"
          "    %5: f32x8 = add %1, %4\n"
          "    %6: i64 = add %2, 8\n"
          "    next %1 = %5\n"
          "    next %2 = %6\n"
          "  }\n"
          "  %7: ptr.f32 = x + 0\n"
          "  %8: f32x8 = load %7[16] first 4\n"
          "  %9: f32x8 = where first 4, %8, 0\n"
          "  %10: f32x8 = add %5, %9\n"
          "  %11: f32 = across add %10\n"
          "  %12: ptr.f32 = out + 0\n"
          "  store %12[0] = %11\n"
          "}\n");
  }

  TEST_CASE("a load that may lie outside reads nothing there") {
    // out[i] = x[i - 2] inside [0, 6), else 0; as a vector, as scalars, and backwards.
    for (int form = 0; form < 3; form++) {
      Kernel k;
      k.name = "shift";
      const int x = k.add_argument("x", DType::F32, 6, false),
                out = k.add_argument("out", DType::F32, 10, true);
      const NodeRef i = axis("i", 10);
      const NodeRef at =
          form == 2 ? index_add(index_const(7), i, -1) : index_add(i, index_const(-2));
      const NodeRef valid =
          logical_and(index_less(index_const(-1), at), index_less(at, index_const(6)));
      k.add_value(k.add_stage("out", {i}), "out", load(x, DType::F32, at, valid), {i}, Op::Count_,
                  out);
      if (form != 1) apply_schedule(k, "split out i io iv 8; vector out iv");
      INFO("form ", form);
      CHECK(test::difference(k, Target()) == "");
    }
  }

  TEST_CASE("a masked load goes to pages far outside only for lanes that are inside") {
    for (const int64_t shift : {2, 3000, 20000}) {
      Kernel k;
      k.name = "shift";
      const int x = k.add_argument("x", DType::F32, 100, false),
                out = k.add_argument("out", DType::F32, 100 + shift, true);
      const NodeRef i = axis("i", 100 + shift), at = index_add(i, index_const(-shift));
      k.add_value(k.add_stage("out", {i}), "out",
                  load(x, DType::F32, at, index_less(index_const(-1), at)), {i}, Op::Count_, out);
      apply_schedule(k, "split out i io iv 8; vector out iv");
      const std::string program = print_program(lower(k, Target()));
      CHECK((program.find("= any ") != std::string::npos) == (shift > 16384));
      CHECK(test::difference(k, Target()) == "");
    }
  }

  TEST_CASE("indices that are data are gathered lane by lane, and guarded") {
    Kernel k;
    k.name = "gather";
    const int x = k.add_argument("x", DType::F32, 5, false),
              index = k.add_argument("index", DType::I64, 11, false);
    const int out = k.add_argument("out", DType::F32, 11, true);
    const NodeRef i = axis("i", 11), at = load(index, DType::I64, i);
    const NodeRef valid =
        logical_and(index_less(index_const(-1), at), index_less(at, index_const(5)));
    k.add_value(k.add_stage("out", {i}), "out", load(x, DType::F32, at, valid), {i}, Op::Count_,
                out);
    apply_schedule(k, "split out i io iv 8; vector out iv");
    CHECK(test::difference(k, Target()) == "");
  }

  TEST_CASE("where each lane looks may come from a register, and be one element for all") {
    for (int64_t size : {5, 1}) {
      Kernel k;
      k.name = "gather";
      const int table = k.add_argument("table", DType::F32, size, false),
                index = k.add_argument("index", DType::I64, 11, false);
      const int out = k.add_argument("out", DType::F32, 11, true);
      const NodeRef i = axis("i", 11);
      Stage* const s = k.add_stage("place", {i});
      const NodeRef given = load(index, DType::I64, i);
      const int place =
          k.add_value(s, "place", scalar_op(Op::Mul, DType::I64, {given, given}), {i});
      const NodeRef at = read(place, DType::I64, {i});
      const NodeRef valid =
          logical_and(index_less(index_const(-1), at), index_less(at, index_const(5)));
      const NodeRef found = load(table, DType::F32, size == 1 ? index_const(0) : at, valid);
      k.add_value(s, "out", found, {i}, Op::Count_, out);
      apply_schedule(k, "split place i io iv 8; vector place iv; scope place reg");
      INFO("size ", size);
      CHECK(test::difference(k, Target()) == "");
    }
  }

  TEST_CASE("gathered bools are compared with zero once, all lanes together") {
    Kernel k;
    k.name = "gather";
    const int x = k.add_argument("x", DType::Bool, 9 * 21, false),
              out = k.add_argument("out", DType::F32, 21, true);
    const NodeRef i = axis("i", 21), zero = scalar_const(Scalar(0.0), DType::F32);
    const NodeRef chosen = scalar_op(
        Op::Where, DType::F32,
        {load(x, DType::Bool, index_mul(i, 9)), scalar_const(Scalar(1.0), DType::F32), zero});
    k.add_value(k.add_stage("out", {i}), "out", chosen, {i}, Op::Count_, out);
    apply_schedule(k, "split out i io iv 8; vector out iv");
    CHECK(test::difference(k, Target()) == "");
    const std::string text = print_program(lower(k, Target()));
    INFO(text);
    CHECK(text.find(": u8x8 = insert") != std::string::npos);
    CHECK(text.find(": boolx8 = ne") != std::string::npos);
    CHECK(text.find(": bool = ") == std::string::npos);
  }

  TEST_CASE(
      "division by zero, shifts beyond the width and logic on bools are as core/graph.h says") {
    for (DType t : {DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16,
                    DType::U32, DType::U64, DType::Bool}) {
      for (Op op : {Op::IDiv, Op::Rem, Op::Shl, Op::Shr, Op::Max, Op::Min, Op::Lt, Op::Le, Op::Eq,
                    Op::Ne, Op::Mul, Op::Add}) {
        const bool shifts = op == Op::IDiv || op == Op::Rem || op == Op::Shl || op == Op::Shr;
        if (t == DType::Bool && shifts) continue;
        Kernel k;
        k.name = "integers";
        const DType result = has(op, kComparison) ? DType::Bool : t;
        const int x = k.add_argument("x", t, 100, false), y = k.add_argument("y", t, 100, false);
        const int out = k.add_argument("out", result, 100, true);
        const NodeRef i = axis("i", 100);
        const NodeRef e = scalar_op(op, result, {load(x, t, i), load(y, t, i)});
        k.add_value(k.add_stage("out", {i}), "out", e, {i}, Op::Count_, out);
        apply_schedule(k, "split out i io iv 8; vector out iv");
        INFO(name(op), " ", name(t));
        CHECK(test::difference(k, Target()) == "");
      }
    }
  }

  TEST_CASE("elements two or four apart are loaded without touching what lies behind the last") {
    for (int step : {2, 4}) {
      for (int64_t n : {1, 3, 4, 5, 8, 9, 16, 21, 32, 47}) {
        for (bool valid : {false, true}) {
          Kernel k;
          k.name = "strided";
          const int x = k.add_argument("x", DType::F32, 4 * (step * (n - 1) + 1), false),
                    out = k.add_argument("out", DType::F32, 4 * n, true);
          const NodeRef row = axis("row", 4), i = axis("i", n);
          const NodeRef at = index_add(index_mul(row, step * (n - 1) + 1), i, step);
          const NodeRef known = valid ? index_less(row, index_const(3)) : NodeRef();
          k.add_value(k.add_stage("out", {row, i}), "out", load(x, DType::F32, at, known), {row, i},
                      Op::Count_, out);
          for (int lanes : {4, 8, 16}) {
            Kernel trial = clone(k);
            apply_schedule(trial, fmt::format("split out i io iv {}; vector out iv", lanes));
            INFO(step, " ", n, " ", valid, " ", lanes);
            CHECK(test::difference(trial, Target()) == "");
            const std::string text = print_program(lower(trial, Target()));
            const bool shuffles = text.find("evens") != std::string::npos;
            if (n > 1) CHECK(shuffles == (step == 2 || lanes == 16));
          }
        }
      }
    }
  }

  TEST_CASE("elements in reverse are loaded as vectors") {
    for (int64_t n : {1, 7, 8, 9, 16, 31}) {
      for (int valid : {0, 1, 2}) {  // always, in some rows, in some lanes
        Kernel k;
        k.name = "reversed";
        const int x = k.add_argument("x", DType::F32, 4 * n, false),
                  out = k.add_argument("out", DType::F32, 4 * n, true);
        const NodeRef row = axis("row", 4), i = axis("i", n);
        const NodeRef at = index_add(index_add(index_mul(row, n), index_const(n - 1)), i, -1);
        const NodeRef known = valid == 0   ? NodeRef()
                              : valid == 1 ? index_less(row, index_const(3))
                                           : index_less(i, index_const(5));
        k.add_value(k.add_stage("out", {row, i}), "out", load(x, DType::F32, at, known), {row, i},
                    Op::Count_, out);
        for (int lanes : {4, 8, 16}) {
          Kernel trial = clone(k);
          apply_schedule(trial, fmt::format("split out i io iv {}; vector out iv", lanes));
          INFO(n, " ", valid, " ", lanes);
          CHECK(test::difference(trial, Target()) == "");
          const std::string text = print_program(lower(trial, Target()));
          const bool reverses = text.find("permute") != std::string::npos;
          if (valid == 0) CHECK(reverses == (n > 3));
          if (valid == 1) CHECK(reverses == (n > 3));
          // In a loop of several vectors, which lanes are valid is known of none.
          if (valid == 2 && lanes > 4) CHECK(reverses == (n > 3 && n < 2 * lanes));
        }
      }
    }
  }

  TEST_CASE("lanes that are valid together, or never, are chosen once") {
    const NodeRef row = axis("row", 4), i = axis("i", 19);
    const NodeRef in_rows = index_less(row, index_const(3));
    const auto [half, odd] = index_divmod(i, 2);
    struct Case {
      NodeRef at, valid;
      int64_t size;
      bool once;
    };
    const NodeRef thirds = index_mul(i, 3), halves = index_mul(half, 5), first = index_mul(row, 60);
    for (const Case& c : {
             Case{index_add(first, thirds), in_rows, 235, true},
             Case{index_add(index_add(first, thirds, -1), index_const(54)), in_rows, 235, true},
             // Every other lane, none of the others.
             Case{index_add(first, halves), logical_and(in_rows, index_less(odd, index_const(1))),
                  226, true},
             // Some lanes always, or each in rows of its own.
             Case{index_add(first, thirds), logical_and(in_rows, index_less(i, index_const(17))),
                  235, true},
             Case{index_add(first, thirds), index_less(index_add(i, row, 7), index_const(18)), 235,
                  false},
             // Of so few elements that those of other rows would not be there.
             Case{index_add(thirds, row, -20), index_less(row, index_const(1)), 55, true},
         }) {
      Kernel k;
      k.name = "together";
      const int x = k.add_argument("x", DType::F32, c.size, false),
                out = k.add_argument("out", DType::F32, 4 * 19, true);
      k.add_value(k.add_stage("out", {row, i}), "out", load(x, DType::F32, c.at, c.valid), {row, i},
                  Op::Count_, out);
      for (const int lanes : {4, 8, 16}) {
        Kernel trial = clone(k);
        apply_schedule(trial, fmt::format("split out i io iv {}; vector out iv", lanes));
        INFO(index_text(c.at), " ", index_text(c.valid), " ", lanes);
        CHECK(test::difference(trial, Target()) == "");
        const std::string text = print_program(lower(trial, Target()));
        INFO(text);
        // A choice for each vector: the first, or the one of the last lanes, behind the loop.
        CHECK((test::count_of(text, ": i64 = where") <= 2) == c.once);
      }
    }
  }

  TEST_CASE("elements that several lanes read are loaded once") {
    for (int repeat : {2, 3, 5}) {
      for (int before : {0, 1}) {
        for (int valid : {0, 1, 2, 3}) {  // always, in some rows, in every other lane, in both
          const int64_t n = 19, row_elements = (n - 1 + before) / repeat + 1;
          Kernel k;
          k.name = "repeated";
          const int x = k.add_argument("x", DType::F32, 3 * row_elements, false),
                    out = k.add_argument("out", DType::F32, 3 * n, true);
          const NodeRef row = axis("row", 3), i = axis("i", n);
          const NodeRef one = index_divmod(index_add(i, index_const(before)), repeat).first;
          const NodeRef at = index_add(index_mul(row, row_elements), one);
          NodeRef known;
          if (valid & 1) known = index_less(row, index_const(2));
          if (valid & 2) {
            const NodeRef even = index_less(index_divmod(i, 2).second, index_const(1));
            known = known ? scalar_op(Op::And, DType::Bool, {even, known}) : even;
          }
          k.add_value(k.add_stage("out", {row, i}), "out", load(x, DType::F32, at, known), {row, i},
                      Op::Count_, out);
          for (int lanes : {4, 8, 16}) {
            Kernel trial = clone(k);
            apply_schedule(trial, fmt::format("split out i io iv {}; vector out iv", lanes));
            INFO(repeat, " ", before, " ", valid, " ", lanes);
            CHECK(test::difference(trial, Target()) == "");
            // Where vectors begin at other places of a repeat, the shape of one is not that of all.
            const std::string text = print_program(lower(trial, Target()));
            const bool permutes = text.find(fmt::format(" over {}", repeat)) != std::string::npos;
            if (repeat == 2) CHECK(permutes);
          }
        }
      }
    }
  }

  TEST_CASE("elements that few lanes read are no vector") {
    for (const DType t : {DType::F32, DType::Bool}) {
      for (const int64_t live : {1, 3, 4, 8}) {
        Kernel k;
        k.name = "spread";
        const int x = k.add_argument("x", t, 16, false), out = k.add_argument("out", t, 32, true);
        const NodeRef i = axis("i", 32),
                      valid = index_less(index_divmod(i, 8).second, index_const(live));
        k.add_value(k.add_stage("out", {i}), "out", load(x, t, index_divmod(i, 2).first, valid),
                    {i}, Op::Count_, out);
        apply_schedule(k, "split out i io iv 8; vector out iv");
        INFO(name(t), " ", live);
        CHECK(test::difference(k, Target()) == "");
        const std::string text = print_program(lower(k, Target()));
        CHECK((text.find("permute") != std::string::npos) == (live >= 4));
      }
    }
  }

  TEST_CASE("elements an odd distance apart are chosen from whole vectors") {
    for (int64_t step : {3, 5, 7, 9, 25}) {
      for (int64_t terms : {int64_t{1}, int64_t{2}, step / 2 + 1, step}) {
        for (DType t : {DType::F32, DType::U8, DType::F64}) {
          // Elements that are not in a row, and not in order.
          const Kernel k = windows_of(t, step, terms, 19, [&](int64_t q) { return q * 2 % terms; });
          for (int lanes : {4, 8, 16}) {
            Kernel trial = clone(k);
            apply_schedule(trial, fmt::format("split out i io iv {}; vector out iv", lanes));
            INFO(step, " ", terms, " ", name(t), " ", lanes);
            CHECK(test::difference(trial, Target()) == "");
            const std::string text = print_program(lower(trial, Target()));
            const bool blends = text.find("blend") != std::string::npos;
            // With fewer instructions than elements, and no more vectors than registers.
            if (terms == step) CHECK(blends == (step < 25 && lanes > 4));
            if (terms == 1) CHECK(blends == (step == 3 && lanes == 16));
          }
        }
      }
    }
  }

  TEST_CASE("elements a power of two apart are taken from whole vectors if all are wanted") {
    for (const int64_t step : {4, 8}) {
      for (const int64_t terms : {step - 1, step}) {
        for (const int64_t n : {3, 8, 19, 32}) {
          for (const DType t : {DType::F32, DType::U8, DType::F64}) {
            const Kernel k =
                windows_of(t, step, terms, n, [&](int64_t q) { return (3 * q + 1) % terms; });
            for (const int lanes : {4, 8, 16}) {
              Kernel trial = clone(k);
              apply_schedule(trial, fmt::format("split out i io iv {}; vector out iv", lanes));
              INFO(step, " ", terms, " ", n, " ", name(t), " ", lanes);
              CHECK(test::difference(trial, Target()) == "");
              const std::string text = print_program(lower(trial, Target()));
              const bool whole = terms == step && step <= lanes,
                         halved = step == 4 && lanes == 16;  // each vector by itself
              if (n >= 3 && !halved) CHECK((text.find("zip") != std::string::npos) == whole);
              if (whole && !halved) CHECK(text.find("insert") == std::string::npos);
            }
          }
        }
      }
    }
  }

  TEST_CASE("stores that fill each other's gaps are stores of whole vectors") {
    for (const int64_t step : {2, 3, 4, 8}) {
      for (const int64_t n : {3, 8, 19, 32}) {
        for (const DType t : {DType::F32, DType::Bool, DType::F64}) {
          Kernel k;
          k.name = "gaps";
          const int x = k.add_argument("x", t, step * n, false),
                    out = k.add_argument("out", t, step * n, true);
          const NodeRef i = axis("i", n), q = axis("q", step);
          const NodeRef e = load(x, t, index_add(i, q, n));
          const std::vector<NodeRef> dims = {i, q};
          k.add_value(k.add_stage("out", dims), "out", e, dims, Op::Count_, out);
          for (const int lanes : {4, 8, 16}) {
            Kernel trial = clone(k);
            apply_schedule(trial, fmt::format("split out i io iv {}; order out io q iv; "
                                              "unroll out q; vector out iv",
                                              lanes));
            INFO(step, " ", n, " ", name(t), " ", lanes);
            CHECK(test::difference(trial, Target()) == "");
            const std::string text = print_program(lower(trial, Target()));
            const bool whole = step == 2 || step == 4;
            CHECK((text.find("zip") != std::string::npos) == whole);
            CHECK((text.find("extract") == std::string::npos) == whole);
          }
        }
      }
    }
  }

  TEST_CASE("lanes are halved where elements have eight bytes") {
    Target t;
    CHECK(vector_lanes(test::chain(4, 4), t) == 8);
    CHECK(vector_lanes(test::chain(4, 4, DType::F64), t) == 4);
    CHECK(vector_lanes(test::chain(4, 4, DType::F16), t) == 8);
  }
}

}  // namespace
}  // namespace lazuli
