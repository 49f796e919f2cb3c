#include "core/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace lazuli {
namespace {

constexpr int64_t kSummaryThreshold = 1000, kEdgeItems = 3;
constexpr size_t kLineWidth = 75;
constexpr int kPrecision = 8;

// A finite number as its decimal digits d0.d1d2... times 10^exponent.
struct Decimal {
  bool negative = false;
  std::string digits;  // without trailing zeros; "0" for zero
  int exponent = 0;
};

Decimal parse_scientific(const std::string& text) {
  Decimal d;
  const size_t e = text.find('e');
  for (char c : text.substr(0, e)) {
    if (c == '-')
      d.negative = true;
    else if (c != '.')
      d.digits += c;
  }
  d.exponent = std::stoi(text.substr(e + 1));
  while (d.digits.size() > 1 && d.digits.back() == '0') d.digits.pop_back();
  return d;
}

// The fewest digits that name this number among those of its dtype.
Decimal shortest(double v, DType dtype) {
  std::array<char, 64> text;
  const auto digits_of = [&](auto number) {
    const auto end = std::to_chars(text.data(), text.data() + text.size(), number,
                                   std::chars_format::scientific);
    return std::string(text.data(), end.ptr);
  };
  if (dtype == DType::F64) return parse_scientific(digits_of(v));
  if (dtype == DType::F32) return parse_scientific(digits_of(static_cast<float>(v)));
  for (int precision = 0;; precision++) {
    const std::string s = fmt::format("{:.{}e}", v, precision);
    if (to_bits(std::stod(s), dtype) == to_bits(v, dtype)) return parse_scientific(s);
  }
}

// Integer and fraction digits with at most `precision` after the point, no trailing zeros.
struct Positional {
  std::string whole, fraction;
};

Positional positional(double v, DType dtype, int precision) {
  Decimal d = shortest(v, dtype);
  const int places = static_cast<int>(d.digits.size()) - 1 - d.exponent;
  if (places > precision) {
    // Rounded from the exact value, not from the shortest digits.
    const std::string s = fmt::format("{:.{}f}", v, precision);
    const size_t point = s.find('.');
    Positional p{s.substr(0, point), point == std::string::npos ? "" : s.substr(point + 1)};
    while (!p.fraction.empty() && p.fraction.back() == '0') p.fraction.pop_back();
    return p;
  }
  const std::string sign = d.negative ? "-" : "";
  if (d.exponent < 0) {
    const bool zero = d.digits == "0";
    return {sign + "0",
            zero ? "" : std::string(static_cast<size_t>(-d.exponent - 1), '0') + d.digits};
  }
  const auto whole = static_cast<size_t>(d.exponent) + 1;
  if (d.digits.size() <= whole)
    return {sign + d.digits + std::string(whole - d.digits.size(), '0'), ""};
  return {sign + d.digits.substr(0, whole), d.digits.substr(whole)};
}

struct Scientific {
  std::string whole, fraction, exponent;
};

Scientific scientific(double v, DType dtype, int precision) {
  Decimal d = shortest(v, dtype);
  if (static_cast<int>(d.digits.size()) - 1 > precision) {
    d = parse_scientific(fmt::format("{:.{}e}", v, precision));
  }
  std::string exponent = fmt::format("{:+03d}", d.exponent);
  return {(d.negative ? "-" : "") + d.digits.substr(0, 1), d.digits.substr(1), exponent};
}

// With exactly `digits` after the point.
Scientific exact(double v, int digits) {
  const std::string s = fmt::format("{:.{}e}", v, digits);
  const size_t point = s.find('.'), e = s.find('e');
  return {s.substr(0, std::min(point, e)), point < e ? s.substr(point + 1, e - point - 1) : "",
          fmt::format("{:+03d}", std::stoi(s.substr(e + 1)))};
}

// Numbers from here on are printed with an exponent: those of which not every digit before the
// point means something.
double exponent_limit(DType dtype) {
  return size_of(dtype) == 2 ? 1e3 : dtype == DType::F32 ? 1e6 : 1e16;
}

std::string padded_left(const std::string& s, size_t width) {
  return s.size() < width ? std::string(width - s.size(), ' ') + s : s;
}

// Formats every number alike: the widths follow from all that are shown.
class FloatFormat {
 public:
  FloatFormat(const std::vector<double>& values, DType dtype) : dtype_(dtype) {
    double largest = 0, smallest = std::numeric_limits<double>::infinity();
    bool all_finite = true, negative_infinity = false, any_finite = false;
    for (double v : values) {
      if (!std::isfinite(v)) {
        all_finite = false;
        negative_infinity |= v < 0;
        continue;
      }
      any_finite = true;
      if (v == 0) continue;
      largest = std::max(largest, std::fabs(v));
      smallest = std::min(smallest, std::fabs(v));
    }
    const double limit = std::min(1e8, exponent_limit(dtype));
    exponential_ =
        largest > 0 && (largest >= limit || smallest < 0.0001 || largest / smallest > 1000);
    for (double v : values) {
      if (std::isfinite(v)) measure(v);
    }
    if (exponential_) right_ = exponent_ + 1 + fraction_;
    if (!any_finite) left_ = right_ = 0;
    if (!all_finite) {
      const size_t offset = right_ + 1;
      const size_t need = negative_infinity ? 4 : 3;
      left_ = std::max(left_, need > offset ? need - offset : 0);
    }
  }

