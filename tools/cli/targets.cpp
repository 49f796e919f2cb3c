#include "tools/cli/targets.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "runtime/cpu/compiler.h"
#include "tools/notation/source.h"

namespace lazuli::cli {
namespace {

constexpr std::array<std::string_view, 4> kLevels{"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"};
constexpr const char* kArmTriple = "aarch64-unknown-linux-gnu";

// CPUs with AVX-512, and CPUs with AVX2 and FMA, by the beginnings of their names; others count as
// x86-64-v2.
constexpr std::array<std::string_view, 15> kLevel4{
    "skylake-avx512", "skx",           "cascadelake", "cooperlake",     "cannonlake",
    "icelake",        "rocketlake",    "tigerlake",   "sapphirerapids", "emeraldrapids",
    "graniterapids",  "diamondrapids", "znver4",      "znver5",         "x86-64-v4"};
constexpr std::array<std::string_view, 17> kLevel3{
    "haswell",    "core-avx2",        "broadwell", "skylake",     "alderlake", "raptorlake",
    "meteorlake", "arrowlake",        "lunarlake", "pantherlake", "gracemont", "sierraforest",
    "grandridge", "clearwaterforest", "znver",     "bdver4",      "x86-64-v3"};
// CPUs with AVX512-VNNI or AVX-VNNI.
constexpr std::array<std::string_view, 20> kVnni{
    "cascadelake",    "cooperlake",    "icelake",       "rocketlake",    "tigerlake",
    "sapphirerapids", "emeraldrapids", "graniterapids", "diamondrapids", "znver4",
    "znver5",         "alderlake",     "raptorlake",    "meteorlake",    "arrowlake",
    "lunarlake",      "pantherlake",   "gracemont",     "sierraforest",  "grandridge"};

// CPUs with AVX512-BF16.
constexpr std::array<std::string_view, 7> kBf16{"cooperlake",    "sapphirerapids", "emeraldrapids",
                                                "graniterapids", "diamondrapids",  "znver4",
                                                "znver5"};

// CPUs with AMX: tiles of bf16 and bytes.
constexpr std::array<std::string_view, 4> kTiles{"sapphirerapids", "emeraldrapids", "graniterapids",
                                                 "diamondrapids"};

bool starts_with_any(std::string_view name, std::span<const std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view b) { return name.starts_with(b); });
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<std::string> target_names() {
  std::vector<std::string> names(kLevels.begin(), kLevels.end());
  for (const std::string& cpu : llvm_cpus()) {
    if (!contains(names, cpu)) names.push_back(cpu);
  }
  for (const std::string& cpu : llvm_cpus(kArmTriple)) {
    if (!contains(names, cpu)) names.push_back(cpu);
  }
  return names;
}

Target find_target(const std::string& cpu) {
  if (std::find(kLevels.begin(), kLevels.end(), cpu) != kLevels.end()) return named_target(cpu);
  const char* level = nullptr;
  if (contains(llvm_cpus(), cpu)) {
    level = starts_with_any(cpu, kLevel4)   ? "x86-64-v4"
            : starts_with_any(cpu, kLevel3) ? "x86-64-v3"
                                            : "x86-64-v2";
  } else if (contains(llvm_cpus(kArmTriple), cpu)) {
    level = "aarch64";
  } else {
    const std::vector<std::string> names = target_names();
    const std::vector<std::string_view> views(names.begin(), names.end());
    user_error("--target: LLVM knows no CPU '{}'; `--target list` lists them{}", cpu,
               notation::suggestion(cpu, views));
  }
  Target target = named_target(level);
  target.cpu = cpu;
  target.has_u8_dot = starts_with_any(cpu, kVnni);
  target.has_bf16_dot = starts_with_any(cpu, kBf16);
  target.has_tiles = starts_with_any(cpu, kTiles);
  target.slow_bf16_dot = target.has_tiles;  // as all that have them
  return target;
}

}  // namespace lazuli::cli
