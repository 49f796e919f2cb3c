#include "core/ops_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>

#include "core/capture.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/ops_creation.h"
#include "core/ops_elementwise.h"
#include "core/ops_index.h"
#include "core/ops_movement.h"
#include "core/ops_reduce.h"
#include "core/promotion.h"

namespace lazuli {
namespace {

constexpr std::array<std::array<int, 4>, 2> kRotations{{{13, 15, 26, 6}, {17, 29, 16, 24}}};
constexpr uint32_t kParity = 0x1BD11BDA;

// What the cipher is computed in: numbers of the host, or nodes of the graph.
struct Words {
  uint32_t v;
  Words operator+(Words o) const { return {v + o.v}; }
  Words operator^(Words o) const { return {v ^ o.v}; }
  Words operator+(uint32_t o) const { return {v + o}; }
  Words operator^(uint32_t o) const { return {v ^ o}; }
  Words rotated(int by) const { return {std::rotl(v, by)}; }
};

struct NodeWords {
  NodeRef v;
  NodeRef number(uint32_t n) const { return constant(Scalar(n), DType::U32, v->shape); }
  NodeWords operator+(const NodeWords& o) const { return {elementwise(Op::Add, {v, o.v})}; }
  NodeWords operator^(const NodeWords& o) const { return {elementwise(Op::Xor, {v, o.v})}; }
  NodeWords operator+(uint32_t o) const { return {elementwise(Op::Add, {v, number(o)})}; }
  NodeWords operator^(uint32_t o) const { return {elementwise(Op::Xor, {v, number(o)})}; }
  NodeWords rotated(int by) const {
    const NodeRef up = elementwise(Op::Shl, {v, number(static_cast<uint32_t>(by))});
    const NodeRef down = elementwise(Op::Shr, {v, number(static_cast<uint32_t>(32 - by))});
    return {elementwise(Op::Or, {up, down})};
  }
};

// Twenty rounds on the block (x0, x1) under the key (k0, k1).
template <typename W>
std::array<W, 2> threefry(W k0, W k1, W x0, W x1) {
  const std::array<W, 3> key{k0, k1, k0 ^ k1 ^ kParity};
  x0 = x0 + key[0];
  x1 = x1 + key[1];
  for (uint32_t group = 0; group < 5; group++) {
    for (int by : kRotations[group % 2]) {
      x0 = x0 + x1;
      x1 = x1.rotated(by) ^ x0;
    }
    x0 = x0 + key[(group + 1) % 3];
    x1 = x1 + key[(group + 2) % 3] + (group + 1);
  }
  return {x0, x1};
}

void check_key(std::string_view op, const Tensor& key) {
  require(key.dtype() == DType::U32 && key.shape() == Shape{2},
          "{}: the key is {} of shape {}, not u32 of shape (2,); make one with random_key(seed)",
          op, name(key.dtype()), to_string(key.shape()));
}

NodeRef word_of(const Tensor& key, int64_t i, const Shape& shape) {
  return broadcast_node(select(key, 0, i).node(), shape);
}

// Both output words for the 64-bit counters 0 ... n-1, cut in high and low halves.
std::array<NodeRef, 2> words(const Tensor& key, int64_t n) {
  const Shape shape{n};
  const NodeRef count = iota(n);
  const NodeRef low = cast(count, DType::U32);
  const NodeRef high =
      n <= int64_t{1} << 32
          ? constant(0, DType::U32, shape)
          : cast(elementwise(Op::Shr, {count, constant(32, DType::I64, shape)}), DType::U32);
  const auto out = threefry(NodeWords{word_of(key, 0, shape)}, NodeWords{word_of(key, 1, shape)},
                            NodeWords{high}, NodeWords{low});
  return {out[0].v, out[1].v};
}

Tensor key_buffer(uint32_t high, uint32_t low) {
  return Tensor::from({high, low}, {2});
}

struct Generator {
  std::mutex mutex;
  uint64_t seed = 0, calls = 0;
};
Generator& generator() {
  static Generator g;
  return g;
}

// Of a generator whose lock is held.
Tensor drawn_key() {
  const uint64_t seed = generator().seed, call = generator().calls;
  const auto half = [](uint64_t v, int shift) { return Words{static_cast<uint32_t>(v >> shift)}; };
  const auto out = threefry(half(seed, 32), half(seed, 0), half(call, 32), half(call, 0));
  const Tensor key = key_buffer(out[0].v, out[1].v);
  generator().calls++;  // only now: a key that there is no memory for is the next one still
  return key;
}

Tensor key_or_next(const OptionalKey& key) {
  return key ? *key : next_key();
}

void require_float_dtype(std::string_view op, DType dtype) {
  require(is_float(dtype), "{}: {} is not a float dtype; use randint for integers", op,
          name(dtype));
}

int mantissa_bits(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return 10;
    case DType::BF16:
      return 7;
    case DType::F32:
      return 23;
    default:
      return 52;
  }
}

DType unsigned_of(int bytes) {
  return bytes == 1 ? DType::U8 : bytes == 2 ? DType::U16 : bytes == 4 ? DType::U32 : DType::U64;
}

Tensor shaped(const NodeRef& x, const Shape& shape) {
  return Tensor(reshape(x, shape));
}

// A word's top bits as the mantissa of a number in [1, 2), less 1.
Tensor unit_interval(const Tensor& key, const Shape& shape, DType dtype) {
  const int mantissa = mantissa_bits(dtype);
  // bf16 needs 7 bits, which one byte holds.
  const int width = mantissa < 8 ? 8 : 8 * size_of(dtype);
  const DType raw = unsigned_of(width / 8), bits = unsigned_of(size_of(dtype));
  const Tensor top = cast(threefry_bits(key, shape, raw) >> (width - mantissa), bits);
  const uint64_t one = to_bits(1.0, dtype);
  const Tensor number = top | Tensor(constant(from_bits(one, bits), bits));
  return Tensor(bitcast(number.node(), dtype)) - 1.0;
}

Tensor in_range(const Tensor& unit, double low, double high) {
  const DType t = unit.dtype();
  if (low == 0 && high == 1) return unit;
  const Tensor from(constant(low, t)), to(constant(high, t));
  return maximum(from, unit * (to - from) + from);
}

double largest_below_one(DType dtype) {
  return 1.0 - std::ldexp(1.0, -1 - mantissa_bits(dtype));
}

Tensor standard_normal(const Tensor& key, const Shape& shape, DType dtype) {
  const Tensor u = in_range(unit_interval(key, shape, dtype), -largest_below_one(dtype), 1.0);
  return detail::erfinv_value(u) * std::numbers::sqrt2;
}

double fan_in(std::string_view op, const Shape& shape) {
  require(!shape.empty(), "{}: weights need at least one axis", op);
  return std::max<double>(1, static_cast<double>(numel(std::span(shape.begin() + 1, shape.end()))));
}

Tensor without_gradient(const Tensor& x) {
  return Tensor(fresh(x.node()));
}

}  // namespace

