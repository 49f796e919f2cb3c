// One number of any dtype, stored as the bits that an array element of that dtype would have.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dtype.h"

namespace lazuli {

/// A number as the user wrote it: its category takes part in promotion weakly, as a Python number does in PyTorch.
class Scalar {
 public:
  Scalar(bool v) : kind_(Kind::Bool), int_(v), float_(v) {}
  Scalar(int v) : Scalar(static_cast<int64_t>(v)) {}
  Scalar(unsigned v) : Scalar(static_cast<int64_t>(v)) {}
  Scalar(long v) : kind_(Kind::Int), int_(v), float_(static_cast<double>(v)) {}
  Scalar(long long v) : Scalar(static_cast<long>(v)) {}
  Scalar(unsigned long v) : kind_(Kind::Int), int_(static_cast<int64_t>(v)), float_(static_cast<double>(v)) {}
  Scalar(float v) : Scalar(static_cast<double>(v)) {}
  Scalar(double v) : kind_(Kind::Float), int_(0), float_(v) {}

  Kind kind() const { return kind_; }
  bool is_float() const { return kind_ == Kind::Float; }
  double as_double() const { return float_; }
  /// The integer; for a float, truncated and saturated (NaN gives 0).
  int64_t as_int() const;

 private:
  Kind kind_;
  int64_t int_;
  double float_;
};

namespace detail {
/// `v` without the bytes above the lowest `bytes`.
constexpr uint64_t low_bytes(uint64_t v, int bytes) {
  return bytes == 8 ? v : v & ((uint64_t{1} << (8 * bytes)) - 1);
}
}  // namespace detail

/// The bits of `v` converted to dtype `t`, in the low bytes: integers wrap, floats round to nearest even, floats to
/// integers truncate and saturate (NaN gives 0).
uint64_t to_bits(const Scalar& v, DType t);
/// The number that the bits stand for.
Scalar from_bits(uint64_t bits, DType t);

}  // namespace lazuli
