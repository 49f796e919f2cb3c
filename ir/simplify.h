// Exact rewriting of the tensor graph before it is partitioned: what only the graph needs is
// stripped, constants are folded, movement is composed, and algebra that hides contractions is
// undone. Every value keeps its bits, except that sums may be reassociated where the rule says so.
#pragma once

#include <string>
#include <vector>

#include "core/node.h"

namespace lazuli {

/// The simplified roots, in the same order, with shapes and dtypes unchanged. Realised nodes are
/// leaves. `trace`, if given, receives one line for each rule applied. Linear in the nodes, but
/// that graphs of few thousands are gone through until what moves towards the leaves has got there.
/// `settled`, if given, learns whether to simplify the result would leave it as it is.
std::vector<NodeRef> simplify(std::span<const NodeRef> roots,
                              std::vector<std::string>* trace = nullptr, bool* settled = nullptr);

}  // namespace lazuli
