// The first dialect, for machines that this one need not be.
#include "codegen/llvm.h"

#include <doctest/doctest.h>

#include "ir/choose.h"
#include "ir/lower.h"
#include "runtime/cpu/compiler.h"
#include "tests/ir/algorithms.h"

namespace lazuli {

TEST_SUITE("codegen") {
  TEST_CASE("kernels of every family pass LLVM's verifier and assemble for every named target") {
    const Kernel kernels[] = {test::chain(7, 130),
                              test::chain(7, 130, DType::F16),
                              test::softmax(9, 200),
                              test::layer_norm(9, 200),
                              test::layer_norm_backward(24, 33, 8),
                              test::matmul(33, 65, 40, false, true, true),
                              test::matmul(33, 65, 40, true, false, false, DType::F64),
                              test::conv3x3(4, 8, 9, 11),
                              test::attention(2, 24, 16, true),
                              test::cross_entropy(9, 50),
                              test::column_sum(40, 33),
                              test::total_sum(1000),
                              test::transpose(40, 33, true)};
    for (const std::string name : {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"}) {
      const Target target = named_target(name);
      const CompileOptions options = {
          .triple = target.triple, .cpu = target.cpu, .features = target.features};
      for (const Kernel& kernel : kernels) {
        Kernel k = clone(kernel);
        choose_schedule(k, target);
        CAPTURE(name);
        CAPTURE(k.schedule);
        const std::string text = emit_llvm(lower(k, target), target, "kernel");
        CHECK_NOTHROW(verify_llvm(text, options));
        CHECK(assembly(text, options).find("kernel_0") != std::string::npos);
      }
    }
  }
}

}  // namespace lazuli
