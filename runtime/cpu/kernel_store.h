// Kernels of one device, compiled once each: from an algorithm through schedule, program and text to functions.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/kernel.h"
#include "ir/program.h"
#include "ir/target.h"
#include "runtime/cpu/compiler.h"

namespace lazuli {

/// Functions of one kernel and what a launch needs to know.
struct CompiledKernel {
  struct PhaseFunctions {
    KernelFunction body = nullptr, tail = nullptr;
    int64_t count = 1;
  };
  std::vector<PhaseFunctions> phases;
  int64_t scratch_bytes = 0, shared_bytes = 0;
  double predicted_seconds = 0;  // on one core
  std::string schedule;          // text, for explain
  std::vector<std::string> reasons;
  std::shared_ptr<const CompiledModule> module;
};

/// Hash of what a kernel computes: equal for kernels that differ in names and serial numbers alone.
Hash128 structural_hash(const Kernel& kernel);

/// Arithmetic operations of one run, a multiply-add as two; and the fewest bytes: every argument once.
double count_flops(const Kernel& kernel);
double count_bytes(const Kernel& kernel);
/// Seconds on one core: the larger of the arithmetic (a function counts 16) at the target's rate, and the bytes at its bandwidth.
double predict_seconds(const Kernel& kernel, const Target& target);

class KernelStore {
 public:
  explicit KernelStore(Target target) : target_(std::move(target)) {}

  /// The compiled form; compiles on a miss. Thread-safe.
  std::shared_ptr<const CompiledKernel> get(const Kernel& kernel);
  int64_t compiles() const { return compiles_; }

 private:
  std::shared_ptr<const CompiledKernel> build(const Kernel& kernel) const;

  Target target_;
  std::mutex mutex_;
  struct KeyHash {
    size_t operator()(const Hash128& h) const { return h.low; }
  };
  std::unordered_map<Hash128, std::shared_ptr<const CompiledKernel>, KeyHash> kernels_;
  std::atomic<int64_t> compiles_ = 0;
};

}  // namespace lazuli
