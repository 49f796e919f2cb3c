// How the gradients of convolutions with few sums a place are scheduled: depthwise, strided, and of
// patches.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <regex>

#include "core/gradient.h"
#include "core/ops.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::array;

const Target kTargets[] = {named_target("x86-64-v3"), named_target("x86-64-v4")};

// The gradient of a depthwise convolution of 8 channels of 40 by 40 by its image or its weight.
Tensor depthwise_gradient(bool by_image, int64_t kernel, int64_t stride) {
  const Tensor x = array({1, 8, 40, 40}), w = array({8, 1, kernel, kernel});
  const Tensor y = conv2d(x, w, {}, stride, kernel / 2, 1, 8);
  return grad(sum(y * array(y.shape())), by_image ? x : w);
}

TEST_SUITE("ir") {
  TEST_CASE(
      "phases of a strided depthwise gradient: rows stored along their vectors, written out") {
    for (const Target& target : kTargets) {
      const std::string steps = test::checked_schedule(depthwise_gradient(true, 3, 2), target);
      CHECK(test::holds(steps, "dims sum 0 1 3 2"));
      CHECK(test::holds(steps, "split shrink u u.o u 2"));
      // Neighbouring rows of one phase have nothing to choose.
      const std::string one = test::checked_schedule(depthwise_gradient(true, 3, 1), target);
      CHECK(!test::holds(one, "dims"));
      CHECK(!test::holds(one, "u.o u 2"));
    }
  }

  TEST_CASE("rows are written out by period where conditions fold") {
    const Target target = named_target("x86-64-v3");
    const auto writes_out = [&](int64_t stride) {
      const std::string steps = test::checked_schedule(depthwise_gradient(true, 5, stride), target);
      const std::regex split(fmt::format("split shrink (\\w) \\1\\.o \\1 {}\n", stride));
      return std::regex_search(steps, split);
    };
    CHECK(writes_out(2));
    CHECK(writes_out(4));
    CHECK(!writes_out(3));  // 40 rows are no multiple
    CHECK(!writes_out(5));  // too many
    // An address has a period too, but chooses nothing.
    const Tensor again = repeat(array({4, 64}), {8, 1});
    CHECK(!test::holds(test::checked_schedule(again * array({32, 64}), target), "split mul i"));
  }

  TEST_CASE("sums of a window take the terms that they share together") {
    for (const Target& target : kTargets) {
      for (const int64_t kernel : {3, 5, 7}) {
        for (const int64_t stride : {1, 2}) {
          if (kernel == 7 && stride == 2) continue;  // which fill eight lanes nearly
          INFO(kernel, " ", stride);
          const std::string steps =
              test::checked_schedule(depthwise_gradient(false, kernel, stride), target);
          CHECK(test::holds(steps, fmt::format("split sum m m.o m {}", kernel).c_str()));
          CHECK(test::holds(steps, "vector sum k.v"));
          CHECK(test::holds(steps, "unroll sum m"));
        }
      }
      // As many accumulators as there are registers for, beside the terms.
      const std::string steps = test::checked_schedule(depthwise_gradient(false, 5, 1), target);
      const int64_t elements = target.vector_registers > 16 ? 3 * 16 : 2 * 8;
      CHECK(test::holds(steps, fmt::format("split sum k k.o k.u {}", elements).c_str()));
    }
  }

  TEST_CASE("the gradients of depthwise convolutions of other ranks, dtypes and sizes") {
    const Target& target = kTargets[0];
    const auto both = [&](const Tensor& x, const Tensor& w, const Tensor& y) {
      for (const Tensor& by : {x, w})
        test::checked_schedule(grad(sum(y * array(y.shape(), y.dtype())), by), target);
    };
    for (const DType t : {DType::F64, DType::F32}) {
      const Tensor line = array({2, 6, 33}, t), taps = array({6, 1, 4}, t);
      both(line, taps, conv1d(line, taps, {}, 3, 1, 1, 6));
      const Tensor cube = array({1, 4, 7, 9, 18}, t), w = array({4, 1, 2, 3, 3}, t);
      both(cube, w, conv3d(cube, w, {}, 2, 1, 1, 4));
    }
  }

  TEST_CASE("sums of rows that leave lanes empty have their vectors along channels") {
    const auto how = [](int64_t images, int64_t channels, int64_t width, int64_t out) {
      const Tensor x = array({images, channels, width, width}), w = array({out, channels, 3, 3});
      const Tensor y = conv2d(x, w, {}, 1, 1);
      return test::reasons({grad(sum(y * array(y.shape())), w)});
    };
    CHECK(test::holds(how(64, 6, 10, 16), "tile of 6 rows, 1 images and 2 vectors"));
    CHECK(test::holds(how(1, 128, 14, 128), "tile of 6 rows, 1 images and 2 vectors"));
    CHECK(test::holds(how(1, 256, 7, 256), "tile of 6 rows, 1 images and 2 vectors"));
    // Rows of whole vectors, or of many.
    CHECK(test::holds(how(64, 6, 8, 16), "dot products of 4 by 3 rows"));
    CHECK(test::holds(how(16, 6, 28, 16), "dot products of 4 by 3 rows"));
    // Of a result that leaves L2, the kernel's elements innermost, which lie between the lanes.
    const auto order = [](int64_t channels, bool stepped, int threads) {
      const Tensor x = array({1, channels, 7, 7}), w = array({channels, channels, 3, 3});
      const Tensor y = conv2d(x, w, {}, 1, 1);
      const Tensor by_w = grad(sum(y * array(y.shape())), w);
      Target target = named_target("x86-64-v3");
      target.threads = threads;
      return test::chosen_schedule(stepped ? w - by_w : by_w, target);
    };
    for (const int threads : {1, 3}) {
      CHECK(test::holds(order(256, false, threads), "o m n j k i.i l.u l.v\n"));
      CHECK(!test::holds(order(64, false, threads), "o m n j k"));  // it stays there
      CHECK(!test::holds(order(256, true, threads), "o m n j k"));  // an epilogue follows each tile
    }
    // Nor where many threads share out blocks of rows.
    Target shared = named_target("x86-64-v4");
    shared.threads = 16;
    shared.l2 = 2 << 20;
    shared.winograd = false;
    shared.far_l3 = shared.fast_gather = true;
    const Tensor large = array({4, 256, 9, 12}), kernel = array({256, 256, 3, 3});
    const Tensor made = conv2d(large, kernel);
    const Tensor by_kernel = grad(sum(made * array(made.shape())), kernel);
    CHECK(test::holds(test::reasons({by_kernel}, shared), "rows at a time"));
    CHECK(!test::holds(test::chosen_schedule(by_kernel, shared), ".o n o i k l m"));
    const Tensor x = array({4, 6, 10, 10}), w = array({16, 6, 3, 3});
    const Tensor y = conv2d(x, w, {}, 1, 1);
    for (const Target& target : kTargets) {
      test::checked_schedule(grad(sum(y * array(y.shape())), w), target);
    }
  }

  TEST_CASE("rows of a panel that lie far apart without overlapping are packed") {
    const auto how = [](int64_t kernel, int64_t stride) {
      const Tensor x = array({1, 3, 112, 112}), w = array({256, 3, kernel, kernel});
      const Tensor y = conv2d(x, w, {}, stride);
      return test::reasons({grad(sum(y * array(y.shape())), w)});
    };
    CHECK(test::holds(how(16, 16), "panels of b are packed"));
    CHECK(!test::holds(how(16, 4), "panels of b are packed"));
  }
}

}  // namespace
}  // namespace lazuli
