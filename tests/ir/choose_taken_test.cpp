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
    // Of parts, each of which takes its own: axis 0 chooses the reader's formula alone.
    const Tensor a = exp(contiguous(randn({3, 2, 700}))), b = select(a, 1, 0), c = select(a, 1, 1);
    const Tensor parts = where(unsqueeze(arange(Scalar(3)) < 1, 1), b + c, b * c - c);
    CHECK(test::holds(test::checked_schedule(parts, target), "at exp where i\n"));
    // Three times, beside a product: two of the three go together.
    const auto once = [](const Tensor& t, int64_t parts, int64_t axis) {
      std::vector<Tensor> list;
      for (int64_t n = 0; n < parts; n++) {
        const Tensor u = select(t, 1, n % t.size(1)), v = select(t, 1, (n + 1) % t.size(1));
        list.push_back(n % 2 ? u * v * 0.5 + u : u - v + u);
      }
      return stack(list, axis);
    };
    const Tensor thrice = once(once(once(contiguous(randn({14, 4, 3, 16})), 4, 2), 3, 2), 3, 1);
    const Tensor k = transpose(reshape(thrice, {14, 9, 16}), 0, 1);
    const Tensor y = transpose(matmul(k, contiguous(randn({9, 16, 100}))), -3, -2);
    CHECK(!test::holds(test::reasons({contiguous(y)}, target), "given up"));
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
    const Tensor z = conv2d(x, w, {}, 1, 1) * contiguous(randn({1, 64, 16, 16}));
    CHECK(test::holds(test::checked_schedule(grad(sum(z), w), target), "scope where reg\n"));
  }
}

}  // namespace
}  // namespace lazuli
