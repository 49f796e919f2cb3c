#include "tools/cli/symbolic_steps.h"

#include <fmt/format.h>

#include <cmath>
#include <list>
#include <string>
#include <vector>

#include "nn/lazuli.h"

namespace lazuli::cli {
namespace {

constexpr int64_t kBound = 512, kWidth = 768, kSizes[] = {16, 64, 128, 256};

using Tensors = std::vector<Tensor>;
// Of tensors whose size may change, and of one that may change as an integer.
using Function = std::function<Tensor(const Tensors&, int64_t)>;

struct Program {
  std::string_view name, what;
  /// Makes the weights.
  Function (*build)();
  /// Shapes at a size.
  std::vector<Shape> (*shapes)(int64_t size);
  /// The axis of each tensor that follows the size; none: the integer does, which is 1 less.
  std::vector<int64_t> axes;
};

std::vector<Shape> rows(int64_t size) {
  return {{size, kWidth}};
}

Tensor weight(const Shape& shape) {
  return (randn(shape) / std::sqrt(static_cast<double>(shape[0]))).realize();
}

template <typename F>
Function of_rows(F f) {
  return [f](const Tensors& t, int64_t) { return f(t[0]); };
}

Function mlp() {
  const Tensors p = {weight({784, 512}), zeros({512}).realize(), weight({512, 10}),
                     zeros({10}).realize()};
  return [p](const Tensors& t, int64_t) {
    Tensors w;
    for (const Tensor& one : p) w.push_back(one.detach());
    const Tensor loss =
        cross_entropy(matmul(relu(matmul(t[0], w[0]) + w[1]), w[2]) + w[3], argmax(t[1], 1));
    const auto gradients = grad(loss, w);
    for (size_t i = 0; i < p.size(); i++) {
      Tensor parameter = p[i];
      parameter -= gradients[i] * 1e-3;
    }
    return loss;
  };
}

// A key and value that join those in the caches, and what a query sees there.
Function decode() {
  const Tensor keys = zeros({1, 12, kBound, 64}).realize(), values = clone(keys).realize();
  return [=](const Tensors& t, int64_t place) {
    Tensor past[] = {keys, values};
    for (size_t i = 0; i < 2; i++) {
      past[i].set_({Slice{}, Slice{}, Slice{place, place + 1}}, t[i + 1]);
      past[i] = narrow(past[i], 2, 0, place + 1);
    }
    return scaled_dot_product_attention(t[0], past[0], past[1]);
  };
}

const Program kPrograms[] = {
    {"matmul",
     "rows times a matrix of 768 by 768",
     [] {
       return of_rows([w = weight({kWidth, kWidth})](const Tensor& x) { return matmul(x, w); });
     },
     rows,
     {0}},
    {"softmax",
     "of rows of 768",
     [] { return of_rows([](auto& x) { return softmax(x, -1); }); },
     rows,
     {0}},
    {"layer_norm",
     "of rows of 768",
     [] { return of_rows([](auto& x) { return layer_norm(x, {kWidth}); }); },
     rows,
     {0}},
    {"gelu", "of rows of 768", [] { return of_rows([](auto& x) { return gelu(x); }); }, rows, {0}},
    {"column_sum",
     "of rows of 768",
     [] { return of_rows([](auto& x) { return sum(x, {0}); }); },
     rows,
     {0}},
    {"mlp_sgd",
     "a step of the perceptron 784-512-10",
     mlp,
     [](int64_t size) {
       return std::vector<Shape>{{size, 784}, {size, 10}};
     },
     {0, 0}},
    {"attention",
     "12 heads of 64, as many keys as queries",
     [] {
       return Function([](const Tensors& t, int64_t) {
         return scaled_dot_product_attention(t[0], t[1], t[2]);
       });
     },
     [](int64_t size) {
       return std::vector<Shape>(3, {1, 12, size, 64});
     },
     {2, 2, 2}},
    {"conv",
     "3x3, 16 channels to 32, of images of 14x14",
     [] {
       return of_rows(
           [w = weight({32, 16, 3, 3})](const Tensor& x) { return conv2d(x, w, {}, 1, 1); });
     },
     [](int64_t size) {
       return std::vector<Shape>{{size, 16, 14, 14}};
     },
     {0}},
    {"decode",
     "12 heads of 64, one query, keys and values in a cache",
     decode,
     [](int64_t) {
       return std::vector<Shape>(3, {1, 12, 1, 64});
     },
     {}},
};

// Calls of the program at this size, of one capture for all sizes or of one for this alone.
std::function<Tensor()> calls(const Program& p, int64_t size, bool dynamic_sizes) {
  const bool by_integer = p.axes.empty();
  std::vector<Dynamic> dynamic;
  if (dynamic_sizes && by_integer) dynamic = {lazuli::dynamic(0, dim("place", 0, kBound - 1))};
  if (dynamic_sizes && !by_integer) {
    const Dim n = dim("size", 1, kBound);
    for (size_t i = 0; i < p.axes.size(); i++) dynamic.push_back(lazuli::dynamic(i, p.axes[i], n));
  }
  Tensors arguments;
  for (const Shape& shape : p.shapes(size)) arguments.push_back(randn(shape).realize());
  return [f = jit(p.build(), std::move(dynamic)), arguments = std::move(arguments),
          place = by_integer ? size - 1 : 0]() mutable { return f(arguments, place); };
}

}  // namespace

std::span<const Step> symbolic_steps() {
  static std::list<std::string> texts;
  static const std::vector<Step> steps = [] {
    const auto kept = [](std::string text) -> std::string_view {
      return texts.emplace_back(std::move(text));
    };
    std::vector<Step> out;
    for (const Program& p : kPrograms) {
      for (const int64_t size : kSizes) {
        Step s;
        s.name = kept(fmt::format("symbolic_{}_{}", p.name, size));
        s.what = kept(fmt::format("{}; size {} of at most {}", p.what, size, kBound));
        s.build = [&p, size] { return calls(p, size, true); };
        s.beside = [&p, size] { return calls(p, size, false); };
        s.group = "symbolic";
        s.how = "captured for all sizes";
        out.push_back(std::move(s));
      }
    }
    return out;
  }();
  return steps;
}

}  // namespace lazuli::cli
