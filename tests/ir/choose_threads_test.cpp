// What a schedule makes of the number of threads, and of memory that they wait for.
#include <doctest/doctest.h>

#include "core/ops.h"
#include "ir/choose.h"
#include "ir/choose_groups.h"
#include "ir/plan.h"
#include "ir/program_cost.h"
#include "ir/schedule.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

TEST_SUITE("ir") {
  TEST_CASE("tiles are cut so that the target's threads have equally much") {
    Target target = named_target("x86-64-v4");
    const auto schedule = [&](int64_t m, int64_t n, int64_t k, int threads) {
      target.threads = threads;
      Kernel product = test::matmul(m, n, k, false, false, false);
      choose_schedule(product, target);
      return product.schedule;
    };
    // Of 512 columns, 11 panels of 48 are 6 for one of two threads; 8 panels of 64 are 4 for each.
    CHECK(test::holds(schedule(512, 512, 512, 1), "split C n n.o n.u 48\n"));
    CHECK(test::holds(schedule(512, 512, 512, 2), "split C n n.o n.u 64\n"));
    // More threads than panels share out rows, for which panels are a phase of their own.
    CHECK(test::holds(schedule(256, 256, 256, 1), "at C.b C n.o\n"));
    CHECK(test::holds(schedule(256, 256, 256, 2), "at C.b C n.o\n"));
    CHECK(test::holds(schedule(256, 256, 256, 64), "scope C.b shared\n"));
    // Where all of b stays in cache, or a is too large for it, rows are walked once.
    CHECK(test::holds(schedule(2048, 144, 48, 1), "order C m.o n.o"));
    CHECK(test::holds(schedule(2048, 256, 512, 1), "order C m.o n.o"));
  }

  TEST_CASE("threads take the rows of what another kernel has made by rows") {
    Target target = named_target("x86-64-v4");
    target.threads = 2;
    target.far_l3 = true;
    const auto schedule = [&](const Tensor& x, int64_t columns) {
      return test::checked_schedule(
          {matmul(x, test::array({x.shape()[1], columns})) + test::array({columns})}, target);
    };
    const Tensor x = test::array({256, 80}), odd = test::array({257, 80});
    const auto made = [](const Tensor& t) { return contiguous(exp(t)); };
    const std::string rows = schedule(made(x), 512);
    CHECK(test::holds(rows, "split add i i.b i 128\n"));
    CHECK(test::holds(rows, "parallel add i.b j.o\n"));
    CHECK(test::holds(rows, "at sum.b add j.o\n"));
    CHECK(!test::holds(schedule(x, 512), "i.b"));
    CHECK(!test::holds(schedule(made(odd), 512), "i.b"));  // the last rows are fewer
    CHECK(!test::holds(schedule(made(x), 500), "i.b"));    // or the last columns
    const std::string across = schedule(transpose(made(transpose(x, 0, 1)), 0, 1), 512);
    CHECK(!test::holds(across, "parallel add i.b j.o\n"));
    CHECK(!test::holds(schedule(made(test::array({128, 80})), 512), "i.b"));  // too few for a panel
    target.threads = 1;
    CHECK(!test::holds(schedule(made(x), 512), "i.b"));
    // Eight threads: four take the same rows, and share out the columns.
    target.threads = 8;
    CHECK(test::holds(schedule(made(x), 512), "split add i i.b i 128\n"));
  }

  TEST_CASE("of two parallel loops, the panel of the inner one's next iteration is packed ahead") {
    Target target = named_target("x86-64-v4");
    target.threads = 2;
    target.far_l3 = true;
    target.l2 = 64 << 10;
    const Tensor x = contiguous(exp(test::array({256, 80})));
    const NodeRef root = (matmul(x, test::array({80, 512})) + test::array({512})).node();
    Kernel k = clone(*make_plan({&root, 1}, target).steps.back().kernel);
    const Program program = choose_schedule(k, target);
    CHECK(test::holds(k.schedule, "parallel add i.b j.o\n"));
    CHECK(program.phases.back().packs_ahead);
    // As many iterations of both loops as there are, two products of a vector in a cycle.
    const double products = 256.0 * 512 * 80 / 16;
    CHECK(estimate_cycles(program) == doctest::Approx(products / 2).epsilon(0.25));
    CHECK(test::difference(k, target) == "");  // in any stretches of iterations
  }

  TEST_CASE("what all threads read whole, and is quickly copied, each makes for itself") {
    Target target = named_target("x86-64-v4");
    const auto schedule = [&](const std::vector<Tensor>& roots, int threads) {
      target.threads = threads;
      return test::checked_schedule(roots, target);
    };
    // Rows that are packed are then packed by who reads them.
    const auto turned = [&](int64_t m, int64_t n, int64_t k, int threads) {
      return schedule({matmul(transpose(test::array({k, m}), 0, 1), test::array({k, n}))}, threads);
    };
    const std::string two = turned(420, 390, 70, 2);
    CHECK(test::holds(two, "scope sum.b each\n"));
    CHECK(test::holds(two, "at sum.a sum i.b\n"));
    CHECK(test::holds(two, "parallel sum i.b\n"));
    CHECK(!test::holds(turned(420, 390, 70, 1), "each"));
    CHECK(!test::holds(turned(420, 390, 70, 64), "each"));  // as long as what it is made for
    CHECK(!test::holds(turned(48, 390, 70, 2), "each"));    // few rows, that all need all of it
    // An array that is updated may have been another product's, by columns.
    const Tensor w = test::array({420, 512}), x = test::array({70, 420}),
                 g = test::array({70, 512});
    CHECK(!test::holds(schedule({w - matmul(transpose(x, 0, 1), g) * 0.1}, 2), "each"));
    // Its panels would be narrow, which come slower from memory than rows.
    const Tensor narrow = test::array({420, 390}), h = test::array({70, 390});
    CHECK(test::holds(schedule({narrow - matmul(transpose(x, 0, 1), h) * 0.1}, 2),
                      "parallel sub i.b\n"));
    // Images that all channels read, but not those of a batch.
    const auto image = [&](int64_t batch, int threads) {
      target.winograd = false;
      target.l2 = 64 << 10;  // which the kernels are too large for
      return schedule({conv2d(test::array({batch, 8, 14, 14}), test::array({120, 8, 3, 3}),
                              std::nullopt, 1, 1)},
                      threads);
    };
    CHECK(test::holds(image(1, 2), "scope pad each\n"));
    CHECK(!test::holds(image(1, 1), "each"));
    CHECK(!test::holds(image(4, 2), "each"));
  }

  TEST_CASE("small panels are packed by who reads them, not in a phase for all") {
    Target target = named_target("x86-64-v4");
    target.l2 = 2 << 20;
    for (const int threads : {1, 2}) {
      target.threads = threads;
      const auto product = [&](int64_t m, int64_t n, int64_t k, bool turned = false) {
        const Tensor b = turned ? transpose(test::array({n, k}), 0, 1) : test::array({k, n});
        return test::chosen_schedule(matmul(test::array({m, k}), b), target);
      };
      for (const int64_t m : {128, 192}) {
        const std::string lies = product(m, 128, 128), turned = product(m, 128, 128, true);
        CHECK_MESSAGE(test::holds(lies, "order sum j.o i.o "), lies);
        CHECK_MESSAGE(!test::holds(lies, "pack sum 1"), lies);
        CHECK_MESSAGE(test::holds(turned, "at sum.b sum j.o\n"), turned);
      }
      // Where a is packed before, too; and where threads would have panels of unlike width.
      const Tensor x = relu(test::array({128, 128})), y = test::array({128, 128});
      CHECK(test::holds(test::chosen_schedule(matmul(x, y), target), "order sum i.o j.o "));
      if (threads == 2) CHECK(test::holds(product(400, 100, 96, true), "order sum i.o j.o "));
      // Rows that are many are walked once; so are those whose panels need not be packed.
      CHECK(test::holds(product(4096, 128, 128), "order sum i.o j.o "));
      CHECK(test::holds(product(192, 128, 32), "order sum i.o j.o "));
    }
  }

  TEST_CASE("rows that a group takes together are as many for any number of threads") {
    Target target = named_target("x86-64-v3");
    const auto schedule = [&](int threads, const Tensor& sums) {
      target.threads = threads;
      const std::string steps = test::checked_schedule(sums * 0.2, target);
      return steps.substr(0, steps.rfind("parallel"));
    };
    for (const int64_t rows : {2, 3, 7, 8, 9}) {
      const Tensor x = test::array({2, rows, 33, 31}), g = test::array({2, 1, 33, 31});
      const Tensor some = sum(x * g, {2, 3});
      const std::string alone = schedule(1, some);
      for (const int threads : {3, 7, 64}) CHECK(schedule(threads, some) == alone);
    }
  }

  TEST_CASE("many threads share out blocks of rows, too") {
    Target target = named_target("x86-64-v4");
    const auto schedule = [&](int threads) {
      target.threads = threads;
      Kernel product = test::matmul(1024, 1000, 1024, false, false, false);
      choose_schedule(product, target);
      CHECK(test::reasons(product).find("given up") == std::string::npos);
      return product.schedule;
    };
    // 16 panels are four for each of four threads; of 16, one that is late holds up all others.
    const std::string few = schedule(4), many = schedule(16);
    CHECK(test::holds(few, "at C.b C n.o\n"));
    CHECK(test::holds(few, "parallel C n.o\n"));
    CHECK(test::holds(many, "order C n.o m.b m.o k"));
    CHECK(test::holds(many, "scope C.b shared\n"));
    CHECK(test::holds(many, "parallel C n.o m.b\n"));
    CHECK(share_tiles(target, 1, 64, 8, 170, 1e8).rows > 0);
    CHECK(share_tiles(target, 1, 64, 8, 1, 1e8).rows == 0);  // one row tile is no two blocks
    CHECK(share_tiles(target, 1, 64, 4, 170, 1e8).rows > 0);
    CHECK(share_tiles(target, 1, 64, 4, 170, 1e5).rows == 0);  // of little work, more than that
    CHECK(share_tiles(target, 99, 64, 8, 170, 1e8).rows == 0);
    // Two panels for each thread are few: the core that is the slowest may have two to do.
    CHECK(late_share(target, 32) == doctest::Approx(1 + 15.0 / 128));
    CHECK(share_tiles(target, 1, 128, 4, 341, 5e8).rows > 0);
    target.threads = 2;
    CHECK(share_tiles(target, 1, 128, 4, 341, 5e8).rows == 0);
    target.threads = 1;
    CHECK(late_share(target, 1) == 1);
    CHECK(share_tiles(target, 1, 64, 8, 170, 1e8).rows == 0);
    // Few row tiles of columns that lie apart, the columns of few rows, and weights' gradients.
    target.threads = 4;
    Kernel scattered = test::matmul(32, 128, 784, false, true, false);
    choose_schedule(scattered, target);
    CHECK(test::holds(scattered.schedule, "parallel C n.o m.b\n"));
    target.threads = 8;
    Kernel rows = test::matmul(3, 1024, 1024, false, false, false);
    choose_schedule(rows, target);
    CHECK(test::holds(rows.schedule, "split C n n.b n 128\n"));
    // Sums of columns and of rows, and rows of few heads.
    target.l2 = 2 << 20;
    target.l3 = 64 << 20;
    const auto chosen = [&](const Tensor& y, int threads) {
      target.threads = threads;
      return test::checked_schedule(y, target);
    };
    const auto array = [](const Shape& shape) {
      return Tensor::from_storage(make_storage(size_t(4 * numel(shape))), shape, DType::F32);
    };
    CHECK(test::holds(chosen(sum(array({1024, 1024}), 0), 4), "split sum j j.b j 128\n"));
    CHECK(test::holds(chosen(sum(array({1024, 1024}), 0), 16), "split sum j j.b j 64\n"));
    // From a far cache in parts of rows that are as wide as all threads can have one.
    target.far_l3 = true;
    CHECK(test::holds(chosen(sum(array({1024, 1024}), 0), 1), "split sum j j.b j 1024\n"));
    CHECK(test::holds(chosen(sum(array({512, 1000}), 0), 2), "split sum j j.b j 512\n"));
    CHECK(test::holds(chosen(sum(array({528, 2100}), 0), 2), "split sum j j.b j 1088\n"));
    CHECK(test::holds(chosen(sum(array({64, 2100}), 0), 2), "split sum j j.b j 128\n"));
    CHECK(test::holds(chosen(sum(array({3, 256, 1024}), 1), 2), "split sum k k.b k 512\n"));
    CHECK(test::holds(chosen(sum(array({1024, 1024}), 0), 16), "split sum j j.b j 64\n"));
    target.far_l3 = false;
    CHECK(test::holds(chosen(sum(array({16, 4096}), 1), 4), "split sum i i.o i 4\n"));
    CHECK(!test::holds(chosen(sum(array({16, 4096}), 1), 16), "split sum i "));
    const Tensor q = array({12, 100, 16});
    const Tensor heads = scaled_dot_product_attention(q, q, q);
    CHECK(test::holds(chosen(heads, 4), "parallel div i\n"));
    CHECK(test::holds(chosen(heads, 8), "parallel div i j.b\n"));
  }

  TEST_CASE("one row for each of many threads has a loop of its own") {
    Target target = named_target("x86-64-v4");
    for (const int threads : {2, 7, 16, 48}) {
      target.threads = threads;
      for (const int64_t heads : {1, 3, 8}) {
        for (const int64_t rows : {1, 2, 3}) {
          CAPTURE(heads);
          CAPTURE(rows);
          const Tensor q = test::array({heads, rows, 64}), k = test::array({heads, 20, 64});
          test::checked_schedule(scaled_dot_product_attention(q, k, k), target);
        }
      }
      for (const int64_t rows : {2, 3, 7}) {
        const Tensor x = test::array({rows, 67}, DType::BF16),
                     y = test::array({67, 300}, DType::BF16);
        test::checked_schedule(relu(matmul(x, y)), target);
      }
    }
    target.threads = 1;
    const Tensor q = test::array({1, 2, 64}), k = test::array({1, 64, 64});
    const std::string one = test::checked_schedule(scaled_dot_product_attention(q, k, k), target);
    target.threads = 16;
    CHECK(test::checked_schedule(scaled_dot_product_attention(q, k, k), target) == one);
  }

  TEST_CASE("blocks of columns are cut so that the target's threads have equally much") {
    Target target = named_target("x86-64-v4");
    target.l2 = 1 << 20;
    const auto schedule = [&](int64_t columns, int threads) {
      target.threads = threads;
      Kernel product = test::matmul(512, columns, 3072, false, false, false);
      choose_schedule(product, target);
      return product.schedule;
    };
    // Of 768 columns, five blocks of 144 and one of 48 are 432 for one of two threads.
    CHECK(test::holds(schedule(768, 1), "split C n n.b n 144\n"));
    CHECK(test::holds(schedule(768, 2), "split C n n.b n 96\n"));
    // Who is through with a run of short blocks takes some of the other's.
    target.threads = 2;
    CHECK(uneven_share(target, 1, 48, 9) == doctest::Approx(27 * 2 / 48.0));
    CHECK(uneven_share(target, 1, 63, 15) == doctest::Approx(33 * 2 / 63.0));
    CHECK(uneven_share(target, 1, 63, 12) == doctest::Approx(36 * 2 / 63.0));
    CHECK(uneven_share(target, 2, 10, 4) == doctest::Approx(1));  // 4 4 2, 4 4 2
    CHECK(uneven_share(target, 1, 64, 4) == 1);
    CHECK(uneven_share(target, 1, 5, 8) == doctest::Approx(2));
    CHECK(uneven_share(target, 1, 256, 15) == 1);
    CHECK(uneven_share(target, 1, 256, 15, 16) == doctest::Approx(135 * 2 / 256.0));
    target.threads = 128;  // of more than 64, eight for each are enough
    CHECK(uneven_share(target, 1, 8 * 128 + 1, 1, 16) == 1);
    target.threads = 1;
    CHECK(uneven_share(target, 1, 63, 12) == 1);
    // 17 blocks of 120 columns and one of 8 are 1,080 for one thread; of 168, 1,040 as the last
    // whole one of the first thread's is done by the other.
    const auto deep = [&](int threads) {
      Target narrow = named_target("x86-64-v3");
      narrow.threads = threads;
      Kernel product = test::matmul(2048, 2048, 2048, false, false, false);
      choose_schedule(product, narrow);
      return product.schedule;
    };
    CHECK(test::holds(deep(1), "split C n n.b n 240\n"));
    CHECK(test::holds(deep(2), "split C n n.b n 168\n"));
  }

  TEST_CASE("rows go outside where memory is much of the work of what follows from a product") {
    Target target = named_target("x86-64-v4");
    target.l2 = 256 << 10;
    const auto array = [](const Shape& shape) {
      return Tensor::from_storage(make_storage(size_t(4 * numel(shape))), shape, DType::F32);
    };
    const auto schedule = [&](int64_t terms, bool more) {
      const Tensor product = matmul(array({240, terms}), array({terms, 144}));
      return test::checked_schedule(more ? array({240, 144}) - product : product, target);
    };
    CHECK(test::holds(schedule(16, false), "order sum i.o j.o "));
    CHECK(test::holds(schedule(16, true), "order sub i.o j.o "));
    CHECK(test::holds(schedule(100, false), "order sum j.o i.o "));
    CHECK(test::holds(schedule(100, true), "order sub i.o j.o "));
    CHECK(test::holds(schedule(130, true), "order sub j.o i.o "));
  }

  TEST_CASE("no sum takes its terms in another order for another number of threads") {
    Target target = named_target("x86-64-v4");
    const int64_t sizes[][3] = {{512, 512, 512}, {129, 97, 1000}, {48, 192, 2048}, {96, 48, 48},
                                {4, 300, 9000},  {700, 33, 5},    {65, 48, 2048}};
    for (const auto& [m, n, k] : sizes) {
      for (const bool a_transposed : {false, true}) {
        const Kernel product = test::matmul(m, n, k, a_transposed, false, false);
        target.threads = 1;
        Kernel one = clone(product);
        choose_schedule(one, target);
        for (const int threads : {2, 3, 4, 7, 16, 64}) {
          INFO(m, " ", n, " ", k, " on ", threads);
          target.threads = threads;
          Kernel many = clone(product);
          choose_schedule(many, target);
          CHECK(same_order(one, many));
        }
      }
    }
  }
}

}  // namespace
}  // namespace lazuli