void manual_seed(uint64_t seed) {
  require(!Capture::current(),
          "manual_seed: a captured function cannot seed the generator, whose state each call steps "
          "on; call it outside, or give random_key(seed) to the random function");
  std::lock_guard lock(generator().mutex);
  generator().seed = seed;
  generator().calls = 0;
}

Tensor next_key() {
  if (Capture* c = Capture::current()) return c->key();
  const std::lock_guard lock(generator().mutex);
  return drawn_key();
}

KeyDraws::~KeyDraws() {
  if (kept_ || drawn_ == 0) return;
  const std::lock_guard lock(generator().mutex);
  if (generator().seed == seed_ && generator().calls == after_) generator().calls -= drawn_;
}

Tensor KeyDraws::next() {
  const std::lock_guard lock(generator().mutex);
  const bool others = drawn_ > 0 && (generator().seed != seed_ || generator().calls != after_);
  Tensor key = drawn_key();
  kept_ = kept_ || others;  // theirs lie between
  drawn_++;
  seed_ = generator().seed;
  after_ = generator().calls;
  return key;
}

Tensor random_key(uint64_t seed) {
  return key_buffer(static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed));
}

Tensor split_key(const Tensor& key, int64_t n) {
  check_key("split_key", key);
  require(n >= 0, "split_key: the number of keys is {}; it cannot be negative", n);
  const auto out = words(key, n);
  return stack({Tensor(out[0]), Tensor(out[1])}, 1);
}

