// What the runtime needs of a device. A new one is a class with these virtuals in a folder of its
// own, and a row in runtime/runtime.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/node.h"
#include "ir/memory_plan.h"
#include "ir/plan.h"
#include "ir/target.h"

namespace lazuli {

class Allocator;
class Runtime;
class SymbolicGraph;
struct StepNote;

/// How a device computes one step of a plan; empty for a step that is no kernel.
struct StepReport {
  std::string schedule;              // the steps of the schedule, as text
  std::vector<std::string> reasons;  // why each was chosen
  std::vector<Choice> choices;       // and what else could have been
  double cycles = 0;                 // of its instructions on one core, as estimated
};

/// A plan made ready to run again and again: functions, argument blocks and memory. Not for use by
/// two threads at once.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Runs all steps. `inputs` and `outputs` are the storage of the plan's input and output slots,
  /// in slot order. Where an output lies in the memory of its donor, that changes, and then nothing
  /// can fail any more.
  virtual void run(std::span<Storage* const> inputs, std::span<Storage* const> outputs) = 0;
  /// Runs step by step with a clock: seconds of each step of the plan, the median of `repeats`.
  virtual std::vector<double> time_steps(std::span<Storage* const> inputs,
                                         std::span<Storage* const> outputs, int repeats) = 0;
  /// Whether memory for temporaries is kept from one run to the next.
  virtual void keep_memory(bool) {}
  virtual const Plan& plan() const = 0;
  /// Where its arrays lie. An output with a donor may be given the storage of that input.
  virtual const MemoryPlan& memory() const = 0;
  /// How many elements from its start hold what a run at these sizes touches, of each slot.
  virtual std::vector<int64_t> reach(std::span<const int64_t> sizes) const;
  /// What each step is; nothing on a device that runs graphs without plans.
  virtual const std::vector<StepNote>& notes() const = 0;
  /// How it is computed.
  virtual std::vector<StepReport> report() const = 0;
};

/// A graph made ready to run for other values of its leaves.
struct Captured {
  std::shared_ptr<Executable> executable;
  std::vector<NodeRef> inputs;  // the leaf of each input slot, with or without a value
};

/// Runs it for these values of its input slots. Returns the value of each root: an input, or an
/// array of `memory`.
std::vector<Ref<Storage>> run(const Captured& code, Allocator& memory,
                              std::span<const Ref<Storage>> inputs);
/// What Executable::run takes.
std::vector<Storage*> pointers(std::span<const Ref<Storage>> storages);

/// What a device has compiled so far.
struct CompileCount {
  int64_t plans = 0, kernels = 0;
  int64_t loaded = 0;        // kernels that came from the cache on disk instead
  int64_t plans_loaded = 0;  // of the plans, those that did
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  /// One line for `lazuli info`.
  virtual std::string description() const = 0;
  /// What kernels are made for.
  virtual const Target& target() const = 0;
  /// Computes `roots` and attaches their storage; all or nothing.
  virtual void realize(std::span<const NodeRef> roots) = 0;
  /// Compiles a plan; UserError on a device that runs graphs without plans.
  virtual std::unique_ptr<Executable> prepare(Plan plan) = 0;
  /// What realize() runs for these roots, ready to be run again; `donors` as in make_plan(). Of a
  /// graph that serves several sizes, if `sizes` is given.
  virtual Captured capture(std::span<const NodeRef> roots, std::span<const NodeRef> donors = {},
                           const SymbolicGraph* sizes = nullptr) = 0;
  /// Stays as it is when a graph of a structure met before is realised.
  virtual CompileCount compiled() const { return {}; }
};

/// Makers of the devices, each defined in its own folder; `which` is what follows the colon of the
/// name.
std::unique_ptr<Device> make_cpu_device(Runtime& runtime, std::string_view which);
std::unique_ptr<Device> make_reference_device(Runtime& runtime, std::string_view which);

}  // namespace lazuli