  std::string operator()(double v) const {
    if (!std::isfinite(v)) {
      return padded_left(std::isnan(v) ? "nan" : v < 0 ? "-inf" : "inf", left_ + right_ + 1);
    }
    if (exponential_) {
      // Digits beyond the shortest are those of the exact value, as NumPy fills a column.
      Scientific s = scientific(v, dtype_, kPrecision);
      if (s.fraction.size() < fraction_) s = exact(v, static_cast<int>(fraction_));
      std::string digits = s.exponent.substr(1);
      digits = std::string(exponent_ - 1 - std::min(exponent_ - 1, digits.size()), '0') + digits;
      return padded_left(s.whole, left_) + "." + s.fraction + "e" + s.exponent[0] + digits;
    }
    Positional p = positional(v, dtype_, kPrecision);
    p.fraction.resize(right_, ' ');
    return padded_left(p.whole, left_) + "." + p.fraction;
  }

 private:
  void measure(double v) {
    if (exponential_) {
      const Scientific s = scientific(v, dtype_, kPrecision);
      left_ = std::max(left_, s.whole.size());
      fraction_ = std::max(fraction_, s.fraction.size());
      exponent_ = std::max(exponent_, s.exponent.size());
    } else {
      const Positional p = positional(v, dtype_, kPrecision);
      left_ = std::max(left_, p.whole.size());
      right_ = std::max(right_, p.fraction.size());
    }
  }

  DType dtype_;
  bool exponential_ = false;
  size_t left_ = 0, right_ = 0;  // digits before and after the point
  size_t fraction_ = 0,
         exponent_ = 0;  // exponential: digits after the point, exponent with its sign
};

// Which elements are shown, and their words in order.
class Printer {
 public:
  Printer(const void* data, DType dtype, const Shape& shape)
      : data_(data), dtype_(dtype), shape_(shape), summary_(numel(shape) > kSummaryThreshold) {
    std::vector<int64_t> shown;
    collect(0, 0, shown);
    if (is_float(dtype)) {
      std::vector<double> values;
      for (int64_t i : shown) values.push_back(element(i).as_double());
      const FloatFormat format(values, dtype);
      for (double v : values) words_.push_back(format(v));
      return;
    }
    size_t width = 0;
    for (int64_t i : shown) {
      words_.push_back(word(element(i)));
      width = std::max(width, words_.back().size());
    }
    // NumPy aligns bools by giving True a space, whatever else is shown.
    if (dtype == DType::Bool) width = words_.empty() ? 0 : std::max<size_t>(width, 5);
    for (std::string& w : words_)
      w = dtype == DType::Bool && w == "True" ? " True" : padded_left(w, width);
  }

