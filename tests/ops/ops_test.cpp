// Every op of the graph, on every dtype it is defined for: the CPU against the reference device within stated ULPs, and its gradient
// against central differences in f64. One table; an op without a row fails.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "core/error.h"
#include "core/gradient.h"
#include "core/gradient_graph.h"
#include "core/graph.h"
#include "ir/math.h"
#include "runtime/device.h"
#include "runtime/runtime.h"

namespace lazuli {
namespace {

using Nodes = std::vector<NodeRef>;
using Elements = std::vector<uint64_t>;

NodeRef array_of(DType t, const Shape& shape, const std::vector<double>& v) {
  const auto size = static_cast<size_t>(size_of(t));
  auto storage = make_storage(v.size() * size);
  for (size_t i = 0; i < v.size(); i++) {
    const uint64_t bits = to_bits(std::isfinite(v[i]) && v[i] == std::trunc(v[i]) && !is_float(t) && std::fabs(v[i]) < 9e18
                                      ? Scalar(static_cast<int64_t>(v[i]))
                                      : Scalar(v[i]),
                                  t);
    std::memcpy(static_cast<char*>(storage->data()) + i * size, &bits, size);
  }
  return buffer(t, shape, storage);
}

// Those of this build: without LLVM there is no cpu.
const std::vector<const char*> kDevices =
    LAZULI_LLVM ? std::vector{"reference", "cpu"} : std::vector{"reference"};

Elements realised(const char* device, const NodeRef& n) {
  Runtime::current().device(device).realize(std::span<const NodeRef>(&n, 1));
  Elements out;
  const auto size = static_cast<size_t>(size_of(n->dtype));
  for (int64_t i = 0; i < n->numel(); i++) {
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<char*>(n->storage()->data()) + static_cast<size_t>(i) * size, size);
    out.push_back(bits);
  }
  if (n->op != Op::Buffer) n->set_storage(nullptr);
  return out;
}

// Numbers where ops tend to go wrong.
std::vector<double> specials(DType t) {
  if (is_float(t)) {
    const double inf = std::numeric_limits<double>::infinity();
    const double tiny = t == DType::F64 ? 4.9e-324 : t == DType::F16 ? 6e-8 : 1.4e-45;
    const double big = t == DType::F64 ? 1.7e308 : t == DType::F16 ? 65504 : 3.3e38;
    return {0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, -2.5, 1.5, 3.7, -3.7, 0.1, 17.25, -88, 1e-3, tiny, -tiny, big, -big, inf, -inf, NAN};
  }
  if (t == DType::Bool) return {0, 1};
  const double bits = 8.0 * size_of(t), top = std::ldexp(1.0, static_cast<int>(bits) - (is_signed(t) ? 1 : 0));
  std::vector<double> v = {0, 1, 2, 3, 5, 7, 8, 31, 64, 100, bits == 64 ? 9e18 : top - 1};
  if (is_signed(t)) v.insert(v.end(), {-1, -2, -3, -7, -8, -100, -top});
  return v;
}

// All tuples of `arity` special values, a row of the result for each place.
std::vector<std::vector<double>> tuples(const std::vector<double>& v, int arity) {
  std::vector<std::vector<double>> out(static_cast<size_t>(arity));
  const auto n = static_cast<size_t>(std::pow(v.size(), std::min(arity, 2)));
  for (size_t i = 0; i < n; i++) {
    for (int a = 0; a < arity; a++) {
      const size_t pick = a == 0 ? i % v.size() : a == 1 ? i / v.size() : (3 * i + 1) % v.size();
      out[static_cast<size_t>(a)].push_back(v[pick]);
    }
  }
  return out;
}

// Distance in units of the last place of the wanted value; 0 for two NaN, and for two zeros of different sign. Functions with zeros that
// are no round numbers (`from_one`) are measured against 1 + |value|, as their ULPs are stated.
double ulps(DType t, uint64_t got, uint64_t want, bool from_one) {
  if (got == want) return 0;
  if (!is_float(t)) return 1e30;
  const double a = from_bits(got, t).as_double(), b = from_bits(want, t).as_double();
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return a == b ? 0 : 1e30;
  const int mantissa = t == DType::F64 ? 52 : t == DType::F32 ? 23 : t == DType::F16 ? 10 : 7;
  const int lowest = t == DType::F64 ? -1022 : t == DType::F16 ? -14 : -126;
  const double unit = from_one ? 1 + std::fabs(b) : b;
  const int exponent = unit == 0 ? lowest : std::max(std::ilogb(unit), lowest);
  return std::fabs(a - b) / std::ldexp(1.0, exponent - mantissa);
}

// ---- the table
struct OpRow {
  Op op;
  std::function<NodeRef(DType)> build;  // with special values in it
  std::vector<DType> dtypes;
  double ulp = 0;          // allowed on the CPU, where stated_ulp does not say
  std::function<NodeRef(const NodeRef&)> smooth;  // of an f64 (3, 4); null: no gradient to check
  double low = -0.9, high = 0.9;                  // where the smooth form is smooth
};

std::vector<DType> dtypes_where(bool (*f)(DType)) {
  std::vector<DType> r;
  for (const DTypeInfo& row : kDTypes) {
    if (f(row.dtype)) r.push_back(row.dtype);
  }
  return r;
}
const std::vector<DType> kAll = dtypes_where([](DType) { return true; });
const std::vector<DType> kNumbers = dtypes_where([](DType t) { return t != DType::Bool; });

std::vector<DType> dtypes_of(Op op) {
  if (has(op, kFloatOnly)) return dtypes_where(is_float);
  if (op == Op::Shl || op == Op::Shr || op == Op::IDiv) return dtypes_where(is_int);
  if (has(op, kIntegral)) return dtypes_where(is_integral);
  return op == Op::Rem ? kNumbers : kAll;
}

NodeRef apply_op(Op op, DType t) {
  const int arity = info(op).arity;
  const auto v = tuples(specials(t), arity);
  const Shape shape{static_cast<int64_t>(v[0].size())};
  Sources src;
  for (int a = 0; a < arity; a++) {
    std::vector<double> place = v[static_cast<size_t>(a)];
    if (op == Op::Where && a == 0) {
      for (size_t i = 0; i < place.size(); i++) place[i] = static_cast<double>(i % 3 == 0);
      src.push_back(array_of(DType::Bool, shape, place));
    } else {
      src.push_back(array_of(t, shape, place));
    }
  }
  return elementwise(op, std::move(src));
}

NodeRef other(const NodeRef& x) {  // another operand of the same shape, away from x
  std::vector<double> v;
  for (int64_t i = 0; i < x->numel(); i++) v.push_back(1.3 + 0.11 * static_cast<double>(i));
  return array_of(x->dtype, x->shape, v);
}

OpRow elementwise_row(Op op) {
  OpRow r{op, [op](DType t) { return apply_op(op, t); }, dtypes_of(op), 0, nullptr};
  if (!is_differentiable(op)) return r;
  if (info(op).arity == 1) {
    r.smooth = [op](const NodeRef& x) { return elementwise(op, {x}); };
  } else if (info(op).arity == 2) {
    r.smooth = [op](const NodeRef& x) {
      const NodeRef y = other(x);
      return elementwise(Op::Add, {elementwise(op, {x, y}), elementwise(op, {y, x})});
    };
  } else {
    r.smooth = [op](const NodeRef& x) {
      const NodeRef y = other(x);
      if (op == Op::Where) return elementwise(op, {elementwise(Op::Lt, {x, constant(Scalar(0.31), x->dtype, x->shape)}), elementwise(Op::Mul, {x, x}), x});
      return elementwise(op, {x, y, elementwise(op, {y, x, x})});
    };
  }
  const std::map<Op, std::pair<double, double>> ranges = {
      {Op::Log, {0.2, 3}},  {Op::Log2, {0.2, 3}},  {Op::Log10, {0.2, 3}}, {Op::Sqrt, {0.2, 3}}, {Op::Rsqrt, {0.2, 3}},
      {Op::Recip, {0.2, 3}}, {Op::Acosh, {1.2, 3}}, {Op::Lgamma, {0.2, 3}}, {Op::Pow, {0.2, 2}}, {Op::Div, {0.2, 1.2}},
      {Op::Rem, {0.1, 1.2}}, {Op::Abs, {0.1, 2}}};
  if (const auto it = ranges.find(op); it != ranges.end()) std::tie(r.low, r.high) = it->second;
  return r;
}

NodeRef grid(DType t, const Shape& shape) {
  std::vector<double> v;
  const double step = is_float(t) ? 0.25 : 1;
  for (int64_t i = 0; i < numel(shape); i++) v.push_back(static_cast<double>((i * 7) % 11 - (is_signed(t) ? 5 : 0)) * step);
  return array_of(t, shape, v);
}

NodeRef index_array(const Shape& shape, int64_t below) {
  std::vector<double> v;
  for (int64_t i = 0; i < numel(shape); i++) v.push_back(static_cast<double>((i * 5) % (below + 2) - 1));  // -1 and `below` are outside
  return array_of(DType::I64, shape, v);
}

NodeRef gathered(const NodeRef& x) {  // rows and columns at data-dependent places of a (3, 4)
  const NodeRef i[] = {index_array({5, 2}, 3), index_array({5, 2}, 4)};
  return gather(x, i);
}

NodeRef scattered(const NodeRef& x, Combine how) {
  const NodeRef value = elementwise(Op::Add, {x, x});
  return scatter(x, index_array(x->shape, 12), value, how);
}

// Ops that are no elementwise op: what to build of a (3, 4).
std::vector<OpRow> structural_rows() {
  using F = std::function<NodeRef(const NodeRef&)>;
  auto row = [](Op op, F f, std::vector<DType> types = kAll, bool smooth = true, double ulp = 0) {
    return OpRow{op,
                 [f](DType t) {
                   return f(grid(t, {3, 4}));
                 },
                 std::move(types), ulp, smooth ? f : nullptr};
  };
  std::vector<OpRow> r;
  r.push_back({Op::Const, [](DType t) { return constant(Scalar(3), t, {5}); }, kAll, 0, nullptr});
  r.push_back({Op::Iota, [](DType) { return iota(7); }, {DType::I64}, 0, nullptr});
  r.push_back(row(Op::Reshape, [](const NodeRef& x) { return reshape(x, {2, 6}); }));
  r.push_back(row(Op::Permute, [](const NodeRef& x) { return permute(x, {1, 0}); }));
  r.push_back(row(Op::Expand, [](const NodeRef& x) { return expand(reshape(x, {3, 1, 4}), {3, 2, 4}); }));
  r.push_back(row(Op::Pad, [](const NodeRef& x) { return pad(x, {1, 0, 2, 1}); }));
  r.push_back(row(Op::Shrink, [](const NodeRef& x) { return shrink(x, {1, 3, 0, 2}); }));
  r.push_back(row(Op::Flip, [](const NodeRef& x) { return flip(x, {0, 1}); }));
  r.push_back(row(Op::Window, [](const NodeRef& x) { return window(x, 1, 2, 1, 2); }));
  r.push_back(row(Op::Unwindow, [](const NodeRef& x) { return unwindow(window(x, 1, 2, 2, 1), 1, 5, 2, 1); }));
  r.push_back(row(Op::ReduceAdd, [](const NodeRef& x) { return reduce(Op::ReduceAdd, x, {1}); }, kAll, true, 4));
  r.push_back(row(Op::ReduceMul, [](const NodeRef& x) { return reduce(Op::ReduceMul, x, {0}); }, kAll, true, 8));
  r.push_back(row(Op::ReduceMax, [](const NodeRef& x) { return reduce(Op::ReduceMax, x, {0, 1}); }));
  r.push_back(row(Op::ReduceMin, [](const NodeRef& x) { return reduce(Op::ReduceMin, x, {1}); }));
  r.push_back(row(Op::Gather, gathered));
  r.push_back(row(Op::Scatter, [](const NodeRef& x) { return scattered(x, Combine::Add); }, kAll, true, 4));
  r.push_back(row(Op::Scatter, [](const NodeRef& x) { return scattered(x, Combine::Set); }, kAll, false));
  r.push_back(row(Op::Scatter, [](const NodeRef& x) { return scattered(x, Combine::Max); }, kAll, false));
  r.push_back(row(Op::Scan, [](const NodeRef& x) { return scan(x, ScanOp::Add, 1); }, kNumbers, true, 8));
  r.push_back(row(Op::Scan, [](const NodeRef& x) { return scan(x, ScanOp::Mul, 0, true); }, kNumbers, true, 8));
  r.push_back(row(Op::Scan, [](const NodeRef& x) { return scan(x, ScanOp::Max, 1); }, kNumbers, false));
  r.push_back(row(Op::ArgSort, [](const NodeRef& x) { return argsort(x, true); }, kAll, false));
  r.push_back(row(Op::Sort, [](const NodeRef& x) { return sorted(x, false); }, kAll, false));
  r.push_back(row(Op::Update, [](const NodeRef& x) {
    return update(x, shrink(x, {1, 3, 0, 3}), {0, 1});
  }, kAll, false));
  r.push_back(row(Op::Update, [](const NodeRef& x) {
    const NodeRef places[] = {reshape(iota(1), {}), constant(Scalar(1), DType::I64)};
    return update(x, shrink(x, {1, 3, 0, 3}), {-1, -2}, places);
  }, kAll, false));
  r.push_back(row(Op::Fresh, [](const NodeRef& x) { return fresh(x); }));
  r.push_back(row(Op::Detach, [](const NodeRef& x) { return detach(x); }, kAll, false));
  r.push_back(row(Op::Contiguous, [](const NodeRef& x) { return contiguous(permute(x, {1, 0})); }));
  r.push_back(row(Op::Checkpoint, [](const NodeRef& x) {
    return make({.op = Op::Checkpoint, .dtype = x->dtype, .shape = x->shape, .arg = next_serial(), .src = {x}});
  }));
  r.push_back(row(Op::CustomVjp, [](const NodeRef& x) {
    return custom_vjp(Tensor(x), {Tensor(x)}, [](const Tensor& g) { return std::vector<Tensor>{g}; }).node();
  }));
  r.push_back({Op::Bitcast, [](DType t) {
                 const DType to = t == DType::F32 ? DType::I32 : t == DType::F64 ? DType::I64 : DType::U16;
                 return bitcast(array_of(t, {22}, specials(t)), to);
               }, {DType::F16, DType::BF16, DType::F32, DType::F64}, 0, nullptr});
  for (const DTypeInfo& to : kDTypes) {
    r.push_back({Op::Cast,
                 [to](DType t) {
                   const std::vector<double> v = specials(t);
                   return cast(array_of(t, {static_cast<int64_t>(v.size())}, v), to.dtype);
                 },
                 kAll, 0,
                 to.dtype == DType::F64
                     ? [](const NodeRef& x) { return cast(cast(x, DType::F32), DType::F64); }
                     : std::function<NodeRef(const NodeRef&)>()});
  }
  return r;
}

const std::vector<OpRow>& op_rows() {
  static const std::vector<OpRow> table = [] {
    std::vector<OpRow> r = structural_rows();
    for (const OpInfo& op : kOps) {
      if (has(op.op, kKernelOnly)) continue;
      if (is_elementwise(op.op) && op.op != Op::Cast && op.op != Op::Bitcast)
        r.push_back(elementwise_row(op.op));
    }
    return r;
  }();
  return table;
}

double allowed(const OpRow& r, DType t) {
  if (is_math(r.op)) return stated_ulp(r.op, t);
  if (r.op == Op::Div || r.op == Op::Recip || r.op == Op::Sqrt) return 0;
  if (r.op == Op::Rsqrt) return 1;
  return is_float(t) ? r.ulp : 0;
}

double scalar_value(const NodeRef& n) {
  double s = 0;
  const Elements e = realised("reference", n);
  for (size_t i = 0; i < e.size(); i++) s += from_bits(e[i], n->dtype).as_double() * (1 + 0.1 * static_cast<double>(i));
  return s;
}

NodeRef weights(const NodeRef& n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n->numel(); i++) v.push_back(1 + 0.1 * static_cast<double>(i));
  return array_of(n->dtype, n->shape, v);
}

}  // namespace

