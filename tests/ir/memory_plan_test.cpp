// Where arrays of a plan lie: against the best placement that a search of all orders finds, and
// against what is alive at one step of large models.
#include "ir/memory_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/gradient.h"
#include "core/graph.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/lower.h"
#include "nn/resnet.h"
#include "runtime/library.h"
#include "tests/ir/chosen.h"

namespace lazuli {
namespace {

using test::input_array;

TEST_SUITE_BEGIN("ir");

bool together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

void check_apart(std::span<const Lifetime> arrays, std::span<const Room> rooms, const Packing& p) {
  for (size_t i = 0; i < arrays.size(); i++) {
    const Packing::Place& at = p.places[i];
    CHECK(at.offset >= 0);
    if (at.room >= 0) {
      const Room& r = rooms[static_cast<size_t>(at.room)];
      CHECK(arrays[i].last < r.until);
      CHECK(at.offset + arrays[i].bytes <= r.bytes);
    } else {
      CHECK(at.offset + arrays[i].bytes <= p.arena);
    }
    for (size_t k = 0; k < i; k++) {
      if (!together(arrays[i], arrays[k]) || p.places[k].room != at.room) continue;
      CHECK((at.offset + arrays[i].bytes <= p.places[k].offset ||
             p.places[k].offset + arrays[k].bytes <= at.offset));
    }
  }
}

// The smallest arena: some order of first fit gives it, since arrays of the best placement, taken
// from below, fit at least as low.
class BestArena {
 public:
  explicit BestArena(std::vector<Lifetime> arrays, int64_t least)
      : arrays_(std::move(arrays)),
        least_(least),
        offset_(arrays_.size()),
        placed_(arrays_.size()) {}

  int64_t find() {
    for (const Lifetime& a : arrays_) best_ += a.bytes;
    descend(0, 0);
    return best_;
  }

 private:
  void descend(size_t count, int64_t height) {
    if (height >= best_ || best_ == least_ || steps_ > 2'000'000) return;
    steps_++;
    if (count == arrays_.size()) {
      best_ = height;
      return;
    }
    for (size_t a = 0; a < arrays_.size(); a++) {
      if (placed_[a]) continue;
      offset_[a] = lowest(a);
      placed_[a] = true;
      descend(count + 1, std::max(height, offset_[a] + arrays_[a].bytes));
      placed_[a] = false;
    }
  }
  int64_t lowest(size_t a) const {
    int64_t at = 0;
    for (bool moved = true; std::exchange(moved, false);) {
      for (size_t b = 0; b < arrays_.size(); b++) {
        if (!placed_[b] || !together(arrays_[a], arrays_[b])) continue;
        if (at + arrays_[a].bytes <= offset_[b] || offset_[b] + arrays_[b].bytes <= at) continue;
        at = offset_[b] + arrays_[b].bytes;
        moved = true;
      }
    }
    return at;
  }

  std::vector<Lifetime> arrays_;
  int64_t least_, best_ = 0, steps_ = 0;
  std::vector<int64_t> offset_;
  std::vector<bool> placed_;
};

std::vector<Lifetime> random_arrays(std::mt19937& random, int count, int steps) {
  std::vector<Lifetime> arrays;
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < count; i++) {
    const int first = draw(steps), last = std::min(steps - 1, first + draw(steps / 2 + 1));
    arrays.push_back({64 * (1 + draw(draw(4) == 0 ? 64 : 12)), first, last});
  }
  return arrays;
}

TEST_CASE("memory: twelve arrays take at most 5 % more than in the best placement") {
  std::mt19937 random(5);
  int64_t total = 0, best_total = 0;
  for (int i = 0; i < 400; i++) {
    const std::vector<Lifetime> arrays = random_arrays(random, 3 + i % 10, 12);
    const Packing p = pack(arrays);
    check_apart(arrays, {}, p);
    const int64_t best = BestArena(arrays, p.least).find();
    CHECK(best >= p.least);
    CAPTURE(i);
    CHECK(20 * p.arena <= 21 * best);
    total += p.arena;
    best_total += best;
  }
  CHECK(100 * total <= 101 * best_total);
}

TEST_CASE("memory: rooms are used before they are written, and only then") {
  const std::vector<Lifetime> arrays = {{640, 0, 1}, {640, 2, 3}, {128, 1, 2}};
  const std::vector<Room> rooms = {{704, 3}, {128, 3}};
  const Packing p = pack(arrays, rooms);
  check_apart(arrays, rooms, p);
  CHECK(p.places[0].room == 0);
  CHECK(p.places[2].room == 1);
  CHECK(p.arena == 640);
  std::mt19937 random(6);
  for (int i = 0; i < 200; i++) {
    const std::vector<Lifetime> some = random_arrays(random, 20, 12);
    std::vector<Room> free;
    for (int r = 0; r < 3; r++)
      free.push_back({static_cast<int64_t>(64 * (random() % 64)), static_cast<int>(random() % 13)});
    check_apart(some, free, pack(some, free));
  }
}

TEST_CASE("memory: very many arrays are placed in one pass") {
  std::mt19937 random(7);
  std::vector<Lifetime> arrays;
  for (int i = 0; i < 100'000; i++) {
    arrays.push_back(
        {static_cast<int64_t>(64 * (1 + random() % 8)), i, i + static_cast<int>(random() % 6)});
  }
  const Packing p = pack(arrays);
  CHECK(10 * p.arena <= 15 * p.least);
  // Neighbours alone can be alive together.
  for (size_t i = 0; i < arrays.size(); i += 997) {
    const size_t from = i < 8 ? 0 : i - 8, to = std::min(i + 8, arrays.size());
    const std::span<const Lifetime> near(arrays.begin() + static_cast<ptrdiff_t>(from),
                                         arrays.begin() + static_cast<ptrdiff_t>(to));
    Packing part;
    part.arena = p.arena;
    part.places.assign(p.places.begin() + static_cast<ptrdiff_t>(from),
                       p.places.begin() + static_cast<ptrdiff_t>(to));
    check_apart(near, {}, part);
  }
}

// ---- plans

Target default_target() {
  Target t;
  return t;
}

MemoryPlan plan_of(const std::vector<Tensor>& roots) {
  std::vector<NodeRef> nodes;
  for (const Tensor& t : roots) nodes.push_back(t.node());
  const Plan plan = make_plan(nodes, default_target());
  std::vector<std::vector<InPlace>> pairs(plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); i++) {
    const PlanStep& step = plan.steps[i];
    if (step.kernel) {
      Kernel k = clone(*step.kernel);
      choose_schedule(k, default_target());
      pairs[i] = in_place_arguments(lower(k, default_target()));
    } else {
      pairs[i] = in_place_arguments(*step.node);
    }
  }
  return plan_memory(plan, pairs);
}

