// What assembly says of a kernel.
#include "runtime/machine_code.h"

#include <doctest/doctest.h>
namespace lazuli {
namespace {

TEST_SUITE_BEGIN("runtime");

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
  const MachineCode arm = read_assembly(
      "f:\n"
      "\tstp\td9, d8, [sp, #-16]!\n"
      ".LBB0_1:\n"
      "\tldr\tq7, [sp, #32]\n"
      "\tfmla\tv0.4s, v7.4s, v31.s[0]\n"
      "\tb.ne\t.LBB0_1\n");
  CHECK(arm.vector_registers == 3);
  CHECK(arm.stack_accesses == 1);
  CHECK(arm.inner_stack_accesses == 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace lazuli
