// The first dialect, for machines that this one need not be.
#include "codegen/llvm.h"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/gradient.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/lower.h"
#include "ir/plan.h"
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

  TEST_CASE("numbers become integers without leaving their vectors") {
    for (const std::string level : {"x86-64-v3", "x86-64-v4"}) {
      const Target target = named_target(level);
      for (const DType to : {DType::I8, DType::U8, DType::I16, DType::I32}) {
        CAPTURE(level);
        CAPTURE(name(to));
        const NodeRef root = randn({1000}).realize().to(to).node();
        const Plan plan = make_plan({&root, 1}, target);
        Kernel k = clone(*plan.steps[0].kernel);
        choose_schedule(k, target);
        const std::string text =
            assembly(emit_llvm(lower(k, target), target, "kernel"),
                     {.triple = target.triple, .cpu = target.cpu, .features = target.features});
        CHECK(text.find("vcvttps2dq") != std::string::npos);
        const size_t vectors = text.find("vcvttps2dq"), loop = text.rfind(".L", vectors);
        CHECK(text.substr(loop, vectors - loop).find("vcvttss2si") == std::string::npos);
      }
    }
  }

  TEST_CASE("loops of products count down where nothing reads their number") {
    const Target target = named_target("x86-64-v3");
    const auto text = [&](const Tensor& t) {
      const NodeRef root = t.node();
      const Plan plan = make_plan({&root, 1}, target);
      Kernel k = clone(*plan.steps[0].kernel);
      choose_schedule(k, target);
      CHECK(test::difference(k, target) == "");
      return emit_llvm(lower(k, target), target, "kernel");
    };
    const auto has = [](const std::string& all, const char* part) {
      return all.find(part) != std::string::npos;
    };
    const Tensor a = randn({40, 64}).realize(), b = randn({64, 48}).realize();
    CHECK(has(text(matmul(a, b)), ", -1\n"));
    CHECK(!has(text(exp(a)), ", -1\n"));
    // Where the next panel is asked for, each step reads its number.
    const auto counted_down = [](int64_t l2) {
      Target small = named_target("x86-64-v3");
      small.l2 = l2;
      Kernel k = test::matmul(50, 512, 128, false, false, false);
      choose_schedule(k, small);
      const std::string all = emit_llvm(lower(k, small), small, "kernel");
      int count = 0;
      for (size_t at = 0; (at = all.find(", -1\n", at)) != std::string::npos; at++) count++;
      return count;
    };
    CHECK(counted_down(64 << 10) < counted_down(256 << 10));
  }

  TEST_CASE("phases are printed in parts, each phase in one of them") {
    const Tensor x = zeros({256, 320}).realize(), y = zeros({256, 192}).realize();
    const Tensor w = zeros({320, 192}).realize(), b = zeros({192}).realize();
    const Tensor m = zeros({320, 192}).realize(), v = zeros({320, 192}).realize();
    const Tensor w2 = zeros({192, 10}).realize(), h = tanh(matmul(x, w) + b);
    const Tensor loss = mean(square(softmax(matmul(h, w2), 1) - mean(y, {1}, true)));
    const std::vector<Tensor> xs = {w, b, w2}, g = grad(loss, xs);
    std::vector<NodeRef> roots;
    for (const Tensor& t : {w - g[0] / (sqrt(v + g[0] * g[0]) + 1e-8) + m, b - g[1] / 10, g[2]}) {
      roots.push_back(t.node());
    }
    const Target target = named_target("x86-64-v3");
    const Plan plan = make_plan(roots, target);
    size_t split = 0;
    for (const PlanStep& step : plan.steps) {
      if (!step.kernel) continue;
      Kernel k = clone(*step.kernel);
      const Program program = choose_schedule(k, target);
      const std::string all = emit_llvm(program, target, "kernel");
      const auto parts = emit_llvm_parts(program, target, "kernel");
      split += parts.size() > 1;
      const auto functions = [](const std::string& text) {
        std::map<std::string, std::string> found;
        for (size_t at = 0; (at = text.find("\ndefine void @", at)) != std::string::npos;) {
          const size_t end = text.find("\n}\n", at);
          const std::string whole = text.substr(at, end - at);
          found[whole.substr(0, whole.find('('))] = whole;
          at = end;
        }
        return found;
      };
      std::map<std::string, std::string> joined;
      size_t count = 0;
      for (const std::string& part : parts) {
        CHECK_NOTHROW(verify_llvm(part, options_for(target)));
        const auto some = functions("\n" + part);
        count += some.size();
        joined.insert(some.begin(), some.end());
      }
      CHECK(joined.size() == count);  // none is there twice
      const auto names = [](const auto& map) {
        std::vector<std::string> list;
        for (const auto& [name, text] : map) list.push_back(name);
        return list;
      };
      CHECK(names(joined) == names(functions("\n" + all)));
    }
    CHECK(split > 0);
  }

  TEST_CASE("equal steps of a recurrent network are printed once and called") {
    const Tensor x = randn({32, 64}).realize(), w = randn({64, 128}).realize();
    const Tensor u = randn({128, 128}).realize(), start = randn({32, 128}).realize();
    const auto step = [&](const Tensor& h) { return tanh(matmul(x, w) + matmul(h, u) / 16); };
    Tensor h = start, one_by_one = start;
    for (int i = 0; i < 8; i++) {
      h = step(h);
      one_by_one = step(one_by_one).realize();
    }
    const Target target = named_target("x86-64-v3");
    const NodeRef root = h.node();
    const Plan plan = make_plan({&root, 1}, target);
    REQUIRE(plan.steps.size() == 1);
    Kernel k = clone(*plan.steps[0].kernel);
    choose_schedule(k, target);
    const std::string text = emit_llvm(lower(k, target), target, "kernel");
    const auto count = [&](std::string_view what) {
      int n = 0;
      for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at++) n++;
      return n;
    };
    // What calls a common function stays with it.
    const auto parts = emit_llvm_parts(lower(k, target), target, "kernel");
    CHECK(parts.size() == 1);
    CHECK(parts[0] == text);
    CHECK(count("define internal") >= 1);
    CHECK(count("call void @kernel_loop") >= 6 * count("define internal"));
    CHECK_NOTHROW(verify_llvm(text, options_for(target)));
    CHECK(max(abs(h - one_by_one)).item<float>() < 1e-4f);
  }
}

}  // namespace lazuli
