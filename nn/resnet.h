// ResNet-50 (He et al., "Deep Residual Learning for Image Recognition", 2015) over images of
// (batch, 3, height, width), its norms folded into scale and shift.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor.h"

namespace lazuli::nn {

class ResNet50 {
 public:
  /// `parameter` makes a parameter of a shape when it is needed first.
  explicit ResNet50(std::function<Tensor(const Shape&)> parameter)
      : parameter_(std::move(parameter)) {}

  /// (batch, 1000).
  Tensor logits(const Tensor& images);
  /// In the order of their use; empty before the first.
  const std::vector<Tensor>& parameters() const { return parameters_; }

 private:
  const Tensor& next(const Shape& shape);
  Tensor convolution(const Tensor& x, int64_t out, int64_t kernel, int64_t stride);
  Tensor bottleneck(const Tensor& x, int64_t width, int64_t stride);

  std::function<Tensor(const Shape&)> parameter_;
  std::vector<Tensor> parameters_;
  size_t used_ = 0;
};

}  // namespace lazuli::nn
