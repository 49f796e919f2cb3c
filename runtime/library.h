// Library steps of a plan: the ops that are whole algorithms rather than loops over an expression.
// Each is O(n) or O(n log n) and gives the same bits for any number of threads.
#pragma once

#include <span>
#include <vector>

#include "core/node.h"
#include "ir/in_place.h"
#include "runtime/thread_pool.h"

namespace lazuli {

/// Runs Scatter, Scan, ArgSort, Sort or Update: `arrays` are the sources of `node` and then its result, dense and
/// row-major. The result of Scatter and Update may be the array that they start from.
void run_library_step(const Node& node, std::span<void* const> arrays, ThreadPool& pool);

/// Which operands such a step may be run in place of. None of a step that may find no memory while
/// it runs.
std::vector<InPlace> in_place_arguments(const Node& node);

/// Operations of one run: comparisons of a sort, additions of a scan, elements of a scatter.
double library_operations(const Node& node);

// ---- its ops, each for itself
/// `wide`: in vectors of 32 bytes where the machine has them. The bits are the same.
void run_scan(const Node& node, std::span<void* const> arrays, ThreadPool& pool, bool wide = true);
void run_argsort(const Node& node, std::span<void* const> arrays, ThreadPool& pool);
void run_sort(const Node& node, std::span<void* const> arrays, ThreadPool& pool);
void run_scatter(const Node& node, std::span<void* const> arrays, ThreadPool& pool);
void run_update(const Node& node, std::span<void* const> arrays, ThreadPool& pool);

}  // namespace lazuli
