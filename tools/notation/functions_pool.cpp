// Rows of the pools.
#include "core/ops_pool.h"
#include "tools/notation/functions.h"

namespace lazuli::notation {
namespace {

using T = const Tensor&;
using Z = const Sizes&;

/// The output size of an adaptive pool: None keeps the size of the input, of all axes or of one.
struct OutputSize {
  Sizes sizes;
};

using MaxPool = Tensor (*)(T, Z, Z, Z, Z, bool);
using MaxPoolIndices = ValuesIndices (*)(T, Z, Z, Z, Z, bool);

Builtin max_pool(MaxPool values, MaxPoolIndices both) {
  return wrap([values, both](T x, Z kernel, Z stride, Z padding, Z dilation, bool ceil_mode,
                             bool return_indices) {
    return return_indices ? to_value(both(x, kernel, stride, padding, dilation, ceil_mode))
                          : to_value(values(x, kernel, stride, padding, dilation, ceil_mode));
  });
}

template <typename Result>
Builtin adaptive_pool(Result (*pool)(T, Z)) {
  return wrap([pool](T x, const OutputSize& size) { return pool(x, size.sizes); });
}

Builtin adaptive_max_pool(Tensor (*values)(T, Z), ValuesIndices (*both)(T, Z)) {
  return wrap([values, both](T x, const OutputSize& size, bool return_indices) {
    return return_indices ? to_value(both(x, size.sizes)) : to_value(values(x, size.sizes));
  });
}

}  // namespace

template <>
struct From<OutputSize> {
  static std::string wanted() { return "an integer, None or a list of them"; }
  static std::optional<OutputSize> get(const Value& v) {
    const auto* sequence = v.get<Sequence>();
    const std::span<const Value> items = sequence != nullptr
                                             ? std::span<const Value>(sequence->items)
                                             : std::span<const Value>(&v, 1);
    Ints sizes;
    for (const Value& item : items) {
      const auto size = From<std::optional<int64_t>>::get(item);
      if (!size) return std::nullopt;
      sizes.push_back(size->value_or(kKeepSize));
    }
    return OutputSize{Sizes(std::move(sizes))};
  }
};

namespace {

std::vector<Function> pools() {
  // clang-format off
  return {
      {"avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=false, count_include_pad=true)", wrap(&avg_pool1d)},
      {"avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=false, count_include_pad=true, divisor_override=None)", wrap(&avg_pool2d)},
      {"avg_pool3d(input, kernel_size, stride=None, padding=0, ceil_mode=false, count_include_pad=true, divisor_override=None)", wrap(&avg_pool3d)},
      {"max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=false, return_indices=false)", max_pool(&max_pool1d, &max_pool1d_with_indices)},
      {"max_pool1d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=false)", wrap(&max_pool1d_with_indices)},
      {"max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=false, return_indices=false)", max_pool(&max_pool2d, &max_pool2d_with_indices)},
      {"max_pool2d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=false)", wrap(&max_pool2d_with_indices)},
      {"max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=false, return_indices=false)", max_pool(&max_pool3d, &max_pool3d_with_indices)},
      {"max_pool3d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=false)", wrap(&max_pool3d_with_indices)},
      {"max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None)", wrap(&max_unpool2d)},
      {"adaptive_avg_pool1d(input, output_size)", adaptive_pool(&adaptive_avg_pool1d)},
      {"adaptive_avg_pool2d(input, output_size)", adaptive_pool(&adaptive_avg_pool2d)},
      {"adaptive_avg_pool3d(input, output_size)", adaptive_pool(&adaptive_avg_pool3d)},
      {"adaptive_max_pool1d(input, output_size, return_indices=false)", adaptive_max_pool(&adaptive_max_pool1d, &adaptive_max_pool1d_with_indices)},
      {"adaptive_max_pool1d_with_indices(input, output_size)", adaptive_pool(&adaptive_max_pool1d_with_indices)},
      {"adaptive_max_pool2d(input, output_size, return_indices=false)", adaptive_max_pool(&adaptive_max_pool2d, &adaptive_max_pool2d_with_indices)},
      {"adaptive_max_pool2d_with_indices(input, output_size)", adaptive_pool(&adaptive_max_pool2d_with_indices)},
      {"adaptive_max_pool3d(input, output_size, return_indices=false)", adaptive_max_pool(&adaptive_max_pool3d, &adaptive_max_pool3d_with_indices)},
      {"adaptive_max_pool3d_with_indices(input, output_size)", adaptive_pool(&adaptive_max_pool3d_with_indices)},
  };
  // clang-format on
}

}  // namespace

std::vector<Function> pool_functions() {
  return pools();
}

}  // namespace lazuli::notation
