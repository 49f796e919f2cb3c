#include "ir/channels_last.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/plan.h"
#include "runtime/reference/reference.h"
#include "tests/ir/algorithms.h"
#include "tests/ir/chosen.h"
#include "tests/ir/run_plan.h"

namespace lazuli {
namespace {

using test::exact_array;

Target direct_target(const char* level = "x86-64-v4", int threads = 1) {
  Target t = named_target(level);
  t.winograd = false;
  t.threads = threads;
  return t;
}

bool has_channels_last(const Plan& plan) {
  return std::any_of(plan.decisions.begin(), plan.decisions.end(), [](const Decision& d) {
    return d.text.find("summed with its channels last: ") != std::string::npos;
  });
}

bool has_channels_last(const Tensor& t, const Target& target = direct_target()) {
  const NodeRef root = t.node();
  return has_channels_last(make_plan({&root, 1}, target));
}

// Checks that channels are last, and the values: of the plan, and of what its kernels' programs
// compute. Returns why these are as they are.
std::string compare(const Tensor& t, const Target& target) {
  const std::vector<NodeRef> roots{t.node()};
  const Plan plan = make_plan(roots, target);
  CHECK(has_channels_last(plan));
  CHECK(plan.exact);
  const test::Elements got = test::run_plan(plan)[0];
  realize_reference(roots);
  CHECK(test::difference(t.dtype(), got, test::elements(*t.node())) == 0);
  std::string why;
  for (const PlanStep& step : plan.steps) {
    if (!step.kernel) continue;
    Kernel k = clone(*step.kernel);
    choose_schedule(k, target);
    CHECK(test::difference(k, target) == "");
    why += test::reasons(k);
  }
  CAPTURE(why);
  CHECK(!test::holds(why, "given up"));
  return why;
}

TEST_SUITE_BEGIN("ir");

TEST_CASE("convolutions whose rows waste vectors are summed with their channels last") {
  struct Row {
    Shape image, kernel;
    int64_t stride, padding;
    DType dtype = DType::F32;
    int64_t dilation = 1;
  };
  for (const Row& r :
       {Row{{1, 40, 14, 14}, {64, 40, 3, 3}, 2, 1}, Row{{2, 33, 11, 9}, {70, 33, 3, 3}, 1, 0},
        Row{{24, 19, 19}, {48, 24, 5, 2}, 3, 0}, Row{{3, 40, 6, 4}, {64, 40, 2, 3}, 1, 1},
        Row{{1, 20, 9, 10}, {40, 20, 2, 4}, 1, 1, DType::F64},
        Row{{2, 40, 9, 17}, {64, 40, 3, 3}, 1, 2, DType::F32, 2},
        Row{{5, 24, 13, 13}, {32, 24, 3, 3}, 2, 0, DType::F32, 2}}) {
    CAPTURE(r.kernel[0]);
    for (const int threads : {1, 3}) {
      CAPTURE(threads);
      const Tensor x = exact_array(r.image, r.dtype), w = exact_array(r.kernel, r.dtype);
      compare(conv2d(x, w, {}, r.stride, r.padding, r.dilation),
              direct_target("x86-64-v4", threads));
    }
  }
}

TEST_CASE(
    "what follows a sum with channels last, and what it is a gradient of, have the reference's "
    "values") {
  const Tensor x = exact_array({2, 48, 9, 9}), w = exact_array({64, 48, 3, 3}),
               b = exact_array({64}), y = exact_array({2, 64, 5, 5});
  const Target target = direct_target();
  compare(relu(conv2d(x, w, b, 2, 1)) + y, target);
  // What is pooled is stored first: a sum, its copy, what follows, the largest of each window.
  const Tensor pooled = max_pool2d(relu(conv2d(x, w, b, 1, 1)), 2);
  const NodeRef root = pooled.node();
  CHECK(make_plan({&root, 1}, target).steps.size() == 4);
  compare(pooled, target);
  compare(conv2d(relu(conv2d(x, w, b, 2, 1)), exact_array({32, 64, 3, 3}), {}, 1, 1), target);
  compare(sum(conv2d(x, w, b, 2, 1), {2, 3}), target);
  const Tensor big = exact_array({2, 64, 19, 19}), v = exact_array({64, 64, 3, 3});
  compare(grad(sum(square(conv2d(big, v, {}, 1, 1)) * exact_array({2, 64, 19, 19})), big), target);
}

TEST_CASE("of several threads, none reads all of an image that others have copied") {
  const Tensor w = exact_array({64, 16, 3, 3});
  const auto made = [](const std::string& why) { return test::holds(why, "pad: made for"); };
  Target target = direct_target("x86-64-v4", 2);
  target.l2 = 32 << 10;  // so that not each makes all of it
  CHECK(made(compare(conv2d(exact_array({1, 16, 36, 36}), w, {}, 1, 1), target)));
  CHECK(made(compare(conv2d(exact_array({4, 16, 19, 19}), w, {}, 2, 1), target)));
  CHECK(made(compare(conv2d(exact_array({2, 16, 37, 37}), w, {}, 2, 1), target)));  // one for each
  target.threads = 1;  // an image that leaves the cache
  CHECK(made(compare(conv2d(exact_array({4, 16, 19, 19}), w, {}, 1, 1), target)));
  const Target large = direct_target("x86-64-v4", 2);
  const auto small = [] {
    return conv2d(exact_array({1, 64, 14, 14}), exact_array({128, 64, 3, 3}), {}, 1, 1);
  };
  CHECK(!made(compare(small(), large)));
  const NodeRef root = small().node();
  Kernel k = clone(*make_plan({&root, 1}, large).steps[0].kernel);
  choose_schedule(k, large);
  CHECK(test::holds(k.schedule, "scope pad each\n"));
}

TEST_CASE("kernels from a far L3 are packed for a few channels at a time, and asked for ahead") {
  const Tensor x = exact_array({1, 100, 7, 7}), w = exact_array({96, 100, 3, 3});
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    Target target = direct_target("x86-64-v4", threads);
    target.l1 = 48 << 10;
    target.l2 = 256 << 10;
    target.far_l3 = true;
    CHECK(test::holds(compare(relu(conv2d(x, w, {}, 1, 1)), target),
                      "panels of b are packed, 16 of 100 along"));
  }
}

TEST_CASE("panels that are too long for the cache are packed in parts") {
  const Tensor x = exact_array({1, 100, 7, 7}), w = exact_array({96, 100, 3, 3});
  for (const int threads : {1, 2, 3}) {
    CAPTURE(threads);
    Target target = direct_target("x86-64-v4", threads);
    target.l2 = 64 << 10;
    const std::string why = compare(relu(conv2d(x, w, {}, 1, 1)), target);
    CAPTURE(why);
    CHECK(test::holds(why, threads == 3 ? "panels of b are packed, 25 of 100 along"
                                        : "panels of b are packed, 17 of 100 along"));
  }
}

TEST_CASE(
    "images and kernels may be parts of arrays, turned around, and kernels channels last too") {
  const Tensor x = exact_array({2, 40, 15, 17}), w = exact_array({64, 40, 3, 3});
  const Target target = direct_target();
  const Tensor y = conv2d(x, w, {}, 2, 1);
  compare(shrink(y, {{0, 2}, {0, 64}, {1, 7}, {2, 8}}), target);
  compare(conv2d(flip(x, {2, 3}), w, {}, 2, 1), target);
  compare(conv2d(x, flip(w, {2}), {}, 2, 1), target);
  compare(conv2d(permute(x, {0, 1, 3, 2}), w, {}, 2), target);
  compare(conv2d(x, permute(exact_array({3, 3, 40, 64}), {3, 2, 0, 1}), {}, 2, 1), target);
  compare(conv2d(x, permute(exact_array({40, 64, 3, 3}), {1, 0, 2, 3}) * 2, {}, 2, 1), target);
}

TEST_CASE("kernels that lie channel by channel cost less to turn around than others") {
  const Tensor x = exact_array({4, 40, 45, 47});
  const auto predicted = [&](const Tensor& w) {
    const NodeRef root = conv2d(x, w, {}, 2, 1).node();
    std::string text;
    for (const Decision& d : make_plan({&root, 1}, direct_target()).decisions) text += d.text;
    const size_t end = text.find(" us with channels last");
    REQUIRE(end != std::string::npos);
    return std::stod(text.substr(text.rfind(' ', end - 1)));
  };
  const double outside = predicted(exact_array({64, 40, 3, 3}));
  CHECK(predicted(permute(exact_array({3, 3, 40, 64}), {3, 2, 0, 1})) == outside);
  CHECK(predicted(flip(exact_array({64, 40, 3, 3}), {2})) > outside);
  CHECK(predicted(permute(exact_array({40, 64, 3, 3}), {1, 0, 2, 3})) > outside);
}

TEST_CASE("windows along the places of windows are no convolution") {
  const Tensor x = exact_array({4, 40}), w = exact_array({32, 3});
  for (const int64_t stride : {1, 2}) {
    const Tensor nested = unfold(unfold(x, 1, 9, stride), 2, 3, stride);
    const Tensor sums = sum(unsqueeze(nested, 1) * reshape(w, {1, 32, 1, 1, 3}), {4});
    const std::vector<NodeRef> roots{sums.node()};
    const test::Elements got = test::run_plan(make_plan(roots, direct_target()))[0];
    realize_reference(roots);
    CHECK(test::difference(DType::F32, got, test::elements(*sums.node())) == 0);
  }
}

TEST_CASE("channels are last where that fills vectors, and not where it costs more") {
  const Tensor x = exact_array({1, 64, 28, 28}), w = exact_array({64, 64, 3, 3});
  CHECK(has_channels_last(conv2d(x, w, {}, 1, 1)));
  CHECK(has_channels_last(conv2d(x, w, {}, 2, 1)));
  CHECK(has_channels_last(conv2d(x, w, {}, 2, 1), direct_target("x86-64-v3")));
  Target winograd = direct_target();
  winograd.winograd = true;
  const NodeRef fast = conv2d(x, w, {}, 1, 1).node();
  CHECK(!make_plan({&fast, 1}, winograd).exact);  // Winograd's form is faster
  CHECK(has_channels_last(conv2d(x, w, {}, 2, 1), winograd));
  // Large kernels come too slowly from a far L3 to be transformed.
  const auto large = [] {
    return conv2d(exact_array({1, 512, 7, 7}), exact_array({512, 512, 3, 3}), {}, 1, 1);
  };
  CHECK(!has_channels_last(large(), winograd));
  winograd.far_l3 = true;
  CHECK(has_channels_last(large(), winograd));
  const Tensor whole = exact_array({1, 64, 32, 32});  // rows of two vectors
  CHECK(!has_channels_last(conv2d(whole, w, {}, 1, 1)));
  CHECK(!has_channels_last(conv2d(x, exact_array({8, 64, 3, 3}), {}, 1, 1)));  // few channels
  CHECK(!has_channels_last(conv2d(x, exact_array({64, 16, 3, 3}), {}, 1, 1, 1, 4)));  // groups
  CHECK(!has_channels_last(conv2d(x.to(DType::F16), w.to(DType::F16), {}, 1, 1)));
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
