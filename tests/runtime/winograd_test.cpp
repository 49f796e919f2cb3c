// Convolutions by Winograd's form beside the direct sums, as the CPU device computes both.
#include "ir/winograd.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ir/choose.h"
#include "nn/lazuli.h"
#include "runtime/device.h"

#if LAZULI_LLVM
namespace lazuli {
namespace {

Config config_with(bool winograd, int threads = 2) {
  Config config;
  config.winograd = winograd;
  config.threads = threads;
  return config;
}

using GraphOf = std::function<Tensor(const std::vector<Tensor>&)>;

bool exact(Runtime& runtime, const Tensor& y) {
  const NodeRef root = y.node();
  return make_plan({&root, 1}, runtime.device().target()).exact;
}

std::vector<float> on(Runtime& runtime, const GraphOf& graph, const std::vector<Tensor>& inputs) {
  const Runtime::Use use(runtime);
  return graph(inputs).to_vector();
}

// The largest distance from `want`, relative to the largest magnitude there.
double distance(const std::vector<float>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double most = 0, worst = 0;
  for (size_t i = 0; i < want.size(); i++) {
    most = std::max(most, std::fabs(want[i]));
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
  }
  return worst / most;
}

std::vector<Tensor> random_inputs(const std::vector<Shape>& shapes) {
  std::vector<Tensor> out;
  // The same whatever ran before.
  for (const Shape& s : shapes) {
    out.push_back(randn(s, DType::F32, random_key(static_cast<uint64_t>(out.size()))).realize());
  }
  return out;
}

// Checks that `graph` takes Winograd's form, and how far it and the direct sums are from sums in
// f64.
void compare_winograd(const GraphOf& graph, const std::vector<Shape>& shapes) {
  Runtime fast(config_with(true)), plain(config_with(false));
  const Runtime::Use use(plain);
  const std::vector<Tensor> inputs = random_inputs(shapes);
  std::vector<Tensor> wide;
  for (const Tensor& t : inputs) wide.push_back(t.to(DType::F64).realize());
  const std::vector<double> want = graph(wide).to_vector<double>();
  CHECK_FALSE(exact(fast, graph(inputs)));
  CHECK(exact(plain, graph(inputs)));
  const double error = distance(on(fast, graph, inputs), want);
  CAPTURE(error);
  CHECK(error < kWinogradError / 20);
  CHECK(distance(on(plain, graph, inputs), want) < 2e-6);
}

GraphOf conv(int64_t padding) {
  return [=](const std::vector<Tensor>& t) { return conv2d(t[0], t[1], {}, 1, padding); };
}

TEST_SUITE_BEGIN("runtime");

TEST_CASE("Winograd's form agrees with direct sums over ragged sizes, padding and batches") {
  struct Row {
    int64_t batch, in, out, rows, columns, padding;
  };
  for (const Row& r :
       {Row{1, 64, 64, 16, 16, 1}, Row{1, 64, 48, 23, 25, 0}, Row{2, 96, 64, 17, 14, 2},
        Row{2, 128, 128, 13, 12, 1}, Row{3, 40, 56, 22, 19, 1}, Row{8, 192, 192, 7, 7, 1},
        Row{2, 33, 64, 31, 22, 1}, Row{1, 32, 32, 57, 50, 1}}) {
    CAPTURE(r.rows);
    CAPTURE(r.columns);
    compare_winograd(conv(r.padding), {{r.batch, r.in, r.rows, r.columns}, {r.out, r.in, 3, 3}});
  }
  compare_winograd(conv(1), {{64, 20, 20}, {64, 64, 3, 3}});  // without a batch
}

TEST_CASE("of few tiles, the products have their lanes along the channels") {
  struct Row {
    int64_t batch, in, out, rows, columns;
  };
  for (const Row& r : {Row{1, 256, 256, 8, 8}, Row{1, 200, 250, 8, 7}, Row{1, 180, 256, 8, 12},
                       Row{3, 128, 256, 8, 4}}) {
    CAPTURE(r.in);
    compare_winograd(conv(1), {{r.batch, r.in, r.rows, r.columns}, {r.out, r.in, 3, 3}});
  }
  for (const char* level : {"x86-64-v3", "x86-64-v4"}) {
    CAPTURE(level);
    const Target target = named_target(level);
    const NodeRef y = conv(1)(random_inputs({{1, 256, 8, 8}, {256, 256, 3, 3}})).node();
    std::string schedules;
    for (const PlanStep& step : make_plan({&y, 1}, target).steps) {
      if (!step.kernel) continue;
      Kernel k = clone(*step.kernel);
      choose_schedule(k, target);
      schedules += k.schedule;
      for (const std::string& line : k.reasons) schedules += line + "\n";
    }
    CAPTURE(schedules);
    CHECK(schedules.find("sum: dot products of ") != std::string::npos);
    // All points of a vector of channels beside each other.
    CHECK(schedules.find("store where_2 i l.o k m l.u l.v") != std::string::npos);
  }
}

TEST_CASE("gradients by the input, and theirs, take Winograd's form") {
  for (int64_t padding : {0, 1, 2}) {
    const GraphOf dx = [=](const std::vector<Tensor>& t) {
      return grad(sum(conv2d(t[0], t[1], {}, 1, padding) * t[2]), t[0]);
    };
    const int64_t rows = 18 + 2 * padding, columns = 13 + 2 * padding;
    compare_winograd(dx, {{2, 48, 20, 15}, {64, 48, 3, 3}, {2, 64, rows, columns}});
  }
  const GraphOf twice = [](const std::vector<Tensor>& t) {
    const Tensor slope = grad(sum(square(conv2d(t[0], t[1], {}, 1, 1))), t[0]);
    return grad(sum(slope * t[2]), t[1]);
  };
  compare_winograd(twice, {{2, 48, 16, 15}, {64, 48, 3, 3}, {2, 48, 16, 15}});
}

TEST_CASE("gradients by the kernel take Winograd's form") {
  struct Row {
    int64_t batch, in, out, rows, columns, padding;
  };
  for (const Row& r : {Row{2, 64, 64, 20, 15, 1}, Row{1, 48, 96, 33, 30, 0},
                       Row{6, 64, 48, 14, 14, 2}, Row{3, 40, 56, 56, 57, 1}}) {
    CAPTURE(r.rows);
    const GraphOf dw = [&](const std::vector<Tensor>& t) {
      return grad(sum(conv2d(t[0], t[1], {}, 1, r.padding) * t[2]), t[1]);
    };
    const int64_t cut = 2 - 2 * r.padding;
    compare_winograd(dw, {{r.batch, r.in, r.rows, r.columns},
                          {r.out, r.in, 3, 3},
                          {r.batch, r.out, r.rows - cut, r.columns - cut}});
  }
  const GraphOf fused = [](const std::vector<Tensor>& t) {
    return grad(sum(square(relu(conv2d(t[0], t[1], {}, 1, 1)))), t[1]) * 2 - t[1];
  };
  compare_winograd(fused, {{64, 32, 32}, {64, 64, 3, 3}});  // without a batch
}

TEST_CASE("what follows a convolution, and what comes before it, is fused with its transforms") {
  const GraphOf block = [](const std::vector<Tensor>& t) {
    const Tensor h = relu(conv2d(t[0], t[1], t[2], 1, 1));
    return relu(conv2d(h, t[3], t[2], 1, 1) + t[0]) * 2;
  };
  for (int64_t size : {16, 15}) {
    const Shape image{2, 64, size, size}, kernel{64, 64, 3, 3};
    compare_winograd(block, {image, kernel, {64}, kernel});
    const GraphOf pooled = [](const std::vector<Tensor>& t) {
      return max_pool2d(relu(conv2d(gelu(t[0]), t[1], t[2], 1, 1)), 2) - mean(t[0]);
    };
    compare_winograd(pooled, {image, kernel, {64}});
  }
  Runtime runtime(config_with(true));
  const Runtime::Use use(runtime);
  const std::vector<Tensor> t =
      random_inputs({{4, 64, 16, 16}, {64, 64, 3, 3}, {64}, {64, 64, 3, 3}});
  Target target = runtime.device().target();
  const auto steps = [&](const Tensor& y) {
    const NodeRef root = y.node();
    return make_plan({&root, 1}, target).steps.size();
  };
  const Tensor y = relu(conv2d(gelu(t[0]), t[1], t[2], 1, 1));
  target.l2 = 256 << 10;
  CHECK(steps(y) == 5);  // kernels side by side, then transformed; image; products; result
  CHECK(steps(max_pool2d(y, 2)) == 6);
  target.l2 = 4 << 20;
  CHECK(steps(y) == 3);  // image; products of kernels that are transformed on the way; result
  CHECK(steps(max_pool2d(y, 2)) == 4);
  target.l2 = 256 << 10;  // few tiles are read again rather than many kernels stored
  CHECK(steps(relu(conv2d(narrow(t[0], 0, 0, 1), t[1], t[2], 1, 1))) == 3);
}

TEST_CASE("parts of windows that other sums need too take Winograd's form") {
  const auto convolution = [](const Tensor& windows, const Tensor& w) {
    const Shape& s = w.shape();
    return sum(unsqueeze(windows, 1) * reshape(w, {1, s[0], s[1], 1, 1, 3, 3}), {2, 5, 6});
  };
  struct Row {
    Shape image;
    int64_t axis, length, second;  // the parts begin at 0 and here
  };
  const Shape kernel{64, 64, 3, 3};
  for (const Row& r : {Row{{3, 64, 18, 18}, 0, 2, 1}, Row{{2, 80, 18, 18}, 1, 64, 16},
                       Row{{2, 64, 22, 18}, 2, 16, 4}}) {
    for (const bool turned : {false, true}) {
      CAPTURE(r.axis);
      CAPTURE(turned);
      const auto turn = [&](const Tensor& x) { return turned ? flip(x, {r.axis}) : x; };
      const GraphOf both = [&](const std::vector<Tensor>& t) {
        const Tensor shared = turn(unfold(unfold(t[0], 2, 3, 1), 3, 3, 1));
        const auto part = [&](int64_t begin) {
          return turn(narrow(shared, r.axis, begin, r.length));
        };
        return convolution(part(0), t[1]) * convolution(part(r.second), t[2]);
      };
      compare_winograd(both, {r.image, kernel, kernel});
    }
  }
}

TEST_CASE("other convolutions, and those too small for it, are summed directly") {
  Runtime runtime(config_with(true));
  const Runtime::Use use(runtime);
  const Tensor x = randn({2, 64, 20, 20}).realize(), w = randn({64, 64, 3, 3}).realize();
  const auto direct = [&](const Tensor& y) { return exact(runtime, y); };
  CHECK_FALSE(direct(conv2d(x, w, {}, 1, 1)));
  CHECK(direct(conv2d(x, w, {}, 2, 1)));
  CHECK(direct(conv2d(x, w, {}, 1, 1, 2)));
  CHECK(direct(conv2d(x, randn({64, 16, 3, 3}), {}, 1, 1, 1, 4)));
  CHECK(direct(conv2d(x, randn({64, 64, 5, 5}), {}, 1, 2)));
  CHECK(direct(conv2d(x, randn({64, 64, 1, 3}))));
  CHECK(direct(conv2d(x.to(DType::F64), w.to(DType::F64), {}, 1, 1)));
  CHECK(direct(conv2d(x.to(DType::F16), w.to(DType::F16), {}, 1, 1)));
  // Both windows along one axis, rows that are walked downwards, windows that lie the other way.
  const Tensor kernel = reshape(w, {1, 64, 64, 1, 3, 3});
  const Tensor line = unfold(unfold(randn({2, 64, 400}).realize(), 2, 3, 1), 2, 3, 1);
  CHECK(direct(sum(unsqueeze(line, 1) * kernel, {2, 4, 5})));
  const auto down = [](const Tensor& t) { return flip(t, {2}); };
  const Tensor columns = unfold(x, 3, 3, 1);
  for (const Tensor& y : {down(unfold(columns, 2, 3, 1)), down(unfold(down(columns), 2, 3, 1))}) {
    CHECK(direct(sum(unsqueeze(y, 1) * unsqueeze(kernel, 3), {2, 5, 6})));
  }
  CHECK(direct(conv2d(x.index({Slice{}, Slice{0, 4}}), randn({4, 4, 3, 3}))));
  CHECK(direct(conv2d(randn({1, 16, 7, 7}), randn({16, 16, 3, 3}), {}, 1, 1)));
  CHECK(direct(conv2d(randn({1, 512, 4, 4}), randn({512, 512, 3, 3}), {}, 1, 1)));
}

TEST_CASE("Winograd's form gives the same bits for any number of threads") {
  const std::vector<Tensor> t = random_inputs({{2, 64, 19, 30}, {64, 64, 3, 3}});
  Runtime one(config_with(true, 1)), four(config_with(true, 4));
  CHECK(on(one, conv(1), t) == on(four, conv(1), t));
  const GraphOf dw = [](const std::vector<Tensor>& x) {
    return grad(sum(square(conv2d(x[0], x[1], {}, 1, 1))), x[1]);
  };
  CHECK(on(one, dw, t) == on(four, dw, t));
}

TEST_CASE("plans of both kinds are kept apart") {
  const std::vector<Tensor> t = random_inputs({{2, 64, 16, 16}, {64, 64, 3, 3}});
  Runtime fast(config_with(true)), plain(config_with(false));
  const std::vector<float> a = on(fast, conv(1), t), b = on(plain, conv(1), t);
  CHECK(a != b);
  CHECK(on(fast, conv(1), t) == a);
  CHECK(on(plain, conv(1), t) == b);
}

TEST_CASE("an infinity reaches the tiles that it lies in, and no others") {
  Runtime runtime(config_with(true));
  const Runtime::Use use(runtime);
  std::vector<float> values(64 * 24 * 24, 1.0F);
  values[24 * 9 + 9] = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from(values, {1, 64, 24, 24});
  const Tensor y = conv2d(x, randn({64, 64, 3, 3}).realize(), {}, 1, 1).realize();
  const std::vector<float> got = y.to_vector();
  for (int64_t i = 0; i < 24; i++) {
    for (int64_t j = 0; j < 24; j++) {
      // Tiles of rows 7 to 12 and 11 to 16 do and do not hold row 9.
      const bool inside = i >= 8 && i < 12 && j >= 8 && j < 12;
      CHECK(std::isfinite(got[static_cast<size_t>(24 * i + j)]) == !inside);
    }
  }
}

TEST_CASE("the plan says which form a convolution takes, and why") {
  const std::vector<Tensor> t = random_inputs({{1, 64, 16, 16}, {64, 64, 3, 3}});
  const NodeRef y = conv(1)(t).node();
  Target target = named_target("x86-64-v3");
  const auto says = [&](const std::string& text) {
    const Plan plan = make_plan({&y, 1}, target);
    return std::any_of(plan.decisions.begin(), plan.decisions.end(),
                       [&](const Decision& d) { return d.text.find(text) != std::string::npos; });
  };
  CHECK(says("a 3x3 convolution of 64 to 64 channels, its transforms multiplied: "));
  target.winograd = false;
  CHECK(says("a 3x3 convolution of 64 to 64 channels, summed directly: "));
  CHECK(says("; winograd is off"));
  target.winograd = true;
  const NodeRef few = conv2d(randn({1, 4, 8, 8}), randn({4, 4, 3, 3})).node();
  const Plan plan = make_plan({&few, 1}, target);
  CHECK(std::any_of(plan.decisions.begin(), plan.decisions.end(), [](const Decision& d) {
    return d.text.find("4 to 4 channels, summed directly: ") != std::string::npos;
  }));
}

TEST_CASE("images of few tiles to a row are summed directly, where as many in wide ones are not") {
  const Target target = named_target("x86-64-v4");
  const auto multiplies = [&](int64_t batch, int64_t size) {
    const NodeRef y = conv(1)(random_inputs({{batch, 32, size, size}, {64, 32, 3, 3}})).node();
    return !make_plan({&y, 1}, target).exact;
  };
  for (int64_t batch : {1, 2, 4}) {
    CAPTURE(batch);
    CHECK(multiplies(batch, 56));
    CHECK_FALSE(multiplies(16 * batch, 14));
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
#endif
