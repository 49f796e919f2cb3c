// Convolutions over one, two or three spatial axes, as in torch.nn.functional. In the graph a
// convolution is a contraction of the windows of the padded input with the weights: the windows are
// a view, and no array of them is ever stored.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/arguments.h"
#include "core/tensor.h"

namespace lazuli {

/// Zeros around the spatial axes: a number of them on both sides, or "valid" (none), or "same" (as
/// many as keep the size, the odd one at the end; for stride 1).
class Padding {
 public:
  template <std::integral T>
  Padding(T count) : counts_(count) {}
  Padding(std::initializer_list<int64_t> counts) : counts_(counts) {}
  Padding(Sizes counts) : counts_(std::move(counts)) {}
  Padding(std::string_view word) : word_(word) {}
  Padding(const char* word) : word_(word) {}

  const std::string& word() const { return word_; }
  const Sizes& counts() const { return counts_; }

 private:
  Sizes counts_ = 0;
  std::string word_;
};

using OptionalTensor = std::optional<Tensor>;

/// x (batch, in, spatial...), or without batch, and weight (out, in / groups, kernel...) give
/// (batch, out, spatial...): out[y] = bias + sum over channels and k of x[y * stride - padding + k
/// * dilation] * weight[k].
Tensor conv1d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias = {},
              const Sizes& stride = 1, const Padding& padding = 0, const Sizes& dilation = 1,
              int64_t groups = 1);
/// The same over two spatial axes.
Tensor conv2d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias = {},
              const Sizes& stride = 1, const Padding& padding = 0, const Sizes& dilation = 1,
              int64_t groups = 1);
/// The same over three spatial axes.
Tensor conv3d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias = {},
              const Sizes& stride = 1, const Padding& padding = 0, const Sizes& dilation = 1,
              int64_t groups = 1);

/// The transpose of a convolution with these arguments: weight (in, out / groups, kernel...). Sizes
/// are (n - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias = {},
                        const Sizes& stride = 1, const Sizes& padding = 0,
                        const Sizes& output_padding = 0, int64_t groups = 1,
                        const Sizes& dilation = 1);
/// The same over two spatial axes.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias = {},
                        const Sizes& stride = 1, const Sizes& padding = 0,
                        const Sizes& output_padding = 0, int64_t groups = 1,
                        const Sizes& dilation = 1);
/// The same over three spatial axes.
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias = {},
                        const Sizes& stride = 1, const Sizes& padding = 0,
                        const Sizes& output_padding = 0, int64_t groups = 1,
                        const Sizes& dilation = 1);

/// torch.nn.functional.unfold: the windows of (batch, channels, h, w) as columns, (batch, channels
/// * kernel, windows).
Tensor im2col(const Tensor& x, const Sizes& kernel_size, const Sizes& dilation = 1,
              const Sizes& padding = 0, const Sizes& stride = 1);
/// torch.nn.functional.fold, its transpose: columns added up where the windows of (h, w) =
/// output_size lie.
Tensor fold(const Tensor& x, const Sizes& output_size, const Sizes& kernel_size,
            const Sizes& dilation = 1, const Sizes& padding = 0, const Sizes& stride = 1);

namespace detail {
/// `sizes` for n axes, each at least `least` and below 2^31; one number counts for all. UserError
/// naming `op` and `what` otherwise.
Ints per_axis(std::string_view op, std::string_view what, const Sizes& sizes, int64_t n,
              int64_t least);
/// Zeros around the last `n` axes: before[i] and after[i] of them.
NodeRef pad_spatial(const NodeRef& x, const Ints& before, const Ints& after);
/// Windows along the last axes: (..., windows..., places...).
NodeRef windows(const NodeRef& x, const Ints& size, const Ints& step, const Ints& dilation);
}  // namespace detail

}  // namespace lazuli
