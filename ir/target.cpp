#include "ir/target.h"

#include <array>

#include "core/error.h"

namespace lazuli {
namespace {

struct NamedTarget {
  const char* name;
  const char* cpu;
  const char* triple;
  int lanes, registers;
  bool fma, i16_dot;
};

constexpr const char* kLinux = "x86_64-unknown-linux-gnu";
constexpr std::array<NamedTarget, 4> kTargets{{
    {"x86-64-v2", "x86-64-v2", kLinux, 4, 16, false, true},
    {"x86-64-v3", "x86-64-v3", kLinux, 8, 16, true, true},
    {"x86-64-v4", "x86-64-v4", kLinux, 16, 32, true, true},
    {"aarch64", "generic", "aarch64-unknown-linux-gnu", 4, 32, true, false},
}};

}  // namespace

bool has_dot(const Target& target, Op op, int lanes) {
  if (lanes < 4 || lanes > target.lanes) return false;
  return op == Op::DotU8I8  ? target.has_u8_dot
         : op == Op::DotI8  ? target.has_tiles
         : op == Op::DotI16 ? target.has_i16_dot
                            : op == Op::DotBF16 && target.has_bf16_dot;
}

bool has_permute(const Target& target) {
  return target.lanes >= static_cast<int>(kEighthRoots.size());  // AVX2 and AVX-512
}

bool has_recip_estimate(const Target& target) {
  return target.lanes == 16 && target.triple.starts_with("x86_64");  // AVX-512
}

Target named_target(const std::string& name) {
  std::string known;
  for (const NamedTarget& t : kTargets) {
    if (name == t.name) {
      Target r;
      r.cpu = t.cpu;
      r.triple = t.triple;
      r.lanes = t.lanes;
      r.vector_registers = t.registers;
      r.has_fma = t.fma;
      r.has_i16_dot = t.i16_dot;
      return r;
    }
    known += std::string(known.empty() ? "" : ", ") + t.name;
  }
  user_error("target: there is no target '{}'; named ones are {}", name, known);
}

}  // namespace lazuli
