// Replays the vectors of tests/conformance/vectors/*.jsonl, which generate.py made with PyTorch,
// NumPy and JAX: evaluates each expression on each device and compares dtype, shape and values.
// book.py describes the format and the tolerances.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/scalar.h"
#include "core/tensor.h"
#include "runtime/runtime.h"
#include "tools/notation/notation.h"

namespace {

using lazuli::DType;
using lazuli::Shape;
using lazuli::Tensor;
using nlohmann::json;

struct VectorArray {
  DType dtype;
  Shape shape;
  std::vector<char> bytes;

  size_t size() const { return bytes.size() / static_cast<size_t>(lazuli::size_of(dtype)); }
};

DType json_dtype(const json& array) {
  DType dtype;
  REQUIRE(lazuli::parse_dtype(array.at("dtype").get<std::string>(), dtype));
  return dtype;
}

lazuli::Scalar json_number(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) return value.get<double>();
  const std::string word = value.get<std::string>();
  REQUIRE((word == "nan" || word == "inf" || word == "-inf"));
  if (word == "nan") return std::nan("");
  return word == "inf" ? INFINITY : -INFINITY;
}

VectorArray decode(const json& array) {
  VectorArray result{json_dtype(array), {}, {}};
  for (const json& size : array.at("shape")) result.shape.push_back(size.get<int64_t>());
  const size_t width = static_cast<size_t>(lazuli::size_of(result.dtype));
  for (const json& value : array.at("data")) {
    const uint64_t bits = lazuli::to_bits(json_number(value), result.dtype);
    char element[sizeof bits];
    std::memcpy(element, &bits, sizeof bits);
    result.bytes.insert(result.bytes.end(), element, element + width);
  }
  return result;
}

uint64_t bits_at(const void* data, DType dtype, size_t i) {
  const size_t width = static_cast<size_t>(lazuli::size_of(dtype));
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(data) + i * width, width);
  return bits;
}

/// One tolerance of a vector: which kind, and its number.
struct Tolerance {
  enum Kind { Exact, Equal, Ulp, Relative } kind;
  double bound = 0;
  bool signed_zero = true;  // zeros of different sign differ

  explicit Tolerance(const std::string& text) {
    if (text == "exact") {
      kind = Exact;
    } else if (text == "equal") {
      kind = Equal;
    } else if (text.starts_with("ulp")) {
      kind = Ulp;
      bound = std::stod(text.substr(3));
      signed_zero = !text.ends_with("z");
    } else {
      REQUIRE(text.starts_with("rel"));
      kind = Relative;
      bound = std::stod(text.substr(3));
    }
  }
};

/// The distance of two floats of one dtype where a unit in the last place is 2^-mantissa, and at
/// least 2^lowest.
struct Precision {
  int mantissa, lowest;
};

Precision precision_of(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return {10, -14};
    case DType::BF16:
      return {7, -126};
    case DType::F32:
      return {23, -126};
    default:
      return {52, -1022};
  }
}

double unit_in_last_place(double value, DType dtype) {
  const Precision p = precision_of(dtype);
  const int exponent = value == 0 ? p.lowest : std::max(std::ilogb(value), p.lowest);
  return std::ldexp(1.0, exponent - p.mantissa);
}

/// Whether one float is as close to what it must be as the tolerance says. `scale` is the largest
/// magnitude of the array.
bool is_close(double got, double want, DType dtype, const Tolerance& tolerance, double scale) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  const bool same_sign_of_zero = got != 0 || want != 0 || std::signbit(got) == std::signbit(want);
  switch (tolerance.kind) {
    case Tolerance::Exact:
      return got == want && same_sign_of_zero;
    case Tolerance::Equal:
      return got == want;
    case Tolerance::Ulp:
      return (same_sign_of_zero || !tolerance.signed_zero) &&
             std::abs(got - want) <= tolerance.bound * unit_in_last_place(want, dtype);
    default:
      return std::abs(got - want) <= tolerance.bound * (scale > 0 ? scale : 1);
  }
}

