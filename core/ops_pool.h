// Pooling over one, two or three spatial axes, as in torch.nn.functional. The input has a batch and
// channels, or channels alone, in front. An empty stride stands for the kernel size.
#pragma once

#include <optional>
#include <vector>

#include "core/arguments.h"
#include "core/ops_reduce.h"
#include "core/tensor.h"

namespace lazuli {

/// The mean of each window, padding counted unless count_include_pad is off; ceil_mode keeps a last
/// window that starts inside the input.
Tensor avg_pool1d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride = {},
                  const Sizes& padding = 0, bool ceil_mode = false, bool count_include_pad = true);
/// The same over two spatial axes; divisor_override replaces the number of elements.
Tensor avg_pool2d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride = {},
                  const Sizes& padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                  std::optional<int64_t> divisor_override = {});
/// The same over three spatial axes.
Tensor avg_pool3d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride = {},
                  const Sizes& padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                  std::optional<int64_t> divisor_override = {});

/// The maximum of each window; the gradient goes to the first of equals.
Tensor max_pool1d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride = {},
                  const Sizes& padding = 0, const Sizes& dilation = 1, bool ceil_mode = false);
/// The same over two spatial axes.
Tensor max_pool2d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride = {},
                  const Sizes& padding = 0, const Sizes& dilation = 1, bool ceil_mode = false);
/// The same over three spatial axes.
Tensor max_pool3d(const Tensor& x, const Sizes& kernel_size, const Sizes& stride = {},
                  const Sizes& padding = 0, const Sizes& dilation = 1, bool ceil_mode = false);
/// return_indices=True: also the place of each maximum in the flat spatial axes.
ValuesIndices max_pool1d_with_indices(const Tensor& x, const Sizes& kernel_size,
                                      const Sizes& stride = {}, const Sizes& padding = 0,
                                      const Sizes& dilation = 1, bool ceil_mode = false);
/// The same over two spatial axes.
ValuesIndices max_pool2d_with_indices(const Tensor& x, const Sizes& kernel_size,
                                      const Sizes& stride = {}, const Sizes& padding = 0,
                                      const Sizes& dilation = 1, bool ceil_mode = false);
/// The same over three spatial axes.
ValuesIndices max_pool3d_with_indices(const Tensor& x, const Sizes& kernel_size,
                                      const Sizes& stride = {}, const Sizes& padding = 0,
                                      const Sizes& dilation = 1, bool ceil_mode = false);
/// Each maximum put back at its place, zeros elsewhere. output_size, of the spatial axes or of all,
/// tells sizes apart that pool to the same one.
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const Sizes& kernel_size,
                    const Sizes& stride = {}, const Sizes& padding = 0,
                    const Sizes& output_size = {});

/// As an output size: that of the input.
inline constexpr int64_t kKeepSize = -1;
/// The means of m = output_size windows of n elements: window i is [floor(i n / m), ceil((i + 1) n
/// / m)).
Tensor adaptive_avg_pool1d(const Tensor& x, const Sizes& output_size);
/// The same over two spatial axes.
Tensor adaptive_avg_pool2d(const Tensor& x, const Sizes& output_size);
/// The same over three spatial axes.
Tensor adaptive_avg_pool3d(const Tensor& x, const Sizes& output_size);
/// The maxima of those windows.
Tensor adaptive_max_pool1d(const Tensor& x, const Sizes& output_size);
/// The same over two spatial axes.
Tensor adaptive_max_pool2d(const Tensor& x, const Sizes& output_size);
/// The same over three spatial axes.
Tensor adaptive_max_pool3d(const Tensor& x, const Sizes& output_size);
/// Those maxima, with the place of each in the flat spatial axes.
ValuesIndices adaptive_max_pool1d_with_indices(const Tensor& x, const Sizes& output_size);
/// The same over two spatial axes.
ValuesIndices adaptive_max_pool2d_with_indices(const Tensor& x, const Sizes& output_size);
/// The same over three spatial axes.
ValuesIndices adaptive_max_pool3d_with_indices(const Tensor& x, const Sizes& output_size);

namespace detail {
/// adaptive_avg_pool over the last `n` axes, for interpolation.
Tensor area_means(const Tensor& x, const Ints& size);
}  // namespace detail

}  // namespace lazuli
