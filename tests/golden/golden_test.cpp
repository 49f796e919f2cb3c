// The text of every stage of twelve small kernels, for a fixed target, so that it is the same on every machine. A missing file fails;
// UPDATE_GOLDEN=1 in the environment writes the files anew: read the difference before it is committed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "core/gradient.h"
#include "core/ops.h"
#include "runtime/inspect.h"

namespace lazuli {
namespace {

Tensor input(const Shape& shape, DType dtype = DType::F32) {
  return Tensor::from_storage(make_storage(static_cast<size_t>(numel(shape)) * static_cast<size_t>(size_of(dtype))), shape, dtype);
}

struct GoldenCase {
  std::string name;
  std::function<std::vector<Tensor>()> build;
};

const GoldenCase kGoldenCases[] = {
    {"chain", [] { return std::vector{relu(input({6, 40}) * 2.0 + input({40})) - input({6, 1})}; }},
    {"two_results", [] { const Tensor x = input({100}), e = exp(x); return std::vector{e, e * x}; }},
    {"column_sum", [] { return std::vector{sum(input({30, 20}), 0)}; }},
    {"transpose", [] { return std::vector{contiguous(transpose(input({20, 24}), 0, 1))}; }},
    {"softmax", [] { return std::vector{softmax(input({5, 50}), -1)}; }},
    {"layer_norm", [] { return std::vector{layer_norm(input({5, 48}), {48}, input({48}), input({48}))}; }},
    {"matmul", [] { return std::vector{matmul(input({20, 12}), input({12, 24}))}; }},
    {"linear_gelu", [] { return std::vector{gelu(matmul(input({16, 32}), input({32, 40})) + input({40}), "tanh")}; }},
    {"conv2d", [] { return std::vector{conv2d(input({1, 3, 8, 8}), input({4, 3, 3, 3}), std::nullopt, 1, 1)}; }},
    {"attention",
     [] {
       const Shape s{1, 2, 16, 8};
       return std::vector{scaled_dot_product_attention(input(s), input(s), input(s), std::nullopt, 0.0, true)};
     }},
    {"cross_entropy_gradient",
     [] {
       const Tensor x = input({12, 10}), y = input({12}, DType::I64), loss = cross_entropy(x, y);
       return std::vector{loss, grad(loss, x)};
     }},
    {"gather", [] { return std::vector{index_select(input({30, 16}), 0, input({7}, DType::I64))}; }},
};

std::string read_golden(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream s;
  s << file.rdbuf();
  return s.str();
}

void compare_golden(const std::string& name, const std::string& stage, const std::string& text) {
  const std::string path = fmt::format("{}/golden/{}.{}.txt", LAZULI_TEST_DIR, name, stage);
  if (std::getenv("UPDATE_GOLDEN")) {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  const std::string want = read_golden(path);
  CHECK_MESSAGE(!want.empty(), path, " is missing; UPDATE_GOLDEN=1 writes it");
  CHECK_MESSAGE(text == want, path, " differs; UPDATE_GOLDEN=1 writes it anew");
}

}  // namespace

TEST_SUITE("golden") {
  TEST_CASE("every stage of twelve kernels prints as it did") {
    const Target target = named_target("x86-64-v3");
    for (const GoldenCase& c : kGoldenCases) {
      const std::vector<Tensor> roots = c.build();
      const PlanText text = inspect(roots, target, false);
      compare_golden(c.name, "graph", text.graph);
      compare_golden(c.name, "fusion", text.fusion);
      compare_golden(c.name, "plan", text.plan);
      std::string kernel, schedule, program, llvm, opencl;
      for (const KernelText& k : text.kernels) {
        kernel += k.algorithm + "\n";
        schedule += k.schedule + "\n";
        program += k.program + "\n";
        llvm += k.llvm + "\n";
        opencl += k.opencl + "\n";
      }
      compare_golden(c.name, "kernel", kernel);
      compare_golden(c.name, "schedule", schedule);
      compare_golden(c.name, "program", program);
      compare_golden(c.name, "llvm", llvm);
      compare_golden(c.name, "opencl", opencl);
    }
  }

  TEST_CASE("the same expression prints the same a second time in one process") {
    const Target target = named_target("x86-64-v3");
    for (const GoldenCase& c : kGoldenCases) {
      const PlanText a = inspect(c.build(), target, false), b = inspect(c.build(), target, false);
      CAPTURE(c.name);
      CHECK(a.graph == b.graph);
      CHECK(a.fusion == b.fusion);
      REQUIRE(a.kernels.size() == b.kernels.size());
      for (size_t i = 0; i < a.kernels.size(); i++) {
        CHECK(a.kernels[i].schedule == b.kernels[i].schedule);
        CHECK(a.kernels[i].llvm == b.kernels[i].llvm);
      }
    }
  }
}

}  // namespace lazuli
