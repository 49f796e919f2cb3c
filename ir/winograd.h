// Convolutions by fewer multiplications: the one rewriting of the graph that is not exact.
#pragma once

#include <string>
#include <vector>

#include "core/node.h"
#include "ir/target.h"

namespace lazuli {

/// How far results may be from those of direct sums, relative to their magnitude.
inline constexpr double kWinogradError = 1e-4;

/// What was decided of one convolution.
struct WinogradNote {
  NodeRef node;  // of the rewritten graph: the products of the transforms, or the direct sum
  std::string text;
};

struct WinogradGraph {
  std::vector<NodeRef> roots;
  std::vector<WinogradNote> notes;  // one for each convolution of the kind
  bool changed = false;
};

/// Replaces sums in the simplified graph above `roots` that convolve f32 with a kernel of 3x3,
/// stride 1, dilation 1 and one group, among them the gradients of such convolutions by their
/// input, by Winograd's F(4x4, 3x3): tiles of 6x6 of the image and the kernels are transformed,
/// multiplied point by point as 36 matrix products, and transformed back to tiles of 4x4, with a
/// quarter of the multiplications. Gradients by the kernel go by the transpose of this algorithm:
/// tiles of the image and of the gradient by the result are transformed, their products summed over
/// all tiles, and transformed back to kernels. It is done where a model of the target predicts it
/// to be faster, by shape alone, and only if target.winograd allows it. Kernels are transformed
/// each time anew.
///
/// After Lavin and Gray, "Fast algorithms for convolutional neural networks", arXiv 1509.09308,
/// with other points, for the sake of accuracy (Barabasz and others, "Error analysis and improving
/// the accuracy of Winograd convolution for deep neural networks", arXiv 1803.10986).
///
/// The result is not that of the direct sum. Over normal data and 16 to 512 channels its distance
/// from the exact sum is at most 6e-6 of the largest magnitude of the result, about twice that of
/// the direct sum. An infinity or a NaN makes NaN of each tile of the result whose window it is in,
/// and of the whole kernels that a gradient by the kernel has of its channel.
WinogradGraph use_winograd(std::span<const NodeRef> roots, const Target& target);

}  // namespace lazuli
