// What the compiler needs to know of a machine, as plain numbers. The runtime fills one in for the host; tests and dumps
// make their own. Only this decides between schedules, so the same shape and target always give the same bits.
#pragma once

#include <cstdint>
#include <string>

#include "core/op.h"

namespace lazuli {

/// Bytes that a cache brings and keeps together, on every CPU known here.
inline constexpr int64_t kCacheLine = 64;

struct Target {
  std::string cpu = "x86-64-v3";        // LLVM's name of the CPU
  std::string triple = "x86_64-unknown-linux-gnu";
  std::string features;                 // LLVM feature string, "" for what the name implies
  int lanes = 8;                        // f32 elements of a vector register
  int vector_registers = 16;
  int fma_units = 2;                    // FMAs of whole vectors that a core begins in a cycle
  bool has_fma = true;
  // Dots (core/op.h) that are one or two instructions.
  bool has_u8_dot = false, has_i16_dot = false, has_bf16_dot = false;
  bool slow_bf16_dot = false;           // a dot of bf16 takes vectors twice as long as its two products in f32, unless they wait for memory
  bool has_tiles = false;               // registers of 16 rows of 64 bytes, and dots of bf16 and bytes on them (AMX)
  int64_t l1 = 32 << 10, l2 = 512 << 10, l3 = 32 << 20;  // bytes; l1 and l2 of one core
  int l1_ways = 8;                      // so many lines a whole number of l1 / l1_ways apart push each other out
  bool fast_gather = false;             // elements that lie apart come faster in one gather than inserted one by one, and go faster in one scatter
  double split_load = 0;                // cycles that a vector from two cache lines takes longer, next to FMAs
  bool far_l3 = false;                  // a miss of L2 takes some 500 FMAs: panels are packed ahead, weight gradients chunked
  int short_rows = 2;                   // where L3 is far, so many rows of half a KiB and more, that are less than a page, come fastest together
  bool l2_prefetch = false;             // near L3, and prefetches for L2 bring more from memory than all else: they run ahead of rows, which are then read one at a time
  bool rows_beside_stores = false;      // stores past the caches hold no load up, and L2 has more misses under way than L1, and sees streams in prefetches: the next rows are asked for beside them, in one pass, and into L2
  int threads = 1;                      // that share a kernel: decides how work is cut for them, never how a sum is added up
  double fma_per_second = 50e9;         // vector lanes times FMAs per second of one core, for predicted times
  double bandwidth = 20e9;              // bytes per second of one core from memory
  bool winograd = true;                 // not of the machine: may ir/winograd.h be used?
};

/// Whether dots of this op, on vectors of so many lanes, have instructions.
bool has_dot(const Target& target, Op op, int lanes);

/// Whether a vector of words is permuted by another in one instruction, as a small table is read.
bool has_permute(const Target& target);

/// Whether a vector's reciprocals are estimated within 2^-14 in one instruction.
bool has_recip_estimate(const Target& target);

/// The fixed target of goldens: the same text on every machine. Known: x86-64-v2, x86-64-v3, x86-64-v4, aarch64 ("generic").
Target named_target(const std::string& name);

}  // namespace lazuli
