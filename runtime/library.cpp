#include "runtime/library.h"

#include <cmath>

#include "core/error.h"
#include "core/graph.h"

namespace lazuli {

void run_library_step(const Node& node, std::span<void* const> arrays, ThreadPool& pool) {
  switch (node.op) {
    case Op::Scan:
      return run_scan(node, arrays, pool);
    case Op::ArgSort:
      return run_argsort(node, arrays, pool);
    case Op::Sort:
      return run_sort(node, arrays, pool);
    case Op::Scatter:
      return run_scatter(node, arrays, pool);
    case Op::Update:
      return run_update(node, arrays, pool);
    default:
      internal_error(fmt::format("library: {} is no library step", name(node.op)));
  }
}

std::vector<InPlace> in_place_arguments(const Node& node) {
  const bool narrow = node.dtype == DType::F16 || node.dtype == DType::BF16;
  const bool sums = node.op == Op::Scatter && node.integer() != static_cast<int64_t>(Combine::Set);
  if (node.op != Op::Update && node.op != Op::Scatter) return {};
  if (narrow && sums) return {};  // in f32, which needs memory
  return {{0, static_cast<int>(node.src.size())}};
}

double library_operations(const Node& node) {
  if (node.op == Op::Update) return static_cast<double>(node.src[1]->numel());
  if (node.op == Op::Scatter) return static_cast<double>(node.src[2]->numel());
  const auto n = static_cast<double>(node.src[0]->numel());
  if (node.op == Op::Scan || n == 0) return n;
  // Lines are sorted, or the elements that have a chance are.
  return n * std::ceil(std::log2(static_cast<double>(1 + node.shape.back())));
}

}  // namespace lazuli
