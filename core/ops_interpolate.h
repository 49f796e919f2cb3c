// Resampling of spatial axes, as in torch.nn.functional.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/arguments.h"
#include "core/tensor.h"

namespace lazuli {

/// x (batch, channels, spatial...) resampled to `size`, or by `scale_factor`; the other one is
/// empty. Modes: nearest, nearest-exact and area for 1 to 3 spatial axes; linear for 1, bilinear
/// and bicubic (Keys' kernel, a = -0.75) for 2, trilinear for 3. align_corners puts the first and
/// last elements of input and output on each other. Unless recompute_scale_factor, a given
/// scale_factor is used as it is, not the ratio of the rounded sizes.
Tensor interpolate(const Tensor& x, const Sizes& size = {},
                   const std::vector<double>& scale_factor = {}, std::string_view mode = "nearest",
                   std::optional<bool> align_corners = {},
                   std::optional<bool> recompute_scale_factor = {}, bool antialias = false);

/// (..., c r^2, h, w) -> (..., c, h r, w r): each group of r^2 channels becomes a square of r x r
/// elements.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
/// Its inverse.
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);

}  // namespace lazuli
