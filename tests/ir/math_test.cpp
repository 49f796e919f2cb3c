// The elementary functions against the C library's in a wider type: as numbers, densely, and as the
// node graphs that kernels get, which must give the same bits.
#include "ir/math.h"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/evaluate.h"
#include "core/graph.h"
#include "ir/index.h"
#include "ir/kernel.h"
#include "ir/lower.h"
#include "ir/math_functions.h"
#include "ir/math_gamma.h"
#include "ir/schedule.h"
#include "tests/ir/math_number.h"

using namespace lazuli;

namespace {

using F = math::Number<float>;
using D = math::Number<double>;

struct MathFunction {
  Op op;
  float (*f32)(float);
  double (*f64)(double);
  double (*exact_f32)(double);
  long double (*exact_f64)(long double);
  MathOps ops = {};
};

#define LAZULI_FUNCTION(op, f)                                                             \
  MathFunction {                                                                           \
    op, [](float x) { return math::f(F(x)).v; }, [](double x) { return math::f(D(x)).v; }, \
        [](double x) { return std::f(x); }, [](long double x) { return std::f(x); }        \
  }
const std::vector<MathFunction> kFunctions{
    LAZULI_FUNCTION(Op::Exp, exp),
    LAZULI_FUNCTION(Op::Exp2, exp2),
    LAZULI_FUNCTION(Op::Expm1, expm1),
    LAZULI_FUNCTION(Op::Log, log),
    LAZULI_FUNCTION(Op::Log2, log2),
    LAZULI_FUNCTION(Op::Log10, log10),
    LAZULI_FUNCTION(Op::Log1p, log1p),
    LAZULI_FUNCTION(Op::Sin, sin),
    LAZULI_FUNCTION(Op::Cos, cos),
    LAZULI_FUNCTION(Op::Tan, tan),
    LAZULI_FUNCTION(Op::Asin, asin),
    LAZULI_FUNCTION(Op::Acos, acos),
    LAZULI_FUNCTION(Op::Atan, atan),
    LAZULI_FUNCTION(Op::Sinh, sinh),
    LAZULI_FUNCTION(Op::Cosh, cosh),
    LAZULI_FUNCTION(Op::Tanh, tanh),
    LAZULI_FUNCTION(Op::Asinh, asinh),
    LAZULI_FUNCTION(Op::Acosh, acosh),
    LAZULI_FUNCTION(Op::Atanh, atanh),
    LAZULI_FUNCTION(Op::Erf, erf),
    LAZULI_FUNCTION(Op::Erfc, erfc),
    MathFunction{Op::Sigmoid, [](float x) { return math::sigmoid(F(x)).v; },
                 [](double x) { return math::sigmoid(D(x)).v; },
                 [](double x) { return 1 / (1 + std::exp(-x)); },
                 [](long double x) { return 1 / (1 + std::exp(-x)); }},
    // By roots of two.
    MathFunction{Op::Exp,
                 [](float x) { return math::exp<math::Number, float, true>(F(x)).v; },
                 [](double x) { return math::exp(D(x)).v; },
                 [](double x) { return std::exp(x); },
                 [](long double x) { return std::exp(x); },
                 {.permutes = true}},
    // By estimates of reciprocals.
    MathFunction{Op::Tanh,
                 [](float x) { return math::tanh<math::Number, float, true>(F(x)).v; },
                 [](double x) { return math::tanh(D(x)).v; },
                 [](double x) { return std::tanh(x); },
                 [](long double x) { return std::tanh(x); },
                 {.estimates = true}},
    MathFunction{Op::Sigmoid,
                 [](float x) { return math::sigmoid<math::Number, float, true>(F(x)).v; },
                 [](double x) { return math::sigmoid(D(x)).v; },
                 [](double x) { return 1 / (1 + std::exp(-x)); },
                 [](long double x) { return 1 / (1 + std::exp(-x)); },
                 {.estimates = true}},
};
#undef LAZULI_FUNCTION

// The error in units in the last place that T has at `exact`; NaN must be NaN, and an exact zero
// have its sign. A result that overflows counts as the power of two beyond the largest number.
template <typename T, typename Wide>
double error_in_ulp(T got, Wide exact) {
  constexpr double kWrong = 1e30;
  using Limits = std::numeric_limits<T>;
  if (std::isnan(exact)) return std::isnan(got) ? 0 : kWrong;
  if (std::isnan(got)) return kWrong;
  const T rounded = static_cast<T>(exact);
  if (exact == 0 && std::signbit(got) != std::signbit(exact)) return kWrong;
  if (rounded == got) return 0;
  if (std::isinf(exact)) return kWrong;
  const Wide value = std::isinf(got)
                         ? std::copysign(std::ldexp(Wide(1), Limits::max_exponent), Wide(got))
                         : Wide(got);
  const int exponent =
      exact == 0 ? Limits::min_exponent : std::max(std::ilogb(exact) + 1, Limits::min_exponent);
  return static_cast<double>(std::fabs(value - exact) /
                             std::ldexp(Wide(1), exponent - Limits::digits));
}

// By the recurrence to 40 and the asymptotic series; reflected for negative numbers.
long double exact_digamma(long double x) {
  if (x == 0) return std::copysign(std::numeric_limits<long double>::infinity(), -x);
  const long double pi = std::acos(-1.0L);
  if (x < 0) {
    const long double fraction = x - std::round(x);
    if (fraction == 0) return std::numeric_limits<long double>::quiet_NaN();
    return exact_digamma(1 - x) - pi / std::tan(pi * fraction);
  }
  if (!(x < std::numeric_limits<long double>::infinity())) return x;
  long double shift = 0;
  for (; x < 40; x += 1) shift += 1 / x;
  const long double r = 1 / (x * x);
  return std::log(x) - shift - 0.5L / x -
         r * (1.0L / 12 - r * (1.0L / 120 - r * (1.0L / 252 - r * (1.0L / 240 - r / 132))));
}

long double exact_lgamma(long double x) {
  int sign = 0;
  return lgammal_r(x, &sign);
}

template <typename T>
uint64_t to_word(T x) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<uint32_t>(x);
  } else {
    return std::bit_cast<uint64_t>(x);
  }
}
template <typename T>
T from_word(uint64_t bits) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(static_cast<uint32_t>(bits));
  } else {
    return std::bit_cast<T>(bits);
  }
}

