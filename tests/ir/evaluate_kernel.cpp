#include "tests/ir/evaluate_kernel.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>

#include "core/error.h"
#include "core/evaluate.h"
#include "ir/index.h"

namespace lazuli::test {
namespace {

// One expression as a list of nodes, sources first, evaluated at one point after another.
class PointEvaluator {
 public:
  PointEvaluator(const Kernel& kernel, const std::vector<void*>& arguments,
                 const std::unordered_map<int, std::vector<uint64_t>>& values, const NodeRef& root)
      : kernel_(kernel), arguments_(arguments), values_(values) {
    visit(root, [&](const NodeRef& n) {
      number_[n.get()] = nodes_.size();
      nodes_.push_back(n);
    });
    bits_.resize(nodes_.size());
  }

  uint64_t run(const std::unordered_map<const Node*, int64_t>& axes) {
    for (size_t i = 0; i < nodes_.size(); i++) bits_[i] = one(*nodes_[i], axes);
    return bits_.back();
  }

 private:
  uint64_t of(const NodeRef& n) const { return bits_[number_.at(n.get())]; }
  int64_t integer(const NodeRef& n) const { return static_cast<int64_t>(of(n)); }

  uint64_t one(const Node& n, const std::unordered_map<const Node*, int64_t>& axes) const {
    switch (n.op) {
      case Op::Const:
        return std::get<ScalarBits>(n.arg).bits;
      case Op::Var:
        return static_cast<uint64_t>(axes.at(&n));
      case Op::Lin: {
        const Ints& c = n.ints();
        int64_t r = c[0];
        for (size_t i = 0; i < n.src.size(); i++) r += c[i + 1] * integer(n.src[i]);
        return static_cast<uint64_t>(r);
      }
      case Op::FDiv:
      case Op::FMod: {
        const int64_t x = integer(n.src[0]), d = n.integer();
        const int64_t q = x / d - (x % d < 0);
        return static_cast<uint64_t>(n.op == Op::FDiv ? q : x - q * d);
      }
      case Op::Load:
        return load(n);
      case Op::Read: {
        const Value& v = *kernel_.find_value(static_cast<int>(n.integer())).second;
        int64_t flat = 0;
        for (size_t d = 0; d < v.dims.size(); d++) {
          const int64_t i = integer(n.src[d]), size = v.dims[d]->hi + 1;
          ensure(i >= 0 && i < size,
                 fmt::format("{} is read at {} of {} in dimension {}", v.name, i, size, d));
          flat = flat * size + i;
        }
        return values_.at(v.id)[static_cast<size_t>(flat)];
      }
      default: {
        std::vector<uint64_t> args;
        for (const NodeRef& s : n.src) args.push_back(of(s));
        return evaluate(n.op, n.dtype, args, n.src.back()->dtype);
      }
    }
  }

  uint64_t load(const Node& n) const {
    if (n.src.size() > 1 && !of(n.src[1])) return 0;
    const auto slot = static_cast<size_t>(n.integer());
    const KernelArgument& a = kernel_.arguments[slot];
    const int64_t i = integer(n.src[0]);
    ensure(i >= 0 && i < a.size, fmt::format("{} is loaded at {} of {}", a.name, i, a.size));
    uint64_t bits = 0;
    const auto size = static_cast<size_t>(size_of(a.dtype));
    std::memcpy(&bits, static_cast<const char*>(arguments_[slot]) + static_cast<size_t>(i) * size,
                size);
    return bits;
  }

  const Kernel& kernel_;
  const std::vector<void*>& arguments_;
  const std::unordered_map<int, std::vector<uint64_t>>& values_;
  std::vector<NodeRef> nodes_;
  std::vector<uint64_t> bits_;
  std::unordered_map<const Node*, size_t> number_;
};

std::vector<uint64_t> evaluate_value(const Kernel& kernel, const Stage& s, const Value& v,
                                     const std::vector<void*>& arguments,
                                     const std::unordered_map<int, std::vector<uint64_t>>& values) {
  int64_t size = 1;
  for (const NodeRef& d : v.dims) size *= d->hi + 1;
  const DType t = v.expr->dtype;
  std::vector<uint64_t> r(static_cast<size_t>(size),
                          v.reduces() ? reduce_identity(v.reduce, t) : 0);
  PointEvaluator point(kernel, arguments, values, v.expr);
  std::unordered_map<const Node*, int64_t> axes;
  int64_t points = 1;
  for (const NodeRef& a : s.axes) points *= a->hi + 1;
  for (int64_t p = 0; p < points; p++) {
    int64_t rest = p;
    for (size_t a = s.axes.size(); a-- > 0;) {
      axes[s.axes[a].get()] = rest % (s.axes[a]->hi + 1);
      rest /= s.axes[a]->hi + 1;
    }
    int64_t flat = 0;
    for (const NodeRef& d : v.dims) flat = flat * (d->hi + 1) + axes.at(d.get());
    const uint64_t x = point.run(axes);
    uint64_t& to = r[static_cast<size_t>(flat)];
    if (v.reduces()) {
      const uint64_t pair[] = {to, x};
      to = evaluate(combiner(v.reduce), t, pair, t);
    } else {
      to = x;
    }
  }
  return r;
}

}  // namespace

void evaluate_kernel(const Kernel& kernel, const std::vector<void*>& arguments) {
  std::unordered_map<int, std::vector<uint64_t>> values;
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
