// Every stage between an expression and machine code, as text; and what a plan costs, measured.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "ir/target.h"
#include "runtime/machine_code.h"

namespace lazuli {

/// One kernel at every stage.
struct KernelText {
  std::string name;
  std::vector<std::string> operations;  // the graph's ops that it computes, in order
  std::string algorithm;                // stages and their values
  std::string schedule;                 // steps
  std::vector<std::string> reasons;     // why each group of steps was chosen
  std::string program;                  // loops
  std::string llvm, assembly, opencl;
  double flops = 0, bytes = 0;
  double predicted_seconds = 0;  // on one core
};

struct PlanText {
  std::string graph;   // nodes, before simplification
  std::string fusion;  // which nodes share a kernel, and why
  std::string plan;    // launch list and arrays
  std::vector<KernelText> kernels;
};

/// What `roots` become on `target`. Runs nothing; LLVM is asked only for `with_assembly`.
PlanText inspect(std::span<const Tensor> roots, const Target& target, bool with_assembly);

/// The graph in Graphviz's language: one box a node, movement dashed.
std::string graph_dot(std::span<const Tensor> roots);

/// One step of a plan.
struct StepNote {
  std::string name;
  std::vector<std::string> operations;  // the graph's ops that it computes, in order
  std::vector<std::string> decisions;   // why they share it
  double flops = 0, bytes = 0;
};

/// The same, run and timed.
struct StepCost : StepNote {
  double predicted_seconds = 0;  // before it ran
  double seconds = 0;
  double floor_seconds = 0;  // the larger of flops at peak and bytes at bandwidth
  std::string bound;         // "compute" or "memory"
  std::string schedule;
  std::vector<std::string> reasons;
  std::string next_best;            // what else could have been, and its predicted time
  std::optional<MachineCode> code;  // of a kernel

  /// Of the floor; above 100 where the arrays came from a cache.
  double percent() const { return seconds > 0 ? 100 * floor_seconds / seconds : 0; }
};

/// Compiles the plan of `roots` for the current device and times each step (median of `repeats`).
std::vector<StepCost> measure_steps(std::span<const Tensor> roots, int repeats = 11);

/// Names of operations, separated by `separator`: as they come, or of more than 16 each once and how often it comes, as
/// in "add x31".
std::string operations_text(const std::vector<std::string>& names, std::string_view separator);

/// What lazuli does to compute `roots`, or did to compute those that are computed already (as long as the device remembers
/// the plan; it is timed on zeros), and why: each kernel with its operations, why it ends there, its schedule, operations,
/// bytes, predicted and measured time, percent of the roofline measured in the same run, and what bounds it; then its memory (ir/memory_plan.h). The first line names
/// the device, its threads and that roofline. Empty if nothing is computed.
std::string explain(std::span<const Tensor> roots);
std::string explain(const Tensor& root);

}  // namespace lazuli