// An expanded function, evaluated node by node with the documented meaning of each op.
class MathGraph {
 public:
  MathGraph(Op op, DType dtype, const Arg& arg = {}, const MathOps& ops = {})
      : arity_(info(op).arity) {
    Sources inputs;
    for (int i = 0; i < arity_; i++) inputs.push_back(load(i, dtype, index_const(0)));
    const NodeRef root = expand_math(op, dtype, inputs, arg, ops);
    std::unordered_map<const Node*, size_t> place;
    for (const NodeRef& n : inputs) {
      place[n.get()] = values_.size();
      values_.push_back(0);
    }
    visit(root, [&](const NodeRef& n) {
      if (place.count(n.get()) || n.get() == index_const(0).get()) return;
      place[n.get()] = values_.size();
      values_.push_back(n->op == Op::Const ? std::get<ScalarBits>(n->arg).bits : 0);
      if (n->op == Op::Const) return;
      Step step{n, values_.size() - 1, {}};
      for (const NodeRef& s : n->src) step.src.push_back(place.at(s.get()));
      steps_.push_back(step);
    });
  }

  template <typename T>
  T operator()(T x, T y = 0) {
    values_[0] = to_word(x);
    if (arity_ > 1) values_[1] = to_word(y);
    return from_word<T>(run());
  }
  uint64_t operator()(uint64_t bits) {
    values_[0] = bits;
    return run();
  }
  size_t size() const { return steps_.size(); }

 private:
  struct Step {
    NodeRef node;
    size_t at;
    std::vector<size_t> src;
  };

  uint64_t run() {
    for (const Step& s : steps_) {
      std::array<uint64_t, 3> bits{};
      for (size_t i = 0; i < s.src.size(); i++) bits[i] = values_[s.src[i]];
      values_[s.at] = evaluate(s.node->op, s.node->dtype, std::span(bits.data(), s.src.size()),
                               s.node->src.back()->dtype);
    }
    return values_[steps_.back().at];
  }

  int arity_;
  std::vector<uint64_t> values_;
  std::vector<Step> steps_;
};

