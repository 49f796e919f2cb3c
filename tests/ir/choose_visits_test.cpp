// Products of few rows with a large matrix whose rows lie along the columns.
#include <doctest/doctest.h>

#include <string>

#include "core/ops.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;

Target visiting(const char* name, int threads = 1) {
  Target t = named_target(name);
  t.threads = threads;
  t.l2 = 256 << 10;
  return t;
}

bool is_visited(const std::string& schedule) {
  return test::holds(schedule, " k.b k 24\n") && test::holds(schedule, ".b k.b ");
}

TEST_SUITE("ir") {
  TEST_CASE("few rows times a large matrix read it once, some terms a visit") {
    for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
      CAPTURE(std::string(name));
      const auto visited = [&](const Tensor& t, int threads = 1) {
        return is_visited(test::chosen_schedule(t, visiting(name, threads)));
      };
      const auto product = [](int64_t m, int64_t k, int64_t n) {
        return matmul(array({m, k}), array({k, n}));
      };
      CHECK(visited(product(9, 384, 1024)));
      CHECK(visited(product(64, 1024, 1024)));
      CHECK(visited(product(17, 400, 1001), 3));
      CHECK(visited(relu(product(24, 390, 600) + array({600})), 2));
      CHECK(visited(matmul(array({390, 20}).T(), array({390, 600}))));
      CHECK(visited(matmul(array({16, 390}, DType::F64), array({390, 300}, DType::F64))));
      CHECK(test::holds(
          test::chosen_schedule(matmul(array({2, 8, 384}), array({384, 512})), visiting(name)),
          "split sum.sums l l.b l 24\n"));
      // Fewer rows are products of vectors, more are worth a panel.
      CHECK(!visited(product(8, 400, 1024)));
      CHECK(!visited(product(65, 1100, 1024)));
      // Short rows of the matrix; few terms; one that stays in L2.
      CHECK(!visited(product(13, 400, 500)));
      CHECK(!visited(product(12, 400, 1000)));
      CHECK(!visited(product(25, 400, 1000)));
      CHECK(!visited(product(9, 383, 4096)));
      CHECK(!visited(product(64, 1023, 1024)));
      Target large = visiting(name);
      large.l2 = 1 << 20;
      CHECK(!is_visited(test::chosen_schedule(product(16, 384, 512), large)));
      // Columns that lie along the sum, and factors that are computed or converted.
      CHECK(!visited(matmul(array({40, 700}), array({1024, 700}).T())));
      CHECK(!visited(matmul(array({16, 400}), array({400, 1024}) * 2.0)));
      CHECK(!visited(matmul(relu(array({16, 400})), array({400, 1024}))));
      CHECK(!visited(matmul(array({16, 400}), array({400, 1024}, DType::F16).to(DType::F32))));
    }
  }

  TEST_CASE(
      "sums of visits are kept by tiles, by columns of each thread, and are those of others") {
    const auto schedule = [](const Tensor& t, const char* name, int threads) {
      return test::checked_schedule(t, visiting(name, threads));
    };
    const auto product = [](int64_t m, int64_t k, int64_t n) {
      return matmul(array({m, k}), array({k, n}));
    };
    const std::string plain = schedule(product(13, 385, 600), "x86-64-v4", 1);
    CHECK(test::holds(plain, "cache sum sum.sums\n"));
    CHECK(test::holds(plain, "split sum.sums i i.o i.i 7\n"));
    CHECK(test::holds(plain, "order sum.sums j.b k.b j.o i.o k i.i j.u j.v\n"));
    CHECK(test::holds(plain, "store sum.sums j.b j.o i.o i.i j.u j.v\n"));
    CHECK(test::holds(plain, "at sum.sums.a sum.sums k.b\n"));
    CHECK(test::holds(plain, "at sum.sums sum j.b\n"));
    // All rows are a tile where registers have room for them.
    CHECK(test::holds(schedule(product(12, 384, 1030), "x86-64-v4", 1),
                      "split sum.sums i i.o i.i 12"));
    CHECK(test::holds(schedule(product(12, 384, 1030), "x86-64-v3", 1),
                      "split sum.sums i i.o i.i 6"));
    const std::string three =
        schedule(relu(product(20, 387, 1003) + array({1003})), "x86-64-v3", 3);
    CHECK(test::holds(three, "split sum j j.b j 336\n"));
    CHECK(!test::holds(three, "cache"));
    // The sums of a block stay in half of L2.
    CHECK(test::holds(test::chosen_schedule(product(64, 1024, 1100), visiting("x86-64-v4")),
                      "split sum j j.b j 384\n"));
    schedule(matmul(array({390, 20}).T(), array({390, 601})), "x86-64-v4", 2);
    schedule(matmul(array({11, 385}, DType::F64), array({385, 513}, DType::F64)), "x86-64-v4", 1);
    // Three blocks for each of two threads.
    Target two = visiting("x86-64-v4", 2);
    two.l2 = 1 << 20;
    CHECK(test::holds(test::chosen_schedule(product(64, 1024, 12200), two),
                      "split sum j j.b j 2048\n"));
    // Two products, as of a gated layer, share that half.
    const auto gate = [](const Tensor& x, int64_t n) {
      const int64_t k = x.shape()[1];
      return silu(matmul(x, array({k, n}))) * matmul(x, array({k, n}));
    };
    CHECK(test::holds(test::chosen_schedule(gate(array({64, 1024}), 1100), visiting("x86-64-v4")),
                      "split mul j j.b j 224\n"));
    const std::string gated = schedule(gate(array({16, 390}), 600), "x86-64-v4", 1);
    CHECK(test::holds(gated, "at sum mul j.b\n"));
    CHECK(test::holds(gated, "at sum_2 mul j.b\n"));
    // Read by others than what follows element by element.
    const Tensor sums = product(16, 390, 600);
    schedule(sums / sums.sum({1}, true), "x86-64-v4", 2);
    schedule(softmax(sums, 1), "x86-64-v3", 1);
  }
}

}  // namespace
}  // namespace lazuli
