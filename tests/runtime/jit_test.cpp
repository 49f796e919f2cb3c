// The contract of lz::jit, the foot-guns of other capturing JITs included.
#include "runtime/jit.h"

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nn/lazuli.h"
#include "runtime/device.h"
#include "tests/on_devices.h"
#include "tests/text_of_error.h"

using namespace lazuli;

namespace {

using FloatList = std::vector<float>;

Tensor tensor_of(FloatList v) {
  const auto n = static_cast<int64_t>(v.size());
  return Tensor::from(v, {n});
}

struct TwoTensors {
  Tensor sum, product;
  template <typename V>
  void tensors(V&& visit) {
    visit(sum);
    visit(product);
  }
};

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("jit: a function runs once, and gives new results for new values") {
    on_devices([] {
      int runs = 0;
      auto f = jit([&](const Tensor& x, const Tensor& y) {
        runs++;
        return x * 2.0 + y;
      });
      CHECK(f(tensor_of({1, 2}), tensor_of({10, 20})).to_vector() == FloatList{12, 24});
      const Tensor held = f(tensor_of({3, 4}), tensor_of({10, 20}));
      CHECK(f(tensor_of({5, 6}), tensor_of({1, 1})).to_vector() == FloatList{11, 13});
      CHECK(held.to_vector() == FloatList{16, 28});
      CHECK(runs == 1);
      CHECK(f.count().captures == 1);
      CHECK(f.count().calls == 3);
    });
  }

  TEST_CASE("jit: another shape, dtype, plain value or device is captured anew, and then kept") {
    auto f = jit([](const Tensor& x, double scale, bool twice) {
      return twice ? x * scale * 2.0 : x * scale;
    });
    CHECK(f(tensor_of({1, 2}), 3.0, false).to_vector() == FloatList{3, 6});
    CHECK(f(tensor_of({1, 2, 3}), 3.0, false).to_vector() == FloatList{3, 6, 9});
    CHECK(f(ones({2}, DType::F64), 3.0, false).dtype() == DType::F64);
    CHECK(f(tensor_of({1, 2}), 4.0, false).to_vector() == FloatList{4, 8});
    CHECK(f(tensor_of({1, 2}), 4.0, true).to_vector() == FloatList{8, 16});
    CHECK(f.count().captures == 5);
    CHECK(f(tensor_of({1, 3}), 3.0, false).to_vector() == FloatList{3, 9});
    CHECK(f.count().captures == 5);
    Config config;
    config.device = "reference";
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    CHECK(f(tensor_of({1, 2}), 3.0, false).to_vector() == FloatList{3, 6});
    CHECK(f.count().captures == 6);
  }

  TEST_CASE("jit: vectors, pairs, optionals and structs go in and come out") {
    on_devices([] {
      auto f = jit([](const std::vector<Tensor>& xs, const std::optional<Tensor>& bias) {
        TwoTensors p{xs[0] + xs[1], xs[0] * xs[1]};
        if (bias) p.sum = p.sum + *bias;
        return std::pair<TwoTensors, std::vector<Tensor>>(p, {p.sum * 2.0});
      });
      const std::vector<Tensor> xs{tensor_of({1, 2}), tensor_of({3, 4})};
      auto [p, rest] = f(xs, std::optional<Tensor>());
      CHECK(p.sum.to_vector() == FloatList{4, 6});
      CHECK(p.product.to_vector() == FloatList{3, 8});
      CHECK(rest.at(0).to_vector() == FloatList{8, 12});
      CHECK(f(xs, std::optional<Tensor>(tensor_of({1, 1}))).first.sum.to_vector() ==
            FloatList{5, 7});
      CHECK(f.count().captures == 2);
      auto g = jit([](const TwoTensors& q) { return q.sum - q.product; });
      CHECK(g(p).to_vector() == FloatList{1, -2});
      // How the tensors are spread over two lists is structure.
      auto h = jit([](const std::vector<std::vector<Tensor>>& lists) {
        return lists[0].size() == 1 ? lists[0][0] * 1.0 : lists[0][0] + lists[0][1];
      });
      const Tensor a = tensor_of({1}), b = tensor_of({2}), c = tensor_of({3});
      CHECK(h(std::vector<std::vector<Tensor>>{{a}, {b, c}}).item() == 1);
      CHECK(h(std::vector<std::vector<Tensor>>{{a, b}, {c}}).item() == 3);
    });
  }

