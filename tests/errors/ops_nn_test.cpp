// What a mistake in an operation of networks says, by its exact text. Each is raised where the
// operation is written.
#include "tests/errors/mistakes.h"

using namespace lazuli;

TEST_SUITE_BEGIN("errors");

TEST_CASE("products whose shapes do not fit are refused with the sizes") {
  check({
      {[] {
         matmul(f32({2, 3}), f32({2, 2}));
       },
       "matmul: inner sizes differ: (2, 3) @ (2, 2) has 3 and 2; did you mean a.mT()?"},
      {[] {
         matmul(f32({2, 3}), f32({4, 2}));
       },
       "matmul: inner sizes differ: (2, 3) @ (4, 2) has 3 and 4"},
      {[] {
         matmul(f32({2, 3}), f32({4, 3}));
       },
       "matmul: inner sizes differ: (2, 3) @ (4, 3) has 3 and 4; did you mean b.mT()?"},
      {[] {
         matmul(f32({2, 3}), f32({}));
       },
       "matmul: operands of shapes (2, 3) and (); both need at least one dimension"},
      {[] {
         matmul(f32({2, 2, 3}), f32({3, 3, 4}));
       },
       "matmul: the batches of (2, 2, 3) and (3, 3, 4) do not broadcast: sizes 2 and 3 at "
       "dimension -3"},
      {[] {
         matmul(f32({2, 3}), zeros({3, 2}, DType::F64));
       },
       "matmul: operands have dtypes f32 and f64; convert one with .to()"},
      {[] {
         matmul(boolean({2, 3}), boolean({3, 2}));
       },
       "matmul: bools have no products; convert them first, as in x.to(i32)"},
      {[] {
         mm(f32({2, 3, 4}), f32({4, 2}));
       },
       "mm: the first operand must have rank 2, but its shape is (2, 3, 4)"},
      {[] {
         mm(f32({2, 3}), f32({2, 3}));
       },
       "mm: inner sizes differ: (2, 3) @ (2, 3) has 3 and 2; did you mean b.mT()?"},
      {[] {
         bmm(f32({2, 2, 3}), f32({3, 3, 2}));
       },
       "bmm: batch sizes differ: 2 and 3"},
      {[] {
         mv(f32({2, 3}), f32({3, 1}));
       },
       "mv: the second operand must have rank 1, but its shape is (3, 1)"},
      {[] { dot(f32({2}), f32({3})); }, "dot: inner sizes differ: (2,) @ (3,) has 2 and 3"},
      {[] {
         outer(f32({2}), f32({3, 1}));
       },
       "outer: the second operand must have rank 1, but its shape is (3, 1)"},
      {[] {
         addmm(f32({4}), f32({2, 3}), f32({3, 2}));
       },
       "addmm: shapes (4,) and (2, 2) do not broadcast: sizes 4 and 2 at dimension -1"},
      {[] {
         linear(f32({2, 3}), f32({4, 2}));
       },
       "linear: the input of shape (2, 3) has 3 features, but the weight of shape (4, 2) takes 2"},
      {[] {
         tensordot(f32({2, 3}), f32({3, 2}), 3);
       },
       "tensordot: dims is 3, but shapes (2, 3) and (3, 2) have ranks 2 and 2"},
      {[] {
         tensordot(f32({2, 3}), f32({3, 2}), {0, 1}, {1});
       },
       "tensordot: 2 axes of the first operand are paired with 1 of the second"},
      {[] {
         tensordot(f32({2, 3}), f32({3, 2}), {0}, {0});
       },
       "tensordot: axis 0 of (2, 3) has size 2, axis 0 of (3, 2) has 3"},
  });
}

TEST_CASE("an equation that makes no sense to einsum says why") {
  check({
      {[] {
         einsum("ij,jk->ik", {f32({2, 3})});
       },
       "einsum: \"ij,jk->ik\" has 2 terms for 1 operands"},
      {[] {
         einsum("ij->i", {f32({2, 3, 4})});
       },
       "einsum: term 1 of \"ij->i\" names 2 dimensions, but the operand has shape (2, 3, 4)"},
      {[] {
         einsum("ij->k", {f32({2, 3})});
       },
       "einsum: the result of \"ij->k\" has 'k', which no operand has"},
      {[] {
         einsum("ij->ii", {f32({2, 3})});
       },
       "einsum: the result of \"ij->ii\" has 'i' twice"},
      {[] {
         einsum("i1->i", {f32({2, 3})});
       },
       "einsum: \"i1->i\" has '1', which is no letter, comma, arrow or ellipsis"},
      {[] {
         einsum("ii->i", {f32({2, 3})});
       },
       "einsum: 'i' of \"ii->i\" stands for sizes 2 and 3"},
      {[] {
         einsum("ij,jk->ik", {f32({2, 3}), f32({4, 2})});
       },
       "einsum: 'j' of \"ij,jk->ik\" stands for sizes 3 and 4"},
      {[] {
         einsum("...i...->i", {f32({2, 3})});
       },
       "einsum: \"...i...->i\" has two ellipses in one term"},
  });
}

