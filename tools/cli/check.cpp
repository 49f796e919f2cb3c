// `lazuli check`: every device against the reference, gradients against central differences in f64.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/gradient.h"
#include "core/graph.h"
#include "core/ops_elementwise.h"
#include "core/ops_reduce.h"
#include "ir/winograd.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"
#include "tools/cli/work.h"

namespace lazuli::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A result that has left its device.
struct Plain {
  DType dtype = DType::F32;
  Shape shape;
  std::vector<double> values;  // integers of 64 bits are compared by their bits below
  std::vector<uint64_t> bits;
};

Plain to_plain(const Tensor& t) {
  Plain p{t.dtype(), t.shape(), {}, {}};
  const auto* const data = static_cast<const char*>(t.data());
  const auto size = static_cast<size_t>(size_of(p.dtype));
  for (int64_t i = 0; i < t.numel(); ++i) {
    p.values.push_back(detail::element(data, p.dtype, i).as_double());
    uint64_t bits = 0;
    std::memcpy(&bits, data + static_cast<size_t>(i) * size, size);
    p.bits.push_back(bits);
  }
  return p;
}

std::vector<Plain> to_plain(const std::vector<Tensor>& tensors) {
  realize(tensors);
  std::vector<Plain> all;
  for (const Tensor& t : tensors) all.push_back(to_plain(t));
  return all;
}

std::string place_text(const Shape& shape, int64_t flat) {
  Ints place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    place[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(place.begin(), place.end(), ", "));
}

/// Bits of the significand, the leading one included.
int significand(DType dtype) {
  return dtype == DType::BF16 ? 8 : dtype == DType::F16 ? 11 : dtype == DType::F32 ? 24 : 53;
}

/// Distance between floats of `dtype` about `magnitude`.
double ulp(DType dtype, double magnitude) {
  int exponent = 0;
  std::frexp(std::max(magnitude, std::numeric_limits<double>::min()), &exponent);
  const int lowest = dtype == DType::F16   ? -24
                     : dtype == DType::F64 ? -1074
                     : dtype == DType::F32 ? -149
                                           : -133;
  return std::ldexp(1.0, std::max(exponent - significand(dtype), lowest));
}

double root_mean_square(const std::vector<double>& values) {
  double sum = 0;
  int64_t count = 0;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    sum += v * v;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

struct Difference {
  double ulps = 0;
  int64_t place = -1;
  double condition = 1;  // ULPs that one ULP of each value moves the element by, at least 1

  double relative() const { return ulps / condition; }
};

/// The error that is largest beside the condition of its place, in ULPs of the expected element, or
/// of the root mean square of all if that is larger: what a sum loses by cancellation is not
/// counted as an error of its last digits. Integers and bools must be equal. `moved` is what an ULP
/// of each value on the way moves each element by, or empty.
Difference compare_arrays(const Plain& got, const Plain& expected,
                          const std::vector<double>& moved) {
  Difference worst;
  const double scale = is_float(expected.dtype) ? root_mean_square(expected.values) : 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double a = got.values[i], b = expected.values[i];
    Difference d{.place = static_cast<int64_t>(i)};
    if (!is_float(expected.dtype)) {
      d.ulps = got.bits[i] == expected.bits[i] ? 0 : std::numeric_limits<double>::infinity();
    } else if (std::isnan(b) || std::isinf(b)) {
      d.ulps =
          (std::isnan(a) && std::isnan(b)) || a == b ? 0 : std::numeric_limits<double>::infinity();
    } else {
      const double unit = ulp(expected.dtype, std::max(std::fabs(b), scale));
      d.ulps = std::fabs(a - b) / unit;
      if (!std::isfinite(a)) d.ulps = std::numeric_limits<double>::infinity();
      if (!moved.empty()) d.condition = std::max(1.0, moved[i] / unit);
    }
    if (worst.place < 0 || d.relative() > worst.relative()) worst = d;
  }
  return worst;
}

