// The loop program as OpenCL C. The same program that becomes LLVM IR: one work-group of size 1 runs one iteration of a
// phase's parallel loop, so a CPU-shaped schedule needs no change; `group` and `item` loops become work-group and work-item ids.
#pragma once

#include <string>

#include "ir/program.h"

namespace lazuli {

/// One kernel function a phase, named as phase_function() of codegen/llvm.h names them. Parameters: the arguments in order, then
/// `global uchar* scratch` (scratch_bytes for every work-group) and `global uchar* shared`.
std::string emit_opencl(const Program& program, const std::string& name = "");

}  // namespace lazuli
