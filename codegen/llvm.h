// The loop program as LLVM IR text. Explicit vectors of the program's own width, no fast-math flags, no dependence on
// LLVM's headers: the text is the compile key, the golden and the dump in one.
#pragma once

#include <string>
#include <vector>

#include "ir/program.h"
#include "ir/target.h"

namespace lazuli {

/// Functions for x86 are called with the stack at a multiple of so many bytes (runtime/cpu/call.h): a vector of any width
/// that they keep there lies in one cache line.
inline constexpr int kStackAlignment = 64;

/// A module with one function for each phase, `<name>_<i>`, and `<name>_<i>_tail` for a ragged last iteration, each of type
/// `void(ptr buffers, ptr scratch, ptr shared, i64 begin, i64 end)`: buffers is an array of the arguments' pointers.
/// `name` defaults to the program's.
std::string emit_llvm(const Program& program, const Target& target, const std::string& name = "");

/// The same functions, of at least one phase, in modules that can be compiled side by side. Phases that call a function for
/// loops alike stay together, and short phases share a module.
std::vector<std::string> emit_llvm_parts(const Program& program, const Target& target,
                                         const std::string& name);

/// Name of the function of phase `index`, as emit_llvm spells it.
std::string phase_function(const std::string& name, size_t index, bool tail);

}  // namespace lazuli
