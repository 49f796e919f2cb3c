// How many kernels well-known graphs become, and that the plans are right.
#include "ir/plan.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/gradient.h"
#include "core/graph.h"
#include "core/ops.h"
#include "runtime/reference/reference.h"
#include "tests/ir/run_plan.h"

namespace lazuli {
namespace {

using Tensors = std::vector<Tensor>;

class PlanValues {
 public:
  Tensor normal(const Shape& shape, double scale = 1) {
    std::normal_distribution<float> d;
    std::vector<float> v(static_cast<size_t>(numel(shape)));
    for (float& x : v) x = static_cast<float>(scale) * d(random_);
    return Tensor::from(v, shape);
  }
  Tensor positive(const Shape& shape) {
    std::vector<float> v(static_cast<size_t>(numel(shape)));
    for (float& x : v) x = std::uniform_real_distribution<float>(0.5f, 2.0f)(random_);
    return Tensor::from(v, shape);
  }
  Tensor classes(const Shape& shape, int64_t count) {
    std::vector<int64_t> v(static_cast<size_t>(numel(shape)));
    for (int64_t& x : v) x = std::uniform_int_distribution<int64_t>(0, count - 1)(random_);
    return Tensor::from(v, shape);
  }

 private:
  std::mt19937 random_{7};
};

struct Budget {
  const char* name;
  size_t kernels;
  Tensors (*graph)(PlanValues&);
  bool run = true;  // small enough to be evaluated element by element
};

Tensors gradients(const Tensor& y, const Tensor& dy, const Tensors& xs) {
  return grad(sum(mul(y, dy)), xs, Unused::kZeros);
}

Tensors chain_graph(PlanValues& v) {
  const Tensor x = exp(mul(add(v.normal({16, 24}), v.normal({24})), 0.5));
  const Tensor y = to(where(lt(x, 1.0), x, mul(x, 2.0)), DType::F16);
  return {y, tanh(y), x, reshape(tanh(x), Shape{24, 16})};
}

Tensors attention_graph(PlanValues& v, int64_t heads, int64_t length, int64_t size, bool backward,
                        bool causal = true) {
  const Shape shape{1, heads, length, size};
  const Tensor q = v.normal(shape), k = v.normal(shape), w = v.normal(shape);
  const Tensor o = scaled_dot_product_attention(q, k, w, {}, 0.0, causal);
  if (!backward) return {o};
  Tensors r = gradients(o, v.normal(shape), {q, k, w});
  r.push_back(o);
  return r;
}

Tensors mlp_step(PlanValues& v, int64_t batch, int64_t in, int64_t hidden, bool adam) {
  const Tensor x = v.normal({batch, in}), label = v.classes({batch}, 10), rate = v.positive({});
  const Tensors p{v.normal({hidden, in}, 0.1), v.normal({hidden}, 0.1), v.normal({10, hidden}, 0.1),
                  v.normal({10}, 0.1)};
  const Tensor loss = cross_entropy(linear(relu(linear(x, p[0], p[1])), p[2], p[3]), label);
  const Tensors g = grad(loss, p);
  Tensors out{loss};
  for (size_t i = 0; i < p.size(); i++) {
    if (!adam) {
      out.push_back(sub(p[i], mul(rate, g[i])));
      continue;
    }
    const Tensor m = add(mul(v.normal(p[i].shape()), 0.9), mul(g[i], 0.1));
    const Tensor s = add(mul(v.positive(p[i].shape()), 0.999), mul(mul(g[i], g[i]), 0.001));
    out.push_back(sub(p[i], div(mul(rate, m), add(sqrt(s), 1e-8))));
    out.push_back(m);
    out.push_back(s);
  }
  return out;
}

Tensors updates(PlanValues& v) {
  Tensors out;
  for (const Shape& s : {Shape{64, 32}, Shape{32}, Shape{10, 64}, Shape{10}}) {
    const Tensor m = add(mul(v.normal(s), 0.9), mul(v.normal(s), 0.1));
    out.push_back(sub(v.normal(s), mul(m, 0.01)));
    out.push_back(m);
  }
  return out;
}

Tensors gpt_block(PlanValues& v, int64_t batch, int64_t length, int64_t size, int64_t heads) {
  const auto weight = [&](const Shape& s) { return v.normal(s, 0.1); };
  const Tensor x = v.normal({batch, length, size});
  const Tensor a = layer_norm(x, Shape{size}, weight({size}), weight({size}));
  const Tensor qkv = permute(reshape(linear(a, weight({3 * size, size}), weight({3 * size})),
                                     Shape{batch, length, 3, heads, size / heads}),
                             Ints{2, 0, 3, 1, 4});
  const Tensor o = scaled_dot_product_attention(select(qkv, 0, 0), select(qkv, 0, 1),
                                                select(qkv, 0, 2), {}, 0.0, true);
  const Tensor merged = reshape(permute(o, Ints{0, 2, 1, 3}), Shape{batch, length, size});
  const Tensor y = add(x, linear(merged, weight({size, size}), weight({size})));
  const Tensor b = layer_norm(y, Shape{size}, weight({size}), weight({size}));
  const Tensor up = gelu(linear(b, weight({4 * size, size}), weight({4 * size})));
  return {add(y, linear(up, weight({size, 4 * size}), weight({size})))};
}

Tensors convolution_graph(PlanValues& v, bool backward) {
  const Tensor x = v.normal({2, 4, 10, 10}), w = v.normal({6, 4, 3, 3}), b = v.normal({6});
  const Tensor y = relu(add(conv2d(x, w, b, 1, 1), v.normal({2, 6, 10, 10})));
  return backward ? gradients(y, v.normal(y.shape()), {x, w, b}) : Tensors{y};
}

template <typename F>
Tensors of_rows(PlanValues& v, F f, bool backward) {
  const Tensor x = v.normal({24, 80}), w = v.normal({80}), b = v.normal({80});
  const Tensor y = f(x, w, b);
  if (!backward) return {y};
  Tensors all;
  for (const Tensor& g : gradients(y, v.normal(y.shape()), {x, w, b})) {
    if (g.node()->op != Op::Const && !(g.node()->op == Op::Fresh)) all.push_back(g);
  }
  return all;
}
Tensor row_softmax(const Tensor& x, const Tensor&, const Tensor&) {
  return softmax(x, -1);
}
Tensor row_log_softmax(const Tensor& x, const Tensor&, const Tensor&) {
  return log_softmax(x, -1);
}
Tensor row_layer_norm(const Tensor& x, const Tensor& w, const Tensor& b) {
  return layer_norm(x, Shape{80}, w, b);
}
Tensor row_rms_norm(const Tensor& x, const Tensor& w, const Tensor&) {
  return rms_norm(x, Shape{80}, w);
}

const Budget kBudgets[] = {
    {"a chain with broadcasts, casts and four outputs", 1, chain_graph},
    {"softmax", 1, [](PlanValues& v) { return of_rows(v, row_softmax, false); }},
    {"softmax backward", 1, [](PlanValues& v) { return of_rows(v, row_softmax, true); }},
    {"log-softmax", 1, [](PlanValues& v) { return of_rows(v, row_log_softmax, false); }},
    {"log-softmax backward", 1, [](PlanValues& v) { return of_rows(v, row_log_softmax, true); }},
    {"layer norm", 1, [](PlanValues& v) { return of_rows(v, row_layer_norm, false); }},
    {"layer norm backward with gamma and beta", 2,
     [](PlanValues& v) { return of_rows(v, row_layer_norm, true); }},
    {"RMS norm", 1, [](PlanValues& v) { return of_rows(v, row_rms_norm, false); }},
    {"RMS norm backward with gamma", 2,
     [](PlanValues& v) { return of_rows(v, row_rms_norm, true); }},
    {"cross entropy forward and backward", 2,
     [](PlanValues& v) {
       const Tensor x = v.normal({24, 80});
       const Tensor loss = cross_entropy(x, v.classes({24}, 80));
       return Tensors{loss, grad(loss, x)};
     }},
    {"matmul with bias, activation and residual", 1,
     [](PlanValues& v) {
       const Tensor y = linear(v.normal({24, 40}), v.normal({32, 40}), v.normal({32}));
       return Tensors{add(gelu(y), v.normal({24, 32}))};
     }},
    {"convolution with bias, residual and activation", 1,
     [](PlanValues& v) { return convolution_graph(v, false); }},
    {"its gradients", 3, [](PlanValues& v) { return convolution_graph(v, true); }},
    {"attention", 2, [](PlanValues& v) { return attention_graph(v, 2, 16, 8, false); }},
    {"attention, large", 2, [](PlanValues& v) { return attention_graph(v, 12, 1024, 64, false); },
     false},
    {"attention and its gradients, large", 4,
     [](PlanValues& v) { return attention_graph(v, 12, 1024, 64, true); }, false},
    {"attention and its gradients", 1,
     [](PlanValues& v) { return attention_graph(v, 8, 16, 8, true); }},
    {"a two-layer MLP's SGD step", 5, [](PlanValues& v) { return mlp_step(v, 16, 24, 20, false); }},
    {"the same with Adam", 5, [](PlanValues& v) { return mlp_step(v, 16, 24, 20, true); }},
    {"a two-layer MLP's SGD step, large", 5,
     [](PlanValues& v) { return mlp_step(v, 64, 784, 512, false); }, false},
    {"the same with Adam, large", 5, [](PlanValues& v) { return mlp_step(v, 64, 784, 512, true); },
     false},
    {"an update of all parameters", 1, updates},
    {"a GPT block", 8, [](PlanValues& v) { return gpt_block(v, 2, 12, 16, 2); }},
    {"a GPT block, large", 8, [](PlanValues& v) { return gpt_block(v, 1, 1024, 768, 12); }, false},
    {"an embedding with positions", 1,
     [](PlanValues& v) {
       return Tensors{add(embedding(v.classes({4, 6}, 30), v.normal({30, 16})), v.normal({6, 16}))};
     }},
    {"one-hot times a matrix", 1,
     [](PlanValues& v) {
       return Tensors{matmul(to(one_hot(v.classes({12}, 20), 20), DType::F32), v.normal({20, 8}))};
     }},
    {"a range used in arithmetic", 1,
     [](PlanValues& v) {
       return Tensors{add(v.normal({5, 8}), arange(8.0))};
     }},
    {"the sum of all elements", 1,
     [](PlanValues& v) {
       return Tensors{sum(v.normal({60, 80}))};
     }},
    {"batch norm in training", 1,
     [](PlanValues& v) {
       return Tensors{
           batch_norm(v.normal({8, 12, 6, 6}), {}, {}, v.normal({12}), v.normal({12}), true)};
     }},
};

size_t kernel_count(const Plan& plan) {
  size_t n = 0;
  for (const PlanStep& s : plan.steps) n += s.kernel != nullptr;
  return n;
}

TEST_SUITE_BEGIN("ir");

TEST_CASE("plans keep the budgets of kernels and compute what the graph means") {
  for (const Budget& b : kBudgets) {
    CAPTURE(std::string(b.name));
    PlanValues values;
    std::vector<NodeRef> roots;
    for (const Tensor& t : b.graph(values)) roots.push_back(t.node());
    const Plan plan = make_plan(roots, named_target("x86-64-v3"));
    CHECK(kernel_count(plan) <= b.kernels);
    CHECK(plan.outputs.size() == roots.size());
    if (!b.run) continue;
    const auto got = test::run_plan(plan);
    realize_reference(roots);
    for (size_t i = 0; i < roots.size(); i++) {
      CAPTURE(i);
      CHECK(test::difference(roots[i]->dtype, got[i], test::elements(*roots[i]), 0.1) < 1e-3);
    }
  }
}

TEST_CASE("attention stores no score outside its kernels") {
  PlanValues values;
  std::vector<NodeRef> roots;
  for (const Tensor& t : attention_graph(values, 12, 1024, 64, false)) roots.push_back(t.node());
  for (const PlanSlot& s : make_plan(roots, named_target("x86-64-v3")).slots) {
    CHECK(numel(s.shape) <= 12 * 1024 * 64);
  }
}

TEST_CASE(
    "the scores of attention are computed again for its gradients where that costs less than "
    "memory") {
  Target fast = named_target("x86-64-v3");
  fast.fma_per_second = 1e18;
  PlanValues values;
  std::vector<NodeRef> roots;
  for (const Tensor& t : attention_graph(values, 12, 1024, 64, true)) roots.push_back(t.node());
  for (const PlanSlot& s : make_plan(roots, fast).slots) CHECK(numel(s.shape) <= 12 * 1024 * 64);
  // Those of keys and values are made together, of one copy.
  CHECK(make_plan(roots, fast).steps.size() == 2);

  // Where loops end at a mask, to compute a triangle again costs what is saved of the product that
  // reads it, which would walk all of an array.
  Target slow = named_target("x86-64-v3");
  slow.fma_per_second = 1e10;
  slow.bandwidth = 1e12;
  CHECK(make_plan(roots, slow).steps.size() == 2);
  std::vector<NodeRef> whole;
  PlanValues others;
  for (const Tensor& t : attention_graph(others, 12, 1024, 64, true, false))
    whole.push_back(t.node());
  CHECK(make_plan(whole, slow).steps.size() == 3);

  // Keys that L2 does not hold are walked in the last cache.
  fast.l2 = 128 << 10;
  for (const PlanSlot& s : make_plan(roots, fast).slots) CHECK(numel(s.shape) <= 12 * 1024 * 64);

  // The same decisions at a size that can be evaluated.
  Target tiny = fast;
  tiny.l2 = 2048;
  tiny.l3 = 1024;
  PlanValues small;
  std::vector<NodeRef> few;
  for (const Tensor& t : attention_graph(small, 2, 64, 4, true)) few.push_back(t.node());
  const Plan plan = make_plan(few, tiny);
  size_t again = 0;
  for (const NodeRef& n : topological(plan.roots, true)) again += n->op == Op::Checkpoint;
  CHECK(again > 0);
  const auto got = test::run_plan(plan);
  realize_reference(few);
  for (size_t i = 0; i < few.size(); i++) {
    CHECK(test::difference(few[i]->dtype, got[i], test::elements(*few[i]), 0.1) < 1e-3);
  }
}

TEST_CASE("a copy that would have to be stored is none") {
  // Exponentials of scores that three kernels read, which cannot become one.
  PlanValues values;
  const Tensor scores = matmul(values.normal({2048, 16}), values.normal({2048, 16}).mT());
  const Tensor t = exp(scores);
  const Tensors roots{matmul(t, values.normal({2048, 8})), matmul(t.mT(), values.normal({2048, 8})),
                      matmul(t, t.mT())};
  std::vector<NodeRef> nodes;
  for (const Tensor& r : roots) nodes.push_back(r.node());
  CHECK(make_plan(nodes, named_target("x86-64-v3")).steps.size() == 3);
}

TEST_CASE("equal graphs become equal kernels, whatever was planned before") {
  std::string first;
  for (int turn = 0; turn < 3; turn++) {
    PlanValues values;
    std::vector<NodeRef> roots;
    for (const Tensor& t : mlp_step(values, 16, 24, 20, true)) roots.push_back(t.node());
    const Plan plan = make_plan(roots, named_target("x86-64-v3"));
    std::string text;
    for (const PlanStep& s : plan.steps) text += print_algorithm(*s.kernel);
    if (turn == 0) first = text;
    CHECK(text == first);
    PlanValues other;
    std::vector<NodeRef> between{attention_graph(other, 2, 16, 8, false)[0].node()};
    make_plan(between, named_target("x86-64-v3"));
  }
}

TEST_CASE("roots that are leaves, reshapes of leaves, or empty need no kernel") {
  PlanValues v;
  const Tensor x = v.normal({4, 6});
  const std::vector<NodeRef> roots{x.node(), reshape(x, Shape{24}).node(),
                                   exp(v.normal({0, 3})).node(), x.node()};
  const Plan plan = make_plan(roots, named_target("x86-64-v3"));
  CHECK(plan.steps.empty());
  CHECK(plan.outputs[0] == plan.outputs[1]);
  CHECK(plan.slots[static_cast<size_t>(plan.outputs[0])].role == PlanSlot::Role::Input);
  CHECK(plan.slots[static_cast<size_t>(plan.outputs[2])].role == PlanSlot::Role::Output);
}

TEST_CASE("a window that sees only the padding before its only element is zero") {
  const Tensor x = Tensor::from(std::vector<float>{3, 1, 2}, {3});
  const Tensor i = Tensor::from(std::vector<int64_t>{0, 2, 0}, {3});
  const Tensor s = amin(scatter_add(x, 0, i, x)), t = sum(x);
  const Tensor padded = pad(reshape(where(lt(s, t), s, t), Shape{1}), {1, 0});
  const std::vector<NodeRef> roots{window(padded.node(), 0, 1, 2, 1)};
  CHECK(test::run_plan(make_plan(roots, Target())) == std::vector<test::Elements>{{0}});
}

TEST_CASE("scatter, scan and sort are steps of their own between kernels") {
  PlanValues v;
  const Tensor x = exp(v.normal({8, 6}));
  const Tensor sorted = Tensor(argsort(x.node(), false));
  const std::vector<NodeRef> roots{mul(Tensor(scan(x.node(), ScanOp::Add, 0)), 2.0).node(),
                                   sorted.node()};
  const Plan plan = make_plan(roots, named_target("x86-64-v3"));
  size_t library = 0;
  for (const PlanStep& s : plan.steps) {
    if (s.kernel) continue;
    library++;
    CHECK(s.arguments.size() == s.node->src.size() + 1);
  }
  CHECK(library == 2);
  CHECK(test::run_plan(plan).size() == 2);
}

TEST_CASE("the printed plan gives every kernel its nodes and reasons") {
  PlanValues values;
  std::vector<NodeRef> roots;
  for (const Tensor& t : of_rows(values, row_layer_norm, true)) roots.push_back(t.node());
  const std::string text = print_plan(make_plan(roots, named_target("x86-64-v3")));
  CHECK(text.find("kernel 0:") != std::string::npos);
  CHECK(text.find("starts a kernel") != std::string::npos);
  CHECK(text.find("shares 24 iterations") != std::string::npos);
  CHECK(text.find("sum over the grid") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
