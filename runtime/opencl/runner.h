// Runs generated OpenCL C on the first device that the system has. The loader is opened at run time: a machine without one
// loses nothing but this. It is what tests run the OpenCL dialect with, and the ground for the OpenCL device.
#pragma once

#include <string>
#include <vector>

#include "ir/program.h"

namespace lazuli {

/// Name of the first OpenCL device, or "" with the reason in `why` if there is none.
std::string first_opencl_device(std::string* why = nullptr);

/// Builds `source` (emit_opencl of `program` under `name`) and runs its phases over the arguments, which are dense host arrays: outputs
/// are written back. DeviceError with the driver's code by name, or the build log.
void run_opencl(const Program& program, const std::string& source, const std::string& name,
                const std::vector<void*>& arguments);

}  // namespace lazuli
