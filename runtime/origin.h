// Where a computed value came from, so that explain can tell of it when its graph is gone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "ir/target.h"

namespace lazuli {

class Executable;

/// What a step of a plan is, as text: it holds no nodes, hence no arrays.
struct StepNote {
  std::string name;
  std::vector<std::string> operations;  // the graph's ops that it computes, in order
  std::vector<std::string> decisions;   // why they share it
  bool is_kernel = false;
  double library_bytes = 0;             // of a step that is no kernel
  double predicted_seconds = 0;
};
std::vector<StepNote> step_notes(const Plan& plan, const Target& target);

/// A plan that was run. Values refer to it weakly: a device forgets plans in time.
struct Origin {
  std::vector<StepNote> notes;
  std::shared_ptr<Executable> executable;
};

}  // namespace lazuli
