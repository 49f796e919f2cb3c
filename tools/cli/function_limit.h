// The third limit of a kernel, beside operations and bytes: its functions, such as exp.
#pragma once

#include <map>
#include <span>
#include <utility>

#include "core/node.h"
#include "tools/cli/session.h"

namespace lazuli::cli {

class FunctionLimit {
 public:
  /// Of the device and the threads of `session`, which must outlive it.
  explicit FunctionLimit(Session& session) : session_(session) {}

  /// Seconds that the functions of the graph above realised leaves take on arrays that stay in L2,
  /// with nothing else to do: the sum over ir/math.h's functions of how many values each is taken
  /// of, times what one takes, which is measured when it is first asked for.
  double seconds(std::span<const NodeRef> roots);

 private:
  double of_one_value(Op op, DType dtype);

  Session& session_;
  std::map<std::pair<Op, DType>, double> known_;
};

}  // namespace lazuli::cli
