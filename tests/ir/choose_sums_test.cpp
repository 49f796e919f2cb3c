// How sums are scheduled that are no products: by chunks, by columns, by rows.
#include <doctest/doctest.h>

#include <regex>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/plan.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;

TEST_SUITE("ir") {
  TEST_CASE("few sums of many terms are sums of what chunks give") {
    const auto how = [](const Shape& a, const Shape& b, DType dtype = DType::F32) {
      const Tensor x = contiguous(randn(a, dtype)), y = contiguous(randn(b, dtype));
      return test::reasons({relu(matmul(transpose(x, -1, -2), y))});
    };
    CHECK(test::holds(how({4000, 64}, {4000, 48}), "few sums of many terms, by 8 chunks of 500 terms"));
    CHECK(test::holds(how({4000, 64}, {4000, 48}, DType::F64), "by 10 chunks of 400 terms"));
    // Chunks that exceed the cache are walked some terms at a time.
    const std::string large = how({4000, 200}, {4000, 200});
    CHECK(test::holds(large, "by 10 chunks of 400 terms"));
    const std::string many = how({64000, 200}, {64000, 200});
    CHECK(test::holds(many, "by 32 chunks of 2000 terms"));
    CHECK(test::holds(many, "terms at a time stay in cache"));
    // A prime number of terms, many sums, few rows, terms that stay in cache, and a batch.
    CHECK(!test::holds(how({4001, 64}, {4001, 48}), "chunks"));
    CHECK(!test::holds(how({4000, 700}, {4000, 800}), "chunks"));
    CHECK(!test::holds(how({4000, 8}, {4000, 300}), "few sums"));
    CHECK(!test::holds(how({1000, 64}, {1000, 48}), "chunks"));
    CHECK(!test::holds(how({4, 4000, 64}, {4, 4000, 48}), "few sums"));
    // Rows that lie along the sum are read in order for each panel; two vectors keep up with that.
    const auto rows = [](int64_t columns) {
      return test::reasons(
          {matmul(contiguous(randn({300, 20000})), contiguous(randn({20000, columns})))});
    };
    CHECK(!test::holds(rows(16), "few sums"));
    CHECK(test::holds(rows(32), "few sums of many terms, by 32 chunks"));
    // Where the last cache is far, chunks pay for less.
    Target far = named_target("x86-64-v3");
    const auto gradient = [&](int64_t terms) {
      const Tensor x = contiguous(randn({terms, 48})), y = contiguous(randn({terms, 64}));
      return test::reasons({matmul(transpose(x, 0, 1), y)}, far);
    };
    CHECK(!test::holds(gradient(1024), "chunks"));
    far.far_l3 = true;
    CHECK(test::holds(gradient(1024), "few sums of many terms, by 8 chunks of 128 terms"));
    CHECK(!test::holds(gradient(256), "chunks"));
    // Of columns that lie along the sum few terms take longer to turn around; where rows stay near,
    // or columns are many, nothing makes up for that.
    far.l2 = 256 << 10;
    const auto along_sum = [&](int64_t rows, int64_t columns) {
      const Tensor x = contiguous(randn({rows, 1000})), y = contiguous(randn({columns, 1000}));
      return test::reasons({matmul(x, transpose(y, 0, 1))}, far);
    };
    CHECK(test::holds(along_sum(48, 64), "few sums of many terms, by "));
    CHECK(!test::holds(along_sum(32, 64), "chunks"));
    CHECK(!test::holds(along_sum(48, 768), "chunks"));
    far.far_l3 = false;
    // Of a convolution: chunks of images, which are shared out.
    const auto by_kernel = [&](int64_t images, int64_t channels) {
      const Tensor x = contiguous(randn({images, channels, 28, 28})),
                   w = contiguous(randn({8, channels, 5, 5}));
      return grad(sum(conv2d(x, w) * contiguous(randn({images, 8, 24, 24}))), w);
    };
    CHECK(
        test::holds(test::reasons({by_kernel(64, 1)}), "few sums of many terms, by 16 chunks of 4 along"));
    CHECK(!test::holds(test::reasons({by_kernel(61, 1)}), "chunks of"));
    CHECK(test::holds(test::reasons({by_kernel(64, 2)}), "by 16 chunks of 4 along"));
    CHECK(!test::holds(test::reasons({by_kernel(64, 12)}), "chunks of"));  // more sums
    CHECK(!test::holds(test::reasons({by_kernel(8, 1)}), "chunks of"));
    const std::string small = test::checked_schedule(by_kernel(16, 1), far);
    CHECK_MESSAGE(test::holds(small, "parallel sum.chunks "), small);
    // A padded copy counts as the array that it is made of.
    const auto padded = [](int64_t images) {
      const Tensor x = contiguous(randn({images, 6, 20, 20})), w = contiguous(randn({8, 6, 3, 3}));
      return grad(sum(conv2d(x, w, std::nullopt, 1, 1) * contiguous(randn({images, 8, 20, 20}))),
                  w);
    };
    CHECK(test::holds(test::reasons({padded(32)}), "by 16 chunks of 2 along"));
    CHECK(!test::holds(test::reasons({padded(8)}), "chunks of"));
  }

  TEST_CASE("sums over stretches of images are walked some terms at a time, by chunks of images") {
    for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
      Target target = named_target(name);
      target.l2 = 1 << 18;
      const auto how = [&](int64_t images, int64_t terms, bool more) {
        const Tensor x = contiguous(randn({images, 50, terms})),
                     y = contiguous(randn({images, 20, terms}));
        const Tensor sums = einsum("nct,ndt->cd", {x, y}), root = more ? relu(sums + 1) : sums;
        test::checked_schedule(root, target);
        return test::reasons({root}, target);
      };
      CHECK(test::holds(how(18, 300, false), "few sums of many terms, by 9 chunks of 2 along "));
      const std::string chunks = how(8, 1100, true), few = how(7, 300, true);
      CHECK(test::holds(chunks, "few sums of many terms, by 8 chunks of 1 along "));
      CHECK(test::holds(chunks, " terms at a time stay in "));
      CHECK(!test::holds(few, "chunks"));  // of images
      CHECK(test::holds(few, " terms at a time stay in L2"));
      CHECK(!test::holds(how(40, 20, true), " terms at a time"));  // short stretches
    }
  }

  TEST_CASE("column sums take fewer blocks the farther their rows are") {
    const auto block = [](int64_t rows, int64_t l3) {
      Target target = named_target("x86-64-v3");
      target.l3 = l3;
      Kernel k = test::column_sum(rows, 2048);
      choose_schedule(k, target);
      const size_t at = k.schedule.find(".b j ") + 5;
      return std::stoi(k.schedule.substr(at));
    };
    CHECK(block(64, 2 << 20) == 128);
    CHECK(block(80, 2 << 20) == 256);
    CHECK(block(80, 1 << 20) == 512);
  }

  TEST_CASE("sums beside each other are of whole rows where these have registers") {
    const auto vectors = [](int64_t columns) {
      Kernel k = test::column_sum(40, columns);
      choose_schedule(k, named_target("x86-64-v4"));
      std::smatch found;
      REQUIRE(std::regex_search(k.schedule, found, std::regex(" (\\w+)\\.o \\1\\.u (\\d+)\n")));
      return std::stoi(found[2]) / 16;
    };
    CHECK(vectors(48) == 3);
    CHECK(vectors(96) == 6);
    CHECK(vectors(128) == 8);
    CHECK(vectors(160) == 4);
  }

  TEST_CASE("sums of few columns add several rows side by side") {
    const auto rows = [](const Tensor& x, Ints axes) {
      const std::string s = test::checked_schedule(sum(x, axes), named_target("x86-64-v3"));
      std::smatch found;
      const bool any =
          std::regex_search(s, found, std::regex("split sum (\\w+) \\1.o \\1 (\\d)\n"));
      return any && test::holds(s, ("ilp sum " + found[1].str() + "\n").c_str())
                 ? std::stoi(found[2])
                 : 0;
    };
    CHECK(rows(array({1001, 3}), {0}) == 4);
    CHECK(rows(array({30, 200, 8}), {1}) == 4);
    CHECK(rows(array({1001, 16}), {0}) == 2);
    CHECK(rows(array({1001, 32}), {0}) == 0);             // four vectors already
    CHECK(rows(array({40, 8}), {0}) == 0);                // soon over
    CHECK(rows(array({1001, 3}, DType::I32), {0}) == 0);  // a cycle each
  }

  TEST_CASE("sums of many short rows are shared out by rows, on any number of threads") {
    const auto how = [](const Tensor& x, int threads = 2) {
      Target target = named_target("x86-64-v3");
      target.threads = threads;
      return test::reasons({x}, target);
    };
    const auto rows = [](const Shape& shape) { return contiguous(randn(shape)); };
    const Tensor x = rows({4096, 64});
    CHECK(test::holds(how(sum(x, {0})), "few columns, by 16 chunks of 256 rows"));
    CHECK(how(sum(x, {0}), 1) == how(sum(x, {0}), 16));
    CHECK(test::holds(how(sum(x * rows({4096, 1}), {0})), "by 16 chunks of 256 rows"));
    const Tensor y = rows({20, 150, 48});
    CHECK(test::holds(how(sum(y * y, {0, 1})), "few columns, by 10 chunks of 300 rows"));
    CHECK(test::holds(how(sum(rows({2, 8000, 64}), {0, 1})), "by 16 chunks of 1000 rows"));
    // Little work, several panels, other axes to share out, and a prime number of rows.
    CHECK(!test::holds(how(sum(rows({1024, 48}), {0})), "few columns"));
    CHECK(!test::holds(how(sum(rows({4096, 200}), {0})), "few columns"));
    CHECK(!test::holds(how(sum(rows({8, 4096, 48}), {1})), "few columns"));
    CHECK(!test::holds(how(sum(rows({4093, 64}), {0})), "few columns"));
  }

  TEST_CASE("column sums walk whole rows where other axes are enough to share out") {
    Target target = named_target("x86-64-v3");
    target.l2_prefetch = true;
    const auto schedule = [&](const Tensor& x) {
      const NodeRef roots[] = {sum(x, 1).node()};
      Kernel k = clone(*make_plan(roots, target).steps.back().kernel);
      choose_schedule(k, target);
      return k.schedule;
    };
    const auto block = [&](const Tensor& x) {
      std::smatch found;
      const std::string text = schedule(x);
      REQUIRE(std::regex_search(text, found, std::regex(" (\\w+)\\.b \\1 (\\d+)\n")));
      return std::stoi(found[2]);
    };
    // One row after the other; the sums of longer ones come from L2, for several rows at a time.
    const Tensor narrow = array({8, 64, 1500}), wide = array({8, 64, 6000});
    CHECK(block(array({8, 64, 1536})) == 1536);
    CHECK(block(narrow) == 1504);  // the rest of a block costs more, unless memory takes longer
    target.l3 = 1 << 20;
    CHECK(block(narrow) == 1500);
    CHECK(test::holds(schedule(narrow), "split sum j j.o j.i 1\n"));
    CHECK(test::holds(schedule(narrow), "split sum k k.o k.u 64\n"));
    CHECK(block(wide) == 6000);
    CHECK(test::holds(schedule(wide), "split sum j j.o j.i 4\n"));
    CHECK(test::holds(schedule(wide), "split sum k k.o k.u 32\n"));
    // Sums that are more bytes than what they are of are loaded less often.
    const Tensor integers = array(narrow.shape(), DType::I32);  // whose sums are I64
    CHECK(test::holds(schedule(integers), "split sum j j.o j.i 8\n"));
    // Without prefetches four that lie far apart, for sums that are loaded and stored less often.
    target.l2_prefetch = false;
    CHECK(block(narrow) == 1500);
    CHECK(test::holds(schedule(narrow), "split sum j j.i j.o 16\n"));
    CHECK(test::holds(schedule(narrow), "split sum k k.o k.u 32\n"));
    CHECK(test::holds(test::checked_schedule(sum(array({8, 67, 600}), 1), target),
                      "split sum j j.i j.o 16\n"));
    target.far_l3 = true;
    CHECK(block(narrow) == 1504);
    CHECK(block(array({8, 64, 3000})) == 1504);  // in two parts: their sums share L1 with the rows
    CHECK(test::holds(schedule(narrow), "split sum j j.o j.i 8\n"));
    CHECK(block(array({7, 64, 1500})) < 1024);
    CHECK(block(array({7, 400, 1500})) == 1504);
    target.threads = 4;  // which seven rows do not share evenly
    CHECK(block(array({7, 400, 1500})) == 384);
  }

  TEST_CASE("sums between other stages walk whole rows where L2 does not hold them") {
    Target target = named_target("x86-64-v3");
    target.l2 = 64 << 10;
    const auto walked = [&](int64_t keys, int64_t width) {
      const Tensor q = array({1, 16, 1, width}), k = array({1, 16, keys, width}),
                   v = array({1, 16, keys, width});
      return test::checked_schedule(scaled_dot_product_attention(q, k, v), target);
    };
    CHECK(test::holds(walked(200, 96), "order sum_2 i j.o l.o j l.u l.v\nunroll sum_2 j l.u\n"));
    CHECK(!test::holds(walked(600, 64), "j.o l.o"));  // one block of vectors
    CHECK(!test::holds(walked(150, 96), "j.o l.o"));  // 57 KB
    // Of one block of columns at a time the sums stay in registers.
    const std::string blocks = test::checked_schedule(softmax(array({3, 203, 101}), 1), target);
    CHECK(test::holds(blocks, "at max div k.b\n"));
    CHECK(!test::holds(blocks, "split max j "));
  }

  TEST_CASE("windows that slide along less than a vector are summed along it, with what follows") {
    const Target target = named_target("x86-64-v4");
    const auto array = [](Shape shape) { return contiguous(randn(std::move(shape))); };
    const Tensor y = conv2d(array({5, 16, 12, 10}), array({1, 16, 3, 3})) * 2;
    CHECK(test::holds(test::checked_schedule(y, target), "vector sum k.v\n"));
    CHECK(test::holds(test::checked_schedule(y, target), "at sum mul k.b\n"));
  }

  TEST_CASE("rows are summed a few at a time in L2, and past it where that is as fast") {
    Target target = named_target("x86-64-v3");
    target.l2 = 32 << 10;
    const auto together = [&](const Tensor& root, const char* step = "unroll sum i\n") {
      return test::holds(test::checked_schedule(root, target), step);
    };
    CHECK(together(sum(array({30, 256}), 1)));
    CHECK(!together(sum(array({33, 256}), 1)));
    CHECK(!together(sum(array({21, 1023}), 1)));
    CHECK(together(sum(array({21, 1024}), 1), "split sum i i.o i 4\n"));
    // Of several arrays only past the last cache, and not for several sums.
    const Tensor p = array({21, 1024}), q = array({21, 1024});
    CHECK(!together(sum(p * q, 1)));
    target.l3 = 128 << 10;
    CHECK(together(sum(p * q, 1)));
    CHECK(!together(sum(p * q, 1) / sum(p * p, 1)));
    CHECK(together(amax(p, 1) - amin(p, 1), "split max i i.o i 4\n"));
    target.l3 = Target().l3;
    target.l2_prefetch = true;
    CHECK(!together(sum(array({21, 1024}), 1)));
    CHECK(!together(sum(array({2, 30, 256}), 2), "unroll sum j\n"));  // 60 rows, not 30
    // What rows share, if it takes half of L1 or more, is loaded once for several.
    const Tensor matrix = array({21, 4096}), vector = array({4096});
    CHECK(together(matmul(matrix, vector)));
    CHECK(!together(matmul(array({21, 4000}), array({4000}))));
    target.l2_prefetch = false;
    target.far_l3 = true;
    CHECK(together(sum(array({33, 256}), 1), "split sum i i.o i 2\n"));
    CHECK(together(sum(array({33, 256}), 1), "split sum j j.o j.u 8\n"));
    CHECK(together(sum(array({21, 1024}), 1), "split sum i i.o i 4\n"));
    CHECK(together(sum(array({2, 9, 1100}), 2), "unroll sum jf\n"));
    CHECK(!together(sum(array({99, 100}), 1)));
    target.short_rows = 8;  // unless their sums exceed the registers
    CHECK(together(sum(array({33, 256}), 1), "split sum i i.o i 8\n"));
    const Tensor both = array({33, 256});
    CHECK(together(amax(both, 1) - amin(both, 1), "split max i i.o i 4\n"));
    CHECK(together(sum(array({21, 1024}), 1), "split sum i i.o i 4\n"));
    target.short_rows = 2;
    target.far_l3 = false;
    // Short rows of one array some pages apart, in blocks enough for the threads.
    const Tensor rows = array({275, 1024}), other = array({275, 1024});
    CHECK(together(sum(rows, 1), "split sum i i.o i 32\nsplit sum i i.p i 8\n"));
    CHECK(together(sum(rows, 1), "order sum i.o i j.o i.p j.u j.v\nunroll sum i.p\n"));
    CHECK(together(sum(rows, 1), "split sum j j.o j.u 16\n"));
    CHECK(together(amax(rows, 1) - amin(rows, 1), "split max j j.o j.u 8\n"));
    CHECK(together(sigmoid(sum(rows, 1)), "at sum sigmoid i.o\n"));
    CHECK(together(sigmoid(sum(rows, 1)), "split sigmoid i i i.v 8\n"));
    CHECK(!together(sum(array({255, 1024}), 1), "i.p"));
    CHECK(!together(sum(rows * other, 1), "i.p"));
    target.threads = 16;
    CHECK(together(sum(rows, 1), "split sum i i.o i 8\nsplit sum i i.p i 2\n"));
    target.threads = 64;  // whole vectors of what is computed of them
    CHECK(together(sum(rows, 1), "split sum i i.o i 8\nsplit sum i i.p i 2\n"));
    CHECK(together(sum(array({3100, 256}), 1), "split sum i i.o i 16\nsplit sum i i.p i 4\n"));
    target.threads = 16;  // where other axes are shared out, they need not be nearer
    const Tensor heads = narrow(array({4, 1100, 256}), 1, 0, 1088);
    CHECK(together(sum(heads, 2), "split sum j j.o j 128\nsplit sum j j.p j 32\n"));
    CHECK(together(sum(array({1088, 256}), 1), "split sum i i.p i 8\n"));
    Target wide = named_target("x86-64-v4");
    wide.threads = 64;
    CHECK(test::holds(test::checked_schedule(sigmoid(sum(rows, 1)), wide), "at sum sigmoid i.o\n"));
    target.threads = 1;
    target.l2_prefetch = true;
    CHECK(!together(sum(rows, 1), "i.p"));
    target.l2_prefetch = false;
    target.far_l3 = true;
    CHECK(!together(sum(rows, 1), "i.p"));
    // Sums beside each other share the accumulators: four by four rows have one vector each.
    const Tensor y = array({64, 8192});
    const std::vector<Tensor> four{sum(y, 1), sum(y * y, 1), amax(y, 1), amin(y, 1)};
    CHECK(test::holds(test::checked_schedule(four, target), "split sum j j.o j.u 8\n"));
    CHECK(!together(sum(array({7, 1024}), 1)));
    CHECK(!together(sum(exp(array({21, 1024})), 1)));
    // With what is computed of the sums.
    const Tensor x = array({1, 1100}), w = array({21, 1100}), b = array({21});
    CHECK(together(relu(matmul(x, matrix_transpose(w)) + b)));
    // A row that is walked twice stays in L1.
    CHECK(!together(softmax(w, 1)));
  }

  TEST_CASE("sums over storage that is rounded up keep their loops") {
    const auto array = [](Shape shape) { return contiguous(randn(shape)); };
    const Tensor a = permute(array({17, 100, 8}), {1, 2, 0}),
                 b = permute(array({8, 64, 17}), {1, 0, 2});
    const std::string s =
        test::checked_schedule(einsum("ipq,jpq->ij", {a, b}), named_target("x86-64-v3"));
    CHECK(test::holds(s, "lift sum.b 0 sum.b.t\n"));
    CHECK(!test::holds(s, "flatten sum"));
  }
}

}  // namespace
}  // namespace lazuli
