// What the CPU is that this process runs on.
#pragma once

#include <cstdint>
#include <string>

namespace lazuli {

struct Host {
  std::string name;  ///< as the system calls it: "AMD EPYC 7763"
  std::string identity;  ///< all that the system says of the CPU's kind; "" if nothing
  const char* level;  ///< LLVM's name of a CPU that has no more vector instructions than this
  int lanes;         ///< f32 elements of the widest vector register
  int vector_registers;
  int fma_units;  ///< FMAs of the widest vectors that a core begins in a cycle
  bool has_fma;
  bool has_u8_dot, has_i16_dot, has_bf16_dot;  ///< dots of core/op.h
  bool slow_bf16_dot;  ///< takes twice as long as its two products in f32
  bool has_tiles;  ///< registers of 16 rows of 64 bytes with dots of bf16 and of bytes (AMX), which
                   ///< the system lets this process use
  bool fast_gather;   ///< faster than single elements (see Target)
  double split_load;  ///< cycles that a vector from two cache lines takes longer
  bool far_l3;  ///< a miss of L2 takes some 500 FMAs: a mesh over many cores, or wide units (see
                ///< Target)
  int short_rows;    ///< read at a time (see Target)
  bool l2_prefetch;  ///< prefetches for L2 bring more from memory than all else (see Target)
  bool rows_beside_stores;  ///< the next rows are best asked for beside streaming stores (see
                            ///< Target)
  int l1_ways;         ///< 0 if the system does not say
  int64_t l1, l2, l3;  ///< bytes of data cache: l1 and l2 of one core, l3 as one core sees it, no more
                       ///< than a fair part for each core of this machine; 0 if there is none
  int cores;           ///< available_cores()
};

/// This machine, asked once.
const Host& host();

/// How many threads can run at once: the cores of this process's affinity mask, or the quota of its
/// control group if that is less. At least 1. Asked at each call, since the mask may change.
int available_cores();

}  // namespace lazuli
