#include "tools/notation/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"

namespace lazuli::notation {
namespace {

bool is_float(const Value& v) {
  return v.get<double>() != nullptr;
}
bool is_bool(const Value& v) {
  return v.get<bool>() != nullptr;
}

uint64_t wrap_64(int64_t v) {
  return static_cast<uint64_t>(v);
}

/// Base to a power that is not negative, modulo 2^64.
int64_t integer_power(int64_t base, int64_t exponent) {
  uint64_t result = 1, factor = wrap_64(base);
  for (; exponent > 0; exponent >>= 1, factor *= factor) {
    if ((exponent & 1) != 0) result *= factor;
  }
  return static_cast<int64_t>(result);
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1) return static_cast<int64_t>(0 - wrap_64(a));
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

template <typename T>
std::optional<bool> compare(std::string_view op, T a, T b) {
  if (op == "<") return a < b;
  if (op == "<=") return a <= b;
  if (op == ">") return a > b;
  if (op == ">=") return a >= b;
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  return std::nullopt;
}

std::optional<double> float_binary(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (op != "/" && op != "//" && op != "%") return std::nullopt;
  require(b != 0, "{}: division of the number {} by zero", op, a);
  if (op == "/") return a / b;
  if (op == "//") return std::floor(a / b);
  return a - b * std::floor(a / b);
}

std::optional<int64_t> integer_binary(std::string_view op, int64_t a, int64_t b) {
  if (op == "+") return static_cast<int64_t>(wrap_64(a) + wrap_64(b));
  if (op == "-") return static_cast<int64_t>(wrap_64(a) - wrap_64(b));
  if (op == "*") return static_cast<int64_t>(wrap_64(a) * wrap_64(b));
  if (op == "&") return a & b;
  if (op == "|") return a | b;
  if (op == "^") return a ^ b;
  if (op == "<<" || op == ">>") {
    require(b >= 0, "{}: the count {} is negative", op, b);
    if (op == "<<") return b > 63 ? 0 : static_cast<int64_t>(wrap_64(a) << b);
    return a >> std::min<int64_t>(b, 63);
  }
  if (op != "//" && op != "%") return std::nullopt;
  require(b != 0, "{}: division of the number {} by zero", op, a);
  const int64_t quotient = floor_divide(a, b);
  if (op == "//") return quotient;
  return static_cast<int64_t>(wrap_64(a) - wrap_64(quotient) * wrap_64(b));
}

}  // namespace

Value number_binary(std::string_view op, const Value& left, const Value& right) {
  const Scalar a = to_scalar(left), b = to_scalar(right);
  const bool floats = is_float(left) || is_float(right);
  const auto compared =
      floats ? compare(op, a.as_double(), b.as_double()) : compare(op, a.as_int(), b.as_int());
  if (compared) return {.data = *compared};
  const bool power_of_less = op == "**" && !floats && b.as_int() < 0;
  if (floats || op == "/" || power_of_less) {
    const auto result = float_binary(op, a.as_double(), b.as_double());
    require(result.has_value(), "{} has no meaning for {} and {}", op, describe(left),
            describe(right));
    return {.data = *result};
  }
  if (op == "**") return {.data = integer_power(a.as_int(), b.as_int())};
  const auto result = integer_binary(op, a.as_int(), b.as_int());
  require(result.has_value(), "{} has no meaning for {} and {}; expected tensors", op,
          describe(left), describe(right));
  const bool logical = is_bool(left) && is_bool(right) && (op == "&" || op == "|" || op == "^");
  if (logical) return {.data = *result != 0};
  return {.data = *result};
}

Value number_unary(std::string_view op, const Value& operand) {
  if (const auto* b = operand.get<bool>()) {
    if (op == "~") return {.data = !*b};
    return {.data = static_cast<int64_t>(-static_cast<int>(*b))};
  }
  if (const auto* i = operand.get<int64_t>()) {
    return {.data = op == "~" ? ~*i : static_cast<int64_t>(0 - wrap_64(*i))};
  }
  const double value = std::get<double>(operand.data);
  require(op != "~", "~ has no meaning for {}; expected an integer, a bool or a tensor",
          describe(operand));
  return {.data = -value};
}

}  // namespace lazuli::notation