TEST_CASE("softmax and its relatives need floats") {
  check({
      {[] { softmax(i64({2}), 0); },
       "softmax: the input is i64, not a float; convert it first, as in x.to(f32), or give a "
       "dtype"},
      {[] { log_softmax(f32({2}), 1); },
       "log_softmax: axis 1 is out of range for rank 1; it must lie in [-1, 0]"},
  });
}

TEST_CASE("normalisation needs the sizes that it is told") {
  check({
      {[] {
         layer_norm(f32({2, 3}), {2});
       },
       "layer_norm: normalized_shape (2,) is not the end of the input's shape (2, 3)"},
      {[] {
         layer_norm(f32({2, 3}), {});
       },
       "layer_norm: normalized_shape is empty; give the sizes of the last axes"},
      {[] {
         layer_norm(i64({2, 3}), {3});
       },
       "layer_norm: the input is i64, not a float; convert it first, as in x.to(f32)"},
      {[] {
         layer_norm(f32({2, 3}), {3}, f32({2}));
       },
       "layer_norm: the weight has shape (2,), not the normalized_shape (3,)"},
      {[] {
         rms_norm(f32({2, 3}), {2, 2});
       },
       "rms_norm: normalized_shape (2, 2) is not the end of the input's shape (2, 3)"},
      {[] {
         group_norm(f32({2, 4}), 3);
       },
       "group_norm: 4 channels do not divide into 3 groups"},
      {[] { group_norm(f32({4}), 2); },
       "group_norm: the input has shape (4,); it needs a batch and channels"},
      {[] {
         batch_norm(f32({2, 3}), {}, {});
       },
       "batch_norm: without training, the running mean and variance must be given"},
      {[] {
         batch_norm(f32({1, 3}), {}, {}, {}, {}, true);
       },
       "batch_norm: training needs more than one value in each channel, but the input has shape "
       "(1, 3)"},
      {[] {
         batch_norm(f32({2, 3}), f32({2}), f32({3}));
       },
       "batch_norm: the running mean has shape (2,), but the input has 3 channels"},
      {[] {
         instance_norm(f32({2, 3, 1}));
       },
       "instance_norm: each channel needs more than one value, but the input has shape (2, 3, 1)"},
      {[] {
         cdist(f32({2, 3}), f32({2, 4}));
       },
       "cdist: rows of (2, 3) and of (2, 4) have 3 and 4 elements"},
      {[] {
         cdist(f32({2, 3}), f32({2, 3}), -1);
       },
       "cdist: p is -1; it cannot be negative"},
      {[] {
         cdist(f32({2, 3}), f32({2, 3}), 2, "fast");
       },
       "cdist: compute_mode is \"fast\"; it must be use_mm_for_euclid_dist_if_necessary, "
       "use_mm_for_euclid_dist or donot_use_mm_for_euclid_dist"},
      {[] { norm(i64({3})); },
       "norm: the input is i64, not a float; convert it first, as in x.to(f32)"},
  });
}

