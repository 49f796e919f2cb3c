// The first network: a small perceptron that learns to read handwritten digits.
#pragma once

#include <cstdint>
#include <cstdio>

namespace lazuli::nn {

struct TrainOptions {
  uint64_t seed = 0;  // of the initial weights and the order of the batches
  int epochs = 40;
  int hidden = 128;
  int batch = 32;
  double learning_rate = 3e-3;  // of the first step; it falls to zero in a straight line
  std::FILE* out = stdout;
};

struct TrainResult {
  double test_accuracy = 0;      // percent, on the 360 digits that were drawn
  double held_out_accuracy = 0;  // percent, on the last 360 of the file, which other people wrote
};

/// Trains a 64-hidden-10 perceptron with Adam on 1,437 digits and tests it on the other 360, always
/// the same, printing a line an epoch (and a progress bar on a terminal), the kernels of one
/// training step, and last `test accuracy: NN.NN %`. UserError for options that are not positive.
TrainResult train_digits(const TrainOptions& options = {});

}  // namespace lazuli::nn
