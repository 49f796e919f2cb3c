#include "tests/ir/run_plan.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "core/error.h"
#include "core/evaluate.h"
#include "core/graph.h"
#include "core/lazy_buffer.h"
#include "ir/index.h"
#include "runtime/reference/reference.h"

namespace lazuli::test {
namespace {

int64_t extent_of(const NodeRef& axis) {
  return std::get<VarArg>(axis->arg).extent;
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}

// One value's expression as a list of instructions, sources first.
class Expression {
 public:
  Expression(const Kernel& kernel, const NodeRef& root, const std::vector<Elements>& arguments,
             const std::unordered_map<int, Elements>& values)
      : kernel_(kernel), arguments_(arguments), values_(values) {
    visit(root, [&](const NodeRef& n) {
      number_[n] = list_.size();
      list_.push_back(n);
    });
    bits_.resize(list_.size());
  }

  uint64_t operator()(const std::unordered_map<const Node*, int64_t>& axes) {
    for (size_t i = 0; i < list_.size(); i++) bits_[i] = one(*list_[i], axes);
    return bits_.back();
  }

 private:
  int64_t source(const Node& n, size_t i) const {
    return static_cast<int64_t>(bits_[number_.at(n.src[i])]);
  }

  uint64_t one(const Node& n, const std::unordered_map<const Node*, int64_t>& axes) {
    switch (n.op) {
      case Op::Const:
        return std::get<ScalarBits>(n.arg).bits;
      case Op::Var:
        return static_cast<uint64_t>(axes.at(&n));
      case Op::Lin: {
        uint64_t sum = static_cast<uint64_t>(n.ints()[0]);
        for (size_t i = 0; i < n.src.size(); i++) {
          sum += static_cast<uint64_t>(n.ints()[i + 1]) * static_cast<uint64_t>(source(n, i));
        }
        return sum;
      }
      case Op::FDiv:
        return static_cast<uint64_t>(floor_div(source(n, 0), n.integer()));
      case Op::FMod: {
        const int64_t a = source(n, 0), d = n.integer();
        return static_cast<uint64_t>(a - floor_div(a, d) * d);
      }
      case Op::Load: {
        if (n.src.size() > 1 && source(n, 1) == 0) return 0;
        const Elements& from = arguments_[static_cast<size_t>(n.integer())];
        const int64_t at = source(n, 0);
        ensure(at >= 0 && at < static_cast<int64_t>(from.size()), "a load is out of range");
        return from[static_cast<size_t>(at)];
      }
      case Op::Read:
        return read_value(n);
      default: {
        uint64_t in[3];
        for (size_t i = 0; i < n.src.size(); i++) in[i] = static_cast<uint64_t>(source(n, i));
        return evaluate(n.op, n.dtype, {in, n.src.size()}, n.src.back()->dtype);
      }
    }
  }

  uint64_t read_value(const Node& n) const {
    const int id = static_cast<int>(n.integer());
    const Value* v = kernel_.find_value(id).second;
    int64_t flat = 0;
    for (size_t i = 0; i < v->dims.size(); i++) {
      const int64_t c = source(n, i), size = extent_of(v->dims[i]);
      ensure(c >= 0 && c < size, "a read is out of range");
      flat = flat * size + c;
    }
    return values_.at(id)[static_cast<size_t>(flat)];
  }