  TEST_CASE("jit: a module is known by its identity, and its parameters are read anew") {
    nn::Linear a(1, 1, false), b(1, 1, false);
    a.weight.assign_(full({1, 1}, 2.0));
    b.weight.assign_(full({1, 1}, 3.0));
    auto f = jit([](nn::Module& m, const Tensor& x) { return m(x); });
    const Tensor x = full({1, 1}, 5.0);
    CHECK(f(a, x).item() == 10);
    CHECK(f(b, x).item() == 15);
    a.weight.assign_(full({1, 1}, 4.0));
    CHECK(f(a, x).item() == 20);
    CHECK(f.count().captures == 2);
  }

  TEST_CASE("jit: tensors found outside are read anew, and what is written to them happens") {
    on_devices([] {
      Tensor scale = tensor_of({2, 2}), count = zeros({}), untouched = tensor_of({7});
      auto f = jit([&](const Tensor& x) {
        count += 1.0;
        return x * scale + untouched;
      });
      CHECK(f(tensor_of({1, 2})).to_vector() == FloatList{9, 11});
      scale.assign_(tensor_of({3, 3}));
      CHECK(f(tensor_of({1, 2})).to_vector() == FloatList{10, 13});
      scale.assign_(scale * 2.0);  // not computed yet
      CHECK(f(tensor_of({1, 2})).to_vector() == FloatList{13, 19});
      CHECK(count.item() == 3);
      CHECK(f.count().captures == 1);
    });
  }

  TEST_CASE("jit: a variable that names another tensor since is seen") {
    Tensor scale = tensor_of({2});
    auto f = jit([&](const Tensor& x) { return x * scale; });
    CHECK(f(tensor_of({5})).item() == 10);
    scale = tensor_of({3});
    CHECK(f(tensor_of({5})).item() == 15);
    CHECK(f.count().captures == 2);
  }

  TEST_CASE("jit: what is written to an argument happens, to that of the call") {
    on_devices([] {
      auto f = jit([](Tensor x, const Tensor& y) {
        x += y;
        return x * 1.0;
      });
      Tensor a = tensor_of({1}), b = tensor_of({2});
      const Tensor before = a * 1.0;
      CHECK(f(a, tensor_of({10})).item() == 11);
      CHECK(a.item() == 11);
      CHECK(before.item() == 1);
      CHECK(f(b, tensor_of({10})).item() == 12);
      CHECK(b.item() == 12);
      CHECK(a.item() == 11);
      CHECK(f.count().captures == 1);
      // A tensor given twice is one tensor.
      CHECK(f(a, a).item() == 22);
      CHECK(a.item() == 22);
      CHECK(f.count().captures == 2);
    });
  }

  TEST_CASE("jit: an input may be an output, and the same output may be returned twice") {
    on_devices([] {
      Tensor w = tensor_of({5});
      auto f = jit([&](const Tensor& x) { return std::vector<Tensor>{x, x, x + 1.0, w}; });
      const Tensor x = tensor_of({1});
      std::vector<Tensor> r = f(x);
      CHECK(r[0].item() == 1);
      CHECK(r[1].item() == 1);
      CHECK(r[2].item() == 2);
      CHECK(r[3].item() == 5);
      r[0] += 5.0;
      w += 1.0;
      CHECK(x.item() == 1);
      r = f(tensor_of({3}));
      CHECK(r[0].item() == 3);
      CHECK(r[3].item() == 6);
      auto swap = jit([](Tensor a, Tensor b) {
        const Tensor t = a * 1.0;
        a.assign_(b);
        b.assign_(t);
      });
      Tensor a = tensor_of({1}), b = tensor_of({2});
      for (int i = 0; i < 3; i++) swap(a, b);
      CHECK(a.item() == 2);
      CHECK(b.item() == 1);
    });
  }

