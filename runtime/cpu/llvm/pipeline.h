// The code generation passes of the LLVM module. The one place of lazuli that uses LLVM's C++
// interface, since the C interface cannot choose passes.
#pragma once

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include <string>
#include <vector>

namespace lazuli::llvm_module {

/// Registers the passes that emit() names. Once, before the first emit().
void register_passes();

/// Runs the short list of passes (`fast`, x86 only) or the standard list over `module` and appends
/// the object file or the assembly text to `out`. Returns an empty string, or why it could not.
std::string emit(LLVMTargetMachineRef machine, LLVMModuleRef module, bool fast, bool assembly,
                 std::string& out);

/// The CPU names that `machine`'s target knows.
std::vector<std::string> cpu_names(LLVMTargetMachineRef machine);

/// The first feature of a list such as "+avx2,-fma" that `machine`'s target does not know; empty if
/// it knows all.
std::string unknown_feature(LLVMTargetMachineRef machine, const std::string& features);

}  // namespace lazuli::llvm_module
