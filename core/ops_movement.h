// Operations that move elements and never compute: views, joins, cuts, repeats. Sizes and axes are
// checked when written.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/arguments.h"
#include "core/scalar.h"
#include "core/tensor.h"

namespace lazuli {

// ---- views
/// Row-major order kept; one size may be -1 and is inferred.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Another name of reshape.
Tensor view(const Tensor& x, const Shape& shape);
/// Axes `start_dim` to `end_dim` become one.
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
/// Axis `dim` becomes the axes `sizes`, one of which may be -1.
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);
/// Without the axes of size 1: all of them, or those of `dims` that have it.
Tensor squeeze(const Tensor& x, const std::optional<Dims>& dims = {});
/// With a new axis of size 1 at `dim`.
Tensor unsqueeze(const Tensor& x, int64_t dim);
/// Axis i of the result is axis dims[i] of x; each axis is named once.
Tensor permute(const Tensor& x, const Ints& dims);
/// Axes dim0 and dim1 exchanged.
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
/// All axes reversed: Tensor.T.
Tensor transpose_all(const Tensor& x);
/// The last two axes exchanged: Tensor.mT.
Tensor matrix_transpose(const Tensor& x);
/// The axes `source` put at the places `destination`; the others keep their order.
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);
/// Axes of size 1 repeated, new axes in front; -1 keeps a size.
Tensor expand(const Tensor& x, const Shape& shape);
/// Another name of expand.
Tensor broadcast_to(const Tensor& x, const Shape& shape);
/// Expanded to the shape of `other`.
Tensor expand_as(const Tensor& x, const Tensor& other);
/// All expanded to the shape that they broadcast to together.
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);

// ---- cuts
/// `length` elements of axis `dim` from `start`.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
/// Element `index` of axis `dim`, which is removed.
Tensor select(const Tensor& x, int64_t dim, int64_t index);
/// [begin, end) of every axis.
Tensor shrink(const Tensor& x, const std::vector<std::pair<int64_t, int64_t>>& ranges);
/// The first shape[i] elements of every axis; -1 keeps an axis.
Tensor shrink_to(const Tensor& x, const Shape& shape);
/// Zeros behind every axis up to shape[i] elements; -1 keeps an axis.
Tensor pad_to(const Tensor& x, const Shape& shape);
/// Pieces of `size` along `dim`; the last may be smaller.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
/// Pieces of the given sizes, which add up to the axis.
std::vector<Tensor> split(const Tensor& x, const Ints& sizes, int64_t dim = 0);
/// At most `chunks` pieces of equal size; the last may be smaller.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
/// The slices of axis `dim`, which is removed.
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);
/// All windows of `size` at distance `step` of axis `dimension`; the place in the window is a new
/// last axis (Tensor.unfold).
Tensor unfold(const Tensor& x, int64_t dimension, int64_t size, int64_t step);
/// The elements x[..., i, ..., i + offset, ...] of axes dim1 and dim2, as a last axis.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);

// ---- joins and repeats
/// Joined along axis `dim`; dtypes promote; a tensor of shape (0,) is skipped, as PyTorch does.
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);
/// Another name of cat.
Tensor concat(const std::vector<Tensor>& tensors, int64_t dim = 0);
/// Joined along a new axis.
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);
/// The whole tensor repeated along each axis; new axes in front.
Tensor repeat(const Tensor& x, const Ints& repeats);
/// As repeat, but a short list applies to the last axes.
Tensor tile(const Tensor& x, const Ints& repeats);
/// Each element repeated along `dim` (of the flat tensor without one).
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
/// Element i repeated repeats[i] times; realises `repeats`.
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {});
/// Around the last axes: (before, after) of the last axis, then of the one before, ...; negative
/// counts cut. `mode` is constant, reflect, replicate or circular.
Tensor pad(const Tensor& x, const Ints& pad, std::string_view mode = "constant",
           const Scalar& value = 0.0);
/// The order of elements along each of `dims` reversed.
Tensor flip(const Tensor& x, const Dims& dims);
/// Moved by `shifts` along `dims` with wrap-around (of the flat tensor without dims).
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});

// ---- matrices and triangles
/// A matrix with the vector on diagonal `diagonal`, or the diagonal of a matrix.
Tensor diag(const Tensor& x, int64_t diagonal = 0);
/// The last axis put on diagonal `offset` of new axes dim1 and dim2.
Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
/// The elements on and below (above) diagonal `diagonal` of the last two axes; 0 elsewhere.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
/// The elements on and above diagonal `diagonal` of the last two axes; 0 elsewhere.
Tensor triu(const Tensor& x, int64_t diagonal = 0);

/// Rearranges axes by a pattern as einops does: "b (h w) c -> b c h w"; `sizes` names what cannot
/// be inferred. `...` stands for the axes between.
Tensor rearrange(const Tensor& x, std::string_view pattern,
                 const std::vector<std::pair<std::string, int64_t>>& sizes = {});

}  // namespace lazuli