Tensor fold_in(const Tensor& key, uint32_t data) {
  check_key("fold_in", key);
  // The number is an argument as the key is, so that a loop that folds in its counter stays one
  // kernel.
  const Tensor block = key_buffer(0, data);
  const auto out = threefry(NodeWords{word_of(key, 0, {})}, NodeWords{word_of(key, 1, {})},
                            NodeWords{word_of(block, 0, {})}, NodeWords{word_of(block, 1, {})});
  return stack({Tensor(out[0].v), Tensor(out[1].v)});
}

Tensor threefry(const Tensor& counter, const Tensor& key) {
  require(counter.dtype() == DType::U64 && key.dtype() == DType::U64,
          "threefry: the counter is {} and the key {}; both must be u64", name(counter.dtype()),
          name(key.dtype()));
  const Shape shape = broadcast_shapes("threefry", TensorOrScalar(counter), TensorOrScalar(key));
  const auto half = [&](const Tensor& x, int at) {
    return NodeWords{broadcast_node(cast(x >> at, DType::U32).node(), shape)};
  };
  const auto out = threefry(half(key, 0), half(key, 32), half(counter, 0), half(counter, 32));
  return cast(Tensor(out[1].v), DType::U64) << 32 | cast(Tensor(out[0].v), DType::U64);
}

Tensor threefry_bits(const Tensor& key, const Shape& shape, DType dtype) {
  check_key("threefry_bits", key);
  check_shape("threefry_bits", shape);
  require(is_int(dtype) && !is_signed(dtype),
          "threefry_bits: {} is not an unsigned integer; choose u8, u16, u32 or u64", name(dtype));
  const auto out = words(key, numel(shape));
  if (dtype == DType::U64) {
    const Tensor high = cast(Tensor(out[0]), DType::U64), low = cast(Tensor(out[1]), DType::U64);
    return shaped(((high << 32) | low).node(), shape);
  }
  return shaped(cast(elementwise(Op::Xor, {out[0], out[1]}), dtype), shape);
}

Tensor random_bits(const Tensor& key, const Tensor& counter, int64_t num) {
  check_key("random_bits", key);
  check_key("random_bits", counter);
  require(num >= 0 && num < int64_t{1} << 32,
          "random_bits: {} words cannot be drawn; ask for 0 to {}", num, UINT32_MAX);
  const auto mixed =
      threefry(NodeWords{word_of(key, 0, {})}, NodeWords{word_of(key, 1, {})},
               NodeWords{word_of(counter, 0, {})}, NodeWords{word_of(counter, 1, {})});
  const int64_t half = (num + 1) / 2;
  const NodeRef first = cast(iota(half), DType::U32);
  const NodeRef second = elementwise(Op::Add, {first, constant(Scalar(half), DType::U32, {half})});
  const auto out =
      threefry(NodeWords{broadcast_node(mixed[0].v, {half})},
               NodeWords{broadcast_node(mixed[1].v, {half})}, NodeWords{first}, NodeWords{second});
  return narrow(cat({Tensor(out[0].v), Tensor(out[1].v)}), 0, 0, num);
}

