// The code generation passes of the LLVM module. The one place of lazuli that uses LLVM's C++
// interface, since the C interface cannot choose passes.
#pragma once

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/cpu/llvm/api.h"

namespace lazuli::llvm_module {

/// Registers the passes that Pipeline names. Once, before the first Pipeline.
void register_passes();

/// The passes that make object files, or assembly text, of one module after the other: to set them
/// up takes as long as to compile 10 instructions.
class Pipeline {
 public:
  /// Where the short lists do not apply, the standard one takes their place. Throws
  /// std::runtime_error if LLVM lacks a pass.
  Pipeline(LLVMTargetMachineRef machine, llvm_api::Recipe recipe, bool assembly);
  ~Pipeline();

  /// The file. If a pass throws, the pipeline is too broken to be used again or destroyed.
  std::string run(LLVMModuleRef module);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The CPU names that `machine`'s target knows.
std::vector<std::string> cpu_names(LLVMTargetMachineRef machine);

/// The first feature of a list such as "+avx2,-fma" that `machine`'s target does not know; empty if
/// it knows all.
std::string unknown_feature(LLVMTargetMachineRef machine, const std::string& features);

}  // namespace lazuli::llvm_module
