#include "tools/cli/steps.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "nn/lazuli.h"
#include "nn/resnet.h"
#include "runtime/device.h"
#include "tools/cli/symbolic_steps.h"

namespace lazuli::cli {
namespace {

using Run = std::function<Tensor()>;

Tensor random(const Shape& shape, double scale = 0.05) {
  return randn(shape) * scale;
}

// `f`, captured at its first call and replayed from then on.
template <typename F>
Run replayed(F f) {
  return [step = jit(std::move(f))]() mutable { return step(); };
}

// ---- training

template <typename Optimizer>
std::shared_ptr<Optimizer> optimizer_of(std::vector<Tensor> parameters, double rate) {
  for (Tensor& p : parameters) {
    p.realize();
    p.requires_grad_();
  }
  return std::make_shared<Optimizer>(std::move(parameters), rate);
}

// One step of an optimizer on `loss` after the other.
template <typename Optimizer>
Run train(std::vector<Tensor> parameters, double rate, std::function<Tensor()> loss) {
  const auto optimizer = optimizer_of<Optimizer>(std::move(parameters), rate);
  return replayed([optimizer, loss = std::move(loss)] {
    const Tensor value = loss();
    backward(value);
    optimizer->step();
    optimizer->zero_grad();
    return value;
  });
}

// Weight and bias of each layer between the sizes.
std::vector<Tensor> mlp_parameters(std::initializer_list<int64_t> sizes) {
  std::vector<Tensor> out;
  for (auto in = sizes.begin(); in + 1 != sizes.end(); ++in) {
    out.push_back(random({in[0], in[1]}, 1 / std::sqrt(static_cast<double>(in[0]))));
    out.push_back(zeros({in[1]}));
  }
  return out;
}

Tensor dense(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return matmul(x, weight) + bias;
}

std::function<Tensor()> tiny_loss(const std::vector<Tensor>& p) {
  const Tensor x = randn({100, 2}).realize(), y = randn({100, 1}).realize();
  return [=] {
    const Tensor h = tanh(dense(tanh(dense(x, p[0], p[1])), p[2], p[3]));
    return mse_loss(dense(h, p[4], p[5]), y);
  };
}

Run tiny_adam() {
  const std::vector<Tensor> p = mlp_parameters({2, 16, 16, 1});
  return train<nn::Adam>(p, 1e-4, tiny_loss(p));
}

Run tiny_adam_eager() {
  const std::vector<Tensor> p = mlp_parameters({2, 16, 16, 1});
  const std::function<Tensor()> loss = tiny_loss(p);
  return [loss, adam = optimizer_of<nn::Adam>(p, 1e-4)] {
    const Tensor value = loss();
    adam->step(value);
    return value;
  };
}

template <typename Optimizer>
Run mlp_step(double rate) {
  const std::vector<Tensor> p = mlp_parameters({784, 512, 10});
  const Tensor x = randn({128, 784}).realize(), y = randint(0, 10, {128}).realize();
  return train<Optimizer>(
      p, rate, [=] { return cross_entropy(dense(relu(dense(x, p[0], p[1])), p[2], p[3]), y); });
}

Run cnn_adam() {
  const std::vector<Tensor> p = {random({8, 1, 3, 3}, 0.3),  zeros({8}),
                                 random({16, 8, 3, 3}, 0.1), zeros({16}),
                                 random({400, 10}),          zeros({10})};
  const Tensor x = randn({64, 1, 28, 28}).realize(), y = randint(0, 10, {64}).realize();
  return train<nn::Adam>(p, 1e-4, [=] {
    Tensor h = max_pool2d(relu(conv2d(x, p[0], p[1])), 2);
    h = max_pool2d(relu(conv2d(h, p[2], p[3])), 2);
    return cross_entropy(dense(flatten(h, 1), p[4], p[5]), y);
  });
}

// The loss of one image and its gradients by all parameters.
Run resnet50_step() {
  const auto model = std::make_shared<nn::ResNet50>([](const Shape& shape) {
    // As He et al., "Delving Deep into Rectifiers" (2015); the branches sum to a half.
    const int64_t fan_in = shape.size() == 4 ? shape[1] * shape[2] * shape[3] : shape[0];
    Tensor p = shape.size() == 3 ? full(shape, 0.5)
                                 : random(shape, std::sqrt(2.0 / static_cast<double>(fan_in)));
    return p.realize();
  });
  const Tensor x = randn({1, 3, 224, 224}).realize(), y = randint(0, 1000, {1}).realize();
  model->logits(x);  // makes the parameters
  return [step = jit([=] {
            const Tensor loss = cross_entropy(model->logits(x), y);
            std::vector<Tensor> out = grad(loss, model->parameters());
            out.insert(out.begin(), loss);
            return out;
          })]() mutable { return step().front(); };
}

// ---- GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019)

struct Block {
  Tensor norm1, shift1, qkv, qkv_bias, out, out_bias;
  Tensor norm2, shift2, up, up_bias, down, down_bias;

