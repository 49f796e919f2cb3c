#include "runtime/cpu/target.h"

#include "core/error.h"
#include "runtime/cpu/compiler.h"
#include "runtime/host.h"

namespace lazuli {

Target host_target() {
  const Host& here = host();
  Target target;
  target.cpu = here.level;
#if defined(__aarch64__)
  target.triple = "aarch64-unknown-linux-gnu";
#endif
  try {
    const LlvmHost& llvm = llvm_host();
    target.cpu = llvm.cpu;
    target.triple = llvm.triple;
    target.features = llvm.features;
  } catch (const DeviceError&) {
    // Said again, and not caught, by the first compile.
  }
  target.lanes = here.lanes;
  target.vector_registers = here.vector_registers;
  target.has_fma = here.has_fma;
  target.has_u8_dot = here.has_u8_dot;
  target.has_i16_dot = here.has_i16_dot;
  target.has_bf16_dot = here.has_bf16_dot;
  if (here.l1 > 0) target.l1 = here.l1;
  if (here.l1_ways > 0) target.l1_ways = here.l1_ways;
  if (here.l2 > 0) target.l2 = here.l2;
  if (here.l3 > 0) target.l3 = here.l3;
  target.cores = available_cores();
  // Nominal (two units at 3.2 GHz, and memory as such cores come with), not measured: these may
  // decide between schedules, and the same machine must decide alike in every process.
  target.fma_per_second = here.lanes * 2 * 3.2e9;
  target.bandwidth = here.lanes * 2.5e9;
  return target;
}

}  // namespace lazuli
