// Triangular domains: where elements outside of a mask add nothing, the loops over them begin or
// end at the mask.
#pragma once

#include <string>
#include <vector>

#include "ir/kernel.h"

namespace lazuli {

/// Bounds axes of the stages that need not run over the elements which `mask`, a value whose
/// expression has where(k < bound, x, -infinity or 0) in it, leaves out: sums there add 0, maxima
/// see -infinity, and what else is computed there nobody reads. Numbers that the mask is combined
/// with are taken as finite: 0 times infinity is left out as 0. Of one comparison, rows end
/// (Stage::limit) and columns begin (Stage::begin); several, joined by `and`, bound an axis from
/// both sides. A value that others read beyond its end too, or an output, is bounded if it is 0
/// there whatever the numbers are, but for rows of NaN: zeros are stored without being computed
/// (Value::zero_beyond). Sums over rows leave out none that may have no element. Returns the names
/// of the stages that are bounded now; none if the form is another.
std::vector<std::string> limit_stages(Kernel& kernel, const Value& mask);
/// The same by every value that bounds more than itself; returns their names.
std::vector<std::string> limit_at_masks(Kernel& kernel);

}  // namespace lazuli