  TEST_CASE("jit: results that differ in shape or dtype alone keep their own") {
    on_devices([] {
      Tensor kept = zeros({4});
      auto f = jit([&](Tensor x) {
        x += 1.0;
        kept.assign_(x);
        return std::vector<Tensor>{reshape(x, {2, 2}), x, unsqueeze(x, 0), bitcast(x, DType::I32)};
      });
      Tensor x = tensor_of({1, 2, 3, 4});
      for (int i = 0; i < 3; i++) {
        const std::vector<Tensor> r = f(x);
        CHECK(r[0].shape() == Shape{2, 2});
        CHECK(r[1].shape() == Shape{4});
        CHECK(r[2].shape() == Shape{1, 4});
        CHECK(r[3].dtype() == DType::I32);
        const float by = static_cast<float>(i);
        for (const Tensor& t : {r[0], r[1], r[2], x, kept})
          CHECK(t.to_vector() == FloatList{2 + by, 3 + by, 4 + by, 5 + by});
        CHECK(x.shape() == Shape{4});
        CHECK(kept.shape() == Shape{4});
      }
    });
  }

  TEST_CASE("jit: arguments that are parts, constants or not computed yet are read as they are") {
    on_devices([] {
      auto f = jit([](const Tensor& x, const Tensor& y) { return x * 2.0 + y; });
      const Tensor all = tensor_of({1, 2, 3, 4, 5, 6});
      const Tensor zero = zeros({2});
      for (int i = 0; i < 3; i++) {
        const Tensor part = all.index({Slice{i, i + 2}}), backwards = flip(part, {0});
        const float a = static_cast<float>(i + 1);
        CHECK(f(part, backwards).to_vector() == FloatList{3 * a + 1, 3 * a + 2});
        CHECK(f(part, zero).to_vector() == FloatList{2 * a, 2 * a + 2});
        CHECK(f(ones({2}), full({2}, a - 1)).to_vector() == FloatList{a + 1, a + 1});
        CHECK(f(part * 2.0, all.index({Slice{0, 6, 3}})).to_vector() ==
              FloatList{4 * a + 1, 4 * a + 8});
      }
      CHECK(f.count().captures == 1);
    });
  }

  TEST_CASE("jit: a result that is the next argument, and those before it, stay as they were") {
    on_devices([] {
      auto f = jit([](const Tensor& x) { return contiguous(x * 2.0) + 1.0; });
      std::vector<Tensor> all{tensor_of({0, 1})};
      for (int i = 0; i < 6; i++) all.push_back(f(all.back()));
      float power = 1;
      for (const Tensor& x : all) {
        CHECK(x.to_vector() == FloatList{power - 1, 2 * power - 1});
        power *= 2;
      }
      // Where only the latest is held, its memory serves again.
      Tensor x = tensor_of({0, 1});
      for (int i = 0; i < 6; i++) x = f(x);
      CHECK(x.to_vector() == FloatList{63, 127});
    });
  }

  TEST_CASE("jit: temporaries, constants and variables are arguments of one kind") {
    auto f = jit([](const Tensor& x, double by, const std::vector<Tensor>& more) {
      return x * by + more[0];
    });
    Tensor x = tensor_of({1});
    const Tensor y = x;
    double by = 2;
    const double same = 2;
    std::vector<Tensor> more{y};
    f(x, by, more);
    f(y, same, std::vector<Tensor>{tensor_of({3})});
    CHECK(f(tensor_of({5}), 2.0, std::as_const(more)).item() == 11);
    CHECK(f.count().captures == 2);  // x and y are one tensor, as more's is; then they are two
  }

  TEST_CASE("jit: a list that grows, and tensors that are replaced in it, are seen") {
    std::vector<Tensor> list{tensor_of({1}), tensor_of({2})};
    auto f = jit([](const std::vector<Tensor>& xs) {
      Tensor sum = xs[0];
      for (size_t i = 1; i < xs.size(); i++) sum = sum + xs[i];
      return sum;
    });
    CHECK(f(list).item() == 3);
    list[0] = tensor_of({10});
    CHECK(f(list).item() == 12);
    list.push_back(tensor_of({100}));
    CHECK(f(list).item() == 112);
    // One that the function finds outside, too.
    auto g = jit([&] { return list[0] * 1.0; });
    CHECK(g().item() == 10);
    list[0] = tensor_of({7});
    CHECK(g().item() == 7);
    list[0] += 1.0;
    CHECK(g().item() == 8);
  }

