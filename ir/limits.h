// Triangular domains: where elements behind a mask add nothing, the loops over them end at the
// mask.
#pragma once

#include <string>
#include <vector>

#include "ir/kernel.h"

namespace lazuli {

/// Bounds an axis k of every stage that need not run over the elements where `mask`, a value of the
/// form where(k < bound, x, -infinity or 0), is outside its bound: sums there add 0, maxima see
/// -infinity (numbers that the mask is combined with taken as finite), and what else is computed
/// there nobody reads. A value that others read there too, or an output, is bounded if it is 0
/// there whatever the numbers are, but for rows of NaN: zeros are stored without being computed
/// (Value::zero_beyond). Returns the names of the stages that are bounded now; none if the form is
/// another.
std::vector<std::string> limit_stages(Kernel& kernel, const Value& mask);
/// The same by every value that bounds more than itself; returns their names.
std::vector<std::string> limit_at_masks(Kernel& kernel);

}  // namespace lazuli
