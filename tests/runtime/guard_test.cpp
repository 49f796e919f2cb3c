// Kernels between pages that nobody may touch: a read or a write past either end of an array stops
// the process, with the expression in the message.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "ir/plan.h"
#include "nn/lazuli.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "runtime/storage.h"
#include "tests/guarded.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/run_plan.h"
#include "tools/notation/notation.h"

namespace lazuli {
namespace {

#if LAZULI_LLVM

using Arrays = std::vector<Ref<Storage>>;
using BytesOfResults = std::vector<std::vector<char>>;

// What the plan of `roots` gives on ordinary memory, and at both ends of guarded memory: "" if that
// is the same, or what differs.
std::string guard_differs(const std::vector<NodeRef>& roots) {
  Device& device = Runtime::current().device("cpu");
  std::unique_ptr<Executable> executable;
  Arrays given;
  {
    const auto held = hold_values();
    Plan plan = make_plan(roots, device.target());
    for (const PlanSlot& s : plan.slots) {
      if (s.role == PlanSlot::Role::Input) given.push_back(s.node->storage());
    }
    executable = device.prepare(std::move(plan));
  }
  const auto run = [&](const auto& make) {
    Arrays inputs, outputs;
    for (const auto& g : given) {
      inputs.push_back(make(g->bytes()));
      if (g->bytes() > 0) std::memcpy(inputs.back()->data(), g->data(), g->bytes());
    }
    for (const PlanSlot& s : executable->plan().slots) {
      if (s.role != PlanSlot::Role::Output) continue;
      outputs.push_back(make(static_cast<size_t>(numel(s.shape) * size_of(s.dtype))));
    }
    executable->run(pointers(inputs), pointers(outputs));
    BytesOfResults bits;
    for (const auto& o : outputs) {
      const char* const p = static_cast<const char*>(o->data());
      bits.emplace_back(p, p + o->bytes());
    }
    return bits;
  };
  const BytesOfResults want =
      run([](size_t bytes) { return make_ref<HostStorage>(Runtime::current().memory, bytes); });
  for (const End end : {End::Front, End::Back}) {
    if (run([&](size_t bytes) { return make_ref<Guarded>(bytes, end); }) != want)
      return end == End::Front ? "other bits at the front of a page" : "other bits at its end";
  }
  return "";
}

// "" if the CPU gives what the reference device does, or what differs.
std::string differs_from_reference(const std::vector<NodeRef>& roots) {
  std::vector<std::vector<test::Elements>> values;
  for (const char* name : {"reference", "cpu"}) {
    Runtime::current().device(name).realize(roots);
    std::vector<test::Elements>& list = values.emplace_back();
    for (const NodeRef& r : roots) {
      list.push_back(test::elements(*r));
      if (r->op != Op::Buffer) r->set_storage(nullptr);
    }
  }
  for (size_t i = 0; i < roots.size(); i++) {
    const DType t = roots[i]->dtype;
    const double d = test::difference(t, values[1][i], values[0][i]);
    if (!(d <= (!is_float(t) ? 0 : t == DType::F16 ? 1e-3 : 1e-4)))
      return fmt::format("result {} differs by {}", i, d);
  }
  return "";
}

constexpr const char* kExpressions[] = {
    "exp(x:f32[1001])",
    "sin(x:f32[33]) + log(abs(x))",
    "x:f32[7,33] * b:f32[33] + c:f32[7,1]",
    "x:f16[77].float() + y:bf16[77].float()",
    "x:f32[77].half()",
    "x:i8[13,3].long() * y:i64[3]",
    "a:f32[13,7] @ b:f32[7,5]",
    "a:f32[97,129] @ b:f32[129,33]",
    "a:f32[61,40] @ b:f32[23,40].mT",
    "a:f32[70,31].mT @ b:f32[70,45]",
    "gelu(x:f32[19,65] @ w:f32[65,47] + b:f32[47], approximate=tanh)",
    "a:f64[17,19] @ b:f64[19,21]",
    "gelu(a:f32[3,700] @ b:f32[700,509] + c:f32[509])",
    "a:f32[7,403] @ b:f32[405,403].T",
    "a:f32[40,5,37] @ b:f32[40,130,37].mT",
    "a:f32[40,5,130] @ b:f32[40,130,37]",
    "a:f32[3,5,9,11] @ b:f32[3,1,11,13]",
    "a:f32[1,1003] @ b:f32[1003,37]",
    "a:f32[37,1003] @ b:f32[1003]",
    ("p = a:f32[40,29] @ b:f32[29,48]; q = a @ c:f32[29,48]; r = a @ d:f32[29,48]; "
     "(tanh(p), sin(p * q), contiguous(exp(p - q * r).T))"),
    "p = a:f32[3,13,29] @ b:f32[3,29,45]; q = c:f32[3,13,7] @ d:f32[3,7,45]; (p, p * q, p + q)",
    "conv2d(x:f32[2,3,9,11], w:f32[5,3,3,3], padding=1) + conv2d(y:f32[2,7,9,11], v:f32[5,7,1,1])",
    "conv2d(x:f32[2,3,11,13], w:f32[5,3,3,3], padding=1)",
    "conv2d(x:f32[1,3,23,21], w:f32[9,3,7,7], stride=2, padding=3)",
    "conv2d(x:f32[2,6,9,9], w:f32[6,1,3,3], padding=1, groups=6)",
    "c = conv2d(x:f32[2,3,9,11], w:f32[4,3,3,3], padding=1); grad(sum(c * c), x, w)",
    "max_pool2d(x:f32[2,3,11,13], 3, 2, 1)",
    "grad(sum(avg_pool2d(x:f32[2,3,11,13], 2) ** 2), x)",
    "softmax(x:f32[7,33], -1)",
    "log_softmax(x:f32[5,1001], -1)",
    "grad(sum(layer_norm(x:f32[9,45], [45], w:f32[45], b:f32[45]) ** 2), x, w, b)",
    "batch_norm(x:f32[3,5,7,9], None, None, training=true)",
    "grad(cross_entropy(x:f32[9,37], y:i64[9]~ids(37)), x)",
    ("scaled_dot_product_attention(q:f32[1,3,37,20], k:f32[1,3,37,20], v:f32[1,3,37,20], "
     "is_causal=true)"),
    "scaled_dot_product_attention(q:f32[2,3,1,20], k:f32[2,3,77,20], v:f32[2,3,77,20])",
    "scaled_dot_product_attention(q:f32[1,2,37,20], k:f32[1,2,2070,20], v:f32[1,2,2070,28])",
    ("scaled_dot_product_attention(q:f32[1,1,67,12], k:f32[1,1,2048,12], v:f32[1,1,2048,20], "
     "is_causal=true)"),
    "softmax(where(arange(2048) <= 30 * arange(66)[:, None], q:f32[66,8] @ k:f32[2048,8].T, "
    "-inf), -1) @ v:f32[2048,24]",
    "softmax(x:f32[50,31] @ y:f32[31,700], -1) @ z:f32[700,40]",
    "(sum(x:f32[13,35], 0), sum(x, 1), sum(x), prod(x, 1), amax(x, 0))",
    "(argmax(x:f32[13,35], 1), argmin(x, 0), any(x > 2, 1))",
    "contiguous(x:f32[33,65].T)",
    "contiguous(x:u8[33,65].T)",
    "cat([x:f32[3,5], y:f32[4,5], x * 2], 0)",
    "pad(x:f32[5,7], [1, 2, 3, 0])",
    "(softmax(x:f32[300,3], 1), x / norm(x, 2, 1, true), grad(sum(softmax(x, 1) ** 2), x))",
    "(softmax(x:f32[300,2,3,2], 1), argmax(x, 1), var(x, 1))",
    "cat([x:f32[20001], y:f32[19999]], 0)",
    "pad(x:f32[20001], [20000, 19999])",
    "(exp(a:f32[40,33]) @ b:f32[33,50]).T",
    "a:f32[40,33] @ exp(b:f32[33,50])",
    "a:f32[3,40,33] @ exp(b:f32[3,50,33]).mT",
    ("y = scaled_dot_product_attention(q:f32[1,4,70,20], k:f32[1,2,70,20], v:f32[1,2,70,20], "
     "is_causal=true, enable_gqa=true); grad(sum(y * y), q, k, v)"),
    "contiguous(flip(x:f32[5,37], [1])[::2, 1:30:3])",
    "(sum(x:f32[5,33,3], 2), amax(x:f32[5,33,3], 2), sum(y:f32[3,41,7], 2))",
    "x:u8[5,37,3].permute(2, 0, 1).float() / 255 - m:f32[3,1,1]",
    "(x:f32[131,5] * w:f32[5])[:, 1:4].sum(1)",
    "cumsum(x:f32[5,77], 1)",
    "(cumsum(x:f32[50,3], 1), cumprod(x, 1), grad(sum(cumsum(x, 1) ** 2), x))",
    "sort(x:f32[3,77], 1)",
    "topk(x:f32[3,77], 5)",
    "embedding(i:i32[41]~ids(19), w:f32[19,7])",
    "grad(sum(embedding(i:i64[41]~ids(19), w:f32[19,7]) ** 2), w)",
    "x:f32[19,7][i:i64[5]~ids(19)]",
};

TEST_SUITE_BEGIN("runtime");

TEST_CASE(
    "kernels keep within their arrays, give the same bits wherever these lie, and the right ones") {
  for (const int threads : {1, 3}) {
    Config config;
    config.threads = threads;
    Runtime runtime(std::move(config));
    const Runtime::Use use(runtime);
    for (const char* text : kExpressions) {
      INFO(std::string(text));
      const notation::Program program = notation::parse(text);
      std::vector<NodeRef> roots;
      for (const Tensor& t :
           notation::evaluate_program(program, notation::bind_inputs(program, {}, {}), {}).tensors)
        roots.push_back(t.node());
      CHECK(guard_differs(roots) == "");
      if (threads == 1) CHECK(differs_from_reference(roots) == "");
    }
  }
}

TEST_CASE("kernels of random graphs keep within their arrays") {
  Config config;
  config.threads = 1;  // whose fault names the seed
  Runtime runtime(std::move(config));
  const Runtime::Use use(runtime);
  for (uint64_t seed = 0; seed < 300; seed++) {
    INFO("seed ", seed);
    std::vector<NodeRef> roots = test::random_graph(seed, 4 + static_cast<int>(seed % 20));
    std::erase_if(roots, [](const NodeRef& r) { return r->realised(); });
    if (!roots.empty()) CHECK(guard_differs(roots) == "");
  }
}

TEST_CASE("a loop that ends at a mask computes what others read in the steps of theirs") {
  const auto value_on = [](const char* device) {
    Config config;
    config.device = device;
    Runtime runtime(config);
    runtime.memory.fill_with_nan();
    const Runtime::Use use(runtime);
    const Tensor x = (arange(28).to(DType::F32) / 8.0).reshape({1, 2, 2, 7}).realize(),
                 w = ones({2, 1, 1, 1}).realize();
    const Tensor y = conv_transpose2d(x, w, {}, 1, {0, 1});
    const std::vector<Tensor> g = grad(sum(y * y), std::vector<Tensor>{x, w});
    return (sum(g[0]) + sum(g[1])).item<float>();
  };
  CHECK(value_on("cpu") == value_on("reference"));
}

TEST_SUITE_END();

#endif  // LAZULI_LLVM

}  // namespace
}  // namespace lazuli
