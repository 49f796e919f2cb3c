// Functions captured once for a range of sizes, against the same functions at each size.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/graph.h"
#include "nn/lazuli.h"
#include "runtime/device.h"
#include "runtime/jit.h"
#include "tests/guarded.h"
#include "tests/on_devices.h"
#include "tests/text_of_error.h"

using namespace lazuli;

namespace {

using DynamicSizes = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

// The same array, where what lies behind it may not be touched.
Tensor guarded(const Tensor& t) {
  const size_t bytes = bytes_of(t.shape(), t.dtype());
  const Ref<Storage> storage = make_ref<Guarded>(bytes, End::Back);
  if (bytes > 0) std::memcpy(storage->data(), t.node()->storage()->data(), bytes);
  return Tensor(buffer(t.dtype(), t.shape(), storage));
}

void check_close(const Tensor& got, const Tensor& want, double tolerance) {
  REQUIRE(got.shape() == want.shape());
  REQUIRE(got.dtype() == want.dtype());
  const std::vector<float> a = cast(got, DType::F32).to_vector(),
                           b = cast(want, DType::F32).to_vector();
  for (size_t i = 0; i < a.size(); i++) {
    const bool equal = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!equal && !(std::abs(a[i] - b[i]) <= tolerance * std::max(1.0f, std::abs(b[i])))) {
      FAIL("element ", i, " is ", a[i], " but was expected to be ", b[i]);
    }
  }
}

// Calls f, jitted with `dynamic`, with the arguments that `make` gives for each size, and compares
// with plain calls. Nothing is compiled after the first.
void check_sizes(const std::function<Tensors(const Tensors&)>& f,
                 const std::vector<Dynamic>& dynamic, const std::function<Tensors(int64_t)>& make,
                 const DynamicSizes& sizes, double tolerance = 2e-5) {
  on_devices([&] {
    manual_seed(1);
    auto jitted = jit(f, dynamic);
    for (size_t i = 0; i < sizes.size(); i++) {
      INFO("size ", sizes[i]);
      Tensors arguments = make(sizes[i]);
      for (Tensor& t : arguments) t = guarded(t.realize());
      const CompileCount before = Runtime::current().device().compiled();
      const Tensors got = jitted(arguments);
      const CompileCount after = Runtime::current().device().compiled();
      if (i > 0) {
        CHECK(after.plans == before.plans);
        CHECK(after.kernels == before.kernels);
      }
      const Tensors want = f(arguments);
      REQUIRE(got.size() == want.size());
      for (size_t t = 0; t < got.size(); t++) {
        INFO("result ", t);
        check_close(got[t], want[t], tolerance);
      }
    }
    CHECK(jitted.count().captures == 1);
  });
}

const DynamicSizes kSizes = {5, 1, 16, 40, 2, 13, 39, 3};

}  // namespace