TEST_CASE("losses check their targets and words") {
  check({
      {[] {
         cross_entropy(f32({2, 3}), i64({3}));
       },
       "cross_entropy: the target has shape (3,), but the input asks for (2,)"},
      {[] {
         cross_entropy(f32({2, 3}), f32({2}));
       },
       "cross_entropy: class indices are f32, not integers; convert them first, as in y.to(i64)"},
      {[] {
         cross_entropy(f32({2, 3}), i64({2}), f32({2}));
       },
       "cross_entropy: the weight has shape (2,), but there are 3 classes"},
      {[] {
         cross_entropy(f32({2, 3}), i64({2}), {}, -100, "average");
       },
       "cross_entropy: reduction is \"average\"; it must be none, mean or sum"},
      {[] {
         cross_entropy(f32({2, 3}), i64({2}), {}, -100, "mean", 1.5);
       },
       "cross_entropy: label_smoothing is 1.5; it must lie in [0, 1]"},
      {[] {
         nll_loss(i64({2, 3}), i64({2}));
       },
       "nll_loss: the input is i64, not a float; convert it first, as in x.to(f32)"},
      {[] { nll_loss(f32({}), i64({})); },
       "nll_loss: the input is a scalar; it needs an axis of classes"},
      {[] { binary_cross_entropy(f32({2}), f32({3})); },
       "binary_cross_entropy: the input has shape (2,) and the target (3,); they must agree"},
      {[] { binary_cross_entropy_with_logits(f32({2}), f32({2}), f32({3})); },
       "binary_cross_entropy_with_logits: shapes (3,) and (2,) do not broadcast: sizes 3 and 2 "
       "at dimension -1"},
      {[] { mse_loss(f32({2}), f32({3})); },
       "mse_loss: shapes (2,) and (3,) do not broadcast: sizes 2 and 3 at dimension -1"},
      {[] { l1_loss(i64({2}), i64({2})); },
       "l1_loss: the input is i64 and the target i64, not floats; convert one, as in x.to(f32)"},
      {[] { huber_loss(f32({2}), f32({2}), "mean", 0); },
       "huber_loss: delta is 0; it must be positive"},
      {[] { smooth_l1_loss(f32({2}), f32({2}), "mean", -1); },
       "smooth_l1_loss: beta is -1; it cannot be negative"},
      {[] { kl_div(f32({}), f32({}), "batchmean"); },
       "kl_div: a scalar has no batch for the reduction batchmean"},
      {[] { kl_div(f32({2}), f32({2}), "total"); },
       "kl_div: reduction is \"total\"; it must be none, mean or sum"},
  });
}

TEST_CASE("a convolution says which size does not fit") {
  check({
      {[] {
         conv2d(f32({2, 3}), f32({4, 3, 3, 3}));
       },
       "conv2d: the input has shape (2, 3); it needs a batch, channels and 2 spatial "
       "dimensions, or no batch"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 3, 3}));
       },
       "conv2d: the weight has shape (4, 3, 3); it needs 4 dimensions"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 2, 3, 3}));
       },
       "conv2d: the input of shape (1, 3, 5, 5) has 3 channels, but the weight of shape (4, 2, "
       "3, 3) takes 2 in 1 group"},
      {[] {
         conv2d(f32({1, 5, 5, 3}), f32({4, 3, 3, 3}));
       },
       "conv2d: the input of shape (1, 5, 5, 3) has 5 channels, but the weight of shape (4, 3, "
       "3, 3) takes 3 in 1 group; channels come before the places: move the last axis there, as "
       "in movedim(x, -1, 1)"},
      {[] {
         conv2d(f32({1, 4, 5, 5}), f32({3, 2, 3, 3}), {}, 1, 0, 1, 2);
       },
       "conv2d: 3 output channels do not divide into 2 groups"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 3, 3, 3}), f32({3}));
       },
       "conv2d: the bias has shape (3,), but there are 4 output channels"},
      {[] {
         conv2d(f32({1, 3, 2, 5}), f32({4, 3, 3, 3}));
       },
       "conv2d: the kernel spans 3 elements of a spatial dimension that has 2 with its padding"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 3, 3, 3}), {}, 0);
       },
       "conv2d: stride is 0; it must be at least 1"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 3, 3, 3}), {}, {1, 1, 1});
       },
       "conv2d: stride has 3 numbers; give one or 2"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 3, 3, 3}), {}, 1, -1);
       },
       "conv2d: padding is -1; it must be at least 0"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 3, 3, 3}), {}, 1, 0, INT64_MAX);
       },
       "conv2d: dilation is 9223372036854775807; it must be at most 2147483647"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 3, 3, 3}), {}, 2, "same");
       },
       "conv2d: padding \"same\" needs stride 1, not 2"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 3, 3, 3}), {}, 1, "full");
       },
       "conv2d: padding is \"full\"; it must be same, valid or numbers"},
      {[] {
         conv2d(f32({1, 3, 5, 5}), f32({4, 3, 3, 3}), {}, 1, 0, 1, 0);
       },
       "conv2d: groups is 0; it must be at least 1"},
      {[] {
         conv1d(f32({1, 3, 5}), zeros({4, 3, 3}, DType::F64));
       },
       "conv1d: the input is f32, the weight f64; convert one with .to()"},
      {[] {
         conv_transpose2d(f32({1, 3, 5, 5}), f32({4, 3, 3, 3}));
       },
       "conv_transpose2d: the input of shape (1, 3, 5, 5) has 3 channels, but the weight of "
       "shape (4, 3, 3, 3) takes 4"},
      {[] {
         conv_transpose1d(f32({1, 3, 5}), f32({3, 4, 3}), {}, 2, 0, 2);
       },
       "conv_transpose1d: output_padding is 2; it must be smaller than the stride 2 or the "
       "dilation 1"},
      {[] {
         conv_transpose1d(f32({1, 3, 1}), f32({3, 4, 1}), {}, 1, 1);
       },
       "conv_transpose1d: a spatial dimension of size 1 would get the size -1"},
      {[] {
         conv_transpose1d(f32({1, 3, 5}), f32({3, 4, 3}), {}, 1, 0, 0, 2);
       },
       "conv_transpose1d: 3 input channels do not divide into 2 groups"},
      {[] {
         im2col(f32({1, 3, 2, 5}), 3);
       },
       "im2col: the kernel spans 3 elements of a spatial dimension that has 2 with its padding"},
      {[] {
         fold(f32({1, 9, 4}), {4, 4}, 2);
       },
       "fold: 9 rows are not a multiple of the 4 places of the kernel"},
      {[] {
         fold(f32({1, 8, 4}), {4, 4}, 2);
       },
       "fold: 4 columns, but an output of (4, 4) has 9 windows"},
  });
}