  TEST_CASE("jit: writing at a place happens each time, and what is not used is no matter") {
    on_devices([] {
      Tensor cache = zeros({4}), twice = zeros({2});
      auto f = jit([&](const Tensor& at, const Tensor& value, const Tensor& unused) {
        cache.set_({at}, value);
        cache.set_({Slice{1}}, cache.index({Slice{{}, -1}}));
        twice += cache.index({Slice{0, 2}});
        twice.realize();  // no value is asked for
        static_cast<void>(unused);
      });
      for (int64_t i = 0; i < 3; i++)
        f(Tensor::from<int64_t>({i}, {1}), full({1}, 10.0 * static_cast<double>(i + 1)),
          tensor_of({1}));
      CHECK(cache.to_vector() == FloatList{10, 10, 10, 30});
      CHECK(twice.to_vector() == FloatList{30, 30});
      CHECK(f.count().captures == 1);
    });
  }

  TEST_CASE("jit: a training step goes where the plain one goes, and compiles once") {
    on_devices([] {
      const auto train = [](bool captured) {
        manual_seed(3);
        nn::Linear layer(4, 3);
        nn::AdamW adam(layer.parameters(), 1e-2);
        const Tensor x = randn({8, 4}).realize(), y = randn({8, 3}).realize();
        const auto step = [&](const Tensor& a, const Tensor& b) {
          const Tensor loss = mean(square(dropout(layer(a), 0.25) - b));
          backward(loss);
          adam.step();
          adam.zero_grad();
          return loss;
        };
        auto fast = jit(step);
        std::vector<double> out;
        for (int i = 0; i < 6; i++) {
          if (i == 3) adam.set_learning_rate(5e-2);
          const Tensor loss = captured ? fast(x, y) : step(x, y);
          if (!captured) {
            std::vector<Tensor> all = adam.tensors();
            all.push_back(loss);
            realize(all);
          }
          out.push_back(loss.item());
        }
        if (captured) CHECK(fast.count().captures == 1);
        CHECK(adam.steps() == 6);
        for (double v : layer.weight.to_vector<double>()) out.push_back(v);
        return out;
      };
      CHECK(train(true) == train(false));
    });
  }

  TEST_CASE("jit: a step that leaves parameters out is captured once one has been taken") {
    Tensor a = tensor_of({1}).requires_grad_(), b = tensor_of({1}).requires_grad_();
    nn::SGD sgd({a, b}, 0.5);
    const auto step = [&](const Tensor& x) {
      backward(sum(b * x));
      sgd.step();
      sgd.zero_grad();
    };
    auto f = jit(step);
    CHECK(text_of_error([&] { f(tensor_of({2})); }) ==
          "optimizer: parameter 0 has no gradient in a captured step, but shares its count of "
          "updates "
          "with some that have; take one such step before it is captured, or leave the parameter "
          "out");
    CHECK(b.item() == 1);
    CHECK(sgd.steps() == 0);
    step(tensor_of({2}));
    realize(sgd.tensors());
    f(tensor_of({2}));
    f(tensor_of({2}));
    CHECK(a.item() == 1);
    CHECK(b.item() == -2);
    CHECK(sgd.steps() == 3);
  }

  TEST_CASE("jit: gradients that stay add up") {
    on_devices([] {
      Tensor w = tensor_of({3}).requires_grad_();
      auto f = jit([&](const Tensor& x) { backward(sum(w * x)); });
      f(tensor_of({1}));
      CHECK(w.grad()->item() == 1);
      f(tensor_of({10}));
      CHECK(w.grad()->item() == 11);
      f(tensor_of({100}));
      CHECK(w.grad()->item() == 111);
      CHECK(f.count().captures == 2);
      w.set_grad(std::nullopt);
      f(tensor_of({5}));
      CHECK(w.grad()->item() == 5);
      CHECK(f.count().captures == 2);
      // Of an argument, too.
      auto g = jit([](const Tensor& v) { backward(sum(v * v)); });
      Tensor v = tensor_of({4}).requires_grad_();
      g(v);
      CHECK(v.grad()->item() == 8);
    });
  }

  TEST_CASE("jit: random functions draw as if the function ran") {
    on_devices([] {
      const auto draw = [] { return rand({3}) + randn({3}); };
      auto f = jit(draw);
      manual_seed(11);
      std::vector<FloatList> plain, captured;
      for (int i = 0; i < 3; i++) plain.push_back(draw().to_vector());
      manual_seed(11);
      for (int i = 0; i < 3; i++) captured.push_back(f().to_vector());
      CHECK(plain == captured);
      CHECK(plain[0] != plain[1]);
    });
  }

