// Products of narrow elements, several at a time: the factors are packed along a summed axis into
// words of 32 bits, and a dot of core/op.h adds all products of two words at once.
#pragma once

#include <optional>
#include <string_view>

#include "ir/kernel.h"

namespace lazuli {

/// The dot of this name, as core/op.h has it.
std::optional<Op> find_dot(std::string_view name);
/// Elements of a word.
int dot_terms(Op op);
/// What the products are summed in.
DType dot_sum(Op op);

/// How the factors of a product go into a dot.
struct DotFactors {
  size_t first = 0;     // the factor that becomes the dot's first operand
  bool raised = false;  // that one by 128, so that it has no sign
};
/// Where `v` sums a product and the elements of the dot can hold both factors, so that the sum is
/// the same: how. Else nothing.
std::optional<DotFactors> dot_factors(const Value& v, Op op);
/// The elements of `factor` at the indices of `along` that word number `word` holds, the first in
/// the lowest bits; zeros beyond the end. `raised`: each by 128. `whole`: elements that lie beside
/// each other in an array may be one load of i32.
NodeRef packed_word(Op op, const NodeRef& factor, const NodeRef& along, const NodeRef& word,
                    bool raised, bool whole);
/// A word of elements 128, unsigned.
NodeRef word_of_128();
/// What a dot adds, in other operations, for targets without it.
NodeRef plain_products(const NodeRef& dot);
/// What the sum of dots begins with, or null: a dot's last source is that in the first term,
/// where(all summed axes are 0, start, 0), or a constant 0.
NodeRef dot_start(const NodeRef& dot);

}  // namespace lazuli