TEST_SUITE("runtime") {
  TEST_CASE("dynamic: pointwise and rows") {
    const Dim n = dim("batch", 1, 40);
    const Tensor b = randn({7}).realize();
    check_sizes(
        [&](const Tensors& t) {
          return Tensors{exp(t[0]) * 2.0 + b, softmax(t[0], 1), layer_norm(t[0], {7}),
                         sum(t[0], {1}),      t[0].T(),         flatten(t[0])};
        },
        {dynamic(0, 0, n)},
        [](int64_t s) {
          return Tensors{randn({s, 7})};
        },
        kSizes);
  }

  TEST_CASE("dynamic: reductions over the axis") {
    const Dim n = dim("batch", 1, 40);
    check_sizes(
        [&](const Tensors& t) {
          const Tensor& x = t[0];
          return Tensors{sum(x),
                         sum(x, {0}),
                         mean(x),
                         mean(x, {0}),
                         amax(x, {0}),
                         amin(x),
                         var(x, {0}),
                         prod(x, {0}),
                         any(x > 3.0, {0}),
                         all(x > -9),
                         softmax(x, 0),
                         logsumexp(x, {0}),
                         sum(ones({x.size(0)}))};
        },
        {dynamic(0, 0, n)},
        [](int64_t s) {
          return Tensors{randn({s, 7})};
        },
        {5, 16, 40, 2, 13, 39, 3, 1});
  }

  TEST_CASE("dynamic: reductions over the axis of rows that were divided by their own sums") {
    // A maximum over the axis leaves minus infinity beyond it, where a row has no maximum of its
    // own and its exponentials no sum.
    const auto make = [](int64_t n) { return Tensors{randn({n, 6})}; };
    const auto f = [](const Tensors& in) {
      const Tensor& x = in[0];
      const Tensor e = exp(x);
      return Tensors{amax(x, {0}), sum(softmax(x, 1), {0}), sum(e / sum(e, {1}, true), {0}),
                     sum(exp(x - amax(x, {1}, true)), {0}), sum(softmax(x, 0), {1})};
    };
    check_sizes(f, {dynamic(0, 0, dim("n", 1, 40))}, make, kSizes);
  }

  TEST_CASE("dynamic: sums and rows of what lies across them") {
    const auto f = [](const Tensors& in) {
      const Tensor &x = in[0], y = in[1].mT();
      return Tensors{sum(x * y, {0}), sum(x * y, {1}), sum(x * y), softmax(x + y, 1),
                     softmax(x + y, 0)};
    };
    const Dim n = dim("n", 1, 40);
    check_sizes(
        f, {dynamic(0, 0, n), dynamic(1, 1, n)},
        [](int64_t m) {
          return Tensors{randn({m, 37}), randn({37, m})};
        },
        kSizes);
    check_sizes(
        f, {dynamic(0, 1, n), dynamic(1, 0, n)},
        [](int64_t m) {
          return Tensors{randn({37, m}), randn({m, 37})};
        },
        kSizes);
  }

  TEST_CASE("dynamic: matmul in each place") {
    const Dim n = dim("n", 1, 40);
    const Tensor w = randn({24, 9}).realize();
    check_sizes(
        [&](const Tensors& t) {
          return Tensors{matmul(t[0], w), matmul(t[0].T(), t[0]), matmul(t[0], t[0].T()),
                         relu(matmul(t[0], w)), einsum("ni,nj->nij", {t[0], t[0]})};
        },
        {dynamic(0, 0, n)},
        [](int64_t s) {
          return Tensors{randn({s, 24})};
        },
        kSizes, 1e-4);
  }

  TEST_CASE("dynamic: sizes of few long sums of products") {
    const Dim n = dim("n", 1, 100);
    const auto f = [](const Tensors& t) {
      const Tensor y = matmul(t[0].T(), t[1]);
      return Tensors{y, relu(y * 0.5) + 1.0};
    };
    const std::vector<int64_t> sizes = {100, 1, 49, 24, 99};
    check_sizes(
        f, {dynamic(0, 1, n)},
        [](int64_t s) {
          return Tensors{randn({1030, s}), randn({1030, 40})};
        },
        sizes, 1e-4);
    check_sizes(
        f, {dynamic(1, 1, n)},
        [](int64_t s) {
          return Tensors{randn({1030, 50}), randn({1030, s})};
        },
        sizes, 1e-4);
  }

  TEST_CASE("dynamic: sizes of what each thread packs for itself") {
    if (!LAZULI_LLVM) return;
    const auto f = [](const Tensors& t) { return Tensors{matmul(t[0].T(), t[1])}; };
    for (const int threads : {1, 2, 3}) {
      CAPTURE(threads);
      Config config;
      config.threads = threads;
      Runtime runtime(config);
      const Runtime::Use use(runtime);
      manual_seed(1);
      for (const int varied : {0, 1}) {  // rows that a thread takes, and columns that all read
        auto jitted = jit(f, {dynamic(varied, 1, dim("n", 1, 500))});
        for (const int64_t n : {500, 1, 77, 460}) {
          CAPTURE(n);
          const Tensors t{guarded(randn({80, varied == 0 ? n : 500}).realize()),
                          guarded(randn({80, varied == 1 ? n : 400}).realize())};
          check_close(jitted(t)[0], f(t)[0], 1e-4);
        }
      }
    }
  }

  TEST_CASE("dynamic: order, scans and places") {
    const Dim n = dim("n", 1, 40);
    const Tensor table = randn({11, 3}).realize();
    check_sizes(
        [&](const Tensors& t) {
          const Tensor& x = t[0];
          const int64_t s = x.size(0);
          return Tensors{cumsum(x, 0),           sort(x, 0).values,
                         argsort(x, 0),          argsort(x, 0, true),
                         arange(s) * 2,          argmax(x, 0),
                         select(x, 0, -1),       narrow(x, 0, s - 1, 1),
                         embedding(t[1], table), x[{t[1]}].detach() * 0.0,
                         cat({x, x * 2.0}, 1),   pad(x, {1, 2, 0, 3}),
                         tril(matmul(x, x.T())), topk(x, 1, 0).indices,
                         topk(x, 3, 1).values};
        },
        {dynamic(0, 0, n), dynamic(1, 0, n)},
        [](int64_t s) {
          return Tensors{randn({s, 4}), arange(s) % std::min<int64_t>(s, 11)};
        },
        kSizes, 1e-4);
  }

  TEST_CASE("dynamic: gradients of a classifier") {
    const Dim n = dim("batch", 1, 40);
    const Tensor w = randn({12, 16}).realize(), b = randn({16}).realize(),
                 v = randn({16, 5}).realize();
    check_sizes(
        [&](const Tensors& t) {
          const Tensor w1 = w.detach(), b1 = b.detach(), v1 = v.detach();
          const Tensor loss = cross_entropy(matmul(relu(matmul(t[0], w1) + b1), v1), t[1]);
          const auto d = grad(loss, {w1, b1, v1, t[0]});
          Tensors out(d.begin(), d.end());
          out.push_back(loss);
          return out;
        },
        {dynamic(0, 0, n), dynamic(1, 0, n)},
        [](int64_t s) {
          return Tensors{randn({s, 12}), arange(s) % 5};
        },
        kSizes, 1e-4);
  }

  TEST_CASE("dynamic: attention over a sequence") {
    const Dim n = dim("length", 1, 40);
    for (const bool causal : {false, true}) {
      check_sizes(
          [&](const Tensors& t) {
            const Tensor y = scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.0, causal);
            const auto d = grad(sum(y * y), {t[0], t[1], t[2]});
            Tensors out(d.begin(), d.end());
            out.push_back(y);
            out.push_back(reshape(transpose(y, 1, 2), {2, y.size(2), -1}));
            return out;
          },
          {dynamic(0, 2, n), dynamic(1, 2, n), dynamic(2, 2, n)},
          [](int64_t s) {
            return Tensors{randn({2, 3, s, 8}), randn({2, 3, s, 8}), randn({2, 3, s, 8})};
          },
          kSizes, 1e-4);
    }
  }

  TEST_CASE("dynamic: images") {
    const Dim n = dim("batch", 1, 20);
    const Tensor w = randn({6, 3, 3, 3}).realize();
    check_sizes(
        [&](const Tensors& t) {
          const Tensor w1 = w.detach();
          const Tensor y = max_pool2d(relu(conv2d(t[0], w1, {}, 1, 1)), 2);
          const auto d = grad(mean(y * y), {w1, t[0]});
          Tensors out(d.begin(), d.end());
          out.push_back(y);
          out.push_back(batch_norm(t[0], {}, {}, {}, {}, true));
          return out;
        },
        {dynamic(0, 0, n)},
        [](int64_t s) {
          return Tensors{randn({s, 3, 8, 8})};
        },
        {5, 1, 16, 20, 2, 3}, 1e-4);
  }

  TEST_CASE("dynamic: arrays of many tiles") {
    const Dim n = dim("batch", 1, 300);
    const Tensor w = randn({160, 96}).realize();
    check_sizes(
        [&](const Tensors& t) {
          const Tensor w1 = w.detach();
          const Tensor y = gelu(matmul(t[0], w1));
          const auto d = grad(sum(y * y), {w1, t[0]});
          return Tensors{softmax(t[0], 1),
                         layer_norm(t[0], {160}),
                         sum(t[0], {0}),
                         exp(t[0]),
                         matmul(t[0].T(), t[0]),
                         y,
                         d[0],
                         d[1],
                         mean(y)};
        },
        {dynamic(0, 0, n)},
        [](int64_t s) {
          return Tensors{randn({s, 160})};
        },
        {16, 1, 17, 48, 100, 112, 299, 300, 7}, 2e-3);
  }

  TEST_CASE("dynamic: arguments are results, whichever of their axes changes") {
    const Dim n = dim("n", 1, 70);
    check_sizes(
        [](const Tensors& t) {
          return Tensors{t[0], t[1], t[0] + 1.0, matmul(t[1], t[0])};
        },
        {dynamic(0, 0, n), dynamic(1, 1, n)},
        [](int64_t s) {
          return Tensors{randn({s, 5}), randn({6, s})};
        },
        {70, 5, 16, 17, 18, 48, 69, 1}, 1e-4);
  }

  TEST_CASE("dynamic: an axis that a sum takes in parts, some of which are empty") {
    const Dim n = dim("n", 1, 18);
    check_sizes(
        [](const Tensors& t) {
          return Tensors{sum(softmax(t[0], 1)), sum(mean(t[0], {0}, true) + t[0])};
        },
        {dynamic(0, 1, n)},
        [](int64_t s) {
          return Tensors{randn({4, s, 3})};
        },
        {18, 5, 1, 6, 7, 17}, 1e-4);
  }

  TEST_CASE("dynamic: what is computed inside other loops goes as far as its readers do") {
    const Dim n = dim("n", 1, 37);
    check_sizes(
        [](const Tensors& t) {
          const Tensor x = transpose(t[0], 0, 2), u = amax(x, {0}, true) - x;
          const Tensor y = amax(u, {1}, true) - u;
          return Tensors{y, grad(sum(y * y), {t[0]})[0]};
        },
        {dynamic(0, 1, n)},
        [](int64_t s) {
          return Tensors{randn({4, s, 3})};
        },
        {37, 5, 16, 1, 36}, 1e-4);
  }

  TEST_CASE("dynamic: attention and its gradients in classes of sizes") {
    const Dim n = dim("length", 1, 150);
    check_sizes(
        [](const Tensors& t) {
          const Tensor y = scaled_dot_product_attention(t[0], t[1], t[2]);
          const auto d = grad(sum(y * y), {t[0], t[1], t[2]});
          return Tensors{y, d[0], d[1], d[2], softmax(matmul(t[0], t[1].mT()), -2)};
        },
        {dynamic(0, 1, n), dynamic(1, 1, n), dynamic(2, 1, n)},
        [](int64_t s) {
          return Tensors{randn({2, s, 16}), randn({2, s, 16}), randn({2, s, 16})};
        },
        {64, 1, 16, 37, 38, 39, 48, 79, 80, 96, 128, 149, 150, 7}, 1e-3);
  }

  TEST_CASE("dynamic: parameters are changed where they lie, and one that is held is not") {
    on_devices([&] {
      const Dim n = dim("batch", 1, 100);
      Tensor w = ones({8, 4}).realize();
      auto step = jit(
          [&](const Tensor& x) {
            const Tensor v = w.detach();
            const Tensor loss = sum(matmul(x, v));
            w -= grad(loss, {v})[0] * 0.5;
            return loss;
          },
          {dynamic(0, 0, n)});
      const void* const memory = w.data();
      float want = 1;
      for (int64_t s : {3, 100, 16, 40, 3}) {
        CHECK(step(ones({s, 8})).item() == doctest::Approx(static_cast<double>(s) * 32 * want));
        want -= 0.5f * static_cast<float>(s);
        CHECK(w.to_vector() == std::vector<float>(32, want));
        if (Runtime::current().device().name() == "cpu") CHECK(w.data() == memory);
      }
      const Tensor held = w.detach();
      step(ones({2, 8}));
      CHECK(held.to_vector() == std::vector<float>(32, want));
      CHECK(w.to_vector() == std::vector<float>(32, want - 1));
      CHECK(step.count().captures == 1);
    });
  }

  TEST_CASE("dynamic: two dimensions") {
    const Dim n = dim("rows", 1, 20), m = dim("columns", 1, 30);
    on_devices([&] {
      auto f = jit([](const Tensor& a, const Tensor& b) { return softmax(matmul(a, b), 1); },
                   {dynamic(0, 0, n), dynamic(1, 1, m)});
      for (auto [r, c] : {std::pair{20, 30}, std::pair{5, 6}, std::pair{1, 9}, std::pair{7, 1},
                          std::pair{6, 6}}) {
        const Tensor a = randn({r, 4}).realize(), b = randn({4, c}).realize();
        check_close(f(a, b), softmax(matmul(a, b), 1), 1e-5);
      }
      CHECK(f.count().captures == 1);
    });
  }

  TEST_CASE("dynamic: an optimizer's steps over batches of all sizes") {
    on_devices([&] {
      const Dim n = dim("batch", 1, 32);
      manual_seed(5);
      nn::Sequential net{nn::make<nn::Linear>(6, 8), nn::make<nn::Tanh>(),
                         nn::make<nn::Linear>(8, 3)};
      std::vector<Tensor> parameters = net.parameters();
      Tensors start;
      for (const Tensor& p : parameters) start.push_back(clone(p.detach()).realize());
      const auto train = [&](bool jitted) {
        for (size_t i = 0; i < start.size(); i++) parameters[i].assign_(start[i]);
        nn::Adam adam(parameters, 1e-2);
        const auto step = [&](const Tensor& x, const Tensor& y) {
          const Tensor loss = cross_entropy(net(x), y);
          loss.backward();
          adam.step();
          adam.zero_grad();
          return loss.detach();
        };
        auto quick = jit(step, {dynamic(0, 0, n), dynamic(1, 0, n)});
        std::vector<double> losses;
        manual_seed(9);
        for (int64_t s : {32, 7, 1, 16, 31, 7}) {
          const Tensor x = randn({s, 6}).realize(), y = (arange(s) % 3).realize();
          losses.push_back((jitted ? quick(x, y) : step(x, y)).item());
        }
        if (jitted) CHECK(quick.count().captures == 1);
        return losses;
      };
      const std::vector<double> want = train(false), got = train(true);
      for (size_t i = 0; i < want.size(); i++)
        CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-4));
    });
  }

  TEST_CASE("dynamic: a place in a cache is an integer") {
    on_devices([&] {
      const Dim place = dim("place", 0, 15);
      const Tensor cache = zeros({2, 16, 4}).realize(), other = zeros({2, 16, 4}).realize();
      const Tensor places = randn({16, 4}).realize();
      const auto step = [&](Tensor cache, const Tensor& k, int64_t p) {
        const Tensor now = k + narrow(places, 0, p, 1);
        cache.set_({Slice{}, Slice{p, p + 1}}, now);
        const Tensor past = narrow(cache, 1, 0, p + 1);
        return matmul(softmax(matmul(now, past.mT()), -1), past);
      };
      auto f =
          jit([&](const Tensor& k, int64_t p) { return step(cache, k, p); }, {dynamic(0, place)});
      const void* const memory = cache.data();
      for (int64_t p : {0, 1, 2, 3, 7, 15, 4}) {
        const Tensor k = randn({2, 1, 4}).realize();
        check_close(f(k, p), step(other, k, p), 1e-5);
        check_close(cache, other, 1e-6);
        if (Runtime::current().device().name() == "cpu") CHECK(cache.data() == memory);
      }
      CHECK(f.count().captures == 1);
    });
  }

  TEST_CASE("dynamic: a language model's loss over lengths") {
    const Dim n = dim("length", 3, 24);
    const Tensor table = randn({11, 8}).realize(), places = randn({24, 8}).realize();
    check_sizes(
        [&](const Tensors& t) {
          const int64_t s = t[0].size(1);
          const Tensor w = table.detach();
          const Tensor x = embedding(narrow(t[0], 1, 0, s - 1), w) + narrow(places, 0, 0, s - 1);
          const Tensor h = scaled_dot_product_attention(x, x, x, {}, 0.0, true);
          const Tensor logits = reshape(matmul(h, w.mT()), {-1, 11});
          const Tensor loss = cross_entropy(logits, flatten(narrow(t[0], 1, 1, s - 1)));
          return Tensors{loss, grad(loss, {w})[0], select(matmul(h, w.mT()), 1, -1)};
        },
        {dynamic(0, 1, n)},
        [](int64_t s) {
          return Tensors{(arange(2 * s) * 7 % 11).reshape({2, s})};
        },
        {9, 24, 3, 4, 17, 23}, 1e-4);
  }

  TEST_CASE("dynamic: random numbers are those of the true size") {
    on_devices([&] {
      const Dim n = dim("n", 1, 40);
      auto f = jit([](const Tensor& x) { return dropout(x, 0.5, true) + rand_like(x); },
                   {dynamic(0, 0, n)});
      for (int64_t s : {5, 40, 1, 8}) {
        const Tensor x = randn({s, 3}).realize();
        manual_seed(3);
        const Tensor got = f(x);
        manual_seed(3);
        check_close(got, dropout(x, 0.5, true) + rand_like(x), 1e-6);
      }
      CHECK(f.count().captures == 1);
    });
  }

  TEST_CASE("dynamic: an argument is changed in place, and a result is an argument") {
    on_devices([&] {
      const Dim n = dim("n", 1, 10);
      auto f = jit(
          [](Tensor x) {
            x += 1.0;
            return std::pair(x * 2.0, x);
          },
          {dynamic(0, 0, n)});
      for (int64_t s : {3, 10, 1}) {
        Tensor x = ones({s}).realize();
        const auto [y, same] = f(x);
        CHECK(x.to_vector() == std::vector<float>(static_cast<size_t>(s), 2));
        CHECK(y.to_vector() == std::vector<float>(static_cast<size_t>(s), 4));
        CHECK(same.to_vector() == std::vector<float>(static_cast<size_t>(s), 2));
      }
    });
  }

  // A block of rows that begins past the size must store what the maximum reads: it begins at row
  // 0, and is written out for all of them.
  TEST_CASE("dynamic: what a later phase reads of the last block is there at every size") {
    on_devices([] {
      const auto f = [](const Tensor& x) {
        const Tensor a = exp(x * 0.1), b = amax(a, {0}, true) - a,
                     c = matmul(softmax(matmul(a, a.mT()), -1), a), d = var(c, {0}, 0.0, true) + c;
        return Tensors{d, grad(sum(d * d), {x})[0], b};
      };
      auto jitted = jit(f, {dynamic(0, 0, dim("n", 1, 75))});
      for (const int64_t n : {75, 5, 16, 1, 2, 17, 19, 74}) {
        CAPTURE(n);
        const Tensor x = randn({n, 6, 3}).realize();
        const Tensors got = jitted(x), want = f(x);
        for (size_t i = 0; i < want.size(); i++) {
          CHECK(amax(abs(got[i] - want[i])).item<float>() < 1e-4f);
        }
      }
    });
  }
}

