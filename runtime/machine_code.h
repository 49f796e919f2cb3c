// What assembly says of a kernel's quality: how many vector registers it uses, what goes through
// the stack, and what is asked for ahead.
#pragma once

#include <string_view>

namespace lazuli {

struct MachineCode {
  int vector_registers = 0;      // different ones, whatever width of them is used
  int stack_accesses = 0;        // loads and stores relative to the stack pointer
  int inner_stack_accesses = 0;  // of these, in innermost loops
  int inner_calls = 0;           // calls in innermost loops
  int prefetches = 0;            // cache lines asked for ahead
};

/// Reads GNU assembly of x86-64 (AT&T) or AArch64, all functions of it together. A loop is what
/// lies between a label and a later jump to it; it is innermost if no other lies inside. Saving
/// registers by push and pop is no access.
MachineCode read_assembly(std::string_view text);

}  // namespace lazuli