/// The most terms that one element of the result is a sum (or a product, a scan) of.
double longest_reduction(std::span<const NodeRef> roots) {
  double longest = 1;
  for (const NodeRef& n : topological(roots, true)) {
    if (n->realised() || n->numel() == 0) continue;
    if (is_reduce(n->op)) {
      longest = std::max(longest,
                         static_cast<double>(n->src[0]->numel()) / static_cast<double>(n->numel()));
    } else if (n->op == Op::Scan) {
      for (const int64_t size : n->shape) longest = std::max(longest, static_cast<double>(size));
    }
  }
  return longest;
}

/// The stated bound: 16 ULPs for the elementwise functions of an expression, and 4 for each
/// standard deviation of a sum of independent roundings. It is for ULPs of the result; where the
/// expression amplifies what its inputs and its operations are rounded to, as a difference of
/// nearly equal numbers does, for what one ULP of each of them makes of it.
double bound_of(double terms) {
  return 16 + 4 * std::sqrt(terms);
}

/// Where the plan is not exact, 1e-4 of the larger of the element and the root mean square of all.
double bound_on(const Device& device, const std::vector<Tensor>& results, double bound) {
  std::vector<NodeRef> roots;
  for (const Tensor& t : results) roots.push_back(t.node());
  if (make_plan(roots, device.target()).exact) return bound;
  return std::max(bound, std::ldexp(kWinogradError, significand(DType::F32)));
}

/// The expression with all float inputs as f64, and those inputs.
struct Widened {
  Expression expression;
  std::vector<std::string> names;
  std::vector<Tensor> inputs;
};

/// Names f64 where the expression names f32, as in `.to(f32)`, but for what bits are read as.
void widen_names(notation::Program& program) {
  std::unordered_set<notation::ExprId> bits;
  for (const notation::Expr& x : program.exprs) {
    if (x.text != "bitcast") continue;
    for (const notation::Argument& a : x.arguments) bits.insert(a.value);
  }
  for (size_t id = 0; id < program.exprs.size(); ++id) {
    notation::Expr& x = program.exprs[id];
    DType named;
    const bool is_dtype = x.kind == notation::ExprKind::Word && parse_dtype(x.text, named);
    if (is_dtype && named == DType::F32 && bits.count(static_cast<notation::ExprId>(id)) == 0)
      x.text = name(DType::F64);
  }
}

/// Where inputs of f64 no longer go together with what it converts to f32 itself, as the factors of
/// a product, it converts to f64 instead.
Widened widen(const Expression& e) {
  Widened w{e, {}, {}};
  for (notation::InputDecl& input : w.expression.program.inputs) {
    if (!is_float(input.dtype)) continue;
    const Tensor& narrow = e.bindings.at(input.name);
    const Tensor wide = Tensor::from(narrow.to_vector<double>(), narrow.shape());
    input.dtype = DType::F64;
    w.expression.bindings.insert_or_assign(input.name, wide);
    w.names.push_back(input.name);
    w.inputs.push_back(wide);
  }
  try {
    w.expression.evaluate();
  } catch (const UserError&) {
    widen_names(w.expression.program);
  }
  return w;
}

/// Does an operation make floats that are not exact?
bool rounds_result(const NodeRef& n) {
  if (n->realised() || !is_float(n->dtype)) return false;
  switch (n->op) {
    case Op::Mul:
    case Op::Add:
    case Op::Sub:
    case Op::Fma:
    case Op::ReduceAdd:
    case Op::ReduceMul:
      return true;
    case Op::Scan:
      return n->ints()[0] <= static_cast<int64_t>(ScanOp::Mul);
    case Op::Scatter:
      return n->integer() == static_cast<int64_t>(Combine::Add) ||
             n->integer() == static_cast<int64_t>(Combine::Mul);
    default:
      return has(n->op, kFloatOnly) && has(n->op, kCostly);  // functions
  }
}

/// Is this a value of floats that a device rounds: an input, or what an operation makes that is not
/// exact? Products that are summed move as their factors do.
bool rounds(const NodeRef& n, const std::unordered_set<const Node*>& summed) {
  if (n->dtype != DType::F64) return false;
  if (n->op == Op::Mul && !n->realised()) return summed.count(n.get()) == 0;
  return n->realised() || rounds_result(n);
}