double largest_finite(const VectorArray& array) {
  double largest = 0;
  for (size_t i = 0; i < array.size(); ++i) {
    const double value =
        lazuli::from_bits(bits_at(array.bytes.data(), array.dtype, i), array.dtype).as_double();
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

/// What is wrong with one output, "" if nothing.
std::string conformance_difference(const Tensor& got, const VectorArray& want,
                                   const Tolerance& tolerance) {
  if (got.dtype() != want.dtype) {
    return fmt::format("dtype is {}, not {}", name(got.dtype()), name(want.dtype));
  }
  if (got.shape() != want.shape) {
    return fmt::format("shape is [{}], not [{}]", fmt::join(got.shape(), ","),
                       fmt::join(want.shape, ","));
  }
  const DType dtype = want.dtype;
  const double scale = lazuli::is_float(dtype) ? largest_finite(want) : 0;
  const void* data = want.size() == 0 ? nullptr : got.data();
  for (size_t i = 0; i < want.size(); ++i) {
    const uint64_t a = bits_at(data, dtype, i), b = bits_at(want.bytes.data(), dtype, i);
    if (a == b) continue;
    const lazuli::Scalar x = lazuli::from_bits(a, dtype), y = lazuli::from_bits(b, dtype);
    if (!lazuli::is_float(dtype)) {
      return fmt::format("element {} is {}, not {}", i, x.as_int(), y.as_int());
    }
    if (!is_close(x.as_double(), y.as_double(), dtype, tolerance, scale)) {
      return fmt::format(
          "element {} is {:.9g}, not {:.9g} (off by {:.3g} units in the last place)", i,
          x.as_double(), y.as_double(),
          std::abs(x.as_double() - y.as_double()) / unit_in_last_place(y.as_double(), dtype));
    }
  }
  return "";
}

/// Evaluates one vector; what is wrong, "" if nothing.
std::string replay_vector(const json& vector) {
  lazuli::notation::Bindings bindings;
  for (const auto& [name, input] : vector.at("inputs").items()) {
    const VectorArray array = decode(input);
    bindings.emplace(
        name, Tensor::from_bytes(array.bytes.data(), array.bytes.size(), array.shape, array.dtype));
  }
  const auto program = lazuli::notation::parse(vector.at("expr").get<std::string>());
  const std::vector<Tensor> outputs = lazuli::notation::evaluate(program, bindings);
  const json& wanted = vector.at("outputs");
  if (outputs.size() != wanted.size()) {
    return fmt::format("{} results, not {}", outputs.size(), wanted.size());
  }
  lazuli::realize(std::span<const Tensor>(outputs));
  const Tolerance tolerance(vector.at("tol").get<std::string>());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string wrong = conformance_difference(outputs[i], decode(wanted[i]), tolerance);
    if (!wrong.empty()) return fmt::format("result {}: {}", i, wrong);
  }
  return "";
}

std::string replay_caught(const json& vector) {
  try {
    return replay_vector(vector);
  } catch (const std::exception& e) {
    std::string text = e.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }
}

std::vector<std::filesystem::path> vector_files() {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder =
      std::filesystem::path(LAZULI_TEST_DIR) / "conformance/vectors";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Replays every vector on a device: one check each, which names file, line and expression.
void replay_all(std::string_view device) {
  lazuli::Config config = lazuli::Config::from_env();
  config.device = device;
  lazuli::Runtime runtime(config);
  const lazuli::Runtime::Use use(runtime);
  size_t count = 0, failed = 0;
  for (const auto& path : vector_files()) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    const size_t promised = json::parse(line).at("vectors").get<size_t>();
    size_t read = 0;
    while (std::getline(file, line)) {
      const json vector = json::parse(line);
      const std::string wrong = replay_caught(vector);
      ++read;
      failed += wrong.empty() ? 0 : 1;
      CHECK_MESSAGE(wrong.empty(),
                    fmt::format("{}:{}: {}: {} on {}: {}", path.filename().string(), read + 1,
                                vector.at("op").get<std::string>(),
                                vector.at("expr").get<std::string>(), device, wrong));
    }
    CHECK_MESSAGE(read == promised, path.filename().string() << " is cut short");
    count += read;
  }
  MESSAGE(fmt::format("{} vectors on {}, {} failed", count, device, failed));
  CHECK(count >= 1000);
}

}  // namespace

TEST_SUITE("conformance") {
  TEST_CASE("the reference device agrees with PyTorch, NumPy and JAX") {
    replay_all("reference");
  }

#if LAZULI_LLVM
  TEST_CASE("the cpu agrees with PyTorch, NumPy and JAX") {
    replay_all("cpu");
  }
#endif
}