  std::string print() { return block(0, " ", kLineWidth); }

 private:
  Scalar element(int64_t i) const { return detail::element(data_, dtype_, i); }

  std::string word(const Scalar& v) const {
    if (dtype_ == DType::Bool) return v.as_int() ? "True" : "False";
    if (dtype_ == DType::U64) return fmt::format("{}", static_cast<uint64_t>(v.as_int()));
    return fmt::format("{}", v.as_int());
  }

  bool shortened(size_t axis) const { return summary_ && shape_[axis] > 2 * kEdgeItems; }

  // Calls `body` with the index of each shown element of the axis, and -1 for the gap.
  template <typename Body>
  void each(size_t axis, Body body) const {
    const int64_t n = shape_[axis];
    for (int64_t i = 0; i < n; i++) {
      if (shortened(axis) && i == kEdgeItems) {
        body(int64_t{-1}, false);
        i = n - kEdgeItems;
      }
      body(i, i == n - 1);
    }
  }

  void collect(size_t axis, int64_t offset, std::vector<int64_t>& out) const {
    if (axis == shape_.size()) {
      out.push_back(offset);
      return;
    }
    each(axis, [&](int64_t i, bool) {
      if (i >= 0) collect(axis + 1, offset * shape_[axis] + i, out);
    });
  }

  // The bracketed text of one sub-array; the next words are its own. Depth is at most the rank.
  std::string block(size_t axis, const std::string& indent, size_t width) {
    std::string s;
    if (axis + 1 == shape_.size()) {
      std::string line = indent;
      const auto add = [&](const std::string& word) {
        if (line.size() + word.size() > width - 1 && line.size() > indent.size()) {
          line.erase(line.find_last_not_of(' ') + 1);
          s += line + "\n";
          line = indent;
        }
        line += word;
      };
      each(axis, [&](int64_t i, bool last) {
        add(i < 0 ? "..." : words_[next_++]);
        if (!last) line += " ";
      });
      s += line;
    } else {
      const std::string gap(shape_.size() - axis - 1, '\n');
      each(axis, [&](int64_t i, bool last) {
        s +=
            indent + (i < 0 ? "..." : block(axis + 1, indent + " ", width - 1)) + (last ? "" : gap);
      });
    }
    return "[" + s.substr(indent.size()) + "]";
  }

  const void* data_;
  DType dtype_;
  const Shape& shape_;
  bool summary_;
  std::vector<std::string> words_;
  size_t next_ = 0;
};

// A number alone: all its digits, positional for ordinary sizes.
std::string print_number(const Scalar& v, DType dtype) {
  if (dtype == DType::Bool) return v.as_int() ? "True" : "False";
  if (dtype == DType::U64) return fmt::format("{}", static_cast<uint64_t>(v.as_int()));
  if (!is_float(dtype)) return fmt::format("{}", v.as_int());
  const double x = v.as_double();
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  constexpr int kAllDigits = 1100;  // more than any f64 has
  const double size = std::fabs(x);
  if (x == 0 || (size >= 1e-4 && size < exponent_limit(dtype))) {
    const Positional p = positional(x, dtype, kAllDigits);
    return p.whole + "." + (p.fraction.empty() ? "0" : p.fraction);
  }
  const Scientific s = scientific(x, dtype, kAllDigits);
  return s.whole + (s.fraction.empty() ? "" : "." + s.fraction) + "e" + s.exponent;
}

}  // namespace

std::string print_array(const void* data, DType dtype, const Shape& shape) {
  if (shape.empty()) return print_number(detail::element(data, dtype, 0), dtype);
  if (numel(shape) == 0) return "[]";
  return Printer(data, dtype, shape).print();
}

std::string Tensor::str() const {
  const Ref<Storage> elements = storage();
  return print_array(elements->data(), dtype(), shape());
}

}  // namespace lazuli