  const Kernel& kernel_;
  const std::vector<Elements>& arguments_;
  const std::unordered_map<int, Elements>& values_;
  std::vector<NodeRef> list_;
  std::unordered_map<const Node*, size_t> number_;
  Elements bits_;
};

Elements evaluate_value(const Kernel& kernel, const Stage& stage, const Value& v,
                        const std::vector<Elements>& arguments,
                        const std::unordered_map<int, Elements>& values) {
  int64_t count = 1, kept = 1;
  for (const NodeRef& a : stage.axes) count *= extent_of(a);
  for (const NodeRef& d : v.dims) kept *= extent_of(d);
  const DType t = v.expr->dtype;
  Elements out(static_cast<size_t>(kept), v.reduces() ? reduce_identity(v.reduce, t) : 0);
  Expression expression(kernel, v.expr, arguments, values);
  std::unordered_map<const Node*, int64_t> at;
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i;
    for (size_t a = stage.axes.size(); a-- > 0;) {
      at[stage.axes[a]] = rest % extent_of(stage.axes[a]);
      rest /= extent_of(stage.axes[a]);
    }
    int64_t flat = 0;
    for (const NodeRef& d : v.dims) flat = flat * extent_of(d) + at[d];
    uint64_t& to = out[static_cast<size_t>(flat)];
    const uint64_t bits = expression(at);
    if (v.reduces()) {
      const uint64_t pair[2] = {to, bits};
      to = evaluate(combiner(v.reduce), t, pair, t);
    } else {
      to = bits;
    }
  }
  return out;
}

double number(DType t, uint64_t bits) {
  return from_bits(bits, t).as_double();
}

}  // namespace

Elements elements(const Node& n) {
  const auto storage = n.storage();
  Elements out(static_cast<size_t>(n.numel()));
  const auto size = static_cast<size_t>(size_of(n.dtype));
  for (size_t i = 0; i < out.size(); i++) {
    std::memcpy(&out[i], static_cast<const char*>(storage->data()) + i * size, size);
  }
  return out;
}

NodeRef buffer_of(DType dtype, Shape shape, const Elements& values) {
  const auto size = static_cast<size_t>(size_of(dtype));
  auto storage = make_storage(values.size() * size);
  for (size_t i = 0; i < values.size(); i++) {
    std::memcpy(static_cast<char*>(storage->data()) + i * size, &values[i], size);
  }
  return buffer(dtype, std::move(shape), std::move(storage));
}

void run_kernel(const Kernel& kernel, std::vector<Elements>& arguments) {
  std::unordered_map<int, Elements> values;
  for (const auto& stage : kernel.stages) {
    for (const Value& v : stage->values) {
      values[v.id] = evaluate_value(kernel, *stage, v, arguments, values);
      if (v.slot >= 0) arguments[static_cast<size_t>(v.slot)] = values[v.id];
    }
  }
}

std::vector<Elements> run_plan(const Plan& plan) {
  std::vector<Elements> slots(plan.slots.size());
  for (size_t i = 0; i < slots.size(); i++) {
    const PlanSlot& s = plan.slots[i];
    if (s.role == PlanSlot::Role::Input) slots[i] = elements(*s.node);
  }
  for (const PlanStep& step : plan.steps) {
    std::vector<Elements> arguments;
    for (int a : step.arguments) arguments.push_back(slots[static_cast<size_t>(a)]);
    if (step.kernel) {
      run_kernel(*step.kernel, arguments);
    } else {
      Sources src;
      for (size_t i = 0; i < step.node->src.size(); i++) {
        const Node& s = *step.node->src[i];
        src.push_back(buffer_of(s.dtype, s.shape, arguments[i]));
      }
      const NodeRef one = with_src(step.node, std::move(src));
      realize_reference({&one, 1});
      arguments.back() = elements(*one);
    }
    for (size_t i = 0; i < arguments.size(); i++) {
      slots[static_cast<size_t>(step.arguments[i])] = std::move(arguments[i]);
    }
  }
  std::vector<Elements> out;
  for (int s : plan.outputs) out.push_back(slots[static_cast<size_t>(s)]);
  return out;
}

double difference(DType dtype, const Elements& got, const Elements& want, double floor) {
  double worst = got.size() == want.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(got.size(), want.size()); i++) {
    const double a = number(dtype, got[i]), b = number(dtype, want[i]);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double d = std::fabs(a - b) / std::max({std::fabs(a), std::fabs(b), floor});
    worst = std::max(worst, std::isfinite(d) ? d : std::numeric_limits<double>::infinity());
  }
  return worst;
}

}  // namespace lazuli::test
