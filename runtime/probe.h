// What this machine can do at most, measured: the roofline that kernels are compared with.
#pragma once

#include "runtime/thread_pool.h"

namespace lazuli {

struct Roofline {
  int threads;         ///< of the pool that was measured
  double peak_gflops;  ///< f32 fused multiply-adds, two operations each, in the widest vectors, all
                       ///< threads together
  double bandwidth_gbps;  ///< bytes read from memory, beyond the caches, all threads together; 1e9
                          ///< bytes a second
};

/// Measures with all threads of `pool` at once, in some 100 ms. For the roofline of fewer threads
/// make a smaller pool. DeviceError if there is no memory to read.
Roofline measure_roofline(ThreadPool& pool);

}  // namespace lazuli
