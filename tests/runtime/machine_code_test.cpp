// What assembly says of a kernel.
#include "runtime/machine_code.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/llvm.h"
#include "core/gradient.h"
#include "core/lazy_buffer.h"
#include "core/ops.h"
#include "ir/choose.h"
#include "ir/index.h"
#include "ir/lower.h"
#include "ir/plan.h"
#include "runtime/cpu/compiler.h"
#include "tests/ir/algorithms.h"
namespace lazuli {
namespace {

TEST_SUITE_BEGIN("runtime");

TEST_CASE("constants are hoisted out of loops that add up what they store") {
  const auto hoists = [](Kernel k) {
    const Target target = named_target("x86-64-v3");
    choose_schedule(k, target);
    return emit_llvm(lower(k, target), target, "k").find("!invariant.load") != std::string::npos;
  };
  CHECK(hoists(test::softmax(64, 1000)));
  CHECK(!hoists(test::chain(64, 1000, DType::F32)));
  CHECK(!hoists(test::layer_norm(64, 1000)));
  CHECK(!hoists(test::matmul(64, 64, 64, false, false, true)));
}

TEST_CASE("instructions stay in order but where a loop has long arithmetic and none is a tile") {
  const auto in_order = [](Kernel k, const char* cpu = "x86-64-v4") {
    const Target target = named_target(cpu);
    choose_schedule(k, target);
    return options_for(target, lower(k, target)).in_order;
  };
  CHECK(in_order(test::matmul(512, 512, 512, false, false, false)));
  CHECK(!in_order(test::matmul(512, 512, 512, false, false, false), "x86-64-v3"));
  CHECK(in_order(test::matmul(512, 512, 512, false, false, true)));
  CHECK(in_order(test::column_sum(200, 1000)));
  CHECK(!in_order(test::softmax(64, 1000)));
  CHECK(!in_order(test::chain(64, 1000, DType::F32)));
  CHECK(!in_order(test::layer_norm_backward(64, 1000, 8)));
  CHECK(in_order(test::attention(2, 64, 16, false)));  // tiles
  // A loop with a rare branch, for large angles.
  Kernel sine;
  const int in = sine.add_argument("in", DType::F32, 1000, false),
            out = sine.add_argument("out", DType::F32, 1000, true);
  const NodeRef i = axis("i", 1000);
  const NodeRef value = scalar_op(Op::Sin, DType::F32, {load(in, DType::F32, i)});
  sine.add_value(sine.add_stage("sin", {i}), "sin", value, {i}, Op::Count_, out);
  CHECK(!in_order(std::move(sine)));
}

TEST_CASE("assembly is read for vector registers, stack accesses and innermost loops") {
  const MachineCode x86 = read_assembly(
      "\t.type\tf,@function\n"
      "f:\n"
      "\tpushq\t%rbp\n"
      "\tmovq\t(%rbp), %rax\n"  // a register like any other here
      "\tmovq\t%rax, 8(%rsp)\n"
      ".LBB0_1:\n"
      "\tvmovups\t32(%rsp), %ymm1\n"
      ".LBB0_2:\n"
      "\tvfmadd231ps\t(%rax), %ymm1, %ymm15\n"
      "\tvmovups\t%xmm15, 64(%rsp)\n"
      "\tcallq\texpf\n"
      "\tprefetcht1\t4096(%rax)\n"
      "\tjb\t.LBB0_2\n"
      "\tjne\t.LBB0_1\n"
      "\tretq\n"
      "\t.type\tg,@function\n"
      "g:\n"
      "\tmovq\t%rsp, %rbp\n"
      "\tvmovups\t%zmm3, -64(%rbp)\n"
      "\tleaq\t8(%rsp), %rdi\n");
  CHECK(x86.vector_registers == 3);
  CHECK(x86.stack_accesses == 4);
  CHECK(x86.inner_stack_accesses == 1);
  CHECK(x86.inner_calls == 1);
  CHECK(x86.prefetches == 1);
  const MachineCode arm = read_assembly(
      "f:\n"
      "\tstp\td9, d8, [sp, #-16]!\n"
      ".LBB0_1:\n"
      "\tldr\tq7, [sp, #32]\n"
      "\tprfm\tpldl2keep, [x0, #4096]\n"
      "\tfmla\tv0.4s, v7.4s, v31.s[0]\n"
      "\tb.ne\t.LBB0_1\n");
  CHECK(arm.vector_registers == 3);
  CHECK(arm.stack_accesses == 1);
  CHECK(arm.inner_stack_accesses == 1);
  CHECK(arm.prefetches == 1);
}

#if LAZULI_LLVM

// As the device compiles it.
std::string assembly_of(const Kernel& k, const Target& target) {
  const Program program = lower(k, target);
  return assembly(emit_llvm(program, target, "k"), options_for(target, program));
}

// Without an epilogue: behind a long one some tiles of AVX-512 keep a sum on the stack.
TEST_CASE("innermost loops of contractions neither touch the stack nor call, on AVX2 and AVX-512") {
  for (const char* cpu : {"x86-64-v3", "x86-64-v4"}) {
    const Target target = named_target(cpu);
    for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 13, 24, 61, 128}) {
      for (const int64_t n : {1, 5, 8, 16, 23, 24, 31, 48, 64, 200}) {
        for (const int variant : {0, 1, 2, 3}) {
          const bool transposed = variant & 1, unrolled = variant & 2;
          Kernel k = test::matmul(m, n, unrolled ? 70 : 32, false, transposed, false);
          choose_schedule(k, target);
          const MachineCode code = read_assembly(assembly_of(k, target));
          INFO(std::string(cpu), " ", m, "x", n, " transposed ", transposed, " ", unrolled);
          CHECK(code.inner_stack_accesses == 0);
          CHECK(code.inner_calls == 0);
          CHECK(code.vector_registers <= target.vector_registers);
        }
      }
    }
  }
}

