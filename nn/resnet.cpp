#include "nn/resnet.h"

#include "core/ops.h"

namespace lazuli::nn {

const Tensor& ResNet50::next(const Shape& shape) {
  if (used_ == parameters_.size()) parameters_.push_back(parameter_(shape));
  return parameters_[used_++];
}

Tensor ResNet50::convolution(const Tensor& x, int64_t out, int64_t kernel, int64_t stride) {
  const Tensor weight = next({out, x.size(1), kernel, kernel});
  const Tensor scale = next({out, 1, 1}), shift = next({out, 1, 1});
  return conv2d(x, weight, {}, stride, kernel / 2) * scale + shift;
}

Tensor ResNet50::bottleneck(const Tensor& x, int64_t width, int64_t stride) {
  Tensor h = relu(convolution(x, width, 1, 1));
  h = relu(convolution(h, width, 3, stride));
  h = convolution(h, 4 * width, 1, 1);
  const bool same = stride == 1 && x.size(1) == 4 * width;
  return relu(h + (same ? x : convolution(x, 4 * width, 1, stride)));
}

Tensor ResNet50::logits(const Tensor& images) {
  constexpr int64_t kBlocks[] = {3, 4, 6, 3};
  used_ = 0;
  Tensor x = max_pool2d(relu(convolution(images, 64, 7, 2)), 3, 2, 1);
  for (size_t stage = 0; stage < 4; stage++) {
    for (int64_t b = 0; b < kBlocks[stage]; b++) {
      x = bottleneck(x, int64_t{64} << stage, b == 0 && stage > 0 ? 2 : 1);
    }
  }
  return matmul(mean(x, {2, 3}), next({2048, 1000}));
}

}  // namespace lazuli::nn