TEST_CASE("a pool says which size does not fit") {
  check({
      {[] {
         avg_pool2d(f32({5, 5}), 2);
       },
       "avg_pool2d: the input has shape (5, 5); it needs a batch, channels and 2 spatial "
       "dimensions, or no batch"},
      {[] {
         avg_pool2d(f32({1, 1, 5, 5}), 0);
       },
       "avg_pool2d: kernel_size is 0; it must be at least 1"},
      {[] {
         avg_pool2d(f32({1, 1, 5, 5}), 2, 2, 2);
       },
       "avg_pool2d: padding 2 is more than half of the kernel's 2 elements"},
      {[] {
         avg_pool2d(f32({1, 1, 5, 5}), 2, {}, 0, false, true, 0);
       },
       "avg_pool2d: divisor_override is 0"},
      {[] {
         max_pool1d(f32({1, 1, 2}), 3);
       },
       "max_pool1d: the kernel spans 3 elements of a spatial dimension that has 2 with its "
       "padding"},
      {[] {
         max_pool2d(boolean({1, 1, 4, 4}), 2);
       },
       "max_pool2d: bools have no maximum; use any()"},
      {[] {
         max_unpool2d(f32({1, 1, 2, 2}), f32({1, 1, 2, 2}), 2);
       },
       "max_unpool2d: the indices are f32, not integers"},
      {[] {
         max_unpool2d(f32({1, 1, 2, 2}), i64({1, 1, 2, 3}), 2);
       },
       "max_unpool2d: the input has shape (1, 1, 2, 2) and the indices (1, 1, 2, 3); they must "
       "agree"},
      {[] {
         adaptive_avg_pool2d(f32({1, 1, 4, 4}), {2, 2, 2});
       },
       "adaptive_avg_pool2d: output_size has 3 numbers; give one or 2"},
      {[] {
         adaptive_avg_pool2d(i64({1, 1, 4, 4}), 2);
       },
       "adaptive_avg_pool2d: the input is i64, not a float; convert it first, as in x.to(f32)"},
      {[] { adaptive_max_pool1d(f32({4}), 2); },
       "adaptive_max_pool1d: the input has shape (4,); it needs a batch, channels and 1 spatial "
       "dimensions, or no batch"},
  });
}

