// What fills the inputs of a program.
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <numbers>

#include "core/error.h"
#include "core/lazy_buffer.h"
#include "tools/notation/notation.h"
#include "tools/notation/source.h"

namespace lazuli::notation {
namespace {

/// Random bits of (key, index): splitmix64 with the index as its counter.
uint64_t random_bits(uint64_t key, uint64_t index) {
  uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return random_bits(hash, seed);
}

/// In [0, 1), with as many bits as the dtype's significand, so that rounding cannot reach 1.
double uniform(uint64_t bits, DType dtype) {
  const int digits = dtype == DType::BF16  ? 8
                     : dtype == DType::F16 ? 11
                     : dtype == DType::F32 ? 24
                                           : 53;
  return static_cast<double>(bits >> (64 - digits)) / static_cast<double>(uint64_t{1} << digits);
}

/// Box and Muller (1958) on the pair of elements that `index` is in.
double normal(uint64_t key, uint64_t index) {
  const double u = 1.0 - uniform(random_bits(key, index & ~uint64_t{1}), DType::F64);
  const double angle = 2 * std::numbers::pi * uniform(random_bits(key, index | 1), DType::F64);
  return std::sqrt(-2 * std::log(u)) * ((index & 1) == 0 ? std::cos(angle) : std::sin(angle));
}

struct Pair {
  float even, odd;
};

/// The same in f32, for the dtypes that hold no more: both elements of the pair that `even` begins.
Pair normal_pair(uint64_t key, uint64_t even) {
  const float u = 1.0F - static_cast<float>(uniform(random_bits(key, even), DType::F32));
  const float angle = 2 * std::numbers::pi_v<float> *
                      static_cast<float>(uniform(random_bits(key, even | 1), DType::F32));
  const float radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

float normal_f32(uint64_t key, uint64_t index) {
  const Pair pair = normal_pair(key, index & ~uint64_t{1});
  return (index & 1) == 0 ? pair.even : pair.odd;
}

/// All elements of an f32 array: most inputs are that, and large.
void fill_normal_f32(float* out, uint64_t count, uint64_t key) {
  for (uint64_t i = 0; i + 1 < count; i += 2) {
    const Pair pair = normal_pair(key, i);
    out[i] = pair.even;
    out[i + 1] = pair.odd;
  }
  if ((count & 1) != 0) out[count - 1] = normal_f32(key, count - 1);
}

/// What a fill of values, not of bits, has at `index`.
Scalar element(const Fill& fill, DType dtype, uint64_t key, uint64_t index) {
  switch (fill.kind) {
    case FillKind::Zeros:
      return Scalar(0);
    case FillKind::Ones:
      return Scalar(1);
    case FillKind::Arange:
      return Scalar(static_cast<int64_t>(index));
    case FillKind::Normal:
      return dtype == DType::F64 ? Scalar(normal(key, index)) : Scalar(normal_f32(key, index));
    case FillKind::Uniform:
      return Scalar(uniform(random_bits(key, index), dtype));
    case FillKind::Bernoulli:
      return Scalar(uniform(random_bits(key, index), DType::F64) < fill.argument);
    case FillKind::Ids: {
      const double place = uniform(random_bits(key, index), DType::F64);
      return Scalar(static_cast<int64_t>(place * fill.argument));
    }
    case FillKind::Bits:
      break;
  }
  internal_error("a fill without a value");
}

/// The memory of an input, filled when somebody looks at it.
class FilledStorage : public Storage {
 public:
  FilledStorage(const InputDecl& input, int64_t count, uint64_t key)
      : fill_(input.fill), dtype_(input.dtype), count_(static_cast<uint64_t>(count)), key_(key) {}

  size_t bytes() const override { return count_ * static_cast<size_t>(size_of(dtype_)); }

  void* data() override {
    std::call_once(once_, [this] { make(); });
    return memory_->data();
  }

 private:
  void make() {
    memory_ = make_storage(bytes());
    auto* const out = static_cast<char*>(memory_->data());
    if (fill_.kind == FillKind::Zeros) {
      std::memset(out, 0, bytes());
      return;
    }
    if (fill_.kind == FillKind::Normal && dtype_ == DType::F32) {
      fill_normal_f32(reinterpret_cast<float*>(out), count_, key_);
      return;
    }
    const auto size = static_cast<size_t>(size_of(dtype_));
    for (uint64_t i = 0; i < count_; ++i) {
      const uint64_t bits = fill_.kind == FillKind::Bits
                                ? random_bits(key_, i)
                                : to_bits(element(fill_, dtype_, key_, i), dtype_);
      std::memcpy(out + i * size, &bits, size);
    }
  }

  Fill fill_;
  DType dtype_;
  uint64_t count_;
  uint64_t key_;
  std::once_flag once_;
  Ref<Storage> memory_;
};

Shape shape_of(const InputDecl& input) {
  const std::vector<int64_t> sizes = input.shape();
  return Shape(sizes.begin(), sizes.end());
}

}  // namespace

Tensor make_input(const InputDecl& input, uint64_t seed) {
  const Shape shape = shape_of(input);
  const int64_t count = numel(shape);
  require(count <= kMaxElements / size_of(input.dtype), "{} needs more than 2^63 bytes",
          input.name);
  auto storage = make_ref<FilledStorage>(input, count, key_of(seed, input.name));
  return Tensor::from_storage(std::move(storage), shape, input.dtype);
}

const InputDecl& find_input(const Program& program, std::string_view name) {
  std::vector<std::string_view> names;
  for (const InputDecl& input : program.inputs) {
    if (input.name == name) return input;
    names.push_back(input.name);
  }
  user_error("the expression has no input '{}'; {}", name,
             names.empty() ? "it takes none" : fmt::format("it takes {}", fmt::join(names, ", ")));
}

Bindings bind_inputs(const Program& program, const Bindings& given, const EvalOptions& options) {
  Bindings bound;
  for (const InputDecl& input : program.inputs) {
    const auto found = given.find(input.name);
    if (found == given.end()) {
      try {
        bound.emplace(input.name, make_input(input, options.seed));
      } catch (const UserError& error) {
        fail_at(program.text, input.place, error.what());
      }
      continue;
    }
    const Tensor& tensor = found->second;
    const Shape shape = shape_of(input);
    if (tensor.dtype() != input.dtype || tensor.shape() != shape) {
      fail_at(
          program.text, input.place,
          fmt::format("the input {} is declared as {} of shape {} and is given as {} of shape {}",
                      input.name, name(input.dtype), to_string(shape), name(tensor.dtype()),
                      to_string(tensor.shape())));
    }
    bound.emplace(input.name, tensor);
  }
  for (const auto& [name, tensor] : given) find_input(program, name);
  return bound;
}

}  // namespace lazuli::notation
