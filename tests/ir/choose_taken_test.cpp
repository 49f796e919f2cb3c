// Transforms of a few points: what stays in registers, and in which blocks the rest is walked.
#include <doctest/doctest.h>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

// Sums and products of three neighbours along axis 1, and again of what they are, which is added to
// them `once_more`.
Tensor combined_twice(bool once_more) {
  const auto combined = [](const Tensor& x) {
    const Tensor a = select(x, 1, 0), b = select(x, 1, 1), c = select(x, 1, 2);
    return stack({a + b, a - b, a * c + b}, 1);
  };
  const Tensor once = combined(contiguous(randn({9, 3, 700})));
  return once_more ? combined(once) + once : combined(once);
}

TEST_SUITE("ir") {
  TEST_CASE("blocks that are written to several places are as long as their values stay in L1") {
    Target target = named_target("x86-64-v3");
    const Tensor y = combined_twice(true);
    CHECK(test::holds(test::checked_schedule(y, target), "split add k k.b k 256\n"));
    target.l1 = 1024;
    CHECK(test::holds(test::checked_schedule(y, target), "split add k k.b k 64\n"));
  }

  TEST_CASE("what a stage takes of another, few vectors for each of its own, stays in registers") {
    const Target target = named_target("x86-64-v4");
    const std::string few = test::checked_schedule(combined_twice(false), target);
    CHECK_MESSAGE(test::holds(few, "at where where_2 k.o\n"), few);
    CHECK(test::holds(few, "scope where reg\n"));
    CHECK(!test::holds(test::checked_schedule(combined_twice(true), target), "scope where reg"));
    // Beside a product: the kernels of a convolution, where its tiles stay in L2.
    const auto convolved = [](int64_t size, int64_t l2) {
      const Tensor x = contiguous(randn({1, 64, size, size})),
                   w = contiguous(randn({64, 64, 3, 3}));
      Target t = named_target("x86-64-v4");
      t.l2 = l2;
      return test::reasons({conv2d(x, w, {}, 1, 1)}, t);
    };
    const std::string near = convolved(16, 1 << 20), far = convolved(16, 1 << 18);
    CHECK_MESSAGE(test::holds(near, "where: in registers, for each vector of where_2\n"), near);
    CHECK(test::holds(near, "rule row blocks\n"));
    CHECK_MESSAGE(!test::holds(far, "rule row blocks\n"), far);
    // And the gradient by the kernel.
    const Tensor x = contiguous(randn({1, 64, 16, 16})), w = contiguous(randn({64, 64, 3, 3}));
    const Tensor y = conv2d(x, w, {}, 1, 1) * contiguous(randn({1, 64, 16, 16}));
    CHECK(test::holds(test::checked_schedule(grad(sum(y), w), target), "scope where reg\n"));
  }
}

}  // namespace
}  // namespace lazuli
