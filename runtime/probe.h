// What this machine can do at most, measured: the roofline that kernels are compared with.
#pragma once

#include <string>
#include <string_view>

#include "runtime/thread_pool.h"

namespace lazuli {

class Device;

struct Roofline {
  int threads;         ///< of the pool that was measured
  double peak_gflops;  ///< f32 fused multiply-adds, two operations each, in the widest vectors, all
                       ///< threads together
  double fed_gflops;  ///< the same with operands that are loaded from L1, as often as in a register
                      ///< tile: where loads take of a core's power, a product comes near to it
  double bandwidth_gbps;  ///< bytes read from memory, beyond the caches, all threads together; 1e9
                          ///< bytes a second
};

/// Measures with all threads of `pool` at once, in some 150 ms. For the roofline of fewer threads
/// make a smaller pool. DeviceError if there is no memory to read.
Roofline measure_roofline(ThreadPool& pool);

/// The higher of each limit, of one machine and as many threads: whatever else runs there lowers
/// what is measured.
Roofline highest(const Roofline& a, const Roofline& b);

/// `cpu on znver3, 4 threads: 284.6 GFLOP/s (284.1 with operands from L1), 22.4 GB/s`; percentages
/// of the floor are of the first and the last.
std::string roofline_text(const Roofline& roofline, const Device& device);

/// What to say beside a percentage of the floor above 100.
inline constexpr std::string_view kAboveFloor =
    "more than 100 % of the floor: the arrays came from a cache, while the floor counts memory";

}  // namespace lazuli