  explicit Block(int64_t c)
      : norm1(ones({c})),
        shift1(zeros({c})),
        qkv(random({c, 3 * c})),
        qkv_bias(zeros({3 * c})),
        out(random({c, c})),
        out_bias(zeros({c})),
        norm2(ones({c})),
        shift2(zeros({c})),
        up(random({c, 4 * c})),
        up_bias(zeros({4 * c})),
        down(random({4 * c, c})),
        down_bias(zeros({c})) {}

  std::vector<Tensor> parameters() const {
    return {norm1, shift1, qkv, qkv_bias, out,  out_bias,
            norm2, shift2, up,  up_bias,  down, down_bias};
  }
};

struct Gpt {
  int64_t heads, width;
  Tensor tokens, places, norm, shift;
  std::vector<Block> blocks;

  Gpt(int64_t layers, int64_t h, int64_t c, int64_t symbols, int64_t length)
      : heads(h),
        width(c),
        tokens(random({symbols, c})),
        places(random({length, c})),
        norm(ones({c})),
        shift(zeros({c})) {
    for (int64_t i = 0; i < layers; i++) blocks.emplace_back(c);
    for (Tensor& p : parameters()) p.realize();
  }

  std::vector<Tensor> parameters() const {
    std::vector<Tensor> out = {tokens, places, norm, shift};
    for (const Block& b : blocks) {
      const std::vector<Tensor> more = b.parameters();
      out.insert(out.end(), more.begin(), more.end());
    }
    return out;
  }

  // Query, key and value of x (batch, length, width), each (batch, heads, length, width / heads).
  std::vector<Tensor> project(const Block& b, const Tensor& x) const {
    const int64_t batch = x.size(0), length = x.size(1);
    const Tensor h = dense(layer_norm(x, {width}, b.norm1, b.shift1), b.qkv, b.qkv_bias);
    std::vector<Tensor> out;
    for (const Tensor& part : split(h, width, 2)) {
      out.push_back(transpose(reshape(part, {batch, length, heads, width / heads}), 1, 2));
    }
    return out;
  }

  // The rest of a block, from what its attention gives.
  Tensor finish(const Block& b, const Tensor& x, const Tensor& attended) const {
    const Tensor y = reshape(transpose(attended, 1, 2), x.shape());
    const Tensor z = x + dense(y, b.out, b.out_bias);
    const Tensor h =
        gelu(dense(layer_norm(z, {width}, b.norm2, b.shift2), b.up, b.up_bias), "tanh");
    return z + dense(h, b.down, b.down_bias);
  }

  Tensor forward(Tensor x) const {
    for (const Block& b : blocks) {
      const std::vector<Tensor> p = project(b, x);
      x = finish(b, x, scaled_dot_product_attention(p[0], p[1], p[2], {}, 0.0, true));
    }
    return x;
  }

