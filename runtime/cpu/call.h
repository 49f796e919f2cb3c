// Calls of generated code.
#pragma once

#include <cstdint>

#include "codegen/llvm.h"
#include "runtime/cpu/compiler.h"

namespace lazuli {

/// Calls f with the stack at a multiple of kStackAlignment, where its code relies on that: on
/// x86-64, whose own calls promise 16 bytes. A vector that is kept on the stack across two lines
/// takes longer to store and load, and across two pages tens of times as long.
inline void call_kernel(KernelFunction f, void** buffers, void* scratch, void* shared,
                        int64_t begin, int64_t end) {
#if defined(__x86_64__)
  static_assert(kStackAlignment == 64);
  // 128 bytes below the stack belong to the caller if it calls nobody else.
  asm volatile(
      "movq %[end], %%r8\n\t"
      "movq %%rsp, %%rbx\n\t"
      "subq $128, %%rsp\n\t"
      "andq $-64, %%rsp\n\t"
      "callq *%[f]\n\t"
      "movq %%rbx, %%rsp"
      : "+D"(buffers), "+S"(scratch), "+d"(shared), "+c"(begin), [f] "+a"(f)
      : [end] "r"(end)
      : "rbx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
        "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc",
        "memory");
#else
  f(buffers, scratch, shared, begin, end);
#endif
}

}  // namespace lazuli