Tensor rand(const Shape& shape, DType dtype, const OptionalKey& key) {
  check_shape("rand", shape);
  require_float_dtype("rand", dtype);
  return without_gradient(unit_interval(key_or_next(key), shape, dtype));
}
Tensor rand_like(const Tensor& x, const OptionalKey& key) {
  return rand(x.shape(), x.dtype(), key);
}

Tensor uniform(const Shape& shape, double low, double high, DType dtype, const OptionalKey& key) {
  check_shape("uniform", shape);
  require_float_dtype("uniform", dtype);
  require(low <= high, "uniform: low {} exceeds high {}", low, high);
  return without_gradient(in_range(unit_interval(key_or_next(key), shape, dtype), low, high));
}

Tensor randn(const Shape& shape, DType dtype, const OptionalKey& key) {
  check_shape("randn", shape);
  require_float_dtype("randn", dtype);
  return without_gradient(standard_normal(key_or_next(key), shape, dtype));
}
Tensor randn_like(const Tensor& x, const OptionalKey& key) {
  return randn(x.shape(), x.dtype(), key);
}

Tensor normal(double mean, double std, const Shape& shape, DType dtype, const OptionalKey& key) {
  check_shape("normal", shape);
  require_float_dtype("normal", dtype);
  require(std >= 0, "normal: the standard deviation is {}; it cannot be negative", std);
  return without_gradient(standard_normal(key_or_next(key), shape, dtype) * std + mean);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype, const OptionalKey& key) {
  check_shape("randint", shape);
  require(is_int(dtype), "randint: {} is not an integer dtype; use uniform for floats",
          name(dtype));
  require(low < high, "randint: no integer lies in [{}, {})", low, high);
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const int own = 8 * size_of(dtype),
            width = std::max(32, own);  // at least 32 bits, so that no number is favoured
  const DType bits = unsigned_of(width / 8);
  require(own == 64 || span <= uint64_t{1} << own, "randint: [{}, {}) holds more numbers than {}",
          low, high, name(dtype));
  const Tensor keys = split_key(key_or_next(key), 2);
  const Tensor first = select(keys, 0, 0), second = select(keys, 0, 1);
  const auto number = [&](uint64_t v, DType t) {
    return Tensor(constant(from_bits(v, DType::U64), t));
  };
  if (width == 32 && span == uint64_t{1} << width) {
    return without_gradient(cast(threefry_bits(second, shape, bits), dtype) +
                            Tensor(constant(low, dtype)));
  }
  // Two words make a number of twice the width, whose remainder is all but uniform.
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  const uint64_t half = (uint64_t{1} << (width / 2)) % span,
                 multiplier = (half * half & mask) % span;
  // (high * weight + low) % span in words of type t, which it fits.
  const auto combined = [&](const Tensor& high, uint64_t weight, const Tensor& low, DType t) {
    return fmod(high * number(weight, t) + low, number(span, t));
  };
  const auto remainder = [&](const Tensor& key, DType t) {
    const Tensor s = number(span, t);
    if (t == bits) return fmod(threefry_bits(key, shape, bits), s);
    const auto halves = words(key, numel(shape));
    const Tensor x = combined(fmod(Tensor(halves[0]), s), half, fmod(Tensor(halves[1]), s), t);
    return Tensor(shaped(x.node(), shape));
  };
  // Remainders of words of 32 bits are vectors on every machine, those of 64 are not.
  const DType t = width == 64 && span <= uint64_t{1} << 16 ? DType::U32 : bits;
  const Tensor offset = combined(remainder(first, t), multiplier, remainder(second, t), t);
  return without_gradient(cast(offset, dtype) + Tensor(constant(low, dtype)));
}

Tensor randperm(int64_t n, DType dtype, const OptionalKey& key) {
  require(n >= 0, "randperm: the length is {}; it cannot be negative", n);
  const Tensor bits = threefry_bits(key_or_next(key), {n}, DType::U64);
  return without_gradient(cast(Tensor(argsort(bits.node(), false)), dtype));
}

