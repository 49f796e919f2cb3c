#include "runtime/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/cpu/host.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lazuli {
namespace {

constexpr int kRounds = 7;
constexpr int64_t kFmaSteps = 200'000;  // some 0.5 ms a round

// Larger than any cache that one thread could fill.
constexpr size_t kReadBytes = size_t{32} << 20;

// A probe's own loop: how many floating-point operations, or bytes, it did.
using FmaLoop = double (*)(int64_t steps);
using ReadLoop = float (*)(const float* data, size_t count);

// Ten accumulators: a fused multiply-add takes four or five cycles and two start in each. The empty asm keeps the
// compiler from merging them, as they all hold the same.
#define LAZULI_FMA_LOOP(V, fma, x, y, constraint)                                             \
  V a0 = y, a1 = y, a2 = y, a3 = y, a4 = y, a5 = y, a6 = y, a7 = y, a8 = y, a9 = y;           \
  for (int64_t i = 0; i < steps; ++i) {                                                       \
    a0 = fma(a0, x, y), a1 = fma(a1, x, y), a2 = fma(a2, x, y), a3 = fma(a3, x, y);           \
    a4 = fma(a4, x, y), a5 = fma(a5, x, y), a6 = fma(a6, x, y), a7 = fma(a7, x, y);           \
    a8 = fma(a8, x, y), a9 = fma(a9, x, y);                                                   \
    asm volatile(""                                                                           \
                 : "+" constraint(a0), "+" constraint(a1), "+" constraint(a2),                \
                   "+" constraint(a3), "+" constraint(a4), "+" constraint(a5),                \
                   "+" constraint(a6), "+" constraint(a7), "+" constraint(a8),                \
                   "+" constraint(a9));                                                       \
  }                                                                                           \
  return double(steps) * 10 * 2 * (sizeof(V) / sizeof(float))

// Four independent sums, kept by an asm as above.
#define LAZULI_READ_LOOP(V, add, zero, load, constraint)                                      \
  constexpr size_t lanes = sizeof(V) / sizeof(float);                                         \
  V s0 = zero, s1 = zero, s2 = zero, s3 = zero;                                               \
  for (size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {                                \
    s0 = add(s0, load(data + i)), s1 = add(s1, load(data + i + lanes));                       \
    s2 = add(s2, load(data + i + 2 * lanes)), s3 = add(s3, load(data + i + 3 * lanes));       \
  }                                                                                           \
  s0 = add(add(s0, s1), add(s2, s3));                                                         \
  asm volatile("" : : constraint(s0));                                                        \
  float first;                                                                                \
  std::memcpy(&first, &s0, sizeof(first));                                                    \
  return first

float plain_fma(float a, float b, float c) { return a * b + c; }
float plain_add(float a, float b) { return a + b; }
float plain_load(const float* from) { return *from; }

#if defined(__x86_64__)
constexpr auto kAnyRegister = 'x';
#endif