// Where rows end within a tile, one address is kept on the stack, for every fourth step.
TEST_CASE("innermost loops that pack ahead leave the stack alone") {
  Target target = named_target("x86-64-v4");
  target.far_l3 = true;
  target.l2 = 2 << 20;
  for (const int64_t m : {96, 128, 512}) {
    Kernel k = test::matmul(m, 3072, 768, false, false, false);
    choose_schedule(k, target);
    const Program program = lower(k, target);
    CHECK(program.phases.back().packs_ahead);
    const MachineCode code =
        read_assembly(assembly(emit_llvm(program, target, "k"), options_for(target, program)));
    CHECK(code.inner_stack_accesses == 0);
    CHECK(code.inner_calls == 0);
  }
}

// Whether some kernel of a result has vectors on the stack in an innermost loop.
bool spills(const Tensor& result, const Target& target) {
  const std::vector<NodeRef> roots{result.node()};
  const Plan plan = make_plan(roots, target);
  return std::any_of(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& step) {
    if (!step.kernel) return false;
    Kernel kernel = clone(*step.kernel);
    choose_schedule(kernel, target);
    return read_assembly(assembly_of(kernel, target)).inner_stack_accesses > 0;
  });
}

// The constants of exponentials are held in registers for their own loop alone, and tiles are left
// in the order of the text.
TEST_CASE("loops of attention and its gradients leave the stack alone on AVX-512") {
  Target target = named_target("x86-64-v4");
  target.l2 = 2 << 20;
  const auto array = [](const Shape& shape) {
    const Tensor t = randn(shape);
    t.node()->set_storage(make_storage(bytes_of(t.shape(), t.dtype())));
    return t;
  };
  for (const bool causal : {false, true}) {
    const Shape shape{8, 12, 256, 32};
    const Tensor q = array(shape), k = array(shape), v = array(shape);
    const Tensor o = scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, causal);
    CHECK(!spills(o, target));
    for (const Tensor& r : grad(sum(o), std::vector<Tensor>{q, k, v})) CHECK(!spills(r, target));
  }
  struct Row {
    int64_t heads, queries, keys, width;
  };
  for (const Row& r : {Row{6, 17, 250, 40}, {4, 57, 281, 28}, {4, 73, 229, 20}}) {
    const Tensor k = array({1, r.heads, r.keys, r.width}), v = array({1, r.heads, r.keys, r.width});
    INFO(r.queries, " queries of ", r.keys, " keys");
    CHECK(!spills(scaled_dot_product_attention(array({1, r.heads, r.queries, r.width}), k, v),
                  target));
  }
}

