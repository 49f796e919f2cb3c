#include "ir/joined_rows.h"

#include "core/graph.h"
#include "core/ops.h"
#include "ir/simplify_rules.h"

namespace lazuli {
namespace {

// Columns of the image, which is how far the rows of the result lie apart.
int64_t joined_row_of(const Convolution& c) {
  return c.columns + (c.size[1] - 1) * c.dilation[1];
}

}  // namespace

bool has_joined_form(const Convolution& c) {
  return !c.axes.by_kernel && !c.is_strided();
}

double joined_seconds(const Convolution& c, const Target& target) {
  constexpr double kJoined = 0.88, kStarts = 6e-6;  // of the peak, as measured on Zen 5
  const int64_t row = joined_row_of(c), lanes = c.lanes(target),
                whole = (c.rows * row + lanes - 1) / lanes * lanes;
  const double image = static_cast<double>(c.batch * c.in * (c.rows + c.size[0]) * row),
               result = static_cast<double>(c.batch * c.out * c.rows * row);
  const double bytes = 2 * static_cast<double>(size_of(c.image->dtype)) * (image + result);
  const double each = static_cast<double>(whole) / static_cast<double>(c.rows);
  return kStarts + c.seconds(each, target) / kJoined + bytes / target.bandwidth;
}

ConvolutionForm joined_form(const Convolution& c, const Node& sum) {
  const int64_t row = joined_row_of(c), places = c.rows * row;
  // The last windows reach beyond the last row.
  const int64_t rows = c.rows + (c.size[0] - 1) * c.dilation[0] + 1;
  const Tensor image = pad(Tensor(c.image), {0, 0, 0, rows - c.image->shape[2]}).contiguous();
  NodeRef x = reshape(image.node(), {c.batch, c.in, rows * row});
  x = window(window(x, 2, c.size[0], 1, row * c.dilation[0]), 2, c.size[1], 1, c.dilation[1]);
  x = shrink_axis(x, 2, 0, places);
  const Tensor windows(reshape(x, {c.batch, 1, c.in, places, c.size[0], c.size[1]})),
      kernel(reshape(c.kernel, {1, c.out, c.in, 1, c.size[0], c.size[1]}));
  const Tensor sums(reduce(Op::ReduceAdd, (windows * kernel).node(), {2, 4, 5}));
  const Tensor y = reshape(sums.contiguous(), {c.batch, c.out, c.rows, row});
  return {sums.node(), as_sum(c, narrow(y, 3, 0, c.columns).node(), sum)};
}

}  // namespace lazuli
