#include "tools/cli/function_limit.h"

#include "core/graph.h"
#include "ir/math.h"
#include "tools/cli/work.h"

namespace lazuli::cli {

double FunctionLimit::seconds(std::span<const NodeRef> roots) {
  double total = 0;
  for (const NodeRef& n : topological(roots, true)) {
    if (n->realised() || !is_math(n->op) || !is_float(n->dtype)) continue;
    total += static_cast<double>(n->numel()) * of_one_value(n->op, n->dtype);
  }
  return total;
}

double FunctionLimit::of_one_value(Op op, DType dtype) {
  const auto [place, fresh] = known_.emplace(std::pair(op, dtype), 0.0);
  if (!fresh) return place->second;
  constexpr int64_t kPerThread = 32768;
  const int64_t count = session_.runtime().pool.size() * kPerThread;
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); i++) {  // where every function is defined
    values[i] = 0.25 + 0.5 * static_cast<double>(i) / static_cast<double>(count);
  }
  const Tensor x = Tensor::from(values, {count}).to(dtype);
  x.data();
  const Sources arguments(static_cast<size_t>(info(op).arity), x.node());
  const Tensor y(elementwise(op, arguments));
  Replay replay(session_.device(), std::span(&y, 1));
  return place->second = measure([&] { replay.run(); }, 0.02).min / static_cast<double>(count);
}

}  // namespace lazuli::cli
