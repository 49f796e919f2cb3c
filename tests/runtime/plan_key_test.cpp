// Ranges of arrays as arguments: which rows a step takes does not compile it anew.
#include "runtime/plan_key.h"

#include <doctest/doctest.h>

#include <vector>

#include "nn/lazuli.h"
#include "runtime/device.h"

#if LAZULI_LLVM
namespace lazuli {

TEST_SUITE_BEGIN("runtime");

TEST_CASE("a step over batches of the data, which are slices of it, compiles once") {
  Runtime runtime{Config()};
  const Runtime::Use use(runtime);
  const Tensor data = arange(60, DType::F32).reshape({12, 5}).realize();
  const Tensor labels = arange(12).realize();
  Tensor w = ones({5}).requires_grad_();
  CompileCount before;
  for (int64_t i = 0; i < 12; i += 3) {
    const Tensor batch = data.index({Slice{i, i + 3}}), wanted = labels.index({Slice{i, i + 3}});
    const Tensor loss = sum(matmul(batch, w) - wanted);
    const Tensor slope = grad(loss, w);
    realize(loss, slope);
    float all = 0;
    for (int64_t k = 5 * i; k < 5 * i + 15; k++) all += static_cast<float>(k);
    CHECK(loss.item() == all - static_cast<float>(3 * i + 3));
    CHECK(slope.to_vector()[1] == static_cast<float>(15 * i + 18));
    if (i == 0) before = runtime.device().compiled();
  }
  CHECK(runtime.device().compiled().plans == before.plans);
  CHECK(runtime.device().compiled().kernels == before.kernels);
}

TEST_CASE("a graph is known by its form, and no other is taken for it") {
  const auto roots = [](const Tensor& t) { return std::vector<NodeRef>{t.node()}; };
  const auto f = [](const Tensor& x, const Tensor& y) { return (x * 2 + y) * y; };
  const Tensor a = ones({4}).realize(), b = (a + 1).realize(), c = (a + 2).realize();
  const std::vector<NodeRef> first = roots(f(a, b));
  const GraphForm form(Topology(first, true), first);
  std::vector<NodeRef> values;
  std::vector<uint64_t> literals;
  const auto fits = [&](const Tensor& t) { return form.match(roots(t), values, literals); };
  CHECK(form.key() == form_of(first));
  CHECK(fits(f(a, b)));
  CHECK(values == std::vector<NodeRef>{a.node(), b.node()});
  CHECK(form_of(roots(f(c, a))) == form.key());
  CHECK(fits(f(c, a)));
  CHECK(values == std::vector<NodeRef>{c.node(), a.node()});
  CHECK(plan_key(roots(f(c, a))).hash == plan_key(first).hash);
  CHECK_FALSE(fits(f(a, a)));          // one value where there were two
  CHECK_FALSE(fits((a * 2 + b) * c));  // another
  CHECK_FALSE(fits((a * 2 - b) * b));  // an op
  CHECK_FALSE(fits(f(ones({5}).realize(), zeros({5}).realize())));
  CHECK_FALSE(form.match(std::vector<NodeRef>{first[0], first[0]}, values, literals));
  CHECK(fits((a * 3 + b) * b));
  CHECK(literals == std::vector<uint64_t>{to_bits(3.0, DType::F32)});
  CHECK(plan_key(roots((a * 3 + b) * b)).hash == plan_key(first).hash);
  CHECK_FALSE(fits((a * b + b) * b));
  const Tensor half = a * 2, whole = (half + b) * b;
  CHECK(fits(whole));
  half.realize();
  CHECK(form_of(roots(whole)) == form.key());  // of when it was built
  CHECK_FALSE(fits(whole));
}

TEST_CASE("forms tell what is shared, and which part of a value is taken") {
  const auto form_is = [](const Tensor& t, const Tensor& other) {
    const std::vector<NodeRef> roots{t.node()}, others{other.node()};
    const GraphForm form(Topology(roots, true), roots);
    std::vector<NodeRef> values;
    std::vector<uint64_t> literals;
    CHECK(form.match(roots, values, literals));
    CHECK(form_of(others) == form.key());
    return form.match(others, values, literals);
  };
  const Tensor x = arange(12, DType::F32).reshape({3, 4}).realize();
  const Tensor p = clone(x), q = clone(x);
  CHECK_FALSE(form_is(p * p, p * q));
  const auto columns = [&](int64_t k) { return x.index({Slice{}, Slice{k, k + 2}}) + 1; };
  CHECK(form_is(columns(1), columns(1)));
  CHECK_FALSE(form_is(columns(1), columns(2)));
}

TEST_CASE("one element after the other is read by one plan, whatever its place") {
  Runtime runtime{Config()};
  const Runtime::Use use(runtime);
  const Tensor x = arange(24, DType::F32).reshape({2, 3, 4}).realize();
  CHECK(x.index({0, 0, 0}).item() == 0);
  const CompileCount before = runtime.device().compiled();
  for (int64_t i = 0; i < 24; i++) {
    CHECK(x.index({i / 12, i / 4 % 3, i % 4}).item() == static_cast<double>(i));
  }
  CHECK(runtime.device().compiled().plans == before.plans);
}

TEST_CASE("a range of an array is right wherever it lies, and outlives the array") {
  Runtime runtime{Config()};
  const Runtime::Use use(runtime);
  Tensor x = arange(24, DType::I32).reshape({2, 3, 4}).realize();
  const auto plus = [](const Tensor& t) { return (t + 1).to_vector<int>(); };
  CHECK(plus(x.index({1, Slice{1, 3}})) == std::vector<int>{17, 18, 19, 20, 21, 22, 23, 24});
  CHECK(plus(x.index({0, 2, Slice{1, 3}})) == std::vector<int>{10, 11});
  CHECK(plus(x.index({Slice{}, 1, Slice{0, 2}})) == std::vector<int>{5, 6, 17, 18});
  CHECK(plus(x.index({Slice{1, 1}})).empty());
  CHECK((x[0] + x[1]).to_vector<int>()[5] == 22);
  const Tensor part = x[1], sum_of_part = sum(part);
  CHECK(sum_of_part.item() == 210);
  x.assign_(x * 2);
  CHECK(part.to_vector<int>()[0] == 12);
  CHECK(sum(x[1]).item() == 420);
}

TEST_CASE("a plan reads the leaves of its graph, and of what simplifying meets only constants") {
  Runtime runtime{Config()};
  const Runtime::Use use(runtime);
  for (int round = 0; round < 2; round++) {
    const Tensor empty = Tensor::from<float>({}, {0, 4}), sorted = sort(reshape(empty, {0})).values;
    sorted.realize();
    CHECK(clamp(reshape(sorted, {0}) - sorted, -1, 1).to_vector().empty());
    const Tensor threes = full({2}, 3.0).realize(), x = Tensor::from<float>({1, 2}, {2});
    CHECK((x + full({2}, 1.5) * 2.0).to_vector() == std::vector<float>{4, 5});
  }
  {
    const Tensor x = Tensor::from<float>({0, 1}, {2}), e = exp(x), t = e * 2.0;
    e.realize();
    CHECK((t + exp(x * 1.0)).to_vector()[0] == 3);
    const Tensor a = Tensor::from<float>({1, 1}, {2}), b = Tensor::from<float>({0, 0}, {2});
    CHECK((a * 2.0 + exp(b * 1.0)).to_vector() == std::vector<float>{3, 3});
  }
  for (int round = 0; round < 2; round++) {
    const Tensor x = Tensor::from<float>({1, 5, 3, 2, 4, 6 + static_cast<float>(round)}, {3, 2});
    const Tensor sums = logsumexp(x, {0});
    if (round == 0) CHECK(amax(x, {0}).realize().to_vector() == std::vector<float>{4, 6});
    const Tensor largest = amax(x, {0}).realize();
    CHECK(argmax(x, 0).to_vector<int>() == std::vector<int>{2, 2});
    CHECK(sums.to_vector()[0] == doctest::Approx(4.3490122));
    CHECK(largest.to_vector()[1] == 6 + static_cast<float>(round));
  }
  const Tensor x = Tensor::from<float>({1, 5, 9, 2, 4, 6}, {3, 2});
  CHECK(argmax(x, 0).to_vector<int>() == std::vector<int>{1, 2});
}

TEST_CASE("what is written to a user's own memory does not show in values taken from it") {
  Runtime runtime{Config()};
  const Runtime::Use use(runtime);
  std::vector<float> memory{0, 1, 2, 3, 4};
  bool freed = false;
  {
    const Tensor x = from_blob(&memory[1], {2, 2}, DType::F32, [&](void*) { freed = true; });
    const Tensor row = x[1];
    CHECK(sum(row).item() == 7);
    memory[4] = 0;
    CHECK(sum(x[1]).item() == 3);
    CHECK(x.data() == &memory[1]);
    CHECK(!freed);
  }
  CHECK(freed);
}

TEST_SUITE_END();

}  // namespace lazuli
#endif
