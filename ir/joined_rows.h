// Convolutions whose rows are no whole vectors, over all rows of an image as one.
#pragma once

#include "ir/choose_convolution.h"
#include "ir/convolution.h"

namespace lazuli {

/// Is it no gradient by the kernel?
bool has_joined_form(const Convolution& c);

/// Predicted seconds of one core.
double joined_seconds(const Convolution& c, const Target& target);

/// The convolution `sum`, the same products in the same order, along rows that are joined end to
/// end: the padded image is stored first, and a place and its window then lie at distances that do
/// not depend on the row. What comes of windows that reach over the end of a row is dropped.
/// Vectors are filled but for the last of an image, where rows of their own would each waste a part
/// of one; it pays for the image's copy and the result's.
ConvolutionForm joined_form(const Convolution& c, const Node& sum);

}  // namespace lazuli
