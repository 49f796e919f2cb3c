#include "runtime/library.h"

#include "core/error.h"

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
    default:
      internal_error(fmt::format("library: {} is no library step", name(node.op)));
  }
}

}  // namespace lazuli
