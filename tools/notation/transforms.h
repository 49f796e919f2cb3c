// The function transforms whose first argument is not evaluated before the call, and the start of
// the random functions.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "tools/notation/value.h"

namespace lazuli::notation {

inline constexpr std::string_view kVmapSignature = "vmap(expression, x, ...)";

/// Whether calls of this name evaluate their first argument themselves.
constexpr bool is_lazy_transform(std::string_view name) {
  return name == "vmap";
}

/// `body` mapped over the first axis of every batch; its results get that axis in front.
Value vmap_value(const std::function<Value(std::span<const Tensor>)>& body,
                 const std::vector<Tensor>& batches);

/// Seeds the functions that draw random numbers.
void start_random(uint64_t seed);

}  // namespace lazuli::notation
