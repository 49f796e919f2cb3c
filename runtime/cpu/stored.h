// Compiled kernels and linked plans as bytes, for the cache on disk.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/cpu/linked_plan.h"

namespace lazuli {

std::string store_kernel(const CompiledKernel& kernel);

/// The kernel that store_kernel() made these bytes of, its code loaded; null if they are of no
/// kernel, or of one that calls what this program does not provide.
std::shared_ptr<CompiledKernel> load_kernel(std::string_view bytes);

/// What is run of a plan, and what is told of it, over the leaves of its graph by their numbers;
/// its kernels by their keys. Nothing if it reads what is none of `leaves`, is of no fixed sizes,
/// or of too many steps to be worth its place.
std::optional<std::string> store_plan(const LinkedPlan& linked, std::span<const NodeRef> leaves);

/// The plan that store_plan() made these bytes of, for a graph that is equal but for the identity
/// of its leaves: with kernels that are but their
/// arguments, and its input slots with the nodes of `leaves`. Nothing if
/// the bytes are of no plan, or of one for other leaves or roots.
std::optional<LinkedPlan> load_plan(std::string_view bytes, std::span<const NodeRef> leaves,
                                    std::span<const NodeRef> roots);

}  // namespace lazuli
