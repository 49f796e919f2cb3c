// Sums of products in index notation.
#pragma once

#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace lazuli {

/// torch.einsum: "ij,jk->ik". A letter names an axis, a letter twice in one operand its diagonal,
/// `...` the axes between, which broadcast. Letters that the result lacks are summed; without `->`
/// the result has the letters that occur once, in alphabetical order, after `...`. Operands are
/// contracted from left to right, each letter summed as soon as no later operand has it.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

}  // namespace lazuli