/// The fewest bits that the result or a value on the way to it is rounded to.
int coarsest_significand(const Tensor& result) {
  int bits = significand(result.dtype());
  const NodeRef root = result.node();
  for (const NodeRef& n : topological(std::span(&root, 1), true)) {
    if (rounds_result(n)) bits = std::min(bits, significand(n->dtype));
  }
  return bits;
}

/// The last of `graph`, which ends there, where each element of each value that a device rounds is
/// larger or smaller by the share `step`, at random.
Tensor disturbed(const std::vector<NodeRef>& graph, double step, std::mt19937_64& random) {
  std::unordered_set<const Node*> summed;
  for (const NodeRef& n : graph) {
    if (n->op == Op::ReduceAdd) summed.insert(n->src[0].get());
  }
  std::unordered_map<const Node*, NodeRef> now;
  for (const NodeRef& n : graph) {
    NodeRef& made = now[n.get()] = n;
    if (!n->realised()) {
      Sources src;
      for (const NodeRef& s : n->src) src.push_back(now.at(s.get()));
      made = with_src(n, std::move(src));
    }
    if (!rounds(n, summed)) continue;
    std::vector<double> factors(static_cast<size_t>(n->numel()));
    for (double& f : factors) f = random() % 2 == 0 ? 1 + step : 1 - step;
    made = elementwise(Op::Mul, {made, Tensor::from(factors, n->shape).node()});
  }
  return Tensor(now.at(graph.back().get()));
}

/// What one ULP of the inputs and of each operation moves each element of a result by: the root
/// mean square of some evaluations in f64 by the reference, each with other signs. The ULP is that
/// of the result's dtype or of the coarsest on the way. Empty if there is no such result in f64.
std::vector<double> moved_by_ulp(const Expression& e, size_t result, const Plain& expected) {
  constexpr int kMoves = 8;  // fewer may all happen to cancel
  std::vector<double> squares(expected.values.size());
  try {
    const Tensor y = widen(e).expression.evaluate().tensors.at(result);
    if (y.dtype() != DType::F64 || y.shape() != expected.shape) return {};
    const NodeRef root = y.node();
    const std::vector<NodeRef> graph = topological(std::span(&root, 1), true);
    const double step = std::ldexp(1.0, 1 - coarsest_significand(e.evaluate().tensors.at(result)));
    std::mt19937_64 random;
    std::vector<std::vector<double>> moves;
    for (int move = 0; move < kMoves; ++move) {
      moves.push_back(disturbed(graph, step, random).to_vector<double>());
    }
    const std::vector<double> still = y.to_vector<double>();  // last: it ends the graph
    for (const std::vector<double>& move : moves) {
      for (size_t i = 0; i < still.size(); ++i) {
        const double by = move[i] - still[i], square = by * by;
        if (std::isfinite(square)) squares[i] += square;
      }
    }
  } catch (const UserError&) {
    return {};
  }
  for (double& s : squares) s = std::sqrt(s / kMoves);
  return squares;
}

struct Verdict {
  bool ok = true;
  Json report = Json::array();
};

