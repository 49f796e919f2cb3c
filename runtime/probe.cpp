#include "runtime/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/host.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace lazuli {
namespace {

constexpr int kFewestRounds = 5;
constexpr std::chrono::milliseconds kTimeOfRounds{40};  // of each measurement
constexpr int64_t kChunksPerThread =
    16;  // more than one, so that a worker that wakes late costs little
constexpr size_t kMostLanes = 16;
constexpr int64_t kFmaSteps = 20'000;  // of one chunk: some 0.05 ms
constexpr int64_t kReadChunk = int64_t{1} << 20;
constexpr int64_t kReadPerThread = int64_t{64} << 20;
constexpr int64_t kReadMost = int64_t{1} << 30;

// Defines name_flops(steps), which does `steps` times ten multiply-adds on vectors and returns the
// number of operations, name_fed_flops(steps, data), the same on vectors and single numbers that it
// loads, four for ten multiply-adds, as a register tile of 6 rows and 4 vectors loads ten for 24,
// and name_read(data, count), which adds up floats, in four places at a time: a machine reads ahead
// in each page that is walked, and is slower in one alone. Ten accumulators, since a multiply-add
// takes four or five cycles and two start in each; an empty asm keeps the compiler from merging
// them, as they all hold the same, and from loading once for all steps.
#define LAZULI_PROBE(name, attribute, V, broadcast, multiply_add, add, load, reg)                  \
  attribute double name##_flops(int64_t steps) {                                                   \
    const V x = broadcast(0.999f), y = broadcast(0.001f);                                          \
    V a0 = y, a1 = y, a2 = y, a3 = y, a4 = y, a5 = y, a6 = y, a7 = y, a8 = y, a9 = y;              \
    for (int64_t i = 0; i < steps; ++i) {                                                          \
      a0 = multiply_add(a0, x, y), a1 = multiply_add(a1, x, y), a2 = multiply_add(a2, x, y);       \
      a3 = multiply_add(a3, x, y), a4 = multiply_add(a4, x, y), a5 = multiply_add(a5, x, y);       \
      a6 = multiply_add(a6, x, y), a7 = multiply_add(a7, x, y), a8 = multiply_add(a8, x, y);       \
      a9 = multiply_add(a9, x, y);                                                                 \
      asm volatile(""                                                                              \
                   : "+" reg(a0), "+" reg(a1), "+" reg(a2), "+" reg(a3), "+" reg(a4), "+" reg(a5), \
                     "+" reg(a6), "+" reg(a7), "+" reg(a8), "+" reg(a9));                          \
    }                                                                                              \
    return double(steps) * 10 * 2 * (sizeof(V) / sizeof(float));                                   \
  }                                                                                                \
  attribute double name##_fed_flops(int64_t steps, const float* data) {                            \
    constexpr int64_t lanes = sizeof(V) / sizeof(float);                                           \
    V a0 = broadcast(0), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0, a8 = a0;   \
    V a9 = a0;                                                                                     \
    for (int64_t i = 0; i < steps; ++i) {                                                          \
      const V x = broadcast(data[0]), y = broadcast(data[1]), b = load(data + lanes);              \
      const V c = load(data + 2 * lanes);                                                          \
      a0 = multiply_add(x, b, a0), a1 = multiply_add(x, c, a1), a2 = multiply_add(y, b, a2);       \
      a3 = multiply_add(y, c, a3), a4 = multiply_add(x, b, a4), a5 = multiply_add(x, c, a5);       \
      a6 = multiply_add(y, b, a6), a7 = multiply_add(y, c, a7), a8 = multiply_add(x, b, a8);       \
      a9 = multiply_add(y, c, a9);                                                                 \
      asm volatile(""                                                                              \
                   : "+r"(data), "+" reg(a0), "+" reg(a1), "+" reg(a2), "+" reg(a3), "+" reg(a4),  \
                     "+" reg(a5), "+" reg(a6), "+" reg(a7), "+" reg(a8), "+" reg(a9));             \
    }                                                                                              \
    return double(steps) * 10 * 2 * lanes;                                                         \
  }                                                                                                \
  attribute void name##_read(const float* data, int64_t count) {                                   \
    constexpr int64_t lanes = sizeof(V) / sizeof(float);                                           \
    const int64_t part = count / 4;                                                                \
    V s0 = broadcast(0), s1 = s0, s2 = s0, s3 = s0;                                                \
    for (const float* end = data + part; data < end; data += lanes) {                              \
      s0 = add(s0, load(data)), s1 = add(s1, load(data + part));                                   \
      s2 = add(s2, load(data + 2 * part)), s3 = add(s3, load(data + 3 * part));                    \
    }                                                                                              \
    s0 = add(add(s0, s1), add(s2, s3));                                                            \
    asm volatile("" : : reg(s0));                                                                  \
  }

struct Loops {
  int lanes;  // of the host for which these are the fastest loops
  bool needs_fma;
  double (*flops)(int64_t steps);
  double (*fed_flops)(int64_t steps, const float* data);
  void (*read)(const float* data, int64_t count);
};

#if defined(__x86_64__)
#define LAZULI_SSE_MULTIPLY_ADD(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
LAZULI_PROBE(avx512, __attribute__((target("avx512f"))), __m512, _mm512_set1_ps, _mm512_fmadd_ps,
             _mm512_add_ps, _mm512_loadu_ps, "v")
LAZULI_PROBE(avx2, __attribute__((target("avx2,fma"))), __m256, _mm256_set1_ps, _mm256_fmadd_ps,
             _mm256_add_ps, _mm256_loadu_ps, "x")
