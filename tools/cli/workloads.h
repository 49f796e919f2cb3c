// The workloads that `lazuli bench NAME` knows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lazuli::cli {

struct Workload {
  std::string_view name;
  std::string_view group;  // of --group
  std::string_view expression;
  int64_t flops;
  int64_t bytes;
};

std::span<const Workload> workloads();
/// The row whose name or whose expression this is, or null.
const Workload* find_workload(std::string_view what);

}  // namespace lazuli::cli
