// A plan on the CPU: an array of functions with their arguments, walked in order.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/cpu/kernel_store.h"
#include "runtime/device.h"
#include "runtime/runtime.h"

namespace lazuli {

class CpuExecutable final : public Executable {
 public:
  /// Compiles the plan's distinct kernels, in parallel.
  CpuExecutable(Runtime& runtime, KernelStore& store, Plan plan);

  void run(std::span<const Ref<Storage>> inputs,
           std::span<const Ref<Storage>> outputs) override;
  std::vector<double> time_steps(std::span<const Ref<Storage>> inputs,
                                 std::span<const Ref<Storage>> outputs, int repeats) override;
  const Plan& plan() const override { return plan_; }
  std::vector<StepReport> report() const override;

  /// Lets go of the graph: what remains can be kept in a cache without keeping arrays alive.
  void forget_graph();

 private:
  struct Launch {
    std::shared_ptr<const CompiledKernel> kernel;  // null: a library step
    NodeRef node;
    std::vector<int> slots;
  };
  class Memory;

  void compile_all(const std::vector<std::shared_ptr<Kernel>>& kernels);
  void plan_memory();
  void launch(const Launch& l, Memory& memory);

  Runtime& runtime_;
  KernelStore& store_;
  Plan plan_;
  std::vector<Launch> launches_;
  // Temporaries share blocks when they are not alive together.
  std::vector<int> block_of_slot_;
  std::vector<size_t> block_bytes_;
  int64_t scratch_bytes_ = 0, shared_bytes_ = 0;
  std::mutex mutex_;
};

}  // namespace lazuli
