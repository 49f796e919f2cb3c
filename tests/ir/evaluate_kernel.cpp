#include "tests/ir/evaluate_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/evaluate.h"
#include "ir/index.h"

namespace lazuli::test {
namespace {

using LaneValues = std::unordered_map<int, std::vector<uint64_t>>;

// One expression at one point of its axes after another: its nodes, sources first, each evaluated
// again only where an axis that it depends on has moved.
class PointEvaluator {
 public:
  PointEvaluator(const Kernel& kernel, const std::vector<void*>& arguments,
                 const LaneValues& values, const std::vector<NodeRef>& axes, const NodeRef& root)
      : kernel_(kernel), arguments_(arguments), position_(axes.size()) {
    std::unordered_map<const Node*, size_t> number;
    visit(root, [&](const NodeRef& n) {
      number[n.get()] = steps_.size();
      Step step;
      step.node = n.get();
      for (const NodeRef& s : n->src) {
        step.src.push_back(number.at(s.get()));
        step.moves_with = std::max(step.moves_with, steps_[step.src.back()].moves_with);
      }
      if (n->op == Op::Var) {
        const auto a = std::find_if(axes.begin(), axes.end(),
                                    [&](const NodeRef& x) { return x.get() == n.get(); });
        ensure(a != axes.end(), "an expression reads an axis that its stage does not have");
        step.axis = static_cast<size_t>(a - axes.begin());
        step.moves_with = step.axis + 1;
      }
      if (n->op == Op::Read) {
        step.value = kernel_.find_value(static_cast<int>(n->integer())).second;
        step.numbers = &values.at(step.value->id);
      }
      steps_.push_back(std::move(step));
    });
    bits_.resize(steps_.size());
  }

  // The expression where the axes, the last of which runs fastest, are at `position`: of those
  // before `moved` it is where it was in the call before.
  uint64_t run(const std::vector<int64_t>& position, size_t moved) {
    position_ = position;
    for (size_t i = 0; i < steps_.size(); i++) {
      if (moved == 0 || steps_[i].moves_with > moved) bits_[i] = one(steps_[i]);
    }
    return bits_.back();
  }

 private:
  struct Step {
    const Node* node = nullptr;
    std::vector<size_t> src;
    size_t moves_with = 0;  // one more than the last axis that it depends on, or 0
    size_t axis = 0;
    const Value* value = nullptr;
    const std::vector<uint64_t>* numbers = nullptr;
  };

  int64_t integer(size_t step) const { return static_cast<int64_t>(bits_[step]); }

  uint64_t one(const Step& s) {
    const Node& n = *s.node;
    switch (n.op) {
      case Op::Const:
        return std::get<ScalarBits>(n.arg).bits;
      case Op::Var:
        return static_cast<uint64_t>(position_[s.axis]);
      case Op::Lin: {
        const Ints& c = n.ints();
        int64_t r = c[0];
        for (size_t i = 0; i < s.src.size(); i++) r += c[i + 1] * integer(s.src[i]);
        return static_cast<uint64_t>(r);
      }
      case Op::FDiv:
      case Op::FMod: {
        const int64_t x = integer(s.src[0]), d = n.integer();
        const int64_t q = x / d - (x % d < 0);
        return static_cast<uint64_t>(n.op == Op::FDiv ? q : x - q * d);
      }
      case Op::Load:
        return load(s);
      case Op::Read: {
        const Value& v = *s.value;
        int64_t flat = 0;
        for (size_t d = 0; d < v.dims.size(); d++) {
          const int64_t i = integer(s.src[d]), size = v.dims[d]->hi + 1;
          if (i < 0 || i >= size)
            ensure(false,
                   fmt::format("{} is read at {} of {} in dimension {}", v.name, i, size, d));
          flat = flat * size + i;
        }
        return (*s.numbers)[static_cast<size_t>(flat)];
      }
      default:
        operands_.clear();
        for (size_t i : s.src) operands_.push_back(bits_[i]);
        return evaluate(n.op, n.dtype, operands_, n.src.back()->dtype);
    }
  }