  Tensor logits(const Tensor& x) const {
    return matmul(layer_norm(x, {width}, norm, shift), tokens.mT());
  }
};

Run gpt_nano_adamw() {
  const auto model = std::make_shared<const Gpt>(3, 3, 48, 65, 64);
  const Tensor x = randint(0, 65, {32, 64}).realize(), y = randint(0, 65, {32, 64}).realize();
  return train<nn::AdamW>(model->parameters(), 1e-4, [=] {
    const Tensor h = model->forward(embedding(x, model->tokens) + model->places);
    return cross_entropy(reshape(model->logits(h), {-1, 65}), flatten(y));
  });
}

Run gpt2_block_fwd() {
  const auto model = std::make_shared<const Gpt>(1, 12, 768, 8, 8);
  const Tensor x = randn({1, 512, 768}).realize();
  return replayed([=] { return model->forward(x); });
}

std::shared_ptr<const Gpt> gpt2() {
  return std::make_shared<const Gpt>(12, 12, 768, 50257, 1024);
}

Run gpt2_prefill() {
  const auto model = gpt2();
  const Tensor ids = randint(0, 50257, {1, 128}).realize();
  return replayed([=] {
    const Tensor x = embedding(ids, model->tokens) + narrow(model->places, 0, 0, 128);
    return model->logits(narrow(model->forward(x), 1, 127, 1));
  });
}

// One token after 128 others, whose keys and values are kept in arrays of 1,024 rows.
Run gpt2_decode() {
  constexpr int64_t kPlace = 128;
  const auto model = gpt2();
  const auto caches = std::make_shared<std::vector<Tensor>>();
  for (size_t i = 0; i < 2 * model->blocks.size(); i++) {
    caches->push_back(zeros({1, 12, 1024, 64}).realize());
  }
  const Tensor token = full({1, 1}, 5, DType::I64).realize();
  return replayed([=] {
    Tensor x = embedding(token, model->tokens) + narrow(model->places, 0, kPlace, 1);
    for (size_t i = 0; i < model->blocks.size(); i++) {
      const std::vector<Tensor> p = model->project(model->blocks[i], x);
      Tensor past[2];
      for (size_t c = 0; c < 2; c++) {
        Tensor& cache = (*caches)[2 * i + c];
        cache.set_({Slice{}, Slice{}, Slice{kPlace, kPlace + 1}}, p[c + 1]);
        past[c] = narrow(cache, 2, 0, kPlace + 1);
      }
      x = model->finish(model->blocks[i], x, scaled_dot_product_attention(p[0], past[0], past[1]));
    }
    return model->logits(x);
  });
}

// ---- the host alone: kernels of 16 elements, or none

constexpr int64_t kKernels = 1000, kNodes = 10'000, kMillion = 1'000'000;

// Kernels that each read what the one before has written.
Tensor kernel_chain(const Tensor& x) {
  Tensor y = x;
  for (int64_t i = 0; i < kKernels; ++i) y = contiguous(y + x);
  return y;
}

Run replay_1000() {
  return replayed([x = ones({16}).realize()] { return kernel_chain(x); });
}

Run replay_1000_eager() {
  return [x = ones({16}).realize()] { return Tensor(kernel_chain(x).realize()); };
}

Run build_graph() {
  return [x = ones({16}).realize()] {
    Tensor y = x;
    for (int64_t i = 0; i < kNodes; ++i) y = y + x;
    return x;
  };
}

Run schedule_million() {
  const Tensor x = ones({16}).realize();
  Tensor y = x;
  for (int64_t i = 0; i < kMillion / 2; ++i) y = y * 0.999 + x;
  return [x, y] {
    const NodeRef root = y.node();
    make_plan({&root, 1}, Runtime::current().device().target());
    return x;
  };
}

constexpr std::string_view kEager = "its graph built anew each time";

const Step kSteps[] = {
    {"tiny_adam", "perceptron 2-16-16-1, tanh, squared error, 100 rows, Adam", 2e5, 0, tiny_adam},
    {"mlp_sgd", "perceptron 784-512-10, ReLU, cross entropy, 128 rows, SGD", 2.095e8, 5e6,
     [] { return mlp_step<nn::SGD>(1e-3); }},
    {"mlp_adam", "the same, Adam", 2.095e8, 1.2e7, [] { return mlp_step<nn::Adam>(1e-4); }},
    {"cnn_adam", "two 3x3 convolutions with pooling, dense 10, 64 images of 28x28, Adam", 6.6e7,
     8e6, cnn_adam},
    {"resnet50_step", "ResNet-50, loss and gradients of one image of 224x224", 2.45e10, 2e8,
     resnet50_step},
    {"gpt_nano_adamw", "GPT of 3 layers, 3 heads, 48 wide, 32 rows of 64 tokens, AdamW", 1.3e9, 0,
     gpt_nano_adamw},
    {"gpt2_block_fwd", "one block of GPT-2, 512 tokens", 7.65e9, 3.2e7, gpt2_block_fwd},
    {"gpt2_prefill_128", "GPT-2 of 124 million, 128 tokens, logits of the last", 2.19e10, 5e8,
     gpt2_prefill},
    {"gpt2_decode", "the same, one token after 128 that are cached", 2.5e8, 4.97e8, gpt2_decode},
    {"tiny_adam_eager", "tiny_adam without jit", 2e5, 0, tiny_adam_eager, "host", kEager},
    {"replay_1000", "1,000 dependent kernels of 16 elements", 1.6e4, 0, replay_1000, "host",
     "captured and replayed", kKernels, "kernel"},
    {"replay_1000_eager", "the same without jit", 1.6e4, 0, replay_1000_eager, "host", kEager,
     kKernels, "kernel"},
    {"build_graph", "10,000 additions, built and freed", 0, 0, build_graph, "host",
     "nothing is computed", kNodes, "node"},
    {"schedule_million", "the plan of 1,000,000 nodes", 0, 0, schedule_million, "host",
     "nothing is computed", kMillion, "node"},
};

}  // namespace

const std::vector<Step>& steps() {
  static const std::vector<Step> all = [] {
    std::vector<Step> out(std::begin(kSteps), std::end(kSteps));
    const std::span<const Step> symbolic = symbolic_steps();
    out.insert(out.end(), symbolic.begin(), symbolic.end());
    return out;
  }();
  return all;
}

const Step* find_step(std::string_view name) {
  for (const Step& row : steps()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace lazuli::cli
