// Convolutions with the lanes along the channels, for rows that are no whole vectors.
#pragma once

#include "ir/choose_convolution.h"
#include "ir/convolution.h"

namespace lazuli {

/// Is it of floats of 32 or 64 bits and no gradient by the kernel, with a vector of channels?
bool has_channels_last_form(const Convolution& c, const Target& target);

/// Predicted seconds of one core.
double channels_last_seconds(const Convolution& c, const Target& target);

/// The convolution `sum`, the same products in the same order, stored with its channels last: each
/// element of the image is multiplied by the kernels of a vector of channels, which its packing
/// turns around, and the result is then copied to where it belongs. Vectors are filled whatever the
/// length and the distance of the windows of a row; it pays for turning the kernels, which few
/// places share in a small image, and for the copy.
ConvolutionForm channels_last_form(const Convolution& c, const Node& sum);

}  // namespace lazuli
