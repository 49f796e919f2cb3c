// Indexing of values: `a[1:5, ::2, None, ..., -1, i]`.
#pragma once

#include <span>
#include <variant>

#include "tools/notation/ast.h"
#include "tools/notation/value.h"

namespace lazuli::notation {

struct EllipsisPart {};

/// One item of an index as it is written.
using IndexPart = std::variant<SliceBounds, EllipsisPart, Value>;

/// The element of a tuple or a list, or the indexed tensor.
Value index_value(const Value& object, std::span<const IndexPart> parts);

}  // namespace lazuli::notation
