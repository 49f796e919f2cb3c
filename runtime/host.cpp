#include "runtime/host.h"

#include <sched.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

namespace lazuli {
namespace {

// What kinds of vector registers there are, best first; the last row always holds.
struct VectorLevel {
  const char* cpu;  // LLVM's name of a CPU that has no more than this
  bool (*is_here)();
  int lanes;
  int registers;
  bool has_fma;
  bool has_i16_dot;
};

#if defined(__x86_64__)
constexpr VectorLevel kLevels[] = {
    {"x86-64-v4",
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512cd");
     },
     16, 32, true, true},
    {"x86-64-v3", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }, 8,
     16, true, true},
    {"x86-64-v2", [] { return bool(__builtin_cpu_supports("sse4.2")); }, 4, 16, false, true},
    {"x86-64", [] { return true; }, 4, 16, false, true},
};
#elif defined(__aarch64__)
constexpr VectorLevel kLevels[] = {{"generic", [] { return true; }, 4, 32, true, false}};
#else
constexpr VectorLevel kLevels[] = {{"generic", [] { return true; }, 1, 16, false, false}};
#endif

const VectorLevel& vector_level() {
  return *std::find_if(std::begin(kLevels), std::end(kLevels) - 1,
                       [](const VectorLevel& level) { return level.is_here(); });
}

#if defined(__x86_64__)
bool has_u8_dot() {
  return vector_level().lanes == 16 ? __builtin_cpu_supports("avx512vnni")
                                    : __builtin_cpu_supports("avxvnni");
}
bool has_bf16_dot() {
  return vector_level().lanes == 16 && __builtin_cpu_supports("avx512bf16");
}
// Linux keeps 8 KiB of tiles for the threads of a process that has asked for them.
bool has_tiles() {
#if defined(__linux__)
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25, kAll = kBf16 | kTile | kInt8;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (vector_level().lanes != 16 || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  return (edx & kAll) == kAll && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
// Measured on Granite Rapids, and on Emerald Rapids without its tiles. Zen 4 has L3 near, and loads
// halves of a vector.
bool is_wide_intel() {
  return vector_level().lanes == 16 && __builtin_cpu_is("intel");
}
// The family of a CPU of AMD's with AVX-512; 0 for others.
unsigned amd_family() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (vector_level().lanes != 16 || !__builtin_cpu_is("amd")) return 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return 0;
  return (eax >> 8 & 15) + (eax >> 20 & 255);  // with its extension
}
constexpr unsigned kZen5 = 26;
// Zen 5 and later, measured on Turin: two FMAs of 512 bits a cycle where Zen 4 has one.
bool is_wide_amd() {
  return amd_family() >= kZen5;
}
// Zen 4, whose family is that of Zen 3, which has no AVX-512: sums of 64 MB take 0.65 to 0.8 of
// the time with prefetches for L2; on Zen 3 1.15 to 1.46.
bool is_zen4() {
  return amd_family() != 0 && !is_wide_amd();
}
#else
bool has_u8_dot() {
  return false;
}
bool has_bf16_dot() {
  return false;
}
bool has_tiles() {
  return false;
}
bool is_wide_intel() {
  return false;
}
bool is_wide_amd() {
  return false;
}
bool is_zen4() {
  return false;
}
#endif

// The first core, without what changes from one to the next or with time.
std::string cpu_identity() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    for (const char* start : {"vendor_id", "cpu family", "model", "stepping", "flags", "CPU ", "Features"}) {
      if (line.starts_with(start)) text += line + "\n";
    }
  }
  return text;
}

std::string cpu_name() {
  const std::string text = cpu_identity();
  const size_t line = text.find("model name"), colon = text.find(": ", line);
  if (line == std::string::npos || colon == std::string::npos) return "unknown CPU";
  return text.substr(colon + 2, text.find('\n', colon) - colon - 2);
}

struct Cache {
  int64_t size = 0;  // bytes
  int ways = 0;
};

// A data cache of the first core; 0 for what it has none of or the system does not say.
Cache cache(int level) {
  for (int index = 0; index < 16; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int found = 0;
    std::string type;
    int64_t size = 0;
    std::string unit;
    if (!(std::ifstream(folder + "level") >> found)) break;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> size >> unit;
    if (found != level || type == "Instruction") continue;
    int ways = 0;
    std::ifstream(folder + "ways_of_associativity") >> ways;
    return {size << (unit == "M" ? 20 : 10), ways};
  }
  constexpr int kSizes[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE},
                kWays[] = {_SC_LEVEL1_DCACHE_ASSOC, _SC_LEVEL2_CACHE_ASSOC, _SC_LEVEL3_CACHE_ASSOC};
  return {std::max<int64_t>(sysconf(kSizes[level - 1]), 0),
          std::max(static_cast<int>(sysconf(kWays[level - 1])), 0)};
}

// A virtual machine sees all of a cache that it shares with its neighbours: what one core may count
// on, in bytes.
constexpr int64_t kL3OfACore = 16 << 20;

// Cores that the control group's quota is worth, rounded up; 0 if there is no quota.
int quota_cores() {
  double quota = 0;
  double period = 0;
  if (!(std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period)) {  // "max" is no number
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? std::max(1, int(quota / period + 0.999)) : 0;
}

}  // namespace

int available_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) cores = CPU_COUNT(&allowed);
  if (const int quota = quota_cores(); quota > 0) cores = std::min(cores, quota);
  return std::max(cores, 1);
}

const Host& host() {
  static const Host host = [] {
    const VectorLevel& level = vector_level();
    return Host{
        .name = cpu_name(),
        .identity = cpu_identity(),
        .level = level.cpu,
        .lanes = level.lanes,
        .vector_registers = level.registers,
        .fma_units = is_zen4() ? 1 : 2,  // it takes 512 bits in halves
        .has_fma = level.has_fma,
        .has_u8_dot = has_u8_dot(),
        .has_i16_dot = level.has_i16_dot,
        .has_bf16_dot = has_bf16_dot(),
        .slow_bf16_dot = has_bf16_dot() && is_wide_intel(),
        .has_tiles = has_tiles(),
        .fast_gather = is_wide_intel(),  // of 16 elements stride 49: 1.9 ns, 4.6 by inserts
        .split_load = is_wide_intel() ? 0.9 : 0,
        .far_l3 = is_wide_intel() || is_wide_amd(),
        .short_rows = is_wide_amd() ? 8 : 2,
        .l2_prefetch = is_zen4(),
        .rows_beside_stores = is_wide_intel(),
        .l1_ways = cache(1).ways,
        .l1 = cache(1).size,
        .l2 = cache(2).size,
        .l3 = std::min(cache(3).size, kL3OfACore * std::max(sysconf(_SC_NPROCESSORS_CONF), 1L)),
        .cores = available_cores()};
  }();
  return host;
}

}  // namespace lazuli
