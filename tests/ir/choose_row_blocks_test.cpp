// Contractions inside blocks of rows: which tiles they get, and what is kept for whom.
#include <doctest/doctest.h>

#include <vector>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/plan.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

TEST_SUITE("ir") {
  TEST_CASE("blocks of rows turn what lies by columns, but for what is stored so") {
    const Target target = named_target("x86-64-v3");
    const Tensor a = contiguous(randn({2, 64, 48})), s = softmax(matmul(a, a.mT()), -2);
    const auto turns = [&](const Tensor& root) {
      return test::checked_schedule(root, target).find("dims sum 0 2 1") != std::string::npos;
    };
    CHECK(turns(matmul(s.mT(), a)));
    CHECK(!turns(s));
  }

  TEST_CASE("lanes lie along the rows of a block where a row has too few elements for them") {
    // Places of an image that two strides of a convolution come to, of 2 * places on a side.
    const auto schedule = [](int64_t places, const Target& target) {
      const Tensor x = contiguous(randn({2, 32, 2 * places, 2 * places})),
                   w = contiguous(randn({48, 32, 3, 3})),
                   g = contiguous(randn({2, 48, places, places}));
      const Tensor y = sum(conv2d(x, w, std::nullopt, 2, 1) * g);
      return test::checked_schedule(grad(y, std::vector<Tensor>{x}), target);
    };
    Target wide = named_target("x86-64-v4");
    CHECK(test::holds(schedule(4, named_target("x86-64-v3")), "dims sum 0 3 1 2\n"));
    CHECK(test::holds(schedule(10, wide), "dims sum 0 3 1 2\n"));
    const std::string few = schedule(7, wide);
    CHECK(!test::holds(few, "dims sum "));
    CHECK(test::holds(few, "vector sum l.v\n"));
    CHECK(test::holds(few, "order sum i j l.o k.o "));
    // A panel of weights serves all rows of places, where L1 does not hold all of them.
    wide.l1 = 16 << 10;
    CHECK(test::holds(schedule(7, wide), "order sum l.o i j k.o "));
  }

  TEST_CASE(
      "values of a block of rows are not overwritten before tiles that come later read them") {
    const Tensor x = contiguous(randn({4, 6, 5})), y = amax(x, {1}, true) - x;
    const Tensor out = matmul(softmax(matmul(y, y.mT()), -1), y);
    for (const char* target : {"x86-64-v4", "x86-64-v3"}) {
      test::checked_schedule(grad(sum(out * out), std::vector<Tensor>{x}), named_target(target));
    }
  }

  TEST_CASE("the scores of a chunk of keys are tiles of queries and keys") {
    const Tensor q = test::array({1, 2, 2048, 16}), k = test::array({1, 2, 2048, 16});
    for (const bool causal : {false, true}) {
      const std::string s =
          test::chosen_schedule(scaled_dot_product_attention(q, k, k, std::nullopt, 0.0, causal),
                                named_target("x86-64-v4"));
      CHECK(test::holds(s, "order sum i k l.o j.o m j.i l.u l.v\n"));
      CHECK(!test::holds(s, "split sum k "));  // one chunk at a time
    }
  }

  TEST_CASE(
      "what masks is a tile's epilogue where all rows lie in one block, else part of the rows") {
    const auto leaf = [] { return test::array({8, 12, 64, 16}); };
    const Tensor q = leaf(), k = leaf(), v = leaf();
    const Tensor o = scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, true);
    for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
      const Target target = named_target(name);
      const std::string rows = test::chosen_schedule(o, target);
      CHECK(test::holds(rows, "fuse where max\n"));
      CHECK(test::holds(rows, "fuse exp sum_3\n"));
      const Tensor dk = grad(sum(o), std::vector<Tensor>{k})[0];
      const std::string columns = test::chosen_schedule(dk, target);
      CHECK(!test::holds(columns, "fuse where max\n"));
      CHECK(test::holds(columns, "at sum where "));
      CHECK(test::holds(columns, "fuse exp sum_2\n"));
    }
  }

  TEST_CASE("few queries of many keys are as many at a time as leave each thread a block") {
    Target target = named_target("x86-64-v4");
    target.l2 = 2 << 20;
    target.far_l3 = true;
    const auto schedule = [&](int64_t heads, int64_t queries, int64_t keys) {
      const Tensor q = contiguous(randn({1, heads, queries, 128})),
                   k = contiguous(randn({1, heads, keys, 128})),
                   v = contiguous(randn({1, heads, keys, 128}));
      return test::chosen_schedule(scaled_dot_product_attention(q, k, v), target);
    };
    CHECK(test::holds(schedule(1, 32, 4096), "split div i i.b i 16\n"));
    CHECK(test::holds(schedule(1, 32, 512), "split div i i.b i 8\n"));   // keys that stay in L2
    CHECK(test::holds(schedule(8, 16, 4096), "split div j j.b j 8\n"));  // enough blocks anyway
    target.threads = 2;
    CHECK(test::holds(schedule(1, 32, 4096), "split div i i.b i 8\n"));
  }

  TEST_CASE("few columns of a block of rows are dots with lanes along the summed axis") {
    const auto dots = [&](int64_t rows, int64_t columns, int64_t terms, const char* target) {
      const Tensor x = contiguous(randn({rows, 6, terms})),
                   y = contiguous(randn({6, columns, terms}));
      const Tensor p = sum(unsqueeze(exp(x), 2) * unsqueeze(y, 0), {3});
      test::checked_schedule(p, named_target(target));
      const NodeRef root = p.node();
      Kernel k = clone(*make_plan({&root, 1}, named_target(target)).steps.back().kernel);
      choose_schedule(k, named_target(target));
      return test::holds(test::reasons(k), "sum: dot products of ");
    };
    for (const char* target : {"x86-64-v4", "x86-64-v3"}) {
      CHECK(dots(24, 4, 64, target));
      CHECK(dots(23, 5, 70, target));
      CHECK(dots(9, 7, 33, target));
      CHECK(!dots(24, 4, 12, target));
      CHECK(!dots(24, 16, 64, target));
    }
  }

  TEST_CASE("what is computed for one index of a loop, and read behind it, is kept whole") {
    const Tensor x = contiguous(randn({12, 3, 64})), y = contiguous(randn({3, 5, 64}));
    const Tensor q = contiguous(randn({12, 5, 16})), k = contiguous(randn({5, 35, 16})),
                 v = contiguous(randn({5, 35, 2}));
    const Tensor later = softmax(einsum("bhm,hlm->blh", {q, k}), 1);
    for (const char* target : {"x86-64-v4", "x86-64-v3"}) {
      test::checked_schedule(einsum("bhl,hjl->bhj", {softmax(x, 2), y}), named_target(target));
      test::checked_schedule(softmax(einsum("bhm,hlm->bhl", {x, y}), 2), named_target(target));
      test::checked_schedule(sum(einsum("blh,hlj->hjb", {later, v}), {0}), named_target(target));
      const Tensor two = unsqueeze(exp(contiguous(randn({12, 6, 1, 64}))), 2);
      test::checked_schedule(sum(two * contiguous(randn({6, 4, 5, 64})), {4}),
                             named_target(target));
    }
  }
}

}  // namespace
}  // namespace lazuli
