// Products of few rows with a matrix that lies in memory row by row, as a Linear layer's weight.
#pragma once

#include <optional>

#include "ir/choose_forms.h"

namespace lazuli {

/// A sum over k of x[i, k] * w[j, k], j along the last axis of the result. A vector of columns takes
/// a vector of w's rows, which are turned around to be packed; the rows of x are few for that.
struct TurnedProduct {
  DType dtype = DType::F32;
  Ints rows;  // axes of the product that x and the result have
  int64_t m = 1, n = 1, k = 1;

  /// Predicted seconds of one core for the sum as it is written.
  double direct_seconds(const Target& target) const;
  /// And for its other form.
  double turned_seconds(const Target& target) const;
};

/// The product that the tensor-level node `n` is; nullopt if it is none, or of other elements than
/// floats of 32 or 64 bits, or if w has to be computed first or lies otherwise.
std::optional<TurnedProduct> turned_product_of(const NodeRef& n);

/// The same products in the same order, summed with the lanes along the rows: x is packed, and w is
/// read in order where it lies. The result is then copied to where it belongs.
SumForm turned_form(const TurnedProduct& p, const Node& sum);

}  // namespace lazuli
