#include "ir/index.h"

#include <doctest/doctest.h>

#include <random>

#include "ir/kernel.h"

namespace lazuli {
namespace {

NodeRef linear(std::vector<std::pair<NodeRef, int64_t>> terms, int64_t constant = 0) {
  NodeRef r = index_const(constant);
  for (const auto& [n, k] : terms) r = index_add(r, n, k);
  return r;
}

int64_t floor_div(int64_t a, int64_t d) {
  return a / d - (a % d < 0);
}

TEST_SUITE("ir") {
  TEST_CASE("equal sums are the same node") {
    const NodeRef i = axis("i", 8), j = axis("j", 100);
    CHECK(linear({{i, 100}, {j, 1}}, 3).get() == linear({{j, 1}, {i, 50}, {i, 50}}, 3).get());
    CHECK(index_add(linear({{i, 2}, {j, 1}}), linear({{i, 2}}), -1).get() == j.get());
    CHECK(index_text(linear({{i, 100}, {j, -1}}, 3)) == "100*i - j + 3");
  }

  TEST_CASE("what a condition has chosen it does not choose again") {
    const NodeRef i = axis("i", 8), c = index_less(i, index_const(3)),
                  d = index_less(i, index_const(5));
    const auto where = [](const NodeRef& condition, const NodeRef& x, const NodeRef& y) {
      return scalar_op(Op::Where, DType::F32, {condition, x, y});
    };
    const NodeRef x = load(0, DType::F32, i), y = load(1, DType::F32, i),
                  z = load(2, DType::F32, i);
    CHECK(where(c, where(c, x, y), z).get() == where(c, x, z).get());
    CHECK(where(c, x, where(c, y, z)).get() == where(c, x, z).get());
    CHECK(where(c, where(d, x, y), z)->src[1]->op == Op::Where);
  }

  TEST_CASE("a sum knows its interval") {
    const NodeRef i = axis("i", 8), j = axis("j", 100);
    const NodeRef n = linear({{i, 100}, {j, -2}}, 5);
    CHECK(n->lo == -193);
    CHECK(n->hi == 705);
  }

  TEST_CASE("splitting a row-major index gives the coordinates back") {
    const NodeRef i = axis("i", 8), j = axis("j", 6), k = axis("k", 5);
    const NodeRef flat = linear({{i, 30}, {j, 5}, {k, 1}});
    const auto [q, r] = index_divmod(flat, 5);
    CHECK(r.get() == k.get());
    CHECK(index_divmod(q, 6).first.get() == i.get());
    CHECK(index_divmod(q, 6).second.get() == j.get());
    CHECK(index_divmod(flat, 30).first.get() == i.get());
    CHECK(index_text(index_divmod(flat, 10).first) == "3*i + ((j) // 2)");
  }

  TEST_CASE("merging the two parts of a split index gives the index back") {
    const NodeRef i = axis("i", 4096);
    const auto [a, b] = index_divmod(i, 64);
    CHECK(index_add(b, a, 64).get() == i.get());
    const auto [c, d] = index_divmod(a, 8);
    CHECK(linear({{c, 512}, {d, 64}, {b, 1}}).get() == i.get());
  }

  TEST_CASE("three axes of any sizes made of one are one again") {
    const NodeRef f = axis("f", 3 * 7 * 5);
    const auto [rows, c] = index_divmod(f, 5);
    const auto [a, b] = index_divmod(rows, 7);
    CHECK(linear({{a, 35}, {b, 5}, {c, 1}}).get() == f.get());
    // Flattened in two steps.
    const auto [outer, inner] = index_divmod(f, 35);
    const auto [p, q] = index_divmod(inner, 5);
    CHECK(linear({{outer, 70}, {p, 10}, {q, 2}}).get() == index_mul(f, 2).get());
  }

  TEST_CASE("division and remainder are right for negative numerators") {
    std::mt19937 random(3);
    const NodeRef i = axis("i", 7), j = axis("j", 5);
    for (int round = 0; round < 300; round++) {
      const auto pick = [&](int n) {
        return static_cast<int64_t>(random() % static_cast<unsigned>(2 * n + 1)) - n;
      };
      const int64_t a = pick(9), b = pick(9), c = pick(40),
                    d = 1 + static_cast<int64_t>(random() % 12);
      const NodeRef n = linear({{i, a}, {j, b}}, c);
      const auto [q, r] = index_divmod(n, d);
      for (int64_t x = 0; x < 7; x++) {
        for (int64_t y = 0; y < 5; y++) {
          const Substitution at{{i, index_const(x)}, {j, index_const(y)}};
          const int64_t value = a * x + b * y + c;
          REQUIRE(substitute(q, at)->lo == floor_div(value, d));
          REQUIRE(substitute(r, at)->lo == value - floor_div(value, d) * d);
        }
      }
      CHECK(r->lo >= 0);
      CHECK(r->hi < d);
    }
  }

  TEST_CASE("comparisons fold where the intervals decide") {
    const NodeRef i = axis("i", 8);
    CHECK(index_less(i, index_const(8))->hi == 1);
    CHECK(index_less(i, index_const(8))->op == Op::Const);
    CHECK(index_less(i, index_const(0))->hi == 0);
    CHECK(index_less(i, index_const(4))->op == Op::Lt);
    CHECK(index_equal(i, index_const(9))->hi == 0);
    CHECK(logical_and(index_less(i, index_const(8)), index_less(i, index_const(4)))->op == Op::Lt);
  }

  TEST_CASE("substitution rebuilds deep expressions without recursion") {
    const NodeRef i = axis("i", 8);
    NodeRef n = scalar_op(Op::Cast, DType::F32, {i});
    for (int k = 0; k < 100000; k++) n = scalar_op(Op::Abs, DType::F32, {n});
    const NodeRef r = substitute(n, {{i, index_const(2)}});
    CHECK(!uses(r, i));
  }
}

}  // namespace
}  // namespace lazuli
