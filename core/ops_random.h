// Random numbers: Threefry-2x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011), counter-based, in the graph, with the raw words of jax.random in its partitionable layout.
// A key is a u32 tensor of shape (2,), always a buffer and never a constant of a kernel. Functions
// without a key take the next one of the global generator.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"

namespace lazuli {

using OptionalKey = std::optional<Tensor>;

/// Restarts the global generator; at start its seed is 0. The key of the n-th call after it is row
/// n of split_key(random_key(seed), N), whatever N is.
void manual_seed(uint64_t seed);
/// The global generator's next key.
Tensor next_key();
/// Keys that are put back where they came from when it goes, unless keep() was called, or another
/// thread has drawn or seeded since.
class KeyDraws {
 public:
  KeyDraws() = default;
  ~KeyDraws();
  KeyDraws(const KeyDraws&) = delete;
  KeyDraws& operator=(const KeyDraws&) = delete;
  /// next_key()
  Tensor next();
  void keep() { kept_ = true; }

 private:
  uint64_t seed_ = 0, after_ = 0, drawn_ = 0;
  bool kept_ = false;
};
/// The key of a seed: its high and its low half, as jax.random.key_data(jax.random.key(seed)).
Tensor random_key(uint64_t seed);
/// (n, 2): n new keys, as jax.random.split.
Tensor split_key(const Tensor& key, int64_t n = 2);
/// A new key from a key and a number, as jax.random.fold_in.
Tensor fold_in(const Tensor& key, uint32_t data);
/// The cipher itself, element by element: u64 counters under u64 keys, which broadcast. Low halves
/// are first words, of the result too, as tinygrad's.
Tensor threefry(const Tensor& counter, const Tensor& key);
/// Raw words, u8 to u64, as jax.random.bits.
Tensor threefry_bits(const Tensor& key, const Shape& shape, DType dtype = DType::U32);
/// `num` words, u32, as tinygrad's: the counter, u32 of shape (2,), is mixed into the key first.
Tensor random_bits(const Tensor& key, const Tensor& counter, int64_t num);

/// [0, 1): the mantissa bits of raw words, as jax.random.uniform.
Tensor rand(const Shape& shape, DType dtype = DType::F32, const OptionalKey& key = {});
/// rand in the shape and dtype of `x`.
Tensor rand_like(const Tensor& x, const OptionalKey& key = {});
/// [low, high).
Tensor uniform(const Shape& shape, double low = 0.0, double high = 1.0, DType dtype = DType::F32,
               const OptionalKey& key = {});
/// Standard normal, by the inverse error function of a uniform number in (-1, 1), as
/// jax.random.normal.
Tensor randn(const Shape& shape, DType dtype = DType::F32, const OptionalKey& key = {});
/// randn in the shape and dtype of `x`.
Tensor randn_like(const Tensor& x, const OptionalKey& key = {});
/// Normal of that mean and standard deviation, which is not negative.
Tensor normal(double mean, double std, const Shape& shape, DType dtype = DType::F32,
              const OptionalKey& key = {});
/// Integers in [low, high), as jax.random.randint.
Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype = DType::I64,
               const OptionalKey& key = {});
/// A random order of 0 ... n-1: the sorting permutation of 64-bit words.
Tensor randperm(int64_t n, DType dtype = DType::I64, const OptionalKey& key = {});
/// 1 with the probability that each element states, else 0, in x's dtype.
Tensor bernoulli(const Tensor& x, const OptionalKey& key = {});
/// 1 with probability p, else 0, in x's shape and dtype.
Tensor bernoulli(const Tensor& x, double p, const OptionalKey& key = {});
/// Each element zeroed with probability p and the rest divided by 1 - p; x itself when not
/// training.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, const OptionalKey& key = {});
/// Places drawn by the weights in the last axis of a vector or matrix, which need not add up to 1;
/// I64. With replacement by the running sum; without, the largest of weights over exponential
/// numbers.
Tensor multinomial(const Tensor& weights, int64_t num_samples, bool replacement = false,
                   const OptionalKey& key = {});

/// Initial weights of shape (out, in, ...). Glorot and Bengio (2010): uniform within sqrt(6 / (out
/// + in...)).
Tensor glorot_uniform(const Shape& shape, DType dtype = DType::F32, const OptionalKey& key = {});
/// He et al. (2015), for leaky ReLU of slope `a`: uniform within sqrt(6 / ((1 + a^2) fan_in)), or
/// normal of variance 2 / ((1 + a^2) fan_in), with fan_in the product of all sizes but the first.
Tensor kaiming_uniform(const Shape& shape, double a = 0.01, DType dtype = DType::F32,
                       const OptionalKey& key = {});
/// The normal one of the two.
Tensor kaiming_normal(const Shape& shape, double a = 0.01, DType dtype = DType::F32,
                      const OptionalKey& key = {});
/// Uniform within 1 / sqrt(number of elements).
Tensor scaled_uniform(const Shape& shape, DType dtype = DType::F32, const OptionalKey& key = {});

}  // namespace lazuli