/// Runs the expression on a device and adds one line for each result. A device that is not there is
/// passed over unless it was asked for.
void compare_device(const std::string& name, Session& session, const Expression& e, bool asked,
                    const std::vector<Plain>& expected, double bound, Verdict& verdict) {
  try {
    session.runtime().set_device(name);
  } catch (const Error& error) {
    if (asked) throw;
    verdict.report.push_back({{"device", name}, {"skipped", error.what()}});
    return;
  }
  const std::vector<Tensor> results = e.evaluate().tensors;
  bound = bound_on(session.device(), results, bound);
  const std::vector<Plain> got = to_plain(results);
  for (size_t i = 0; i < expected.size(); ++i) {
    Difference d = compare_arrays(got[i], expected[i], {});
    if (std::isfinite(d.ulps) && d.ulps > bound) {
      session.runtime().set_device("reference");
      d = compare_arrays(got[i], expected[i], moved_by_ulp(e, i, expected[i]));
    }
    const bool ok = got[i].dtype == expected[i].dtype && got[i].shape == expected[i].shape &&
                    d.relative() <= bound;
    verdict.ok = verdict.ok && ok;
    Json j = {{"device", name},
              {"result", i},
              {"dtype", lazuli::name(expected[i].dtype)},
              {"shape", to_string(expected[i].shape)},
              {"ulps", d.ulps},
              {"bound", bound * d.condition},
              {"ok", ok}};
    if (d.condition > 1) j["condition"] = d.condition;
    if (d.place >= 0) {
      j["at"] = place_text(expected[i].shape, d.place);
      j["value"] = got[i].values[static_cast<size_t>(d.place)];
      j["reference"] = expected[i].values[static_cast<size_t>(d.place)];
    }
    verdict.report.push_back(std::move(j));
  }
}

// ---- gradients

constexpr const char* kTooCoarse =
    "the expression converts to {} itself, too coarse for differences";

/// The inputs of which it makes f64 that it then converts to a narrower float, and to which.
std::unordered_map<const Node*, DType> converted(const std::vector<Tensor>& results) {
  std::unordered_map<const Node*, DType> inputs;
  std::vector<NodeRef> roots;
  for (const Tensor& y : results) roots.push_back(y.node());
  for (const NodeRef& n : topological(roots)) {
    const bool narrows = n->op == Op::Cast && is_float(n->dtype) && n->dtype != DType::F64 &&
                         n->src[0]->dtype == DType::F64;
    if (!narrows) continue;
    for (const NodeRef& m : topological({&n, 1})) {
      if (m->realised()) inputs.emplace(m.get(), n->dtype);
    }
  }
  return inputs;
}

/// A scalar in which every finite element of every float result has a weight of its own in
/// [0.5, 1.5).
std::optional<Tensor> weighted_sum(const std::vector<Tensor>& results) {
  std::optional<Tensor> total;
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& y = results[i];
    if (!is_float(y.dtype())) continue;
    require(y.dtype() == DType::F64, kTooCoarse, name(y.dtype()));
    notation::InputDecl weight{.name = fmt::format("weight of result {}", i),
                               .dtype = DType::F64,
                               .dims = {},
                               .fill = {.kind = notation::FillKind::Uniform}};
    for (const int64_t size : y.shape()) weight.dims.push_back({.size = size, .name = {}});
    const Tensor finite = where(isfinite(y), y, Scalar(0.0));
    const Tensor part = sum(mul(finite, add(notation::make_input(weight, 0), Scalar(0.5))));
    total = total ? add(*total, part) : part;
  }
  return total;
}

double central_difference(const std::function<double()>& loss, double& x, double step) {
  const double before = x;
  x = before + step;
  const double above = x, up = loss();
  x = before - step;
  const double below = x, down = loss();
  x = before;
  return (up - down) / (above - below);
}

struct GradientError {
  double relative = 0;
  int64_t place = -1;
  double analytic = 0, numeric = 0;
  int checked = 0, unclear = 0;  // places; at the unclear ones the result is not smooth
  bool ok = true;
};

/// What the differences say about one place.
struct PlaceError {
  double relative = std::numeric_limits<double>::infinity();
  double numeric = 0;
  bool ok = false, unclear = false;
};

constexpr double kGradientTolerance = 1e-4;

