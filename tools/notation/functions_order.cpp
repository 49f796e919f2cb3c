// Rows of the scans, the sorts and the writes at indices.
#include "core/ops_scan.h"
#include "core/ops_scatter.h"
#include "core/ops_sort.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

using std::optional;
using T = const Tensor&;

/// The values alone, or a tuple with what was asked for. They are sorted in any case.
Value unique_row(T x, bool /*sorted*/, bool return_inverse, bool return_counts,
                 optional<int64_t> dim) {
  const Unique found = unique(x, dim);
  if (!return_inverse && !return_counts) return to_value(found.values);
  std::vector<Tensor> parts{found.values};
  if (return_inverse) parts.push_back(found.inverse);
  if (return_counts) parts.push_back(found.counts);
  return to_value(parts);
}

Tensor scatter_row(T x, int64_t dim, T index, const TensorOrScalar& source,
                   const optional<std::string>& reduce) {
  return scatter(x, dim, index, source, reduce.value_or(""));
}

std::vector<Function> scans() {
  // clang-format off
  return {
      {"cumsum(input, dim, dtype=None)", wrap(&cumsum)},
      {"cumprod(input, dim, dtype=None)", wrap(&cumprod)},
      {"cummax(input, dim)", wrap(&cummax)},
      {"cummin(input, dim)", wrap(&cummin)},
  };
  // clang-format on
}

std::vector<Function> sorts() {
  // clang-format off
  return {
      {"sort(input, dim=-1, descending=false, stable=false)", wrap(&sort)},
      {"argsort(input, dim=-1, descending=false, stable=false)", wrap<Tensor(T, int64_t, bool, bool)>(&argsort)},
      {"msort(input)", wrap(&msort)},
      {"topk(input, k, dim=-1, largest=true, sorted=true)", wrap(&topk)},
      {"kthvalue(input, k, dim=-1, keepdim=false)", wrap(&kthvalue)},
      {"median(input)", wrap<Tensor(T)>(&median)},
      {"median(input, dim, keepdim=false)", wrap<ValuesIndices(T, int64_t, bool)>(&median)},
      {"mode(input, dim=-1, keepdim=false)", wrap(&mode)},
      {"searchsorted(sorted_sequence, input, out_int32=false, right=false, side=None, sorter=None)", wrap(&searchsorted)},
      {"bucketize(input, boundaries, out_int32=false, right=false)", wrap(&bucketize)},
      {"unique(input, sorted=true, return_inverse=false, return_counts=false, dim=None)", wrap(&unique_row)},
  };
  // clang-format on
}

std::vector<Function> writes() {
  // clang-format off
  return {
      {"scatter(input, dim, index, src, reduce=None)", wrap(&scatter_row)},
      {"scatter(input, dim, index, value, reduce=None)", wrap(&scatter_row)},
      {"scatter_add(input, dim, index, src)", wrap(&scatter_add)},
      {"scatter_reduce(input, dim, index, src, reduce, include_self=true)", wrap(&scatter_reduce)},
      {"index_add(input, dim, index, source, alpha=1)", wrap(&index_add)},
      {"index_copy(input, dim, index, source)", wrap(&index_copy)},
      {"index_fill(input, dim, index, value)", wrap(&index_fill)},
      {"masked_scatter(input, mask, source)", wrap(&masked_scatter)},
      {"bincount(input, weights=None, minlength=0)", wrap(&bincount)},
      {"histc(input, bins=100, min=0, max=0)", wrap(&histc)},
  };
  // clang-format on
}

}  // namespace

std::vector<Function> order_functions() {
  return join_rows({scans(), sorts(), writes()});
}

}  // namespace lazuli::notation
