#include "ir/kernel.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "ir/index.h"
#include "tests/ir/algorithms.h"

namespace lazuli {
namespace {

std::string algorithm_error(const Kernel& k) {
  try {
    verify_algorithm(k);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST_SUITE("ir") {
  TEST_CASE("an algorithm prints a line a value") {
    CHECK(print_algorithm(test::softmax(5, 77)) ==
          "kernel softmax\n"
          "  input x: f32[385]\n"
          "  output out: f32[385]\n"
          "  stage m i:5 j:77\n"
          "    m(i) = reduce_max{j} x[77*i + j]\n"
          "  stage e i:5 j:77\n"
          "    e(i, j) = exp(sub(x[77*i + j], m(i)))\n"
          "  stage s i:5 j:77\n"
          "    s(i) = reduce_add{j} e(i, j)\n"
          "  stage r i:5\n"
          "    r(i) = div(1f, s(i))\n"
          "  stage out i:5 j:77\n"
          "    out(i, j) -> out = mul(e(i, j), r(i))\n");
  }

  TEST_CASE("a shared node is printed once, so the text stays linear") {
    Kernel k;
    k.name = "deep";
    const int out = k.add_argument("out", DType::F32, 4, true);
    const NodeRef i = axis("i", 4);
    NodeRef x = scalar_op(Op::Cast, DType::F32, {i});
    for (int n = 0; n < 60; n++) x = scalar_op(Op::Mul, DType::F32, {x, x});
    k.add_value(k.add_stage("out", {i}), "out", x, {i}, Op::Count_, out);
    CHECK(print_algorithm(k).size() < 4000);
  }

  TEST_CASE("verification names the value and the rule") {
    const NodeRef i = axis("i", 4), j = axis("j", 4);
    Kernel k;
    k.name = "k";
    const int in = k.add_argument("x", DType::F32, 4, false),
              out = k.add_argument("out", DType::F32, 4, true);
    Stage* s = k.add_stage("s", {i});
    SUBCASE("an axis of another stage") {
      k.add_value(s, "v", load(in, DType::F32, j), {i}, Op::Count_, out);
      CHECK(algorithm_error(k) ==
            "kernel k: value v: uses axis j, which stage s does not have; add it to the stage's "
            "axes");
    }
    SUBCASE("a dtype that is not the argument's") {
      k.add_value(s, "v", load(in, DType::I32, i), {i}, Op::Count_, out);
      CHECK(algorithm_error(k) == "kernel k: value v: loads x as i32, but it holds f32");
    }
    SUBCASE("a word, but of numbers narrower than it") {
      const int narrow = k.add_argument("y", DType::I8, 16, false),
                flags = k.add_argument("z", DType::Bool, 16, false);
      const int of_words = k.add_argument("words", DType::I32, 4, true);
      k.add_value(s, "v", load(narrow, DType::I32, i), {i}, Op::Count_, of_words);
      CHECK(algorithm_error(k) == "");
      s->values[0].expr = load(narrow, DType::I16, i);
      CHECK(algorithm_error(k) == "kernel k: value v: loads y as i16, but it holds i8");
      s->values[0].expr = load(flags, DType::I32, i);
      CHECK(algorithm_error(k) == "kernel k: value v: loads z as i32, but it holds bool");
    }
    SUBCASE("a value that does not exist yet") {
      k.add_value(s, "v", read(7, DType::F32, {i}), {i}, Op::Count_, out);
      CHECK(algorithm_error(k) == "kernel k: value v: reads value 7, which no earlier stage makes");
    }
    SUBCASE("an output of another size") {
      Stage* t = k.add_stage("t", {axis("n", 5)});
      k.add_value(t, "v", load(in, DType::F32, index_const(0)), {t->axes[0]}, Op::Count_, out);
      CHECK(algorithm_error(k) == "kernel k: stage s computes nothing");
    }
  }

  TEST_CASE("a copy has stages of its own") {
    Kernel a = test::softmax(3, 4);
    a.stages[0]->at = a.stages[1].get();
    const Kernel b = clone(a);
    CHECK(b.stages[0].get() != a.stages[0].get());
    CHECK(b.stages[0]->at == b.stages[1].get());
    CHECK(print_algorithm(a) == print_algorithm(b));
  }
}

}  // namespace
}  // namespace lazuli
