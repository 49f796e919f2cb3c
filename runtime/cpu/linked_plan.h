// A plan with its kernels: all that is run.
#pragma once

#include <memory>
#include <vector>

#include "ir/plan.h"
#include "runtime/cpu/kernel_store.h"
#include "runtime/inspect.h"

namespace lazuli {

struct LinkedPlan {
  struct Step {
    Hash128 key;                                   // of the kernel: its structural_hash()
    std::shared_ptr<const CompiledKernel> kernel;  // null: a library step
    StepNote note;
  };

  Plan plan;
  std::vector<Step> steps;  // one for each of the plan
};

/// A source of a library step's node of which nothing but this is known.
NodeRef stand_in(DType dtype, const Shape& shape);

/// Compiles the plan's distinct kernels, in parallel, those that the store has not.
LinkedPlan link_plan(Plan plan, KernelStore& store, Runtime& runtime);

}  // namespace lazuli
