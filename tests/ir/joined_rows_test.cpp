#include "ir/joined_rows.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/plan.h"
#include "runtime/reference/reference.h"
#include "tests/ir/run_plan.h"

namespace lazuli {
namespace {

using test::exact_array;
using test::small_whole_numbers;

Target wide_target(bool winograd = false) {
  Target t = named_target("x86-64-v4");
  t.winograd = winograd;
  return t;
}

bool joins(const Plan& plan) {
  return std::any_of(plan.decisions.begin(), plan.decisions.end(), [](const Decision& d) {
    return d.text.find("summed along joined rows: ") != std::string::npos;
  });
}

bool joins(const Tensor& t, const Target& target) {
  const NodeRef root = t.node();
  return joins(make_plan({&root, 1}, target));
}

// Checks that rows are joined, and the values.
void compare_joined(const Tensor& t) {
  const std::vector<NodeRef> roots{t.node()};
  const Plan plan = make_plan(roots, wide_target());
  CHECK(joins(plan));
  CHECK(plan.exact);
  const test::Elements got = test::run_plan(plan)[0];
  realize_reference(roots);
  CHECK(test::difference(t.dtype(), got, test::elements(*t.node())) == 0);
}

TEST_SUITE_BEGIN("ir");

TEST_CASE("convolutions whose rows waste vectors are summed along joined rows") {
  struct Row {
    Shape image, kernel;
    int64_t padding;
    DType dtype = DType::I32;  // of floats of 32 and 64 bits, channels last are faster
    int64_t dilation = 1;
  };
  for (const Row& r : {Row{{1, 40, 7, 7}, {70, 40, 3, 3}, 1}, Row{{2, 33, 5, 9}, {65, 33, 3, 3}, 0},
                       Row{{32, 9, 9}, {96, 32, 5, 2}, 0}, Row{{3, 64, 6, 4}, {60, 64, 2, 3}, 1},
                       Row{{1, 40, 7, 10}, {70, 40, 2, 4}, 1, DType::I64},
                       Row{{1, 40, 7, 7}, {70, 40, 3, 3}, 1, DType::I8},
                       Row{{2, 64, 9, 17}, {70, 64, 3, 3}, 2, DType::I32, 2},
                       Row{{1, 64, 12, 9}, {96, 64, 3, 2}, 0, DType::I32, 3}}) {
    CAPTURE(r.kernel[2]);
    const Tensor x = exact_array(r.image, r.dtype), w = exact_array(r.kernel, r.dtype);
    compare_joined(conv2d(x, w, {}, 1, r.padding, r.dilation));
  }
  // Fewer channels than lanes.
  const Tensor x = exact_array({1, 256, 7, 7}), w = exact_array({15, 256, 5, 5}),
               b = exact_array({15}), y = exact_array({1, 15, 7, 7});
  compare_joined(relu(conv2d(x, w, b, 1, 2)) + y);
  const Tensor v = exact_array({256, 15, 5, 5});
  compare_joined(grad(sum(square(conv2d(y, v, {}, 1, 2)) * x), y));
}

TEST_CASE("what windows over the end of a row hold reaches no result") {
  const Shape shape{1, 256, 7, 7};
  std::vector<float> v = small_whole_numbers(shape);
  v[7 * 3 + 6] = std::numeric_limits<float>::infinity();   // at the end of a row
  v[7 * 6 + 6] = std::numeric_limits<float>::quiet_NaN();  // and of an image
  const Tensor x = Tensor::from(v, shape).realize();
  compare_joined(conv2d(x, exact_array({15, 256, 5, 5}), {}, 1, 2));
}

TEST_CASE("rows are joined where that fills vectors, and not where copies cost more") {
  const Tensor x = exact_array({1, 64, 56, 56}, DType::I32),
               w = exact_array({64, 64, 3, 3}, DType::I32);
  CHECK(joins(conv2d(x, w, {}, 1, 1), wide_target()));
  CHECK(!joins(conv2d(x.to(DType::F32), w.to(DType::F32), {}, 1, 1), wide_target()));
  CHECK(!joins(conv2d(x, w, {}, 1, 1), named_target("x86-64-v3")));  // whole vectors
  CHECK(!joins(conv2d(exact_array({1, 64, 14, 14}, DType::I32), w, {}, 1, 1), wide_target()));
  CHECK(!joins(conv2d(exact_array({64, 1, 28, 28}), exact_array({8, 1, 3, 3}), {}, 1, 1),
               wide_target()));
  const Tensor y = exact_array({1, 64, 7, 7}, DType::I32);
  CHECK(joins(conv2d(y, w, {}, 1, 1), wide_target(true)));
  const Tensor wide = exact_array({1, 64, 8, 8}, DType::I64),
               v = exact_array({64, 64, 3, 3}, DType::I64);
  CHECK(!joins(conv2d(wide, v, {}, 1, 1), wide_target()));  // vectors of eight
  CHECK(!joins(conv2d(y, w, {}, 2, 1), wide_target()));
  CHECK(joins(conv2d(y, w, {}, 1, 2, 2), wide_target()));
  CHECK(!joins(conv2d(y, exact_array({64, 16, 3, 3}, DType::I32), {}, 1, 1, 1, 4), wide_target()));
  CHECK(!joins(conv2d(y, exact_array({64, 64, 1, 1}, DType::I32)), wide_target()));
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
