// A plan on the CPU: an array of functions with their arguments, walked in order.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/cpu/linked_plan.h"
#include "runtime/device.h"
#include "runtime/runtime.h"

namespace lazuli {

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(Runtime& runtime, const Target& target, LinkedPlan linked);
  ~CpuExecutable() override;

  void run(std::span<Storage* const> inputs, std::span<Storage* const> outputs) override;
  std::vector<double> time_steps(std::span<Storage* const> inputs,
                                 std::span<Storage* const> outputs, int repeats) override;
  const Plan& plan() const override { return plan_; }
  const MemoryPlan& memory() const override { return memory_; }
  std::vector<int64_t> reach(std::span<const int64_t> sizes) const override;
  std::vector<StepReport> report() const override;

  const std::vector<StepNote>& notes() const override { return notes_; }
  /// Lets go of the graph: what remains can be kept in a cache without keeping arrays alive.
  void forget_graph();
  void keep_memory(bool keep) override;

 private:
  struct Code {
    std::shared_ptr<const CompiledKernel> kernel;  // null: a library step
    int label = 0;                                 // in a trace
  };
  struct Launch {
    Code code;
    NodeRef node;  // of a library step
    std::vector<int> slots;
    size_t first = 0;  // of its arguments among those of all launches
  };
  // An argument of a launch of which a loop keeps one iteration.
  struct Moving {
    size_t argument;  // among those of all launches
    int64_t bytes;    // of one slice
  };
  struct Loop {
    StepLoop steps;
    std::vector<Moving> moving;
  };
  // Where an argument of a launch lies.
  struct Place {
    int slot;         // an input or output; negative: in the arena
    size_t argument;  // among those of all launches
    int64_t offset;
  };
  class Memory;

  // Gives each array its place; where that takes more than the runtime has left now, runs steps
  // again. Returns which of the steps, and of their codes, each is that is run. DeviceError if the
  // memory does not do.
  std::vector<int> place_arrays(const std::vector<Code>& codes, const Target& target);
  void place_arguments();
  void launch(const Launch& l, Memory& memory, const GridPart* part = nullptr);
  // Runs all steps in order: calls run(k, part) for each, for those of a loop as often as that
  // iterates.
  template <typename F>
  void run_steps(Memory& memory, F run);
  // Calls `body` with memory that these arrays are bound to.
  template <typename F>
  void with_memory(std::span<Storage* const> inputs, std::span<Storage* const> outputs, F body);

  Runtime& runtime_;
  Plan plan_;
  std::vector<StepNote> notes_;
  std::vector<Launch> launches_;
  MemoryPlan memory_;
  std::vector<Loop> loops_;
  std::vector<Place> places_;  // by slot
  int64_t scratch_bytes_ = 0, shared_bytes_ = 0;
  std::mutex mutex_;
  std::unique_ptr<Memory> kept_;
};

}  // namespace lazuli