struct AttentionBlock {
  Tensor norm1 = input_array({768}), shift1 = input_array({768}), qkv = input_array({768, 2304}),
         qkv_bias = input_array({2304});
  Tensor out = input_array({768, 768}), out_bias = input_array({768}), norm2 = input_array({768}),
         shift2 = input_array({768});
  Tensor up = input_array({768, 3072}), up_bias = input_array({3072}),
         down = input_array({3072, 768}), down_bias = input_array({768});
};

Tensor attention_block(const AttentionBlock& b, const Tensor& x) {
  const int64_t batch = x.size(0), length = x.size(1);
  const Tensor h = matmul(layer_norm(x, {768}, b.norm1, b.shift1), b.qkv) + b.qkv_bias;
  std::vector<Tensor> p;
  for (const Tensor& part : split(h, 768, 2))
    p.push_back(transpose(reshape(part, {batch, length, 12, 64}), 1, 2));
  const Tensor a = scaled_dot_product_attention(p[0], p[1], p[2], {}, 0.0, true);
  const Tensor z = x + matmul(reshape(transpose(a, 1, 2), x.shape()), b.out) + b.out_bias;
  const Tensor g = gelu(matmul(layer_norm(z, {768}, b.norm2, b.shift2), b.up) + b.up_bias, "tanh");
  return z + matmul(g, b.down) + b.down_bias;
}

std::vector<Tensor> gpt2_gradients(int layers) {
  std::vector<AttentionBlock> blocks(static_cast<size_t>(layers));
  const Tensor tokens = input_array({50257, 768}), ids = input_array({1, 128}, DType::I64),
               next = input_array({128}, DType::I64);
  Tensor x = embedding(ids, tokens);
  std::vector<Tensor> parameters = {tokens};
  for (const AttentionBlock& b : blocks) {
    x = attention_block(b, x);
    for (const Tensor& t : {b.norm1, b.shift1, b.qkv, b.qkv_bias, b.out, b.out_bias, b.norm2,
                            b.shift2, b.up, b.up_bias, b.down, b.down_bias}) {
      parameters.push_back(t);
    }
  }
  const Tensor loss = cross_entropy(reshape(matmul(x, tokens.mT()), {128, 50257}), next);
  std::vector<Tensor> roots = grad(loss, parameters);
  roots.push_back(loss);
  return roots;
}

std::vector<Tensor> resnet_gradients() {
  nn::ResNet50 model([](const Shape& shape) { return input_array(shape); });
  const Tensor loss =
      cross_entropy(model.logits(input_array({1, 3, 224, 224})), input_array({1}, DType::I64));
  std::vector<Tensor> roots = grad(loss, model.parameters());
  roots.push_back(loss);
  return roots;
}

TEST_CASE("memory: GPT-2 and ResNet-50 take at most 15 % more than what is alive at one step") {
  for (const bool resnet : {false, true}) {
    const MemoryPlan m = plan_of(resnet ? resnet_gradients() : gpt2_gradients(12));
    const double ratio = static_cast<double>(m.arena + m.outputs) / static_cast<double>(m.least);
    CAPTURE(resnet);
    CAPTURE(m.arena);
    CAPTURE(m.outputs);
    CAPTURE(m.least);
    CAPTURE(m.in_place);
    CHECK(ratio <= 1.15);
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