template <typename T>
std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> r;
  for (const T x : {T(0),
                    L::denorm_min(),
                    L::min() / 2,
                    L::min(),
                    L::epsilon() / 4,
                    L::epsilon(),
                    T(0.25),
                    T(0.5),
                    T(0.8),
                    T(1) - L::epsilon() / 2,
                    T(1),
                    T(1) + L::epsilon(),
                    T(1.5),
                    T(2),
                    T(3),
                    T(10),
                    T(88.72284),
                    T(89.5),
                    T(104),
                    T(709.79),
                    T(710.5),
                    T(746),
                    T(1024),
                    T(1.5707963267948966),
                    T(3.14159265358979),
                    T(1e5),
                    T(1e9),
                    T(1e22),
                    T(1e30),
                    L::max() / 2,
                    L::max(),
                    L::infinity(),
                    L::quiet_NaN()}) {
    r.push_back(x);
    r.push_back(-x);
  }
  return r;
}

// Half of them of any magnitude, half where most functions do something.
double random_double(std::mt19937_64& random) {
  const uint64_t bits = random();
  switch (random() % 4) {
    case 0:
      return std::bit_cast<double>(bits);
    case 1:
      return std::ldexp(static_cast<double>(static_cast<int64_t>(bits)),
                        static_cast<int>(random() % 64) - 95);
    case 2:
      return static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63;
    default:
      return static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63 * (random() % 2 ? 30 : 750);
  }
}

struct Worst {
  double ulp = 0;
  double at = 0;

  void add(double error, double x) {
    if (error > ulp) {
      ulp = error;
      at = x;
    }
  }
};

void check_worst(Op op, DType dtype, const Worst& worst) {
  INFO(std::string(name(op)), " ", std::string(name(dtype)), ": ", worst.ulp, " ULP at ", worst.at);
  CHECK(worst.ulp <= stated_ulp(op, dtype));
}

template <typename T>
bool same_bits(T a, T b) {
  return to_word(a) == to_word(b) || (std::isnan(a) && std::isnan(b));
}

