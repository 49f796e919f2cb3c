#include "ir/channels_last.h"

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

SumForm channels_last_form(const Convolution& c, const Node& sum) {
  return with_axes_last(sum, c.axes.out);
}

}  // namespace lazuli
