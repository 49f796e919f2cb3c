// What an array was made of whose history was dropped by realize(): so much of it as a gradient
// needs to be refused in place of silently leaving out what went through the array.
#pragma once

#include <span>

#include "core/node.h"

namespace lazuli {

/// Notes for arrays[i], which takes the place of made[i], what that was made of by operations that
/// pass gradients, as far as anything else still holds it, so that a gradient by it may be asked
/// for. What arrays below were made of counts too. Linear in the nodes below, once
/// for every 64 that are held. Thread-safe, as are the others.
void note_origins(std::span<const NodeRef> made, std::span<const NodeRef> arrays);

/// An array below `outputs`, by operations that pass gradients, that was made of `x`; null if there
/// is none.
NodeRef array_made_of(const NodeRef& x, std::span<const NodeRef> outputs);

/// Of a node that is freed, or whose value is replaced by another.
void forget_origins(const Node& n);

/// Number of nodes that are known here, and of what they are made of: for tests of leaks.
size_t known_origins();

}  // namespace lazuli