Tensor bernoulli(const Tensor& x, const OptionalKey& key) {
  require_float("bernoulli", x);
  const DType wide = accumulator(x.dtype());
  return without_gradient(
      cast(unit_interval(key_or_next(key), x.shape(), wide) < detach(cast(x, wide)), x.dtype()));
}

Tensor bernoulli(const Tensor& x, double p, const OptionalKey& key) {
  require(p >= 0 && p <= 1, "bernoulli: the probability is {}; it must lie in [0, 1]", p);
  return without_gradient(
      cast(unit_interval(key_or_next(key), x.shape(), DType::F32) < p, x.dtype()));
}

Tensor dropout(const Tensor& x, double p, bool training, const OptionalKey& key) {
  require(p >= 0 && p <= 1, "dropout: the probability is {}; it must lie in [0, 1]", p);
  if (!training || p == 0) return Tensor(x.node());
  require_float("dropout", x);
  if (p == 1) return x * 0.0;
  const Tensor kept = unit_interval(key_or_next(key), x.shape(), DType::F32) < 1 - p;
  return where(kept, x * (1 / (1 - p)), 0.0);
}

Tensor multinomial(const Tensor& weights, int64_t num_samples, bool replacement,
                   const OptionalKey& key) {
  require_float("multinomial", weights);
  require(weights.dim() == 1 || weights.dim() == 2,
          "multinomial: the weights have shape {}; one or two axes are needed",
          to_string(weights.shape()));
  const int64_t n = weights.size(-1), last = weights.dim() - 1;
  require(num_samples > 0, "multinomial: the number of samples is {}; it must be positive",
          num_samples);
  require(n > 0 && (replacement || num_samples <= n),
          "multinomial: {} different places cannot be drawn from {}; use replacement", num_samples,
          n);
  const Tensor p = detach(cast(weights, accumulator(weights.dtype())));
  const Tensor k = key_or_next(key);
  if (replacement) {
    const Tensor sums(scan(p.node(), ScanOp::Add, last));
    Shape shape = p.shape();
    shape.back() = num_samples;
    const Tensor u = unit_interval(k, shape, p.dtype()) * narrow(sums, last, n - 1, 1);
    // The number of running sums that the draw reaches past is its place.
    return without_gradient(sum(unsqueeze(sums, -2) <= unsqueeze(u, -1), -1));
  }
  const Tensor exponential =
      maximum(-log1p(-unit_interval(k, p.shape(), p.dtype())), std::numeric_limits<float>::min());
  const Tensor order(argsort((p / exponential).node(), true));
  return without_gradient(narrow(order, last, 0, num_samples));
}

Tensor glorot_uniform(const Shape& shape, DType dtype, const OptionalKey& key) {
  const double fan = fan_in("glorot_uniform", shape),
               bound = std::sqrt(6 / (static_cast<double>(shape[0]) + fan));
  return uniform(shape, -bound, bound, dtype, key);
}

Tensor kaiming_uniform(const Shape& shape, double a, DType dtype, const OptionalKey& key) {
  const double bound = std::sqrt(6 / ((1 + a * a) * fan_in("kaiming_uniform", shape)));
  return uniform(shape, -bound, bound, dtype, key);
}

Tensor kaiming_normal(const Shape& shape, double a, DType dtype, const OptionalKey& key) {
  const double std = std::sqrt(2 / ((1 + a * a) * fan_in("kaiming_normal", shape)));
  return normal(0, std, shape, dtype, key);
}

Tensor scaled_uniform(const Shape& shape, DType dtype, const OptionalKey& key) {
  check_shape("scaled_uniform", shape);
  const double bound = 1 / std::sqrt(std::max(1.0, static_cast<double>(numel(shape))));
  return uniform(shape, -bound, bound, dtype, key);
}

}  // namespace lazuli