  uint64_t load(const Step& s) const {
    const Node& n = *s.node;
    if (s.src.size() > 1 && !bits_[s.src[1]]) return 0;
    const auto slot = static_cast<size_t>(n.integer());
    const KernelArgument& a = kernel_.arguments[slot];
    const int64_t i = integer(s.src[0]);
    const int64_t count = a.size * size_of(a.dtype) / size_of(n.dtype);  // a word has several
    if (i < 0 || i >= count)
      ensure(false, fmt::format("{} is loaded at {} of {}", a.name, i, count));
    uint64_t bits = 0;
    const auto size = static_cast<size_t>(size_of(n.dtype));
    std::memcpy(&bits, static_cast<const char*>(arguments_[slot]) + static_cast<size_t>(i) * size,
                size);
    return bits;
  }

  const Kernel& kernel_;
  const std::vector<void*>& arguments_;
  std::vector<int64_t> position_;
  std::vector<Step> steps_;
  std::vector<uint64_t> bits_, operands_;
};

std::vector<uint64_t> evaluate_value(const Kernel& kernel, const Stage& s, const Value& v,
                                     const std::vector<void*>& arguments,
                                     const LaneValues& values) {
  int64_t size = 1, points = 1;
  for (const NodeRef& d : v.dims) size *= d->hi + 1;
  for (const NodeRef& a : s.axes) points *= a->hi + 1;
  const DType t = v.expr->dtype;
  std::vector<uint64_t> r(static_cast<size_t>(size),
                          v.reduces() ? reduce_identity(v.reduce, t) : 0);
  // A place is the first point at which what it is the place of is reached.
  const Value* const extreme = v.place_of < 0 ? nullptr : kernel.find_value(v.place_of).second;
  if (extreme) std::fill(r.begin(), r.end(), to_bits(Scalar(-1), t));
  PointEvaluator point(kernel, arguments, values, s.axes, extreme ? extreme->expr : v.expr);
  const auto along = std::find_if(s.axes.begin(), s.axes.end(),
                                  [&](const NodeRef& x) { return x.get() == v.expr.get(); });
  std::vector<int64_t> position(s.axes.size(), 0), stride(s.axes.size(), 0);
  int64_t step = 1;
  for (size_t d = v.dims.size(); d-- > 0; step *= v.dims[d]->hi + 1) {
    for (size_t a = 0; a < s.axes.size(); a++) {
      if (s.axes[a].get() == v.dims[d].get()) stride[a] += step;
    }
  }
  size_t moved = 0;
  for (int64_t p = 0; p < points; p++) {
    int64_t flat = 0;
    for (size_t a = 0; a < position.size(); a++) flat += position[a] * stride[a];
    const uint64_t x = point.run(position, moved);
    uint64_t& to = r[static_cast<size_t>(flat)];
    if (extreme) {
      const uint64_t most = values.at(extreme->id)[static_cast<size_t>(flat)];
      const DType of = extreme->expr->dtype;
      const uint64_t pair[] = {x, most}, both[] = {x, x}, nan[] = {most, most};
      const auto holds = [&](Op o, std::span<const uint64_t> args) {
        return evaluate(o, DType::Bool, args, of) != 0;
      };
      const bool reached = holds(Op::Eq, pair) || (holds(Op::Ne, both) && holds(Op::Ne, nan));
      if (reached && from_bits(to, t).as_int() < 0) {
        to = to_bits(Scalar(position[static_cast<size_t>(along - s.axes.begin())]), t);
      }
    } else if (v.reduces()) {
      const uint64_t pair[] = {to, x};
      to = evaluate(combiner(v.reduce), t, pair, t);
    } else {
      to = x;
    }
    for (moved = position.size(); moved-- > 0;) {
      if (++position[moved] <= s.axes[moved]->hi) break;
      position[moved] = 0;
    }
  }
  return r;
}

}  // namespace

void evaluate_kernel(const Kernel& kernel, const std::vector<void*>& arguments) {
  LaneValues values;
  for (const auto& s : kernel.stages) {
    for (const Value& v : s->values) {
      values[v.id] = evaluate_value(kernel, *s, v, arguments, values);
      if (v.slot < 0) continue;
      const auto size = static_cast<size_t>(size_of(v.expr->dtype));
      char* to = static_cast<char*>(arguments[static_cast<size_t>(v.slot)]);
      for (uint64_t bits : values[v.id]) {
        std::memcpy(to, &bits, size);
        to += size;
      }
    }
  }
}

}  // namespace lazuli::test