TEST_SUITE("errors") {
  TEST_CASE("dynamic: bounds, declarations and what is not built") {
    const auto text = [](const Dim& d, auto f, std::vector<Shape> shapes, size_t axis = 0) {
      return text_of_error([&] {
        auto jitted = jit([&](const Tensors& t) { return f(t); },
                          {dynamic(0, static_cast<int64_t>(axis), d)});
        Tensors t;
        for (const Shape& s : shapes) t.push_back(ones(s).realize());
        jitted(t);
      });
    };
    const Dim n = dim("batch", 1, 512);
    const auto twice = [](const Tensors& t) { return t[0] * 2.0; };
    CHECK(
        text(n, twice, {{600, 2}}) ==
        "jit: dimension batch is 600, but was declared as 1 to 512; declare wider bounds, or give "
        "less");
    CHECK(
        text(n, twice, {{6, 2}}, 2) ==
        "jit: axis 2 of tensor 0 is declared to follow batch, but its shape is (6, 2); declare an "
        "axis that it has");
    CHECK(text(n, twice, {}) ==
          "jit: axis 0 of tensor 0 is declared to follow batch, but the call has 0 tensors; number "
          "them from 0, as the function is given them");
    CHECK(
        text(n, [](const Tensors& t) { return flip(t[0], {0}); }, {{6, 2}}) ==
        "jit: flip of shape (512, 2) along an axis whose size follows batch is not built yet; let "
        "that size be fixed");
    CHECK(text(n, [](const Tensors& t) { return t[0].size(0) > 100 ? exp(t[0]) : sin(t[0]); },
               {{6, 2}}) ==
          "jit: the function is another one at another size of batch: exp has exp and sin; let it "
          "be the same at all sizes, or declare no dimension");
    CHECK(text_of_error([&] {
            auto f = jit([](const Tensor& a, const Tensor& b) { return sum(a) + sum(b); },
                         {dynamic(0, 0, n), dynamic(1, 0, n)});
            f(ones({3}), ones({4}));
          }) ==
          "jit: dimension batch is 3 as axis 0 of tensor 0, but 4 as axis 0 of tensor 1; give both "
          "one size, or declare two dimensions");
    CHECK(text_of_error([&] {
            auto f = jit([](const Tensor& a) { return sum(a); }, {dynamic(0, 0, n)});
            f(ones({3}).requires_grad_());
          }) ==
          "jit: argument 0 has an axis that follows a dimension, and requires a gradient; give its "
          "detached value, and take the gradient in the function");
    CHECK(text_of_error([&] {
            Tensors kept;
            auto f = jit(
                [&](const Tensor& a) {
                  Tensors out(a.size(0) == 9 ? 2 : 1, a * 1.5);
                  return out;
                },
                {dynamic(0, 0, n)});
            f(ones({9}));
          }) ==
          "jit: the function reads, changes or returns other tensors at another size of batch; let "
          "them be the same at all sizes, or declare no dimension");
    CHECK(
        text_of_error([] { dim("batch", 5, 3); }) ==
        "dim: batch cannot be 5 to 3; let the least be 0 or more, and the most be more than that");
    CHECK(text_of_error([] {
            jit([](const Tensor& x, const Tensor& y) { return matmul(x, y); },
                {dynamic(0, 1, dim("n", 1, 9)), dynamic(1, 0, dim("n", 1, 9))});
          }) ==
          "jit: two dimensions are named n; for sizes that are always equal make it once, and give "
          "it to every axis that follows it; else name them apart");
    CHECK(text(n, [](const Tensors& t) { return t[0] * t[1]; }, {{7, 2}, {7, 2}}) ==
          "mul: shapes (512, 2) and (7, 2) do not broadcast: sizes 512 and 7 at dimension -2 (jit "
          "captures the function at batch = 512, which this call has as 7: let each axis that is "
          "always as long follow the same dimension, and take sizes from the tensors)");
    CHECK(text(n, [](const Tensors& t) { return t[0] * t[1]; }, {{512, 2}, {3, 2}}) ==
          "mul: shapes (512, 2) and (3, 2) do not broadcast: sizes 512 and 3 at dimension -2");
    CHECK(text_of_error([] { dim("", 1, 3); }) ==
          "dim: a name is missing; give what errors shall call it, such as \"batch\"");
    CHECK(text_of_error([&] { dynamic(0, -1, n); }) ==
          "dynamic: axis -1 of tensor 0 is negative; count axes from 0");
    CHECK(
        text_of_error([] { dynamic(1, 0, dim("place", 0, 3)); }) ==
        "dynamic: dimension place may be 0, but axis 0 of tensor 1 is to follow it; let the least "
        "be 1");
    CHECK(text_of_error([] {
            const Dim a = dim("a", 3, 4), b = dim("b", 3, 4);
            auto f =
                jit([](const Tensor& x) { return sum(x); }, {dynamic(0, 0, a), dynamic(0, 1, b)});
            f(ones({3, 3}));
          }) ==
          "jit: dimension b has 2 sizes, too few to tell it from 1 other dimensions; declare wider "
          "bounds, or let it be fixed");
  }
}
