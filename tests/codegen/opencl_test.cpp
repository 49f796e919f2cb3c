// The second dialect: kernels, from tensor operations to OpenCL C, run by an OpenCL driver and compared with the reference device.
#include "runtime/opencl/runner.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "codegen/opencl.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "tests/sanitized.h"

#if defined(__SANITIZE_ADDRESS__)
// PoCL never frees the pass manager of a device, with the LLVM that hangs on it.
extern "C" const char* __lsan_default_suppressions() { return "leak:libpocl\n"; }
#endif

namespace lazuli {
namespace {

Tensor wave(const Shape& shape, double step) {
  std::vector<float> v;
  for (int64_t i = 0; i < numel(shape); i++) v.push_back(static_cast<float>(std::sin(step * static_cast<double>(i + 1))));
  return Tensor::from(v, shape);
}

std::vector<std::byte> zeros_for(const PlanSlot& s) {
  return std::vector<std::byte>(static_cast<size_t>(numel(s.shape)) * static_cast<size_t>(size_of(s.dtype)));
}

// Runs the plan of `y`, kernel by kernel, through OpenCL; returns the elements of the result.
std::vector<float> run_through_opencl(const Tensor& y, const Target& target) {
  const NodeRef root = y.node();
  const Plan plan = make_plan(std::span<const NodeRef>(&root, 1), target);
  std::vector<std::vector<std::byte>> memory;
  std::vector<void*> slots;
  for (const PlanSlot& s : plan.slots) {
    memory.push_back(zeros_for(s));
    const bool input = s.role == PlanSlot::Role::Input;
    slots.push_back(input ? s.node->storage()->data() : static_cast<void*>(memory.back().data()));
  }
  for (const PlanStep& step : plan.steps) {
    REQUIRE(step.kernel);
    Kernel k = clone(*step.kernel);
    choose_schedule(k, target);
    const Program program = lower(k, target);
    std::vector<void*> arguments;
    for (int a : step.arguments) arguments.push_back(slots[static_cast<size_t>(a)]);
    run_opencl(program, emit_opencl(program, "kernel"), "kernel", arguments);
  }
  const auto* out = static_cast<const float*>(slots[static_cast<size_t>(plan.outputs[0])]);
  return {out, out + y.numel()};
}

struct OpenclCase {
  const char* name;
  std::function<Tensor()> build;
};

const OpenclCase kOpenclCases[] = {
    {"a chain with broadcasts",
     [] { return gelu(wave({37, 50}, 0.1) * 0.5 + wave({50}, 0.7), "tanh") * sigmoid(wave({37, 50}, 0.3)); }},
    {"softmax", [] { return softmax(wave({19, 70}, 0.37) * 5, -1); }},
    {"layer norm", [] { return layer_norm(wave({21, 48}, 0.9), {48}, wave({48}, 0.2), wave({48}, 0.5)); }},
    {"a matrix product with an epilogue",
     [] { return gelu(matmul(wave({33, 40}, 0.21), wave({40, 52}, 0.43)) + wave({52}, 0.8)); }},
    {"a convolution", [] { return conv2d(wave({2, 3, 11, 13}, 0.17), wave({5, 3, 3, 3}, 0.71), std::nullopt, 1, 1); }},
    {"a strided convolution",
     [] { return conv2d(wave({1, 3, 11, 37}, 0.17), wave({5, 3, 3, 3}, 0.71), std::nullopt, 2, 1); }},
    {"elements in reverse, and every second one",
     [] {
       const Tensor x = wave({4, 80}, 0.17), m = (x > 0).to(DType::Bool).realize();
       const Tensor pairs = m.index({Slice{}, Slice{.step = 2}});
       return flip(where(m, x, 0.0), {1}) + flip(m, {1}).to(DType::F32) +
              cat({pairs, pairs}, 1).to(DType::F32);
     }},
    {"elements an odd distance apart",
     [] {
       const Tensor x = wave({5, 41, 3}, 0.17), y = wave({3, 37, 5}, 0.29);
       const Tensor bytes = (x * 100 + 100).to(DType::U8).realize();
       return cat({sum(x, {2}).reshape({205}), amax(y, {2}).reshape({111}),
                   (bytes.permute({2, 0, 1}).to(DType::F32) / 255).reshape({615})},
                  0);
     }},
    {"causal attention",
     [] {
       return scaled_dot_product_attention(wave({2, 3, 24, 16}, 0.11), wave({2, 3, 24, 16}, 0.31),
                                           wave({2, 3, 24, 16}, 0.51), std::nullopt, 0.0, true);
     }},
    {"16-bit floats",
     [] {
       const Tensor x = wave({19, 37}, 0.37) * 3, h = x.to(DType::F16), b = x.to(DType::BF16);
       return (h * 2 + 1).to(DType::F32) + exp(b) + (h > 0.5).to(DType::F32) +
              (h * 0.0).to(DType::Bool).to(DType::F32);
     }},
    {"products of bytes",
     [] {
       const Tensor a = (wave({13, 37}, 0.37) * 127).to(DType::I8).to(DType::I32);
       return (matmul(a, (wave({37, 35}, 0.59) * 127).to(DType::I8).to(DType::I32)) / 1e5)
           .to(DType::F32);
     }},
    {"products of 16-bit integers",
     [] {
       const Tensor a = (wave({13, 37}, 0.37) * 3e4).to(DType::I16).to(DType::I32);
       return (matmul(a, (wave({37, 35}, 0.59) * 50).to(DType::I16).to(DType::I32)) / 1e7)
           .to(DType::F32);
     }},
    {"products of bf16",
     [] {
       const Tensor a = wave({13, 37}, 0.37).to(DType::BF16), b = wave({37, 35}, 0.59).to(DType::BF16);
       return matmul(a.to(DType::F32), b.to(DType::F32));
     }},
    {"products of bf16, loaded as words",
     [] {
       const Tensor a = contiguous(wave({13, 64}, 0.37).to(DType::BF16));
       const Tensor b = contiguous(wave({35, 64}, 0.59).to(DType::BF16));
       return matmul(a.to(DType::F32), b.to(DType::F32).mT());
     }},
};

// A machine of this level with the instructions for packed products.
Target with_packed_dots(const char* level) {
  Target target = named_target(level);
  target.has_u8_dot = target.has_i16_dot = target.has_bf16_dot = true;
  return target;
}

}  // namespace

TEST_SUITE("codegen") {
  TEST_CASE("kernels give the reference's values through OpenCL") {
    std::string why;
    const std::string device = first_opencl_device(&why);
    REQUIRE_MESSAGE(!device.empty(), "no OpenCL device to test with: ", why);
    for (const Target& target : {with_packed_dots("x86-64-v3"), with_packed_dots("x86-64-v4")}) {
      for (const OpenclCase& c : kOpenclCases) {
        CAPTURE(c.name);
        CAPTURE(target.cpu);
        const Tensor y = c.build();
        const std::vector<float> got = run_through_opencl(y, target);
        const NodeRef root = y.node();
        Runtime::current().device("reference").realize(std::span<const NodeRef>(&root, 1));
        const std::vector<float> want = y.to_vector<float>();
        double worst = 0;
        for (size_t i = 0; i < want.size(); i++) worst = std::max(worst, std::fabs(double(got[i]) - want[i]));
        CHECK(worst < 2e-5);
      }
    }
  }

  TEST_CASE("what each worker computes for itself is refused") {
    Program program;
    program.name = "softmax";
    Phase& phase = program.phases.emplace_back();
    phase.name = "m";
    phase.each = true;
    CHECK_THROWS_WITH_AS(emit_opencl(program, "k"),
                         "opencl: phase m of softmax is run by each worker, which is not built yet; give its values "
                         "scope shared",
                         UserError);
  }

  TEST_CASE("a kernel that does not build gives the driver's log") {
    if (first_opencl_device().empty()) return;
    CHECK_THROWS_WITH_AS(run_opencl(Program{}, "kernel void k( {", "k", {}), doctest::Contains("the kernel does not build"),
                         DeviceError);
  }
}

}  // namespace lazuli