TEST_SUITE("ops") {
  TEST_CASE("every op of the graph has a row") {
    for (const OpInfo& op : kOps) {
      if (has(op.op, kKernelOnly) || op.op == Op::Buffer) continue;
      CAPTURE(op.name);
      CHECK(std::any_of(op_rows().begin(), op_rows().end(),
                        [&](const OpRow& r) { return r.op == op.op; }));
    }
  }

  TEST_CASE("every op gives the reference's values on the cpu, for every dtype, within stated ULPs" *
            doctest::skip(!LAZULI_LLVM)) {
    int compared = 0;
    for (const OpRow& r : op_rows()) {
      for (const DType t : r.dtypes) {
        const NodeRef y = r.build(t);
        const Elements want = realised("reference", y), got = realised("cpu", y);
        double worst = 0;
        size_t where = 0;
        for (size_t i = 0; i < want.size(); i++) {
          const double d = ulps(y->dtype, got[i], want[i], t == DType::F64 && (r.op == Op::Lgamma || r.op == Op::Digamma));
          if (d > worst) {
            worst = d;
            where = i;
          }
        }
        compared++;
        CHECK_MESSAGE(worst <= allowed(r, t),
                      fmt::format("{} of {}: element {} is {}, not {} ({} ULPs, {} allowed)", name(r.op), name(t), where,
                                  from_bits(got[where], y->dtype).as_double(), from_bits(want[where], y->dtype).as_double(),
                                  worst, allowed(r, t)));
      }
    }
    MESSAGE(compared, " pairs of op and dtype");
  }

  TEST_CASE("gradients agree with central differences in f64") {
    int compared = 0;
    for (const OpRow& r : op_rows()) {
      if (!r.smooth) continue;
      const int64_t n = 12;
      std::vector<double> at;
      for (int64_t i = 0; i < n; i++) at.push_back(r.low + (r.high - r.low) * (static_cast<double>((i * 7) % n) + 0.5) / n);
      const NodeRef x = array_of(DType::F64, {3, 4}, at), y = r.smooth(x), w = weights(y);
      const NodeRef g = pull_back(std::span<const NodeRef>(&y, 1), std::span<const NodeRef>(&w, 1),
                                  std::span<const NodeRef>(&x, 1))[0];
      CAPTURE(name(r.op));
      REQUIRE(g);
      for (const char* device : kDevices) {
        const Elements got = realised(device, g);
        for (size_t i = 0; i < at.size(); i++) {
          // Through f32 the step must be visible in f32.
          const double h = r.op == Op::Cast ? 1.0 / 64 : 1e-5;
          std::vector<double> up = at, down = at;
          up[i] += h;
          down[i] -= h;
          const double slope = (scalar_value(r.smooth(array_of(DType::F64, {3, 4}, up))) -
                                scalar_value(r.smooth(array_of(DType::F64, {3, 4}, down)))) /
                               (2 * h);
          const double value = from_bits(got[i], DType::F64).as_double();
          CHECK_MESSAGE(std::fabs(value - slope) <= (r.op == Op::Cast ? 1e-4 : 2e-7) * (1 + std::fabs(slope)),
                        fmt::format("{} on {}: d/dx[{}] is {}, differences give {}", name(r.op), device, i, value, slope));
        }
      }
      compared++;
    }
    MESSAGE(compared, " gradients");
  }
}

}  // namespace lazuli