LAZULI_PROBE(sse, , __m128, _mm_set1_ps, LAZULI_SSE_MULTIPLY_ADD, _mm_add_ps, _mm_loadu_ps, "x")
constexpr Loops kLoops[] = {
    {16, true, avx512_flops, avx512_fed_flops, avx512_read},
    {8, true, avx2_flops, avx2_fed_flops, avx2_read},
    {4, false, sse_flops, sse_fed_flops, sse_read},
};
#elif defined(__aarch64__)
#define LAZULI_NEON_MULTIPLY_ADD(a, b, c) vfmaq_f32(c, a, b)
LAZULI_PROBE(neon, , float32x4_t, vdupq_n_f32, LAZULI_NEON_MULTIPLY_ADD, vaddq_f32, vld1q_f32, "w")
constexpr Loops kLoops[] = {{4, true, neon_flops, neon_fed_flops, neon_read}};
#else
#define LAZULI_PLAIN_MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define LAZULI_PLAIN_ADD(a, b) ((a) + (b))
#define LAZULI_PLAIN_LOAD(from) (*(from))
LAZULI_PROBE(plain, , float, float, LAZULI_PLAIN_MULTIPLY_ADD, LAZULI_PLAIN_ADD, LAZULI_PLAIN_LOAD,
             "m")
constexpr Loops kLoops[] = {{1, false, plain_flops, plain_fed_flops, plain_read}};
#endif

const Loops& loops_of_host() {
  return *std::find_if(std::begin(kLoops), std::end(kLoops) - 1, [](const Loops& loops) {
    return host().lanes >= loops.lanes && (host().has_fma || !loops.needs_fma);
  });
}

#if defined(__x86_64__)
bool can_evict() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_CLFLUSHOPT);
}

// Takes the bytes out of all caches.
__attribute__((target("clflushopt"))) void evict(std::byte* begin, std::byte* end) {
  constexpr int64_t kLine = 64;  // bytes of a cache's line, or a part of one
  for (; begin < end; begin += kLine) _mm_clflushopt(begin);
  _mm_mfence();
}
#else
bool can_evict() {
  return false;
}
void evict(std::byte*, std::byte*) {}
#endif

// The shortest time of some rounds, each after what prepares it: whatever else runs only makes them
// longer.
template <typename Round, typename Prepare = void (*)()>
double best_seconds(
    Round round, Prepare prepare = [] {}) {
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> best = std::chrono::hours(1);
  const auto first = Clock::now();
  for (int i = 0; i < kFewestRounds || Clock::now() - first < kTimeOfRounds; ++i) {
    prepare();
    const auto start = Clock::now();
    round();
    best = std::min<std::chrono::duration<double>>(best, Clock::now() - start);
  }
  return best.count();
}

// Operations a second of all threads; `flops` takes a number of steps and returns their operations.
template <typename Flops>
double most_flops(ThreadPool& pool, Flops flops) {
  const int64_t chunks = pool.size() * kChunksPerThread;
  const double all = flops(1) * double(kFmaSteps) * double(chunks);
  return all / best_seconds([&] {
           pool.parallel_for(0, chunks, 1, [&](int64_t, int64_t, int) { (void)flops(kFmaSteps); });
         });
}

double fed_flops(ThreadPool& pool, const Loops& loops) {
  std::array<float, 3 * kMostLanes> data;
  for (size_t i = 0; i < data.size(); ++i) data[i] = float(i % 7) / 8 - 0.37f;
  return most_flops(pool, [&](int64_t steps) { return loops.fed_flops(steps, data.data()); });
}

double read_bandwidth(ThreadPool& pool, const Loops& loops) {
  // From memory: what is read leaves the caches first, or, where that cannot be asked for, is more
  // than the last of them holds. A virtual machine may see a part of that one, and have it all.
  const bool evicts = can_evict();
  const int64_t wanted = std::max(pool.size() * kReadPerThread, evicts ? 0 : 2 * host().l3);
  const int64_t bytes = std::min(wanted, kReadMost) / kReadChunk * kReadChunk;
  Allocator memory;
  const Block block = memory.allocate(size_t(bytes));
  const auto share = [&](auto work) {
    pool.parallel_for(0, bytes, kReadChunk, [&](int64_t begin, int64_t end, int) {
      work(block.data() + begin, block.data() + end);
    });
  };
  share([](std::byte* begin, std::byte* end) { std::memset(begin, 0, size_t(end - begin)); });
  const auto read = [&](const std::byte* begin, const std::byte* end) {
    loops.read(reinterpret_cast<const float*>(begin), (end - begin) / int64_t(sizeof(float)));
  };
  return double(bytes) / best_seconds([&] { share(read); },
                                      [&] {
                                        if (evicts) share(evict);
                                      });
}

}  // namespace

Roofline measure_roofline(ThreadPool& pool) {
  const Loops& loops = loops_of_host();
  return {.threads = pool.size(),
          .peak_gflops = most_flops(pool, loops.flops) * 1e-9,
          .fed_gflops = fed_flops(pool, loops) * 1e-9,
          .bandwidth_gbps = read_bandwidth(pool, loops) * 1e-9};
}

Roofline highest(const Roofline& a, const Roofline& b) {
  return {.threads = a.threads,
          .peak_gflops = std::max(a.peak_gflops, b.peak_gflops),
          .fed_gflops = std::max(a.fed_gflops, b.fed_gflops),
          .bandwidth_gbps = std::max(a.bandwidth_gbps, b.bandwidth_gbps)};
}

std::string roofline_text(const Roofline& roofline, const Device& device) {
  return fmt::format(
      "{} on {}, {} thread{}: {:.1f} GFLOP/s ({:.1f} with operands from L1), {:.1f} GB/s",
      device.name(), device.target().cpu, roofline.threads, roofline.threads == 1 ? "" : "s",
      roofline.peak_gflops, roofline.fed_gflops, roofline.bandwidth_gbps);
}

}  // namespace lazuli