  TEST_CASE("jit: a captured function within another is a part of it") {
    auto inner = jit([](const Tensor& x) { return x * x; });
    auto outer = jit([&](const Tensor& x) { return inner(x + 1.0) + inner(x); });
    CHECK(outer(tensor_of({2})).item() == 13);
    CHECK(outer(tensor_of({3})).item() == 25);
    CHECK(inner.count().calls == 0);
    CHECK(inner(tensor_of({3})).item() == 9);
  }

  TEST_CASE("jit: operations with gradients of their own, and checkpoints") {
    on_devices([] {
      Tensor w = ones({1, 1, 2, 2}).requires_grad_();
      auto f = jit([&](const Tensor& x) {
        const auto layer = [&](const std::vector<Tensor>& xs) {
          return max_pool2d(conv2d(xs[0], xs[1]), 2);
        };
        const Tensor y = checkpoint(layer, {x, w});
        const Tensor loss = sum(y * y);
        return std::pair<Tensor, Tensor>(loss, grad(loss, w));
      });
      const Tensor x = reshape(arange(25).to(DType::F32), {1, 1, 5, 5}).realize();
      for (const double scale : {1.0, -1.0}) {
        const auto [loss, dw] = f(x * scale);
        const Tensor direct = sum(square(max_pool2d(conv2d(x * scale, w), 2)));
        CHECK(loss.item() == direct.item());
        CHECK(dw.to_vector() == grad(direct, w).to_vector());
      }
      CHECK(f.count().captures == 1);
    });
  }

  TEST_CASE("jit: what depends on no argument may be computed while captured") {
    auto f = jit([](const Tensor& x) {
      const auto n = static_cast<int64_t>(sum(ones({3})).item());
      return sum(x * n) + arange(n).to_vector<double>()[2];
    });
    CHECK(f(tensor_of({1, 1})).item() == 8);
    CHECK(f(tensor_of({1, 2})).item() == 11);
  }

  TEST_CASE("jit: what cannot be captured is refused, and changes nothing") {
    Tensor w = tensor_of({1, 2}).requires_grad_(), kept = tensor_of({0});
    const Tensor x = tensor_of({3, 4});
    const auto untouched = [&] {
      CHECK(w.to_vector() == FloatList{1, 2});
      CHECK(w.requires_grad());
      CHECK(!w.grad());
      CHECK(kept.to_vector() == FloatList{0});
    };
    auto reads = jit([&](const Tensor& t) {
      w.assign_(w + t);
      return t * sum(t).item();
    });
    CHECK(
        text_of_error([&] { reads(x); }) ==
        "jit: the function asks for the value of a tensor while it is captured, when there is none "
        "yet; return the tensor and read it from the result, and let neither shapes nor branches "
        "depend on values");
    untouched();
    auto keeps = jit([&](const Tensor& t) {
      kept = t * 2.0;
      return t;
    });
    CHECK(
        text_of_error([&] { keeps(x); }) ==
        "jit: the function keeps a tensor of shape (2,) that it made; return it, or write it into "
        "a tensor from outside with assign_, since = only makes a variable name another tensor");
    kept = tensor_of({0});
    auto both = jit([&](const Tensor& t) { w.assign_(w + t); });
    CHECK(text_of_error([&] { both(w); }) ==
          "jit: argument 0 is a tensor that the function also finds outside, and writes to; "
          "either give it or let it be found");
    untouched();
    const auto with_gradient = [](const Tensor& gradient) {
      Tensor t = tensor_of({1, 2}).requires_grad_();
      t.set_grad(gradient);
      return t;
    };
    auto finds_argument = jit([](const Tensor& t, Tensor g) {
      g += 1.0;
      return *t.grad() * 2.0;
    });
    CHECK(text_of_error([&] { finds_argument(with_gradient(kept), kept); }) ==
          "jit: argument 1 is a tensor that the function also finds outside, and writes to; "
          "either give it or let it be found");
    auto finds_twice = jit([&](const Tensor& t) {
      Tensor g = *t.grad();
      g += 1.0;
      kept += 1.0;
    });
    finds_twice(with_gradient(tensor_of({3})));
    CHECK(kept.to_vector() == FloatList{1});
    CHECK(text_of_error([&] { finds_twice(with_gradient(kept)); }) ==
          "jit: the function writes to a tensor of shape (1,) that it finds in two places, such as "
          "a variable and a gradient; let it find it in one");
    CHECK(kept.to_vector() == FloatList{1});
    kept = tensor_of({0});
    const Tensor from_w = w * 2.0;
    auto history = jit([&](const Tensor& t) { return t + from_w; });
    CHECK(text_of_error([&] { history(x); }) ==
          "jit: the function uses a tensor of shape (2,) that was computed outside of it from one "
          "that requires a gradient; compute it in the function, or detach it");
    auto identity = jit([](const Tensor& t) { return t; });
    CHECK(text_of_error([&] { identity(from_w); }) ==
          "jit: argument 0 of shape (2,) was computed from a tensor that requires a gradient; "
          "compute it in the function, or detach it");
    auto seeds = jit([] {
      manual_seed(1);
      return rand({1});
    });
    CHECK(text_of_error([&] { seeds(); }) ==
          "manual_seed: a captured function cannot seed the generator, whose state each call steps "
          "on; call it outside, or give random_key(seed) to the random function");
    auto marks = jit([&](const Tensor& t) {
      kept.requires_grad_();
      return t;
    });
    CHECK(text_of_error([&] { marks(x); }) ==
          "jit: the function calls requires_grad_ on a tensor from outside; call it before");
    auto throws = jit([&](const Tensor& t) {
      w.assign_(w + t);
      backward(sum(w));
      if (t.dim() == 1) throw std::runtime_error("in the middle");
    });
    CHECK_THROWS_WITH(throws(x), "in the middle");
    untouched();
    CHECK(x.to_vector() == FloatList{3, 4});
  }