// A sigmoid of which no result is denormal against any other, with or without estimates.
template <bool kEstimate>
void check_normal_sigmoid() {
  const MathOps ops{.estimates = kEstimate};
  MathGraph f32(Op::Sigmoid, DType::F32, kNormalResult, ops);
  MathGraph f64(Op::Sigmoid, DType::F64, kNormalResult, ops);
  CHECK(f32.size() < MathGraph(Op::Sigmoid, DType::F32, {}, ops).size());
  int differ = 0;
  const auto try_f32 = [&](float x) {
    const float want = math::sigmoid<math::Number, float, kEstimate>(F(x)).v;
    const float got = math::sigmoid_with_normal_result<math::Number, float, kEstimate>(F(x)).v;
    differ += to_word(got) != to_word(want) || to_word(f32(x)) != to_word(want);
  };
  const auto try_f64 = [&](double x) {
    const double want = math::sigmoid(D(x)).v;
    differ += to_word(math::sigmoid_with_normal_result(D(x)).v) != to_word(want) ||
              to_word(f64(x)) != to_word(want);
  };
  for (float x = -87.3f; x < 20; x += 0.0103f) try_f32(x);
  for (double x = -700; x < 40; x += 0.0713) try_f64(x);
  for (const float x : special_values<float>()) {
    if (x >= -87.3f) try_f32(x);
  }
  for (const double x : special_values<double>()) {
    if (x >= -700) try_f64(x);
  }
  CHECK(differ == 0);
  CHECK(std::isnan(f32(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(f64(std::numeric_limits<double>::quiet_NaN())));
}

// The program of `op` of 32 numbers.
std::string program_of(Op op, DType dtype, const Target& target, const char* schedule) {
  Kernel kernel;
  kernel.add_argument("x", dtype, 32, false);
  kernel.add_argument("y", dtype, 32, true);
  const NodeRef i = axis("i", 32);
  Stage* rows = kernel.add_stage("rows", {i});
  kernel.add_value(rows, "y", scalar_op(op, dtype, {load(0, dtype, i)}), {i}, Op::Count_, 1);
  apply_schedule(kernel, schedule);
  return print_program(lower(kernel, target));
}

// An exponential of what is not positive against any other, with or without roots of two.
template <bool kRoots>
void check_not_positive() {
  const MathOps ops{.permutes = kRoots};
  MathGraph f32(Op::Exp, DType::F32, kNotPositive, ops),
      f64(Op::Exp, DType::F64, kNotPositive, ops);
  CHECK(f32.size() < MathGraph(Op::Exp, DType::F32, {}, ops).size());
  int differ = 0;
  const auto try_f32 = [&](float x) {
    const float want = math::exp<math::Number, float, kRoots>(F(x)).v;
    differ += !same_bits(math::exp_not_positive<math::Number, float, kRoots>(F(x)).v, want) ||
              !same_bits(f32(x), want);
  };
  const auto try_f64 = [&](double x) {
    const double want = math::exp(D(x)).v;
    differ += !same_bits(math::exp_not_positive(D(x)).v, want) || !same_bits(f64(x), want);
  };
  for (uint64_t i = uint64_t{1} << 31; i < uint64_t{1} << 32; i += 40009)
    try_f32(std::bit_cast<float>(static_cast<uint32_t>(i)));
  // Where the result becomes denormal and vanishes.
  for (float x = -87; x > -105; x -= 0.0009f) try_f32(x);
  for (double x = -708; x > -747; x -= 0.0019) try_f64(x);
  std::mt19937_64 random(5);
  for (int i = 0; i < 100000; i++) try_f64(-std::fabs(random_double(random)));
  for (const float x : special_values<float>()) try_f32(x > 0 ? -x : x);
  for (const double x : special_values<double>()) try_f64(x > 0 ? -x : x);
  CHECK(differ == 0);
}

}  // namespace

TEST_SUITE("ir") {
  TEST_CASE("f32 functions stay within their stated ULPs over the whole range") {
    for (const MathFunction& f : kFunctions) {
      Worst worst;
      for (uint64_t i = 0; i < uint64_t{1} << 32; i += 4001) {
        const float x = std::bit_cast<float>(static_cast<uint32_t>(i));
        worst.add(error_in_ulp(f.f32(x), f.exact_f32(x)), x);
      }
      for (const float x : special_values<float>())
        worst.add(error_in_ulp(f.f32(x), f.exact_f32(x)), x);
      check_worst(f.op, DType::F32, worst);
    }
  }

  TEST_CASE("f64 functions stay within their stated ULPs on random numbers") {
    for (const MathFunction& f : kFunctions) {
      Worst worst;
      std::mt19937_64 random(1);
      for (int i = 0; i < 100000; i++) {
        const double x = random_double(random);
        worst.add(error_in_ulp(f.f64(x), f.exact_f64(x)), x);
      }
      for (const double x : special_values<double>())
        worst.add(error_in_ulp(f.f64(x), f.exact_f64(x)), x);
      check_worst(f.op, DType::F64, worst);
    }
  }

  TEST_CASE("sigmoid stays within its stated ULPs where both of its terms are rounded") {
    for (const float x : {-16.636244f, -16.642534f, -1.1006836f, -3.434164f, -0.00172591f}) {
      const double exact = 1 / (1 + std::exp(-double{x}));
      CHECK(error_in_ulp(math::sigmoid(F(x)).v, exact) <= 2);
      CHECK(error_in_ulp(math::sigmoid<math::Number, float, true>(F(x)).v, exact) <= 2);
    }
    for (const double x : {-36.7421448377518, -36.738669763536784, -1.1159055667968238}) {
      const long double exact = 1 / (1 + std::exp(-static_cast<long double>(x)));
      CHECK(error_in_ulp(math::sigmoid(D(x)).v, exact) <= 2);
    }
  }

  TEST_CASE("angles that are nearly multiples of pi/2 are reduced exactly") {
    // The worst cases of both formats, and large numbers of all kinds.
    for (const float x :
         {0x1.921fb6p0f, 0x1.921fb6p1f, 16367173.0f * 0x1p72f, 0x1.6ac5b2p115f, 1e30f}) {
      for (const size_t i : {7u, 8u, 9u}) {
        const MathFunction& f = kFunctions[i];
        CHECK(error_in_ulp(f.f32(x), f.exact_f32(x)) <= stated_ulp(f.op, DType::F32));
      }
    }
    for (const double x : {0x1.921fb54442d18p0, 6381956970095103.0 * 0x1p797, 1e22, 1e300}) {
      for (const size_t i : {7u, 8u, 9u}) {
        const MathFunction& f = kFunctions[i];
        CHECK(error_in_ulp(f.f64(x), f.exact_f64(x)) <= stated_ulp(f.op, DType::F64));
      }
    }
  }

  TEST_CASE("pow and atan2 stay within their stated ULPs, with all the special cases of C") {
    std::mt19937_64 random(2);
    Worst pow32, atan32, pow64, atan64;
    const auto try_f32 = [&](float x, float y) {
      pow32.add(error_in_ulp(math::pow(F(x), F(y)).v, std::pow(double(x), double(y))), x);
      atan32.add(error_in_ulp(math::atan2(F(x), F(y)).v, std::atan2(double(x), double(y))), x);
    };
    const auto try_f64 = [&](double x, double y) {
      using L = long double;
      pow64.add(error_in_ulp(math::pow(D(x), D(y)).v, std::pow(L(x), L(y))), x);
      atan64.add(error_in_ulp(math::atan2(D(x), D(y)).v, std::atan2(L(x), L(y))), x);
    };
    for (int i = 0; i < 300000; i++) {
      const double x = random_double(random), y = random_double(random);
      // An exponent for which the power is a number.
      const double reach = 1024 / (std::fabs(std::log2(std::fabs(x))) + 1e-30) * std::sin(y);
      try_f32(static_cast<float>(x), static_cast<float>(reach / 8));
      try_f32(static_cast<float>(x), static_cast<float>(y));
      if (i % 4 == 0) try_f64(std::fabs(x), reach);
    }
    for (const float x : special_values<float>()) {
      for (const float y : special_values<float>()) try_f32(x, y);
    }
    for (const double x : special_values<double>()) {
      for (const double y : special_values<double>()) try_f64(x, y);
    }
    check_worst(Op::Pow, DType::F32, pow32);
    check_worst(Op::Atan2, DType::F32, atan32);
    check_worst(Op::Pow, DType::F64, pow64);
    check_worst(Op::Atan2, DType::F64, atan64);
  }

  TEST_CASE("lgamma and digamma are right in f32, and in f64 but for their zeros") {
    const auto lgamma_f32 = [](float x) { return static_cast<float>(math::lgamma(D(x)).v); };
    const auto digamma_f32 = [](float x) { return static_cast<float>(math::digamma(D(x)).v); };
    Worst lgamma32, digamma32, lgamma64, digamma64;
    const auto try_f32 = [&](float x) {
      lgamma32.add(error_in_ulp(lgamma_f32(x), exact_lgamma(x)), x);
      digamma32.add(error_in_ulp(digamma_f32(x), exact_digamma(x)), x);
    };
    const auto relative = [](double got, long double exact) {
      if (std::isnan(exact) || static_cast<double>(exact) == got)
        return std::isnan(got) == std::isnan(exact) ? 0 : 1e30;
      return static_cast<double>(std::fabs(got - exact) / (1 + std::fabs(exact))) * 0x1p52;
    };
    const auto try_f64 = [&](double x) {
      lgamma64.add(relative(math::lgamma(D(x)).v, exact_lgamma(x)), x);
      digamma64.add(relative(math::digamma(D(x)).v, exact_digamma(x)), x);
    };
    for (uint64_t i = 0; i < uint64_t{1} << 32; i += 40009)
      try_f32(std::bit_cast<float>(static_cast<uint32_t>(i)));
    for (const float x : special_values<float>()) try_f32(x);
    std::mt19937_64 random(4);
    for (int i = 0; i < 50000; i++) try_f64(random_double(random));
    for (const double x : special_values<double>()) try_f64(x);
    check_worst(Op::Lgamma, DType::F32, lgamma32);
    check_worst(Op::Digamma, DType::F32, digamma32);
    check_worst(Op::Lgamma, DType::F64, lgamma64);
    check_worst(Op::Digamma, DType::F64, digamma64);
    MathGraph lgamma_graph(Op::Lgamma, DType::F32), digamma_graph(Op::Digamma, DType::F32);
    for (const float x : {0.25f, 1.0f, 3.5f, -0.75f, -7.25f, 1e20f}) {
      CHECK(lgamma_graph(x) == lgamma_f32(x));
      CHECK(digamma_graph(x) == digamma_f32(x));
    }
  }

  TEST_CASE("the node graphs of the functions give the same bits as the numbers") {
    for (const MathFunction& f : kFunctions) {
      INFO(std::string(name(f.op)));
      MathGraph f32(f.op, DType::F32, {}, f.ops), f64(f.op, DType::F64, {}, f.ops);
      const auto same = [](auto a, auto b) {
        return to_word(a) == to_word(b) || (std::isnan(a) && std::isnan(b));
      };
      std::mt19937_64 random(3);
      int differ = 0;
      for (uint64_t i = 0; i < uint64_t{1} << 32; i += 400009) {
        const float x = std::bit_cast<float>(static_cast<uint32_t>(i));
        differ += !same(f32(x), f.f32(x));
        const double y = random_double(random);
        differ += !same(f64(y), f.f64(y));
      }
      for (const float x : special_values<float>()) differ += !same(f32(x), f.f32(x));
      for (const double x : special_values<double>()) differ += !same(f64(x), f.f64(x));
      CHECK(differ == 0);
    }
    MathGraph pow32(Op::Pow, DType::F32), atan32(Op::Atan2, DType::F32);
    for (const float x : special_values<float>()) {
      for (const float y : special_values<float>()) {
        const float p = math::pow(F(x), F(y)).v, a = math::atan2(F(x), F(y)).v;
        CHECK((std::isnan(p) ? std::isnan(pow32(x, y)) : to_word(pow32(x, y)) == to_word(p)));
        CHECK((std::isnan(a) ? std::isnan(atan32(x, y)) : to_word(atan32(x, y)) == to_word(a)));
      }
    }
  }

  TEST_CASE("an exponential of what is not positive has the bits of any other, for less") {
    check_not_positive<false>();
    check_not_positive<true>();
  }

  TEST_CASE("a sigmoid of which no result is denormal has the bits of any other, for less") {
    check_normal_sigmoid<false>();
    check_normal_sigmoid<true>();
  }

  TEST_CASE("reciprocals are estimated where vectors have 16 lanes, for tanh and sigmoid in f32") {
    const auto estimates = [](const Target& target, Op op, DType dtype, const char* schedule) {
      return program_of(op, dtype, target, schedule).find("recip_estimate") != std::string::npos;
    };
    const char* vectors = "split rows i o l 8; vector rows l";
    for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"}) {
      CAPTURE(level);
      const Target target = named_target(level);
      const bool has = std::string(level) == "x86-64-v4";
      for (const Op op : {Op::Tanh, Op::Sigmoid}) {
        CHECK(estimates(target, op, DType::F32, "") == has);
        CHECK(estimates(target, op, DType::F32, vectors) == has);
        CHECK_FALSE(estimates(target, op, DType::F64, vectors));
        // Of more lanes than a register has.
        CHECK_FALSE(estimates(target, op, DType::F32, "split rows i o l 32; vector rows l"));
      }
    }
  }

  TEST_CASE("roots of two are for vectors that are permuted, and make exponentials shorter") {
    const MathOps roots{.permutes = true};
    CHECK(MathGraph(Op::Exp, DType::F32, {}, roots).size() < MathGraph(Op::Exp, DType::F32).size());
    CHECK(MathGraph(Op::Exp, DType::F64, {}, roots).size() ==
          MathGraph(Op::Exp, DType::F64).size());
    const auto has_roots = [](const Target& target, const char* schedule) {
      const std::string program = program_of(Op::Exp, DType::F32, target, schedule);
      return program.find("eighth_root") != std::string::npos;
    };
    for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"}) {
      CAPTURE(level);
      const Target target = named_target(level);
      CHECK(has_permute(target) == (target.lanes >= 8));
      CHECK(has_roots(target, "") == has_permute(target));
      CHECK(has_roots(target, "split rows i o l 8; vector rows l") == has_permute(target));
      // Of more lanes than a register has.
      CHECK_FALSE(has_roots(target, "split rows i o l 32; vector rows l"));
    }
  }

  TEST_CASE("functions of 16-bit floats are the f32 ones, rounded") {
    for (const DType dtype : {DType::F16, DType::BF16}) {
      const auto widen = [&](uint64_t bits) {
        const auto half = static_cast<uint16_t>(bits);
        return dtype == DType::F16 ? f16_to_f32(half) : bf16_to_f32(half);
      };
      for (const MathFunction& f : kFunctions) {
        INFO(std::string(name(f.op)), " ", std::string(name(dtype)));
        MathGraph graph(f.op, dtype, {}, f.ops);
        int differ = 0;
        for (uint64_t bits = 0; bits < 65536; bits += 37) {
          const float want = f.f32(widen(bits));
          const uint16_t rounded = dtype == DType::F16 ? f32_to_f16(want) : f32_to_bf16(want);
          const float got = widen(graph(bits));
          differ += std::isnan(want) ? !std::isnan(got) : to_word(got) != to_word(widen(rounded));
        }
        CHECK(differ == 0);
      }
    }
  }

  TEST_CASE("a lowered kernel takes the branch for huge angles where one is, and nowhere else") {
    for (const char* schedule : {"", "split rows i o l 8; vector rows l"}) {
      Kernel kernel;
      kernel.add_argument("x", DType::F32, 32, false);
      kernel.add_argument("y", DType::F32, 32, true);
      const NodeRef i = axis("i", 32);
      Stage* rows = kernel.add_stage("rows", {i});
      const NodeRef x = load(0, DType::F32, i), one = scalar_const(Scalar(1), DType::F32);
      const NodeRef sum =
          scalar_op(Op::Add, DType::F32, {scalar_op(Op::Sin, DType::F32, {x}), one});
      kernel.add_value(rows, "y", sum, {i}, Op::Count_, 1);
      apply_schedule(kernel, schedule);
      const Program program = lower(kernel, Target{});
      verify_program(program);
      const std::string text = print_program(program);
      CHECK_MESSAGE(text.find("if ") != std::string::npos, text);
      for (const float huge : {1.0f, 1e30f}) {
        std::array<float, 32> in, out;
        for (size_t k = 0; k < in.size(); k++) in[k] = static_cast<float>(k) - 11.5f;
        in[3] = huge;
        in[17] = -huge;
        interpret_program(program, {in.data(), out.data()});
        for (size_t k = 0; k < in.size(); k++) CHECK(out[k] == math::sin(F(in[k])).v + 1.0f);
      }
    }
  }

  TEST_CASE("the remainder of floats is exact, and the library's for long quotients only") {
    const auto check = [](auto zero) {
      using T = decltype(zero);
      using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
      using Limits = std::numeric_limits<T>;
      const auto wrong = [](T x, T y) {
        const T got = math::rem(math::Number<T>(x), math::Number<T>(y)).v, want = std::fmod(x, y);
        return std::bit_cast<Bits>(got) != std::bit_cast<Bits>(want) &&
               !(std::isnan(got) && std::isnan(want));
      };
      std::vector<T> list{0,
                          1,
                          T(0.75),
                          3,
                          Limits::denorm_min(),
                          Limits::min(),
                          Limits::max(),
                          Limits::infinity(),
                          Limits::quiet_NaN()};
      for (size_t i = 0, n = list.size(); i < n; i++) list.push_back(-list[i]);
      std::mt19937_64 random(1);
      int count = 0;
      for (T x : list) {
        for (T y : list) count += wrong(x, y);
      }
      for (int i = 0; i < 2'000'000; i++) {
        const T x = std::bit_cast<T>(static_cast<Bits>(random()));
        T y = std::bit_cast<T>(static_cast<Bits>(random()));
        // Half of them with quotients around the limit and below, some of them whole.
        if (i % 2 == 0) y = x / std::exp2(static_cast<T>(random() % 3000) / 100);
        if (i % 16 == 0) y = x / static_cast<T>(1 + random() % 5000);
        count += wrong(x, y);
      }
      CHECK(count == 0);
    };
    check(0.0f);
    check(0.0);
  }

  TEST_CASE("huge angles and what is no positive normal number take branches") {
    // Of denormal numbers another one.
    const std::map<Op, int> branches{{Op::Sin, 1}, {Op::Cos, 1},  {Op::Tan, 1},  {Op::Log1p, 1},
                                     {Op::Log, 2}, {Op::Log2, 2}, {Op::Log10, 2}};
    for (const MathFunction& f : kFunctions) {
      int rare = 0;
      visit(expand_math(f.op, DType::F32, {load(0, DType::F32, index_const(0))}),
            [&](const NodeRef& n) { rare += is_rare(*n); });
      const auto it = branches.find(f.op);
      CAPTURE(name(f.op));
      CHECK(rare == (it == branches.end() ? 0 : it->second));
    }
  }
}