TEST_CASE("resampling says what it was not told") {
  check({
      {[] {
         interpolate(f32({1, 1, 4}));
       },
       "interpolate: give either size or scale_factor"},
      {[] {
         interpolate(f32({1, 1, 4}), 2, {2.0});
       },
       "interpolate: give either size or scale_factor, not both"},
      {[] {
         interpolate(f32({1, 4}), 2);
       },
       "interpolate: the input has shape (1, 4); it needs a batch, channels and 1 to 3 spatial "
       "dimensions"},
      {[] {
         interpolate(f32({1, 1, 4}), 2, {}, "bilinear");
       },
       "interpolate: mode bilinear is for 2 spatial dimensions, but the input has shape (1, 1, "
       "4)"},
      {[] {
         interpolate(f32({1, 1, 4}), 2, {}, "smooth");
       },
       "interpolate: mode is \"smooth\"; it must be nearest, nearest-exact, area, linear, "
       "bilinear, trilinear or bicubic"},
      {[] {
         interpolate(f32({1, 1, 4}), 2, {}, "nearest", true);
       },
       "interpolate: align_corners has no meaning for mode nearest; leave it out"},
      {[] {
         interpolate(f32({1, 1, 4}), 0);
       },
       "interpolate: size is 0; it must be at least 1"},
      {[] {
         interpolate(f32({1, 1, 4}), {}, {0.1});
       },
       "interpolate: scale_factor 0.1 makes size 0 of a dimension of size 4"},
      {[] {
         interpolate(f32({1, 1, 4, 4}), 2, {}, "bilinear", {}, {}, true);
       },
       "interpolate: antialias is not built yet; resample without it, or by mode area"},
      {[] {
         pixel_shuffle(f32({3, 2, 2}), 2);
       },
       "pixel_shuffle: 3 channels are not a multiple of the square of the factor 2"},
      {[] {
         pixel_unshuffle(f32({3, 3, 2}), 2);
       },
       "pixel_unshuffle: height 3 and width 2 are not multiples of the factor 2"},
  });
}

TEST_CASE("scans and sorts check their dimension and count") {
  check({
      {[] {
         cumsum(f32({2, 3}), 2);
       },
       "cumsum: axis 2 is out of range for rank 2; it must lie in [-2, 1]"},
      {[] {
         cummax(f32({2, 3}), -3);
       },
       "cummax: axis -3 is out of range for rank 2; it must lie in [-2, 1]"},
      {[] {
         sort(f32({2, 3}), 2);
       },
       "sort: axis 2 is out of range for rank 2; it must lie in [-2, 1]"},
      {[] {
         topk(f32({2, 3}), 4);
       },
       "topk: k is 4, but dimension 1 has 3 elements"},
      {[] {
         kthvalue(f32({2, 3}), 0);
       },
       "kthvalue: k is 0; it must lie in [1, 3], the size of dimension 1"},
      {[] {
         median(f32({2, 0}), 1);
       },
       "median: dimension 1 of shape (2, 0) is empty and has no such element"},
      {[] { mode(f32({0})); }, "mode: dimension 0 of shape (0,) is empty and has no such element"},
      {[] {
         searchsorted(f32({2, 3}), f32({3, 3}));
       },
       "searchsorted: the sequences have shape (2, 3) and the values (3, 3); all but the last "
       "size must agree"},
      {[] { searchsorted(f32({3}), 1.0, false, false, "up"); },
       "searchsorted: side is \"up\"; it must be left or right"},
      {[] { searchsorted(f32({3}), 1.0, false, true, "left"); },
       "searchsorted: right is true but side is left; give one of them"},
      {[] {
         bucketize(1.0, f32({2, 2}));
       },
       "bucketize: the boundaries have shape (2, 2); they must be a vector"},
  });
}