  TEST_CASE("jit: a call compiles nothing, keeps no memory, and writes where nobody looks") {
    Tensor w = tensor_of({1, 2, 3}), sum_of_steps = zeros({3});
    auto f = jit([&](const Tensor& x) {
      w += x;
      sum_of_steps += w;
      return sum(w);
    });
    const Tensor x = tensor_of({1, 1, 1});
    for (int i = 0; i < 3; i++) f(x).item();
    const Tensor held = detach(w);
    CHECK(held.to_vector() == FloatList{4, 5, 6});
    const int64_t kernels = Runtime::current().device().compiled().kernels;
    const size_t nodes = live_nodes();
    const auto used = Runtime::current().memory.stats().live;
    for (int i = 0; i < 100; i++) f(x);
    CHECK(held.to_vector() == FloatList{4, 5, 6});
    CHECK(w.to_vector() == FloatList{104, 105, 106});
    CHECK(live_nodes() == nodes);
    // The value that is still held, and the one that it was replaced by.
    CHECK(Runtime::current().memory.stats().live <= used + 2 * 64);
    CHECK(Runtime::current().device().compiled().kernels == kernels);
    if (LAZULI_LLVM) CHECK(explain(w).find("kernel 0") != std::string::npos);
  }

  TEST_CASE("jit: what nobody else holds is changed where it lies") {
    Tensor w = zeros({3}), cache = zeros({4, 2}), places = zeros({6});
    auto step = jit([&](const Tensor& x, const Tensor& at) {
      cache.set_({Slice{1, 2}}, narrow(x, 0, 0, 2));
      cache.set_({Slice{2, 4}, Slice{1, 2}}, 7);
      places.set_({at}, sum(x));
      w += x;
      return std::pair(sum(cache), w);
    });
    for (Tensor* t : {&w, &cache, &places}) t->realize();
    std::pair<Tensor, Tensor> last = step(tensor_of({1, 2, 3}), Tensor::from<int64_t>({2}, {1}));
    CHECK(last.first.item() == 17);
    CHECK(cache.to_vector() == FloatList{0, 0, 1, 2, 0, 7, 0, 7});
    CHECK(places.to_vector() == FloatList{0, 0, 6, 0, 0, 0});
    const void *cache_at = cache.data(), *places_at = places.data(), *w_at = w.data();
    const Tensor held = last.second;
    last = step(tensor_of({4, 0, 1}), Tensor::from<int64_t>({5}, {1}));
    CHECK(last.first.item() == 18);
    CHECK(cache.to_vector() == FloatList{0, 0, 4, 0, 0, 7, 0, 7});
    CHECK(places.to_vector() == FloatList{0, 0, 6, 0, 0, 5});
    CHECK(held.to_vector() == FloatList{1, 2, 3});
    CHECK(w.to_vector() == FloatList{5, 2, 4});
    CHECK(w.data() != w_at);  // what the call before returned has the memory
    if (LAZULI_LLVM) {
      CHECK(cache.data() == cache_at);
      CHECK(places.data() == places_at);
    }
    // Someone holds the value: it stays as it is, and the next value is another array.
    const Tensor old_cache = detach(cache).realize();
    step(tensor_of({9, 9, 0}), Tensor::from<int64_t>({0}, {1}));
    CHECK(old_cache.to_vector() == FloatList{0, 0, 4, 0, 0, 7, 0, 7});
    CHECK(cache.to_vector() == FloatList{0, 0, 9, 9, 0, 7, 0, 7});
  }