/// `value` is that of the loss at `x`.
PlaceError compare_place(const std::function<double()>& loss, double value, double& x,
                         double derivative) {
  PlaceError best;
  std::vector<double> differences;
  const auto apart = [](double a, double b) {
    return !(std::fabs(a - b) <= 0.01 * std::max(std::fabs(a), std::fabs(b)));
  };
  double step = 0, noise = 0;
  // Beside a kink a shorter step may stay on one side of it.
  for (const double h : {1e-5, 1e-6, 1e-7}) {
    step = h * std::max(1.0, std::fabs(x));
    const double difference = central_difference(loss, x, step);
    const double error = std::fabs(derivative - difference);
    const double scale = std::max({std::fabs(derivative), std::fabs(difference), 1e-6});
    if (std::isfinite(derivative) && (differences.empty() || error / scale < best.relative)) {
      best.relative = error / scale;
      best.numeric = difference;
    }
    differences.push_back(difference);
    noise = 16 * std::numeric_limits<double>::epsilon() * std::fabs(value) / step + 1e-8;
    best.ok = error <= kGradientTolerance * scale + noise;  // never where there is no derivative
    if (best.ok) return best;
  }
  const double a = differences[differences.size() - 2], b = differences.back();
  if (!std::isfinite(derivative)) best.numeric = b;
  const double before = x;
  x = before + step;
  const double right = (loss() - value) / step, left = 2 * b - right;
  x = before;
  const bool kink = apart(left, right) && std::fabs(right - left) > 4 * noise;
  best.unclear = apart(a, b) || (kink && std::isfinite(derivative));
  return best;
}

/// Compares at up to `kPlaces` places spread over the input. Where not all results are finite, a
/// derivative may be undefined as well.
GradientError compare_gradient(const std::function<double()>& loss, const Tensor& x,
                               const Tensor& gradient, bool all_finite) {
  constexpr int64_t kPlaces = 12;
  GradientError worst;
  auto* const values = static_cast<double*>(x.node()->storage()->data());
  const auto* const derivatives = static_cast<const double*>(gradient.data());
  const int64_t count = x.numel(), places = std::min(count, kPlaces);
  const double value = loss();
  for (int64_t k = 0; k < places; ++k) {
    const int64_t i = k * count / places + (k * 7919) % std::max<int64_t>(count / places, 1);
    const bool undefined = !all_finite && !std::isfinite(derivatives[i]);
    const PlaceError error = undefined ? PlaceError{.unclear = true}
                                       : compare_place(loss, value, values[i], derivatives[i]);
    if (error.unclear) {
      ++worst.unclear;
      continue;
    }
    ++worst.checked;
    worst.ok = worst.ok && error.ok;
    if (worst.place < 0 || error.relative > worst.relative) {
      worst.relative = error.relative;
      worst.place = i;
      worst.analytic = derivatives[i];
      worst.numeric = error.numeric;
    }
  }
  return worst;
}

void check_gradients(Session& session, const Expression& e, Verdict& verdict) {
  const auto skip = [&](const std::string& why) {
    verdict.report.push_back({{"gradients", "not checked"}, {"skipped", why}});
  };
  const Widened w = widen(e);
  if (w.inputs.empty()) return skip("no input is a float");
  std::vector<Tensor> gradients;
  std::function<double()> loss;
  std::unique_ptr<Replay> replay;
  bool all_finite = true;
  std::unordered_map<const Node*, DType> coarse;
  try {
    const std::vector<Tensor> results = w.expression.evaluate().tensors;
    coarse = converted(results);
    const std::optional<Tensor> total = weighted_sum(results);
    if (!total) return skip("no result is a float");
    for (const Tensor& y : results) all_finite = all_finite && all(isfinite(y)).item<bool>();
    gradients = grad(*total, w.inputs, Unused::kZeros);
    replay = std::make_unique<Replay>(session.device(), std::span<const Tensor>(&*total, 1));
    loss = [&replay] {
      replay->run();
      return replay->result(0).item<double>();
    };
  } catch (const UserError& error) {
    return skip(error.what());
  }
  realize(gradients);
  for (size_t i = 0; i < w.inputs.size(); ++i) {
    if (const auto it = coarse.find(w.inputs[i].node().get()); it != coarse.end()) {
      verdict.report.push_back(
          {{"gradient of", w.names[i]},
           {"skipped", fmt::format(fmt::runtime(kTooCoarse), name(it->second))}});
      continue;
    }
    const GradientError g = compare_gradient(loss, w.inputs[i], gradients[i], all_finite);
    verdict.ok = verdict.ok && g.ok;
    Json j = {{"gradient of", w.names[i]}, {"places", g.checked},         {"unclear", g.unclear},
              {"relative", g.relative},    {"bound", kGradientTolerance}, {"ok", g.ok}};
    if (g.place >= 0) {
      j["at"] = place_text(w.inputs[i].shape(), g.place);
      j["value"] = g.analytic;
      j["difference"] = g.numeric;
    }
    verdict.report.push_back(std::move(j));
  }
}

