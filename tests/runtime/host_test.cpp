// What the CPU is said to be.
#include "runtime/cpu/target.h"
#include "runtime/host.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include "runtime/cpu/compiler.h"

using namespace lazuli;

TEST_SUITE("runtime") {
  TEST_CASE("the host has vectors, caches and cores") {
    const Host& here = host();
    CHECK(!here.name.empty());
    CHECK((here.lanes == 4 || here.lanes == 8 || here.lanes == 16));
    CHECK(here.vector_registers >= 16);
    CHECK(here.l1 >= 8 << 10);
    CHECK(here.l2 > here.l1);
    CHECK(here.l3 <= (int64_t{16} << 20) * sysconf(_SC_NPROCESSORS_CONF));
    CHECK(here.cores >= 1);
  }

  TEST_CASE("only the cores that the process may use count") {
    cpu_set_t before;
    REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
    CHECK(available_cores() == 1);
    sched_setaffinity(0, sizeof(before), &before);
  }

  TEST_CASE("the host's target is one that LLVM compiles for, as wide as the machine") {
    const Target target = host_target();
    CHECK(target.lanes == host().lanes);
    CHECK(target.vector_registers == host().vector_registers);
    CHECK(target.has_u8_dot == host().has_u8_dot);
    CHECK(target.has_i16_dot == host().has_i16_dot);
    CHECK(target.has_bf16_dot == host().has_bf16_dot);
    CHECK(target.has_tiles == host().has_tiles);
    CHECK(target.fma_per_second > 1e9);
#if LAZULI_LLVM
    CHECK(target.cpu == llvm_host().cpu);
    CHECK(target.features == llvm_host().features);
    verify_llvm("define void @f() {\n  ret void\n}\n",
                {.triple = target.triple, .cpu = target.cpu, .features = target.features});
#endif
  }
}
