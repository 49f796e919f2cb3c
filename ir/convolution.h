// Which sums are convolutions. They can be computed in more ways than one: ir/choose_convolution.h.
#pragma once

#include <optional>

#include "core/node.h"
#include "ir/target.h"

namespace lazuli {

/// The axes that a convolution's products are summed over and kept along, by what they are.
struct ConvolutionAxes {
  Ints batch, out, in;
  int64_t place[2] = {-1, -1};   // in the result: row, column
  int64_t kernel[2] = {-1, -1};  // in the kernel
  bool by_kernel = false;        // the sum is a gradient by the kernel

  /// Does the factor that is no image vary along the axis?
  bool in_weight(int64_t l) const;
};

/// A convolution of one group; or, of stride 1, its gradient by the input, which is a convolution
/// too, or by the kernel.
struct Convolution {
  NodeRef image;   // (batch, in, rows, columns), padded
  NodeRef kernel;  // (out, in, size[0], size[1]); null in a gradient by the kernel
  NodeRef slope;   // (batch, out, rows, columns), the gradient by the result; null elsewhere
  ConvolutionAxes axes;
  int64_t batch = 1, in = 1, out = 1, rows = 1,
          columns = 1;                             // the last two of the result, or of `slope`
  int64_t size[2] = {1, 1}, dilation[2] = {1, 1};  // of the kernel
  int64_t stride[2] = {1, 1};
  // The kernel lies in memory channel by channel of the result, or with these innermost.
  bool lies_by_channels = false;

  /// Elements of a vector.
  int64_t lanes(const Target& target) const;
  bool is_strided() const { return stride[0] != 1 || stride[1] != 1; }
  /// Seconds of one core at its peak, if each row of the result has so many columns.
  double seconds(double row, const Target& target) const;
};

/// The convolution that the tensor-level node `n` is; nullopt if it is none.
std::optional<Convolution> convolution_of(const NodeRef& n);

/// What the sum is: `x`, which is (batch, out, rows, columns), or of a gradient by the kernel (out,
/// in, size[0], size[1]), with axes as `sum` has them.
NodeRef as_sum(const Convolution& c, const NodeRef& x, const Node& sum);

/// Predicted seconds of one core for the sum as it is written: rows of the result in vectors of
/// their own, each rounded up.
double direct_seconds(const Convolution& c, const Target& target);

}  // namespace lazuli
