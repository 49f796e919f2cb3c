#include "runtime/cpu/target.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "core/error.h"
#include "runtime/cpu/compiler.h"
#include "runtime/host.h"

namespace lazuli {

namespace {

// As LLVM has it, but without opening LLVM where the cache knows.
LlvmHost llvm_host_from(KernelCache* cache) {
  const Host& here = host();
  if (!cache || here.identity.empty()) return llvm_host();
  const Hash128 key = KernelCache::key_of(fmt::format(
      "host {} {} {} {} {} {} {}\n{}", here.level, here.lanes, here.vector_registers, here.has_fma,
      here.has_u8_dot, here.has_i16_dot, here.has_bf16_dot, here.identity));
  const std::optional<std::string> known = cache->find(key);
  const size_t first = known ? known->find('\n') : std::string::npos,
               second = first == std::string::npos ? first : known->find('\n', first + 1);
  if (second != std::string::npos) {
    return {known->substr(0, first), known->substr(first + 1, second - first - 1),
            known->substr(second + 1)};
  }
  const LlvmHost& llvm = llvm_host();
  cache->keep(key, llvm.triple + "\n" + llvm.cpu + "\n" + llvm.features);
  return llvm;
}

}  // namespace

Target host_target(KernelCache* cache) {
  const Host& here = host();
  Target target;
  target.cpu = here.level;
#if defined(__aarch64__)
  target.triple = "aarch64-unknown-linux-gnu";
#endif
  try {
    const LlvmHost llvm = llvm_host_from(cache);
    target.cpu = llvm.cpu;
    target.triple = llvm.triple;
    target.features = llvm.features;
  } catch (const DeviceError&) {
    // Said again, and not caught, by the first compile.
  }
  target.lanes = here.lanes;
  target.vector_registers = here.vector_registers;
  target.fma_units = here.fma_units;
  target.has_fma = here.has_fma;
  target.has_u8_dot = here.has_u8_dot;
  target.has_i16_dot = here.has_i16_dot;
  target.has_bf16_dot = here.has_bf16_dot;
  target.slow_bf16_dot = here.slow_bf16_dot;
  target.has_tiles = here.has_tiles;
  target.fast_gather = here.fast_gather;
  target.split_load = here.split_load;
  target.far_l3 = here.far_l3;
  target.short_rows = here.short_rows;
  target.l2_prefetch = here.l2_prefetch;
  target.rows_beside_stores = here.rows_beside_stores;
  if (here.l1 > 0) target.l1 = here.l1;
  if (here.l1_ways > 0) target.l1_ways = here.l1_ways;
  if (here.l2 > 0) target.l2 = here.l2;
  if (here.l3 > 0) target.l3 = here.l3;
  // Nominal (3.2 GHz, and memory as such cores come with), not measured: these may decide between
  // schedules, and the same machine must decide alike in every process.
  target.fma_per_second = here.lanes * here.fma_units * 3.2e9;
  target.bandwidth = here.lanes * 2.5e9;
  return target;
}

}  // namespace lazuli