  TEST_CASE("jit: what an array was is read before a part of it is changed where it lies") {
    using Results = std::vector<Tensor>;
    struct Case {
      const char* what;
      std::function<Results(Tensor&, const Tensor&)> f;
      bool in_place = true;
    };
    const std::vector<Case> cases = {
        {"a sum",
         [](Tensor& c, const Tensor& x) {
           const Tensor old = sum(c);
           c.set_({0}, x);
           return Results{old};
         }},
        {"the next value is read, and the one before after it",
         [](Tensor& c, const Tensor& x) {
           const Tensor old = c.detach(), columns = reshape(sum(old, {0}), {-1, 1});
           c.set_({0}, x);
           return Results{matmul(c, columns), sum(old * 3.0)};
         }},
        {"between two changes",
         [](Tensor& c, const Tensor& x) {
           const Tensor old = sum(c);
           c.set_({0}, x);
           const Tensor then = sum(c);
           c.set_({1}, x * 2.0);
           return Results{then, sum(c), old};
         }},
        {"a change that waits for a reader",
         [](Tensor& c, const Tensor& x) {
           const Tensor old = sum(c, {0});
           c.set_({0}, x + old);
           return Results{sum(c, {1}), old * 2.0};
         }},
        {"a reader that waits for the change, which is made in a copy",
         [](Tensor& c, const Tensor& x) {
           const Tensor old = c.detach();
           c.set_({0}, x);
           return Results{sum(old * sum(c))};
         },
         false},
    };
    for (const Case& c : cases) {
      INFO(std::string(c.what));
      const auto values = [&](bool jitted) {
        manual_seed(5);
        Tensor array = randn({64, 32}).realize();
        const Tensor x = randn({32}).realize();
        const auto body = [&](const Tensor& t) { return c.f(array, t); };
        auto f = jit(body);
        FloatList all;
        std::vector<const void*> places;
        for (int i = 0; i < 3; i++) {
          Results results = jitted ? f(x) : body(x);
          results.push_back(array);
          for (const Tensor& t : results) {
            for (double v : t.to_vector()) all.push_back(v);
          }
          if (i > 0) places.push_back(array.data());
        }
        if (jitted && LAZULI_LLVM) CHECK((places[0] == places[1]) == c.in_place);
        return all;
      };
      const FloatList got = values(true), wanted = values(false);
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); i++) {
        CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-4));
      }
    }
  }

  TEST_CASE("jit: values that are read after they are assigned are the old ones") {
    Tensor a = tensor_of({1, 2, 3, 4}), b = tensor_of({5, 6, 7, 8});
    auto step = jit([&] {
      const Tensor old_a = a + 0.0, turned = flip(a, {0});
      a.assign_(b * 2.0);
      b.assign_(old_a * 3.0);
      return std::pair(cumsum(turned, 0), matmul(reshape(old_a, {2, 2}), reshape(b, {2, 2})));
    });
    FloatList x = {1, 2, 3, 4}, y = {5, 6, 7, 8};
    for (int i = 0; i < 4; i++) {
      const auto [sums, product] = step();
      FloatList wanted = {x[3], x[3] + x[2], x[3] + x[2] + x[1], x[3] + x[2] + x[1] + x[0]};
      CHECK(sums.to_vector() == wanted);
      const FloatList old = x;
      for (size_t k = 0; k < 4; k++) {
        x[k] = 2 * y[k];
        y[k] = 3 * old[k];
      }
      wanted = {old[0] * y[0] + old[1] * y[2], old[0] * y[1] + old[1] * y[3],
                old[2] * y[0] + old[3] * y[2], old[2] * y[1] + old[3] * y[3]};
      CHECK(product.to_vector() == wanted);
      CHECK(a.to_vector() == x);
      CHECK(b.to_vector() == y);
    }
  }

  TEST_CASE("jit: what a tensor was is a result like any other") {
    Tensor now = tensor_of({1, 2, 3}), before = tensor_of({0, 0, 0});
    auto step = jit([&] {
      before.assign_(now);
      now += 1.0;
    });
    for (int i = 0; i < 3; i++) {
      const FloatList old = now.to_vector();
      step();
      CHECK(before.to_vector() == old);
      CHECK(now.to_vector()[0] == old[0] + 1);
    }
    auto post_increment = jit([](Tensor x) {
      const Tensor old = detach(x) * 1.0;
      x += 1.0;
      return old;
    });
    Tensor x = tensor_of({5});
    for (int i = 0; i < 3; i++) CHECK(post_increment(x).item() == 5 + i);
    auto replaced = jit([](Tensor a, const Tensor& b) {
      const Tensor old = reshape(a, {1, 2});
      a.set_({Slice{0, 2}}, b);
      return old;
    });
    Tensor a = tensor_of({1, 2});
    CHECK(replaced(a, tensor_of({3, 4})).to_vector() == FloatList{1, 2});
    CHECK(a.to_vector() == FloatList{3, 4});
  }

  TEST_CASE("jit: a value that one thread reads stays whole while another replaces it") {
    Tensor w = zeros({5000}).realize(), v = zeros({5000}).realize();
    auto up = jit([&] { w += 1.0; });
    auto both = jit([&] {
      w += 1.0;
      v += 1.0;
    });
    std::atomic<int> torn = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++) {
      threads.emplace_back([&, t, up, both]() mutable {
        for (int i = 0; i < 200; i++) t == 0 ? up() : both();
      });
      threads.emplace_back([&] {
        for (int i = 0; i < 200; i++) {
          const FloatList n = w.to_vector();
          torn += std::count(n.begin(), n.end(), n[0]) != 5000;
        }
      });
    }
    for (std::thread& t : threads) t.join();
    CHECK(torn == 0);
    CHECK(v.to_vector()[4999] == 200);
  }

  TEST_CASE("jit: a runtime that is gone is not another at its place") {
    auto f = jit([](const Tensor& x) { return x + 1.0; });
    for (int i = 0; i < 3; i++) {
      Config config;
      Runtime runtime(config);
      const Runtime::Use use(runtime);
      CHECK(f(tensor_of({1})).item() == 2);
      CHECK(f.count().captures == i + 1);
    }
  }

  TEST_CASE("jit: threads take turns") {
    Tensor count = zeros({});
    auto f = jit([&](const Tensor& x) {
      count += 1.0;
      return x + 1.0;
    });
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (int t = 0; t < 4; t++) {
      threads.emplace_back([&, t] {
        auto mine = f;
        for (int i = 0; i < 25; i++) {
          const auto v = static_cast<float>(100 * t + i);
          right += mine(tensor_of({v})).item<float>() == v + 1;
        }
      });
    }
    for (std::thread& t : threads) t.join();
    CHECK(right == 100);
    CHECK(count.item() == 100);
  }

  TEST_CASE("jit: a call that fails when it runs changes nothing") {
    Config config;
    config.memory = 64 << 20;
    Runtime runtime(config);
    const Runtime::Use use(runtime);
    Tensor w = tensor_of({1});
    auto f = jit([&](const Tensor& x, int64_t n) {
      w += 1.0;
      return sum(cumsum(expand(x, {n}), 0));
    });
    CHECK(f(tensor_of({1}), 4).item() == 10);
    CHECK_THROWS_AS(f(tensor_of({1}), 1 << 28), DeviceError);
    CHECK(w.item() == 2);
    CHECK(f(tensor_of({1}), 4).item() == 10);
    CHECK(w.item() == 3);
  }
}
