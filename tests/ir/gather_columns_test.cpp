// Short rows of columns that are packed as one, and tiles of several images.
#include <doctest/doctest.h>

#include "core/ops.h"
#include "ir/choose.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

Tensor nhwc_convolution(int64_t images, int64_t in, int64_t size, int64_t out, int64_t kernel,
                        int64_t stride, DType dtype = DType::F32) {
  const Tensor x = contiguous(cast(randn({images, in, size, size}), dtype)),
               w = contiguous(cast(randn({out, in, kernel, kernel}), dtype));
  return conv2d(x, w, {}, stride, kernel == 3 ? 1 : 0);
}

// The rows and columns that the last kernel packs as one, or nothing.
std::string packed_kernel(const Tensor& root, const char* target) {
  test::checked_schedule(root, named_target(target));
  const std::string text = test::reasons({root}, named_target(target));
  const size_t at = text.find("sum: ", text.rfind('\n', text.find(" are packed as one")) + 1);
  return test::holds(text, " are packed as one")
             ? text.substr(at + 5, text.find(" are packed as one") - at - 5)
             : "";
}

TEST_SUITE("ir") {
  TEST_CASE("short rows of what strides leave apart are packed as one") {
    // Of floats, it has its channels last.
    CHECK(packed_kernel(nhwc_convolution(1, 16, 14, 64, 3, 2, DType::I32), "x86-64-v4") ==
          "7 rows of 7 columns");
    CHECK(packed_kernel(nhwc_convolution(2, 24, 14, 64, 1, 2), "x86-64-v4") ==
          "7 rows of 7 columns");
    CHECK(packed_kernel(relu(nhwc_convolution(1, 24, 14, 64, 1, 2) + 1), "x86-64-v4") ==
          "7 rows of 7 columns");
    CHECK(packed_kernel(nhwc_convolution(1, 24, 14, 64, 1, 2), "x86-64-v3") == "");  // as full
    CHECK(packed_kernel(nhwc_convolution(1, 24, 14, 8, 1, 2), "x86-64-v4") == "");   // rows too few
    CHECK(packed_kernel(nhwc_convolution(1, 24, 32, 512, 1, 2), "x86-64-v4") == "");  // full
    // Axis by axis.
    const Tensor x = contiguous(randn({1, 4, 10, 6, 14})), w = contiguous(randn({64, 4, 2, 2, 2}));
    CHECK(packed_kernel(conv3d(x, w, {}, 2), "x86-64-v4") == "3 rows of 7 columns");
    CHECK(test::holds(test::reasons({conv3d(x, w, {}, 2)}, named_target("x86-64-v4")),
                      "5 rows of 21 columns"));
  }

  TEST_CASE("patches are packed, but where a vector or more of each is summed along") {
    CHECK(packed_kernel(nhwc_convolution(1, 3, 112, 64, 16, 16), "x86-64-v4") ==
          "7 rows of 7 columns");
    CHECK(packed_kernel(nhwc_convolution(1, 2, 128, 8, 64, 64), "x86-64-v4") == "");
  }

  TEST_CASE("a tile of several images has one vector of each only where they have no more") {
    const auto tile = [](const Tensor& root) {
      test::checked_schedule(root, named_target("x86-64-v4"));
      const std::string text = test::reasons({root}, named_target("x86-64-v4"));
      const size_t at = text.find("tile of ");
      return text.substr(at, text.find(" vectors", at) - at);
    };
    const Tensor w = contiguous(randn({96, 64}));
    const auto product = [&](int64_t columns) {
      return matmul(w, contiguous(randn({8, 64, columns})));
    };
    CHECK(tile(product(192)) == "tile of 6 rows, 1 images and 4");
    CHECK(tile(product(196)) == "tile of 12 rows, 1 images and 2");
    CHECK(tile(product(16)) == "tile of 12 rows, 2 images and 1");
  }
}

}  // namespace
}  // namespace lazuli