TEST_CASE("writes at indices check the index and the source") {
  check({
      {[] {
         scatter(f32({2, 3}), 0, f32({1, 3}), f32({1, 3}));
       },
       "scatter: the index is f32, not an integer; convert it first, as in index.to(i64)"},
      {[] {
         scatter(f32({2, 3}), 0, i64({3}), f32({3}));
       },
       "scatter: the input has shape (2, 3), the index (3,) and the source (3,); their ranks "
       "must agree"},
      {[] {
         scatter(f32({2, 3}), 0, i64({1, 4}), f32({1, 4}));
       },
       "scatter: the index of shape (1, 4) is larger than the input of shape (2, 3) at "
       "dimension 1"},
      {[] {
         scatter(f32({2, 3}), 0, i64({2, 3}), f32({1, 3}));
       },
       "scatter: the index of shape (2, 3) is larger than the source of shape (1, 3) at "
       "dimension 0"},
      {[] {
         scatter(f32({2, 3}), 0, i64({1, 3}), i64({1, 3}));
       },
       "scatter: the input is f32 and the source i64; convert one with .to()"},
      {[] {
         scatter(f32({2, 3}), 0, i64({1, 3}), 1.0, "divide");
       },
       "scatter: reduce is \"divide\"; it must be add or multiply"},
      {[] { scatter_reduce(f32({3}), 0, i64({3}), f32({3}), "median"); },
       "scatter_reduce: reduce is \"median\"; it must be sum, prod, mean, amax or amin"},
      {[] {
         index_add(f32({3, 2}), 0, i64({2}), f32({3, 2}));
       },
       "index_add: the source has shape (3, 2), but the input of shape (3, 2) and 2 indices ask "
       "for (2, 2)"},
      {[] {
         index_copy(f32({3, 2}), 0, i64({2, 1}), f32({2, 2}));
       },
       "index_copy: the index has shape (2, 1); it must be a vector"},
      {[] {
         index_fill(f32({3, 2}), 0, i64({2}), f32({2}));
       },
       "index_fill: the value has shape (2,); it must be a scalar"},
      {[] { masked_scatter(f32({3}), f32({3}), f32({3})); },
       "masked_scatter: the mask is f32, not bool; compare it first, as in mask != 0"},
      {[] { bincount(f32({3})); },
       "bincount: the input is f32 of shape (3,); it must be a vector of integers"},
      {[] { bincount(i64({3}), {}, -1); }, "bincount: minlength is -1; it cannot be negative"},
      {[] {
         bincount(Tensor::from({int64_t{1}, int64_t{-2}}, {2}));
       },
       "bincount: the input has the negative number -2"},
      {[] { bincount(Tensor::from({INT64_MAX}, {1})); },
       "bincount: number 9223372036854775807 needs 2^63 counts, one more than there can be"},
      {[] { histc(i64({3})); },
       "histc: the input is i64, not a float; convert it first, as in x.to(f32)"},
      {[] { histc(f32({3}), 0); }, "histc: bins is 0; it must be positive"},
      {[] { histc(f32({3}), 3, 2, 1); }, "histc: min 2 exceeds max 1"},
  });
}

TEST_CASE("attention and embedding check their operands") {
  check({
      {[] { scaled_dot_product_attention(f32({3}), f32({3}), f32({3})); },
       "scaled_dot_product_attention: shapes (3,), (3,) and (3,); all need at least two "
       "dimensions"},
      {[] {
         scaled_dot_product_attention(f32({2, 3}), f32({2, 4}), f32({2, 3}));
       },
       "scaled_dot_product_attention: rows of the query (2, 3) and the key (2, 4) have 3 and 4 "
       "elements"},
      {[] {
         scaled_dot_product_attention(f32({2, 3}), f32({4, 3}), f32({2, 3}));
       },
       "scaled_dot_product_attention: the key (4, 3) has 4 rows, the value (2, 3) has 2"},
      {[] {
         scaled_dot_product_attention(f32({1, 8, 4, 3}), f32({1, 2, 4, 3}), f32({1, 2, 4, 3}));
       },
       "scaled_dot_product_attention: the query has 8 heads and the key 2; with enable_gqa=true "
       "every 4 of them share one"},
      {[] {
         scaled_dot_product_attention(f32({2, 3}), f32({2, 3}), f32({2, 3}), boolean({3, 3}));
       },
       "scaled_dot_product_attention: shapes (3, 3) and (2, 2) do not broadcast: sizes 3 and 2 "
       "at dimension -1"},
      {[] {
         scaled_dot_product_attention(f32({2, 3}), f32({2, 3}), f32({2, 3}), boolean({2, 2}), 0.0,
                                      true);
       },
       "scaled_dot_product_attention: is_causal and attn_mask are both given; give one"},
      {[] {
         scaled_dot_product_attention(f32({2, 3}), f32({2, 3}), f32({2, 3}), i64({2, 2}));
       },
       "scaled_dot_product_attention: the mask is i64; it must be bool, or a float that is added"},
      {[] {
         scaled_dot_product_attention(f32({3, 2, 3}), f32({2, 2, 3}), f32({2, 2, 3}), {}, 0.0,
                                      false, {}, true);
       },
       "scaled_dot_product_attention: the heads of the query (3, 2, 3) are not a multiple of "
       "those of the key (2, 2, 3) and the value (2, 2, 3)"},
      {[] {
         embedding(f32({2}), f32({3, 4}));
       },
       "embedding: the indices are f32, not integers; convert them first, as in x.to(i64)"},
      {[] { embedding(i64({2}), f32({3})); },
       "embedding: the weight has shape (3,); it needs rows and columns"},
      {[] {
         embedding(i64({2}), f32({3, 4}), 3);
       },
       "embedding: padding_idx is 3, but the weight has 3 rows"},
  });
}

TEST_SUITE_END();
