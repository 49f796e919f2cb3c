// Loops that end at masks: which stages do, and what is stored beyond.
#include "ir/limits.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/index.h"
#include "ir/plan.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

constexpr int64_t kSize = 37;

// x where k < j + least, else `beyond`, over rows j and columns k; what reads it is added by the
// test.
struct Triangle {
  Kernel kernel;
  NodeRef j = axis("j", kSize), k = axis("k", kSize), kept;
  int x = input(), masked = -1;

  explicit Triangle(int64_t least = 1, double beyond = 0) {
    kernel.name = "triangle";
    kept = scalar_op(Op::Lt, DType::Bool, {k, index_add(j, index_const(least))});
    masked = add("masked", {j, k},
                 scalar_op(Op::Where, DType::F32, {kept, at(x, j, k), number(beyond)}), {j, k});
  }

  static NodeRef number(double v) { return scalar_const(Scalar(v), DType::F32); }
  static NodeRef at(int argument, const NodeRef& row, const NodeRef& column) {
    return load(argument, DType::F32, index_add(index_mul(row, kSize), column));
  }
  NodeRef of(int value, std::vector<NodeRef> index) const {
    return read(value, DType::F32, std::move(index));
  }
  int input() {
    const std::string name = "in" + std::to_string(kernel.arguments.size());
    return kernel.add_argument(name, DType::F32, kSize * kSize, false);
  }
  int add(const char* name, std::vector<NodeRef> axes, NodeRef expr, std::vector<NodeRef> dims,
          Op reduce = Op::Count_) {
    return kernel.add_value(kernel.add_stage(name, std::move(axes)), name, std::move(expr),
                            std::move(dims), reduce);
  }
  void store(const char* name, const NodeRef& expr, const std::vector<NodeRef>& dims) {
    int64_t size = 1;
    for (const NodeRef& d : dims) size *= d->hi + 1;
    const int out = kernel.add_argument(name, DType::F32, size, true);
    kernel.add_value(kernel.add_stage(name, dims), name, expr, dims, Op::Count_, out);
  }
  // An output that is twice this value.
  void store(const char* name, int value, const std::vector<NodeRef>& dims) {
    store(name, scalar_op(Op::Mul, DType::F32, {of(value, dims), number(2)}), dims);
  }
  // The stages that end at the mask, those that store zeros beyond it with a 0, and with a > those
  // that begin there; the lowered kernel gives what it gave without the limit, also by these
  // schedules.
  std::string limited(const std::vector<std::string>& schedules = {}) {
    for (const auto& s : kernel.stages) {
      if (s->values[0].slot < 0) apply_schedule(kernel, "scope " + s->name + " shared");
    }
    const Kernel before = clone(kernel);
    apply_schedule(kernel, "limit masked");
    std::string out;
    for (const auto& s : kernel.stages) {
      if (!s->is_triangular()) continue;
      out += (out.empty() ? "" : " ") + s->name + (s->begin.empty() ? "" : ">") +
             (s->values[0].zero_beyond ? "0" : "");
    }
    for (const char* target : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
      CHECK(test::difference(kernel, named_target(target), before) == "");
    }
    for (const std::string& steps : schedules) {
      INFO(steps);
      Kernel attached = clone(kernel);
      apply_schedule(attached, steps);
      CHECK(test::difference(attached, named_target("x86-64-v3"), before) == "");
    }
    for (const auto& s : kernel.stages) {
      const std::string last = s->loops.back().name;
      apply_schedule(kernel, "split " + s->name + " " + last + " " + last + " " + last + ".v 8");
      apply_schedule(kernel, "vector " + s->name + " " + last + ".v");
    }
    CHECK(test::difference(kernel, named_target("x86-64-v3"), before) == "");
    return out;
  }
};

