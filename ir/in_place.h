// Which results of a kernel may be written over one of its operands.
#pragma once

#include <vector>

#include "ir/program.h"

namespace lazuli {

/// Arguments that may be one array: what the program reads of `input` it reads just before it
/// stores `output` there, and nothing of it later.
struct InPlace {
  int input = 0, output = 0;
};

/// All such pairs. An output may stand in several; only one of them can be taken.
std::vector<InPlace> in_place_arguments(const Program& program);

}  // namespace lazuli
