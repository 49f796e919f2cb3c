#include "ir/channels_last.h"

#include <algorithm>

#include "core/graph.h"
#include "ir/fuse.h"
#include "ir/simplify_rules.h"

namespace lazuli {

bool has_channels_last_form(const Convolution& c, const Target& target) {
  const bool plain = c.image->dtype == DType::F32 || c.image->dtype == DType::F64;
  return !c.axes.by_kernel && plain && c.out >= c.lanes(target);
}

double channels_last_seconds(const Convolution& c, const Target& target) {
  // Of the peak; cycles for each element of the kernels; as measured on Zen 5.
  constexpr double kChannelsLast = 0.86, kTurned = 0.2, kScattered = 2, kStarts = 6e-6;
  const int64_t lanes = c.lanes(target), whole = (c.out + lanes - 1) / lanes * lanes;
  const double full = static_cast<double>(whole) / static_cast<double>(c.out),
               kernels = static_cast<double>(whole * c.in * c.size[0] * c.size[1]),
               result = static_cast<double>(c.batch * c.out * c.rows * c.columns);
  const double cycle = target.fma_units * target.lanes / target.fma_per_second,
               bytes = 2 * static_cast<double>(size_of(c.image->dtype)) * result;
  return kStarts + c.seconds(static_cast<double>(c.columns), target) * full / kChannelsLast +
         kernels * (c.lies_by_channels ? kTurned : kScattered) * cycle + bytes / target.bandwidth;
}

ConvolutionForm channels_last_form(const Convolution& c, const Node& sum) {
  const Node& product = *sum.src[0];
  // `order`: the product's axes, those of the result but for the channels, then these, then the
  // summed ones. `places`: the axes of the result in that order.
  Ints order, channels, summed, places, last;
  int64_t place = 0;
  for (size_t a = 0; a < product.shape.size(); a++) {
    const auto l = static_cast<int64_t>(a);
    if (reduces_axis(sum, a)) {
      summed.push_back(l);
      continue;
    }
    const bool channel = contains(c.axes.out, l);
    (channel ? channels : order).push_back(l);
    (channel ? last : places).push_back(place++);
  }
  for (const Ints* more : {&channels, &summed}) order.append(more->begin(), more->end());
  places.append(last.begin(), last.end());
  Ints axes;
  for (size_t i = 0; i < summed.size(); i++) {
    axes.push_back(static_cast<int64_t>(places.size() + i));
  }
  const NodeRef sums = reduce(
      Op::ReduceAdd,
      elementwise(Op::Mul, {permute(product.src[0], order), permute(product.src[1], order)}), axes);
  return {sums, contiguous(permute(contiguous(sums), inverse(places)))};
}

}  // namespace lazuli
