// Rows of the random functions.
#include "core/ops_random.h"
#include "tools/notation/functions.h"
#include "tools/notation/transforms.h"

namespace lazuli::notation {
namespace {

using std::optional;
using ShapeArgument = const Shape&;
using Key = const OptionalKey&;

Tensor bernoulli_row(const Tensor& x, optional<double> p, const OptionalKey& key) {
  return p ? bernoulli(x, *p, key) : bernoulli(x, key);
}

}  // namespace

void start_random(uint64_t seed) {
  manual_seed(seed);
}

std::vector<Function> random_functions() {
  // clang-format off
  return {
      {"next_key()", wrap(&next_key)},
      {"random_key(seed)", wrap(&random_key)},
      {"split_key(key, n=2)", wrap(&split_key)},
      {"fold_in(key, data)", wrap(&fold_in)},
      {"threefry(input, key)", wrap(&threefry)},
      {"threefry_bits(key, size, dtype=u32)", wrap(&threefry_bits)},
      {"random_bits(key, counter, num)", wrap(&random_bits)},
      {"rand(*size, dtype=f32, key=None)", wrap(&rand)},
      {"rand_like(input, key=None)", wrap(&rand_like)},
      {"uniform(size, low=0.0, high=1.0, dtype=f32, key=None)", wrap(&uniform)},
      {"randn(*size, dtype=f32, key=None)", wrap(&randn)},
      {"randn_like(input, key=None)", wrap(&randn_like)},
      {"normal(mean, std, size, dtype=f32, key=None)", wrap(&normal)},
      {"randint(high, size, dtype=i64, key=None)", wrap([](int64_t high, ShapeArgument size, DType dtype, Key key) { return randint(0, high, size, dtype, key); })},
      {"randint(low, high, size, dtype=i64, key=None)", wrap(&randint)},
      {"randperm(n, dtype=i64, key=None)", wrap(&randperm)},
      {"bernoulli(input, p=None, key=None)", wrap(&bernoulli_row)},
      {"dropout(input, p=0.5, training=true, key=None)", wrap(&dropout)},
      {"multinomial(input, num_samples, replacement=false, key=None)", wrap(&multinomial)},
      {"glorot_uniform(*size, dtype=f32, key=None)", wrap(&glorot_uniform)},
      {"scaled_uniform(*size, dtype=f32, key=None)", wrap(&scaled_uniform)},
      {"kaiming_uniform(*size, a=0.01, dtype=f32, key=None)", wrap(&kaiming_uniform)},
      {"kaiming_normal(*size, a=0.01, dtype=f32, key=None)", wrap(&kaiming_normal)},
  };
  // clang-format on
}

}  // namespace lazuli::notation