void print(const Json& j) {
  if (j.contains("skipped")) {
    const std::string what = j.contains("device") ? "device " + j["device"].get<std::string>()
                             : j.contains("gradient of")
                                 ? "gradient of " + j["gradient of"].get<std::string>()
                                 : "gradients";
    fmt::print("{}: not checked: {}\n", what, j["skipped"].get<std::string>());
    return;
  }
  const char* const mark = j["ok"].get<bool>() ? "ok" : "WRONG";
  const std::string at = j.contains("at") ? " at " + j["at"].get<std::string>() : "";
  if (j.contains("device")) {
    fmt::print("{} device {}: {} {}: largest error {:.3g} ULP{}", mark,
               j["device"].get<std::string>(), j["dtype"].get<std::string>(),
               j["shape"].get<std::string>(), j["ulps"].get<double>(), at);
    if (j.contains("value"))
      fmt::print(", {:.9g} for {:.9g}", j["value"].get<double>(), j["reference"].get<double>());
    fmt::print("; bound {:.4g}", j["bound"].get<double>());
    if (j.contains("condition")) {
      fmt::print(", where one ULP of each value on the way makes {:.4g}",
                 j["condition"].get<double>());
    }
    fmt::print("\n");
    return;
  }
  const int left_out = j["unclear"].get<int>();
  if (j["places"].get<int>() == 0 && left_out > 0) {
    fmt::print("gradient of {}: not checked: the result is smooth at none of {} places\n",
               j["gradient of"].get<std::string>(), left_out);
    return;
  }
  fmt::print("{} gradient of {}: largest relative error {:.3g}{}", mark,
             j["gradient of"].get<std::string>(), j["relative"].get<double>(), at);
  if (j.contains("value"))
    fmt::print(", {:.9g} for {:.9g}", j["value"].get<double>(), j["difference"].get<double>());
  if (left_out > 0) {
    fmt::print(", {} places left out where the result is not smooth", left_out);
  }
  fmt::print("; bound {:.4g} of the larger of the two, beside the rounding of the differences\n",
             j["bound"].get<double>());
}

}  // namespace

int check(const CheckOptions& options, const Common& common) {
  Session session(common);
  session.runtime().memory.fill_with_nan();  // so that what is not written is seen
  const Expression e = load_expression(options.expression, common);
  require(common.device != "reference",
          "check: the reference is what devices are compared with; give another device, or none to "
          "check them all");
  session.runtime().set_device("reference");
  std::vector<Plain> expected;
  double bound = 0;
  {
    // The tensors go before another device computes the same nodes, which keep their value while
    // they live.
    const notation::Result result = e.evaluate();
    std::vector<NodeRef> roots;
    for (const Tensor& t : result.tensors) roots.push_back(t.node());
    bound = bound_of(longest_reduction(roots));
    expected = to_plain(result.tensors);
  }
  Verdict verdict;
  const bool asked = !common.device.empty();
  const std::vector<std::string> devices =
      asked ? std::vector<std::string>{common.device} : device_names();
  for (const std::string& name : devices) {
    if (name != "reference") compare_device(name, session, e, asked, expected, bound, verdict);
  }
  session.runtime().set_device(asked ? common.device : session.runtime().config.device);
  check_gradients(session, e, verdict);
  if (!common.json.empty()) {
    write_text(common.json, verdict.report.dump(1) + "\n");
  } else {
    for (const Json& line : verdict.report) print(line);
  }
  return verdict.ok ? kDone : kAnswerIsNo;
}

}  // namespace lazuli::cli
