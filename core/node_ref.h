// The pointer to a node, for those who hold and hand on nodes without looking inside.
#pragma once

#include "core/ref.h"
#include "core/small_vector.h"

namespace lazuli {

struct Node;

/// Counted pointer to a node; null only when default-constructed.
class NodeRef : public Ref<const Node> {
 public:
  using Ref::Ref;
  operator const Node*() const;
};

template <>
inline constexpr bool kRelocatable<NodeRef> = true;

}  // namespace lazuli
