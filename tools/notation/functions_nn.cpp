// Rows of the functions of networks: products, convolutions, pools, norms, losses, orders.
#include "core/ops_matmul.h"
#include "core/ops_softmax.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

using std::optional;
using T = const Tensor&;

std::vector<Function> products() {
  // clang-format off
  return {
      {"matmul(input, other)", wrap(&matmul)},
      {"mm(input, mat2)", wrap(&mm)},
      {"bmm(input, mat2)", wrap(&bmm)},
      {"mv(input, vec)", wrap(&mv)},
      {"dot(input, other)", wrap(&dot)},
      {"outer(input, vec2)", wrap(&outer)},
      {"addmm(input, mat1, mat2, beta=1, alpha=1)", wrap(&addmm)},
      {"baddbmm(input, batch1, batch2, beta=1, alpha=1)", wrap(&baddbmm)},
      {"linear(input, weight, bias=None)", wrap(&linear)},
      {"tensordot(a, b, dims=2)", wrap<Tensor(T, T, int64_t)>(&tensordot)},
      {"tensordot(a, b, dims)", wrap([](T a, T b, const std::pair<Ints, Ints>& dims) { return tensordot(a, b, dims.first, dims.second); })},
  };
  // clang-format on
}

std::vector<Function> softmaxes() {
  // clang-format off
  return {
      {"softmax(input, dim, dtype=None)", wrap(&softmax)},
      {"softmin(input, dim, dtype=None)", wrap(&softmin)},
      {"log_softmax(input, dim, dtype=None)", wrap(&log_softmax)},
      {"logsumexp(input, dim, keepdim=false)", wrap(&logsumexp)},
  };
  // clang-format on
}

}  // namespace

std::vector<Function> nn_functions() { return join_rows({products(), softmaxes()}); }

}  // namespace lazuli::notation
