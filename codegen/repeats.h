// Loops of a program that are alike: equal steps of a recurrent network, equal layers. A dialect
// prints them once, as a function, since the time of compiling grows with the text.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ir/program.h"

namespace lazuli {

/// Finds them. Refers to the instructions of the program, which must stay.
class Repeats {
 public:
  explicit Repeats(const Program& program);

  /// Whether another loop may have the same text, apart from what both take from outside: values,
  /// arrays and places in scratch or shared memory. No value made in such a loop is used outside.
  bool repeated(const Instruction& loop) const;

  /// Phases of the program in groups that have no such loop in common, in ascending order. A group
  /// has at least so many instructions, if the program has.
  std::vector<std::vector<size_t>> separate_phases(int64_t fewest) const;

 private:
  struct Shape {
    uint64_t hash = 0;
    int64_t size = 0;    // instructions in the text
    double work = 0;     // that run
    bool closed = true;  // knows nothing of the function's range
  };
  Shape visit(const std::vector<Instruction>& body);
  Shape visit(const Instruction& i);

  std::unordered_map<const Instruction*, uint64_t> candidates_;
  std::unordered_map<uint64_t, int> counts_;
  struct PhaseShape {
    int64_t size = 0;
    std::vector<uint64_t> candidates;
  };
  std::vector<PhaseShape> phases_;
};

/// Where in scratch or shared memory the value begins that a Load, Store or Prefetch of `i` is of,
/// in bytes; 0 in an argument. A guess by the constant part of the address, good for naming only.
int64_t place_of(const Program& program, const Instruction& i, DType dtype);

}  // namespace lazuli
