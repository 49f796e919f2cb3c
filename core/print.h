// Arrays as text, in NumPy's layout: columns aligned, 8 digits after the point at most, the middle
// of long axes left out.
#pragma once

#include <string>

#include "core/dtype.h"
#include "core/shape.h"

namespace lazuli {

/// The text of row-major elements at `data`, as numpy.ndarray.__str__ with default options.
std::string print_array(const void* data, DType dtype, const Shape& shape);

}  // namespace lazuli