TEST_SUITE("ir") {
  TEST_CASE("what is stored of a masked value is 0 beyond the mask, and not computed") {
    Triangle t;
    const NodeRef product =
        scalar_op(Op::Mul, DType::F32, {t.of(t.masked, {t.j, t.k}), Triangle::at(t.x, t.j, t.k)});
    t.store("out", t.add("product", {t.j, t.k}, product, {t.j, t.k}), {t.j, t.k});
    // The product may be 0 times an infinity.
    CHECK(t.limited() == "masked0");
  }

  TEST_CASE("a softmax of masked rows is 0 beyond the mask") {
    Triangle t(1, -std::numeric_limits<double>::infinity());
    const int most = t.add("most", {t.j, t.k}, t.of(t.masked, {t.j, t.k}), {t.j}, Op::ReduceMax);
    const NodeRef less =
        scalar_op(Op::Sub, DType::F32, {t.of(t.masked, {t.j, t.k}), t.of(most, {t.j})});
    const int e = t.add("exp", {t.j, t.k}, scalar_op(Op::Exp, DType::F32, {less}), {t.j, t.k});
    const int sum = t.add("sum", {t.j, t.k}, t.of(e, {t.j, t.k}), {t.j}, Op::ReduceAdd);
    const NodeRef ratio = scalar_op(Op::Div, DType::F32, {t.of(e, {t.j, t.k}), t.of(sum, {t.j})});
    t.store("out", t.add("ratio", {t.j, t.k}, ratio, {t.j, t.k}), {t.j, t.k});
    CHECK(t.limited() == "masked most exp0 sum ratio0");
  }

  TEST_CASE("the largest of a column may be beyond the mask, and less than nothing is no number") {
    // Columns of 37 rows, each of them with at least one that is kept, or some with none.
    for (const auto& [least, stages] : {std::pair{1, "most> exp0"}, {-3, "most>"}}) {
      CAPTURE(least);
      Triangle t(least, -std::numeric_limits<double>::infinity());
      const int most = t.add("most", {t.j, t.k}, t.of(t.masked, {t.j, t.k}), {t.k}, Op::ReduceMax);
      const NodeRef less =
          scalar_op(Op::Sub, DType::F32, {t.of(t.masked, {t.j, t.k}), t.of(most, {t.k})});
      t.store("out", t.add("exp", {t.j, t.k}, scalar_op(Op::Exp, DType::F32, {less}), {t.j, t.k}),
              {t.j, t.k});
      CHECK(t.limited() == stages);
    }
  }

  TEST_CASE("sums over rows leave out no row that is no number") {
    // Rows of a softmax, of which a second mask leaves some without any element, or none; it may
    // also be added, or be of data.
    enum class Second { Near, Before, Either, Added, Infinity, Data };
    for (const Second second : {Second::Near, Second::Before, Second::Either, Second::Added,
                                Second::Infinity, Second::Data}) {
      CAPTURE(static_cast<int>(second));
      Triangle t(1, -std::numeric_limits<double>::infinity());
      const auto op = [](Op o, Sources src) { return scalar_op(o, DType::F32, std::move(src)); };
      const auto less = [](const NodeRef& a, const NodeRef& b) {
        return scalar_op(Op::Lt, DType::Bool, {a, b});
      };
      NodeRef& masked = t.kernel.find_value(t.masked).second->expr;
      const NodeRef x = masked, value = x->src[1], none = x->src[2], zero = Triangle::number(0);
      const NodeRef all = Triangle::number(std::numeric_limits<double>::infinity());
      const NodeRef before = less(t.j, t.k), near = less(t.k, index_add(t.j, index_const(9)));
      switch (second) {
        case Second::Near:
          masked = op(Op::Where, {near, x, none});
          break;
        case Second::Before:
          masked = op(Op::Where, {before, x, none});
          break;
        case Second::Either:
          masked = op(Op::Where, {scalar_op(Op::Or, DType::Bool, {before, near}), x, none});
          break;
        case Second::Added: {
          const NodeRef sum = op(Op::Add, {value, op(Op::Where, {before, zero, none})});
          masked = op(Op::Where, {t.kept, sum, none});
          break;
        }
        case Second::Infinity: {
          const NodeRef rest = op(Op::Sub, {value, op(Op::Where, {before, zero, all})});
          masked = op(Op::Where, {t.kept, rest, none});
          break;
        }
        case Second::Data:
          masked = op(Op::Where, {less(zero, value), x, none});
          break;
      }
      const int most = t.add("most", {t.j, t.k}, t.of(t.masked, {t.j, t.k}), {t.j}, Op::ReduceMax);
      const NodeRef below = op(Op::Sub, {t.of(t.masked, {t.j, t.k}), t.of(most, {t.j})});
      const int e = t.add("exp", {t.j, t.k}, op(Op::Exp, {below}), {t.j, t.k});
      t.store("out", t.add("column", {t.k, t.j}, t.of(e, {t.j, t.k}), {t.k}, Op::ReduceAdd), {t.k});
      limit_at_masks(t.kernel);
      CHECK(t.kernel.find_stage("column")->is_triangular() == (second == Second::Near));
    }
  }

  TEST_CASE("shares of a masked row are computed beyond the mask, since its sum may be 0") {
    Triangle t;
    const int sum = t.add("sum", {t.j, t.k}, t.of(t.masked, {t.j, t.k}), {t.j}, Op::ReduceAdd);
    const NodeRef share =
        scalar_op(Op::Div, DType::F32, {t.of(t.masked, {t.j, t.k}), t.of(sum, {t.j})});
    t.store("out", t.add("share", {t.j, t.k}, share, {t.j, t.k}), {t.j, t.k});
    CHECK(t.limited() == "masked0 sum");
  }

  TEST_CASE("quotients of zeros by what may be 0 are computed beyond the mask") {
    Triangle t;
    const NodeRef zero =
        scalar_op(Op::Mul, DType::F32, {Triangle::at(t.x, t.j, t.k), Triangle::number(0)});
    const NodeRef ratio = scalar_op(Op::Div, DType::F32, {t.of(t.masked, {t.j, t.k}), zero});
    t.store("out", t.add("ratio", {t.j, t.k}, ratio, {t.j, t.k}), {t.j, t.k});
    CHECK(t.limited() == "masked0");
  }

  TEST_CASE(
      "what is computed inside a loop that ends at a mask is there for those that do not end") {
    Triangle t;
    const int sums = t.add("sums", {t.k, t.j}, t.of(t.masked, {t.j, t.k}), {t.k}, Op::ReduceAdd);
    const NodeRef twice =
        scalar_op(Op::Mul, DType::F32, {t.of(t.masked, {t.j, t.k}), Triangle::number(2)});
    t.store("out", scalar_op(Op::Where, DType::F32, {t.kept, twice, Triangle::number(0)}),
            {t.j, t.k});
    t.store("columns", sums, {t.k});
    CHECK(t.limited({"at masked out k", "split out k k.o k.i 8; at masked out k.o",
                     "split masked k k.o k.i 8; split out k k.o k.i 8; at masked out k.o",
                     "split out j j.o j.i 4; split out k k.o k.v 8; order out j.o k.o j.i k.v; "
                     "at masked out k.o; vector out k.v"}) == "masked0 sums> out0");
  }

  TEST_CASE("a value that only sums up to the mask read ends there without zeros") {
    Triangle t;
    t.store("out", t.add("sum", {t.j, t.k}, t.of(t.masked, {t.j, t.k}), {t.j}, Op::ReduceAdd),
            {t.j});
    CHECK(t.limited() == "masked sum");
  }

  TEST_CASE("a value that has its rows and columns by other names ends with those that read it") {
    Triangle t;
    const int y = t.input();
    const NodeRef a = axis("a", kSize), b = axis("b", kSize), l = axis("l", kSize);
    const int other =
        t.add("other", {a, b, l},
              scalar_op(Op::Mul, DType::F32, {Triangle::at(y, a, l), Triangle::at(y, l, b)}),
              {a, b}, Op::ReduceAdd);
    const NodeRef term =
        scalar_op(Op::Mul, DType::F32, {t.of(t.masked, {t.j, t.k}), t.of(other, {t.j, t.k})});
    t.store("out", t.add("sum", {t.j, t.k}, term, {t.j}, Op::ReduceAdd), {t.j});
    CHECK(t.limited() == "masked other sum");
  }

  TEST_CASE("what is read the other way round, or at other places, does not end") {
    Triangle t;
    const int y = t.input();
    const NodeRef a = axis("a", kSize), b = axis("b", kSize);
    const int other = t.add("other", {a, b}, Triangle::at(y, a, b), {a, b});
    const NodeRef term = scalar_op(
        Op::Add, DType::F32,
        {scalar_op(Op::Mul, DType::F32, {t.of(t.masked, {t.j, t.k}), t.of(other, {t.j, t.k})}),
         scalar_op(Op::Mul, DType::F32, {t.of(t.masked, {t.j, t.k}), t.of(other, {t.k, t.j})})});
    t.store("out", t.add("sum", {t.j, t.k}, term, {t.j}, Op::ReduceAdd), {t.j});
    CHECK(t.limited() == "masked sum");
  }

  TEST_CASE("sums over the rows of a triangle are not 0 beyond its mask") {
    Triangle t;
    const int y = t.input();
    const int columns =
        t.add("columns", {t.k, t.j}, t.of(t.masked, {t.j, t.k}), {t.k}, Op::ReduceAdd);
    const NodeRef term =
        scalar_op(Op::Mul, DType::F32, {t.of(columns, {t.k}), Triangle::at(y, t.j, t.k)});
    t.store("out", t.add("sum", {t.j, t.k}, term, {t.j}, Op::ReduceAdd), {t.j});
    CHECK(t.limited() == "masked> columns>");
  }

  TEST_CASE("sums over the rows of a triangle begin at its mask, and so does what they read") {
    for (const int64_t least : {1, -3, 9}) {
      Triangle t(least);
      const int y = t.input();
      const NodeRef n = axis("n", kSize);
      const NodeRef term =
          scalar_op(Op::Mul, DType::F32, {t.of(t.masked, {t.j, t.k}), Triangle::at(y, t.j, n)});
      t.store("out", t.add("sum", {t.k, n, t.j}, term, {t.k, n}, Op::ReduceAdd), {t.k, n});
      CHECK(t.limited({"split sum k k.o k.i 4; split masked j j.o j.i 8; split masked k k.o k.i 4",
                       "split sum j j.o j.i 4; order sum k j.o n j.i",
                       "split sum j j.o j.i 8; split sum k k.o k.i 6; order sum k.o n j.o k.i j.i; "
                       "unroll sum k.i j.i; split masked j j.b j 12; split masked j j.o j.i 3",
                       "split sum k k.o k.i 6; order sum k.o n j k.i; unroll sum k.i; "
                       "at masked sum k.o; split masked j j.o j.v 8; order masked k j.o j.v; "
                       "vector masked j.v",
                       "at masked sum j"}) == "masked> sum>");
    }
  }

  TEST_CASE("what a window keeps has a beginning and an end") {
    Triangle t;
    const NodeRef near = scalar_op(Op::Lt, DType::Bool, {t.j, index_add(t.k, index_const(9))});
    Value& masked = *t.kernel.find_value(t.masked).second;
    masked.expr = scalar_op(Op::Where, DType::F32,
                            {scalar_op(Op::And, DType::Bool, {t.kept, near}),
                             Triangle::at(t.x, t.j, t.k), Triangle::number(0)});
    t.store("rows", t.add("row", {t.j, t.k}, t.of(t.masked, {t.j, t.k}), {t.j}, Op::ReduceAdd),
            {t.j});
    CHECK(t.limited({"split row k k.o k.i 4; split masked k k.o k.i 8",
                     "at masked row j; split row k k.o k.v 8; vector row k.v; "
                     "split masked k k.o k.v 8; vector masked k.v"}) == "masked> row>");
    for (const char* stage : {"masked", "row"}) {
      const Stage& s = *t.kernel.find_stage(stage);
      CHECK(s.begin.begin()->first == s.limit.begin()->first);
    }
  }

  TEST_CASE("a sum of products of which one is masked where it is read begins and ends there") {
    for (const bool over_rows : {false, true}) {
      Triangle t;
      const int y = t.input();
      const NodeRef n = axis("n", kSize), &kept = over_rows ? t.k : t.j,
                    &summed = over_rows ? t.j : t.k;
      const NodeRef masked = t.kernel.find_value(t.masked).second->expr;
      t.kernel.stages.clear();
      t.add("masked", {kept, n, summed},
            scalar_op(Op::Mul, DType::F32, {masked, Triangle::at(y, summed, n)}), {kept, n},
            Op::ReduceAdd);
      t.store("out", t.kernel.stages[0]->values[0].id, {kept, n});
      CHECK(t.limited() == (over_rows ? "masked>" : "masked"));
    }
    // Short ones, as of windows that slide, are walked whole.
    Kernel k;
    const NodeRef i = axis("i", 100), l = axis("l", 3);
    const int x = k.add_argument("x", DType::F32, 102, false);
    const int out = k.add_argument("out", DType::F32, 100, true);
    const NodeRef inside = scalar_op(Op::Lt, DType::Bool, {index_const(0), index_add(i, l)});
    const NodeRef term = scalar_op(
        Op::Where, DType::F32, {inside, load(x, DType::F32, index_add(i, l)), Triangle::number(0)});
    k.add_value(k.add_stage("sum", {i, l}), "sum", term, {i}, Op::ReduceAdd, out);
    CHECK(limit_at_masks(k).empty());
  }

  TEST_CASE("rows that are empty up to the mask are all zeros") {
    Triangle t(-3);
    t.store("out", t.masked, {t.j, t.k});
    t.store("sums", t.add("row_sum", {t.j, t.k}, t.of(t.masked, {t.j, t.k}), {t.j}, Op::ReduceAdd),
            {t.j});
    CHECK(t.limited() == "masked0 row_sum");
  }

  TEST_CASE("products of triangular factors begin and end at their masks") {
    for (const char* name : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
      const Target target = named_target(name);
      for (const int64_t n : {16, 47, target.lanes == 8 ? 97 : 33}) {
        CAPTURE(name);
        CAPTURE(n);
        const Tensor x = test::array({2, n, n}), y = test::array({2, n, 29}),
                     z = test::array({n, n});
        for (const int64_t diagonal : {0, -7, 5}) {
          const Tensor low = tril(x, diagonal), high = triu(x, diagonal);
          for (const Tensor& root :
               {matmul(low, y), matmul(low.mT(), y), matmul(high, y), matmul(high.mT(), y),
                matmul(y.mT(), low), matmul(y.mT(), high), matmul(triu(low, -9), y),
                matmul(low, triu(z)), sum(low, {1}), sum(high, {1})}) {
            test::checked_schedule(root, target);
          }
        }
      }
    }
  }

  TEST_CASE("the gradient of causal attention ends at the mask") {
    for (const int64_t length : {16, 33, 64}) {
      const auto leaf = [&] { return test::array({24, length, 16}); };
      const Tensor q = leaf(), k = leaf(), v = leaf(), g = leaf();
      const Tensor y = sum(scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, true) * g);
      const std::vector<Tensor> roots = grad(y, std::vector<Tensor>{q, k, v});
      for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
        const Target target = named_target(name);
        test::checked_schedule(roots, target);
        std::vector<NodeRef> nodes;
        for (const Tensor& r : roots) nodes.push_back(r.node());
        int filled = 0, ended = 0, begun = 0;
        for (const PlanStep& step : make_plan(nodes, target).steps) {
          Kernel kernel = clone(*step.kernel);
          limit_at_masks(kernel);
          for (const auto& s : kernel.stages) {
            ended += !s->limit.empty();
            begun += !s->begin.empty();
            for (const Value& v : s->values) filled += v.zero_beyond;
          }
        }
        // Scores, their mask, maximum, exponential, sum and quotient, what comes back by values,
        // its sum, what comes back by scores, and the product with keys.
        CHECK(ended == 10);
        // Those of values and keys, over rows.
        CHECK(begun == 2);
        CHECK(filled == 3);
      }
    }
  }
}

}  // namespace
}  // namespace lazuli
