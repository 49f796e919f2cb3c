// Loops that end at masks: which stages do, and what is stored beyond.
#include "ir/limits.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/index.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

constexpr int64_t kSize = 37;

// x where k < j + least, else 0, over rows j and columns k; what reads it is added by the test.
struct Triangle {
  Kernel kernel;
  NodeRef j = axis("j", kSize), k = axis("k", kSize);
  int x = input(), masked = -1;

  explicit Triangle(int64_t least = 1) {
    kernel.name = "triangle";
    const NodeRef kept = scalar_op(Op::Lt, DType::Bool, {k, index_add(j, index_const(least))});
    masked = add("masked", {j, k},
                 scalar_op(Op::Where, DType::F32, {kept, at(x, j, k), number(0)}), {j, k});
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
  // An output that is twice this value.
  void store(const char* name, int value, const std::vector<NodeRef>& dims) {
    int64_t size = 1;
    for (const NodeRef& d : dims) size *= d->hi + 1;
    const int out = kernel.add_argument(name, DType::F32, size, true);
    kernel.add_value(kernel.add_stage(name, dims), name,
                     scalar_op(Op::Mul, DType::F32, {of(value, dims), number(2)}), dims,
                     Op::Count_, out);
  }
  // The stages that end at the mask, those that store zeros beyond it with a 0; the lowered kernel
  // gives what it gave without the limit.
  std::string limited() {
    for (const auto& s : kernel.stages) {
      if (s->values[0].slot < 0) apply_schedule(kernel, "scope " + s->name + " shared");
    }
    const Kernel before = clone(kernel);
    apply_schedule(kernel, "limit masked");
    std::string out;
    for (const auto& s : kernel.stages) {
      if (s->limit.empty()) continue;
      out += (out.empty() ? "" : " ") + s->name + (s->values[0].zero_beyond ? "0" : "");
    }
    for (const char* target : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
      CHECK(test::difference(kernel, named_target(target), before) == "");
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
    const NodeRef product = scalar_op(Op::Mul, DType::F32,
                                      {t.of(t.masked, {t.j, t.k}), Triangle::at(t.x, t.j, t.k)});
    t.store("out", t.add("product", {t.j, t.k}, product, {t.j, t.k}), {t.j, t.k});
    CHECK(t.limited() == "masked0 product0 out0");
  }

  TEST_CASE("a value that only sums up to the mask read ends there without zeros") {
    Triangle t;
    t.store("out",
            t.add("sum", {t.j, t.k}, t.of(t.masked, {t.j, t.k}), {t.j}, Op::ReduceAdd), {t.j});
    CHECK(t.limited() == "masked sum");
  }

  TEST_CASE("a value that has its rows and columns by other names ends with those that read it") {
    Triangle t;
    const int y = t.input();
    const NodeRef a = axis("a", kSize), b = axis("b", kSize), l = axis("l", kSize);
    const int other = t.add(
        "other", {a, b, l},
        scalar_op(Op::Mul, DType::F32, {Triangle::at(y, a, l), Triangle::at(y, l, b)}), {a, b},
        Op::ReduceAdd);
    const NodeRef term = scalar_op(
        Op::Mul, DType::F32, {t.of(t.masked, {t.j, t.k}), t.of(other, {t.j, t.k})});
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
    const NodeRef term = scalar_op(Op::Mul, DType::F32,
                                   {t.of(columns, {t.k}), Triangle::at(y, t.j, t.k)});
    t.store("out", t.add("sum", {t.j, t.k}, term, {t.j}, Op::ReduceAdd), {t.j});
    CHECK(t.limited() == "masked0");
  }

  TEST_CASE("rows that are empty up to the mask are all zeros") {
    Triangle t(-3);
    t.store("out", t.masked, {t.j, t.k});
    t.store("sums", t.add("row_sum", {t.j, t.k}, t.of(t.masked, {t.j, t.k}), {t.j}, Op::ReduceAdd),
            {t.j});
    CHECK(t.limited() == "masked0 out0 row_sum");
  }

  TEST_CASE("the gradient of causal attention ends at the mask") {
    for (const int64_t length : {16, 33, 64}) {
      const auto leaf = [&] { return test::array({24, length, 16}); };
      const Tensor q = leaf(), k = leaf(), v = leaf(), g = leaf();
      const Tensor y =
          sum(scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, true) * g);
      for (const char* target : {"x86-64-v3", "x86-64-v4"}) {
        const std::string steps =
            test::checked_schedule(grad(y, std::vector<Tensor>{q, k, v}), named_target(target));
        CHECK(test::holds(steps, "limit where\n"));
      }
    }
  }
}

}  // namespace
}  // namespace lazuli