// Four rows of f16 keep one vector on the stack, and are still faster than with fewer columns.
TEST_CASE("dot products of few rows leave the stack alone, on AVX2 and AVX-512") {
  for (const char* cpu : {"x86-64-v3", "x86-64-v4"}) {
    const Target target = named_target(cpu);
    for (const DType t : {DType::F32, DType::F64, DType::BF16, DType::I16, DType::I8}) {
      const DType sum = t == DType::F64 ? t : is_float(t) ? DType::F32 : DType::I32;
      for (int64_t m = 2; m <= 8; m++) {
        Kernel k = test::wide_product({m, 29, 300, t, t, sum, false, true});
        choose_schedule(k, target);
        const MachineCode code = read_assembly(assembly_of(k, target));
        INFO(std::string(cpu), " ", std::string(name(t)), " ", m, " rows");
        CHECK(code.inner_stack_accesses == 0);
        CHECK(code.inner_calls == 0);
      }
    }
  }
}

TEST_CASE("innermost loops of packed products have their instruction, and leave the stack alone") {
  struct Row {
    const char *cpu, *level;
    DType dtype;
    const char* instruction;
    bool tiles = false;
  };
  for (const Row& r : {Row{"znver3", "x86-64-v3", DType::I16, "vpmaddwd"},
                       Row{"alderlake", "x86-64-v3", DType::I8, "vpdpbusd"},
                       Row{"alderlake", "x86-64-v3", DType::I16, "vpdpwssd"},
                       Row{"znver4", "x86-64-v4", DType::I8, "vpdpbusd"},
                       Row{"sapphirerapids", "x86-64-v4", DType::I16, "vpdpwssd"},
                       Row{"sapphirerapids", "x86-64-v4", DType::BF16, "vdpbf16ps"},
                       Row{"sapphirerapids", "x86-64-v4", DType::BF16, "tdpbf16ps", true},
                       Row{"sapphirerapids", "x86-64-v4", DType::I8, "tdpbssd", true}}) {
    Target target = named_target(r.level);
    target.cpu = r.cpu;
    target.has_u8_dot = target.cpu != "znver3";
    target.has_bf16_dot = target.lanes == 16;
    target.has_tiles = r.tiles;
    for (const int64_t m : {4, 5, 7, 13, 24, 61}) {
      if (r.tiles && m < 17) continue;  // few rows are left to vectors
      for (const int64_t n : {32, 39, 48, 64, 200}) {
        for (const bool transposed : {false, true}) {
          Kernel k = test::wide_product({m, n, 102, r.dtype, r.dtype,
                                         r.dtype == DType::BF16 ? DType::F32 : DType::I32, false,
                                         transposed});
          choose_schedule(k, target);
          const std::string text = assembly_of(k, target);
          const MachineCode code = read_assembly(text);
          INFO(std::string(r.cpu), " ", std::string(name(r.dtype)), " ", m, "x", n, " transposed ",
               transposed);
          CHECK(text.find(r.instruction) != std::string::npos);
          CHECK(code.inner_stack_accesses == 0);
          CHECK(code.inner_calls == 0);
          CHECK(code.vector_registers <= target.vector_registers);
          CHECK((text.find("ldtilecfg") != std::string::npos) == r.tiles);
          CHECK((text.find("tilerelease") != std::string::npos) == r.tiles);
        }
      }
    }
  }
}

TEST_CASE("no tile of AVX2 and AVX-512 touches the stack in its innermost loop") {
  for (const char* cpu : {"x86-64-v3", "x86-64-v4"}) {
    const Target target = named_target(cpu);
    std::set<std::string> tiles;
    for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 22, 61}) {
      for (const int64_t n : {8, 16, 24, 32, 48, 64, 200}) {
        Kernel model = test::matmul(m, n, 40, false, false, false);
        choose_schedule(model, target);
        for (const Choice& c : model.choices) {
          if (c.what != "tile of C") continue;
          for (const Choice::Option& o : c.others) {
            if (!tiles.insert(o.text).second) continue;
            Kernel k = test::matmul(m, n, 40, false, false, false);
            choose_schedule(k, target, {{c.what, o.text}});
            const MachineCode code = read_assembly(assembly_of(k, target));
            INFO(std::string(cpu), " ", m, "x", n, " with tile ", o.text);
            CHECK(code.inner_stack_accesses == 0);
            CHECK(code.inner_calls == 0);
          }
        }
      }
    }
    CHECK(tiles.size() == (target.lanes == 8 ? 20 : 41));  // all that the registers have room for
  }
}

#endif  // LAZULI_LLVM

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
