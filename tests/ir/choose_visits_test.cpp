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
      CHECK(visited(product(9, 256, 512)));
      CHECK(visited(product(64, 256, 1024)));
      CHECK(visited(product(17, 300, 1001), 3));
      CHECK(visited(relu(product(24, 260, 600) + array({600})), 2));
      CHECK(visited(matmul(array({260, 20}).T(), array({260, 600}))));
      CHECK(visited(matmul(array({16, 260}, DType::F64), array({260, 300}, DType::F64))));
      CHECK(test::holds(
          test::chosen_schedule(matmul(array({2, 8, 256}), array({256, 512})), visiting(name)),
          "split sum.sums l l.b l 24\n"));
      // Fewer rows are products of vectors, more are worth a panel.
      CHECK(!visited(product(8, 256, 1024)));
      CHECK(!visited(product(65, 256, 1024)));
      // Short rows of the matrix; few terms; one that stays in L2.
      CHECK(!visited(product(9, 400, 500)));
      CHECK(!visited(product(25, 256, 1000)));
      CHECK(!visited(product(9, 255, 4096)));
      Target large = visiting(name);
      large.l2 = 1 << 20;
      CHECK(!is_visited(test::chosen_schedule(product(9, 256, 512), large)));
      // Columns that lie along the sum, and factors that are computed or converted.
      CHECK(!visited(matmul(array({40, 256}), array({1024, 256}).T())));
      CHECK(!visited(matmul(array({16, 256}), array({256, 1024}) * 2.0)));
      CHECK(!visited(matmul(relu(array({16, 256})), array({256, 1024}))));
      CHECK(!visited(matmul(array({16, 256}), array({256, 1024}, DType::F16).to(DType::F32))));
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
    const std::string plain = schedule(product(13, 257, 600), "x86-64-v4", 1);
    CHECK(test::holds(plain, "cache sum sum.sums\n"));
    CHECK(test::holds(plain, "split sum.sums i i.o i.i 7\n"));
    CHECK(test::holds(plain, "order sum.sums j.b k.b j.o i.o k i.i j.u j.v\n"));
    CHECK(test::holds(plain, "store sum.sums j.b j.o i.o i.i j.u j.v\n"));
    CHECK(test::holds(plain, "at sum.sums.a sum.sums k.b\n"));
    CHECK(test::holds(plain, "at sum.sums sum j.b\n"));
    // All rows are a tile where registers have room for them.
    CHECK(test::holds(schedule(product(12, 256, 520), "x86-64-v4", 1),
                      "split sum.sums i i.o i.i 12"));
    CHECK(
        test::holds(schedule(product(12, 256, 520), "x86-64-v3", 1), "split sum.sums i i.o i.i 6"));
    const std::string three =
        schedule(relu(product(20, 259, 1003) + array({1003})), "x86-64-v3", 3);
    CHECK(test::holds(three, "split sum j j.b j 336\n"));
    CHECK(!test::holds(three, "cache"));
    // The sums of a block stay in half of L2.
    CHECK(test::holds(test::chosen_schedule(product(64, 256, 1100), visiting("x86-64-v4")),
                      "split sum j j.b j 512\n"));
    schedule(matmul(array({260, 20}).T(), array({260, 601})), "x86-64-v4", 2);
    schedule(matmul(array({11, 260}, DType::F64), array({260, 301}, DType::F64)), "x86-64-v4", 1);
    // Read by others than what follows element by element.
    const Tensor sums = product(16, 260, 600);
    schedule(sums / sums.sum({1}, true), "x86-64-v4", 2);
    schedule(softmax(sums, 1), "x86-64-v3", 1);
  }
}

}  // namespace
}  // namespace lazuli
