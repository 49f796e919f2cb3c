// Convolutions by fewer multiplications: the one rewriting of the graph that is not exact.
#pragma once

#include "ir/choose_convolution.h"
#include "ir/convolution.h"

namespace lazuli {

/// How far results may be from those of direct sums, relative to their magnitude.
inline constexpr double kWinogradError = 1e-4;

/// Is it of f32, its kernel 3x3, and its result more than one tile?
bool has_winograd_form(const Convolution& c);

/// Predicted seconds of one core.
double winograd_seconds(const Convolution& c, const Target& target);

/// The convolution `sum` by Winograd's F(4x4, 3x3): tiles of 6x6 of the image and the kernels are
/// transformed, multiplied point by point as 36 matrix products, and transformed back to tiles of
/// 4x4, with a quarter of the multiplications. Gradients by the kernel go by the transpose of this
/// algorithm: tiles of the image and of the gradient by the result are transformed, their products
/// summed over all tiles, and transformed back to kernels. Kernels are transformed each time anew.
///
/// After Lavin and Gray, "Fast algorithms for convolutional neural networks", arXiv 1509.09308,
/// with other points, for the sake of accuracy (Barabasz and others, "Error analysis and improving
/// the accuracy of Winograd convolution for deep neural networks", arXiv 1803.10986).
///
/// The result is not that of the direct sum. Over normal data and 16 to 512 channels its distance
/// from the exact sum is at most 6e-6 of the largest magnitude of the result, about twice that of
/// the direct sum. An infinity or a NaN makes NaN of each tile of the result whose window it is in,
/// and of the whole kernels that a gradient by the kernel has of its channel.
ConvolutionForm winograd_form(const Convolution& c, const Node& sum, const Target& target);

}  // namespace lazuli
